/** Options: known by name, right by value, everywhere. */

import test from 'ava'
import {
  createEmbeddings,
  EmbedError,
  listModels,
  NativeEmbeddingService,
  TextEmbedding,
  type TextEmbeddingLoadOptions,
} from 'simile'
import { MINILM, real, tiny } from './helpers/models.ts'
import { difference, norm } from './helpers/vectors.ts'

const FOLDER = tiny('tiny-bert-mean-pooler')
const model = await TextEmbedding.load(FOLDER)

/** Wrong options of opening a model, with what the message must say. */
const WRONG: [Record<string, unknown>, RegExp][] = [
  [{ maxlength: 3 }, /unknown option "maxlength".*maxLength/],
  [{ maxLength: 0 }, /maxLength.*at least 1, not 0/],
  [{ maxLength: -1 }, /maxLength/],
  [{ maxLength: '512' }, /maxLength.*"512"/],
  [{ maxLength: Number.NaN }, /maxLength.*NaN/],
  [{ batchSize: 0 }, /batchSize/],
  [{ normalize: 'yes' }, /normalize must be true or false, not "yes"/],
  [{ truncate: 'middle' }, /truncate must be one of end, start, error, not "middle"/],
  [{ device: 'gpu' }, /device must be one of cpu, cuda, cuda:N, metal .*not "gpu"/],
  [{ device: 'cuda:N' }, /device must be one of cpu, cuda, cuda:N, metal .*not "cuda:N"/],
  [{ device: 'cuda:' }, /device must be one of/],
  [{ precision: 'int8' }, /precision must be one of f32, f16, bf16, not "int8"/],
  [{ threads: 0 }, /threads/],
  [{ threads: 2.5 }, /threads/],
  [{ threads: 513 }, /threads.*512/],
  [{ revision: '' }, /revision/],
  [{ cacheDir: 7 }, /cacheDir/],
  [{ descriptor: 'mean' }, /descriptor|object/],
  [{ descriptor: { pooling: 'median' } }, /pooling must be one of cls, mean, .*"median"/],
  [{ descriptor: { pooling: [] } }, /pooling/],
  [{ descriptor: { prompt: 'x' } }, /unknown option "prompt"/],
  [{ descriptor: { matryoshka: 8 } }, /matryoshka/],
]

for (const [options, message] of WRONG) {
  test(`opening a model with ${JSON.stringify(options)}`, async (t) => {
    const loaded = await TextEmbedding.load(FOLDER, options as TextEmbeddingLoadOptions).catch((error) => error)
    t.true(EmbedError.is(loaded, 'InvalidInput'), String(loaded))
    t.regex((loaded as Error).message, message)
    // A service finds the same, at once where it can and at the first request where the model has to be known.
    const served = await (async () => new NativeEmbeddingService({ model: FOLDER, ...options }).ensureLoaded())().catch(
      (error) => error,
    )
    t.true(EmbedError.is(served, 'InvalidInput'), String(served))
    t.regex((served as Error).message, message)
  })
}

test('a model must be named by a string', async (t) => {
  for (const name of ['', ' ', 7, null, {}] as unknown as string[]) {
    await t.throwsAsync(TextEmbedding.load(name), { code: 'InvalidInput', message: /model/ })
    t.throws(() => new NativeEmbeddingService({ model: name }), { code: 'InvalidInput', message: /model/ })
  }
  const swapped = TextEmbedding.load({ cacheDir: FOLDER } as unknown as string)
  await t.throwsAsync(swapped, { code: 'InvalidInput', message: /options are the second argument/ })
})

test('from JavaScript, too, a model is made by load only', (t) => {
  const Constructor = TextEmbedding as unknown as new () => TextEmbedding
  t.throws(() => new Constructor(), { code: 'InvalidInput', message: /TextEmbedding\.load/ })
})

test('options that are undefined are absent', async (t) => {
  const plain = await TextEmbedding.load(FOLDER, { maxLength: undefined, revision: undefined, descriptor: undefined })
  t.is(plain.maxLength, model.maxLength)
  t.is((await plain.embed(['a'], { signal: undefined, dimensions: undefined, output: undefined })).length, 1)
})

test('an option of a call that is unknown or wrong', async (t) => {
  for (const [options, message] of [
    [{ batchsize: 1 }, /unknown option "batchsize" of embed; it knows batchSize, dimensions/],
    [{ dimensions: 0 }, /dimensions.*at least 1/],
    [{ dimensions: 1.5 }, /dimensions/],
    [{ output: 'arrays' }, /output must be one of rows, flat/],
    [{ priority: 1 }, /priority must be one of interactive, bulk/],
    [{ model: 'a/b' }, /unknown option "model"/],
    [null, /options must be a plain object, not null/],
    [['batchSize'], /options must be a plain object, not an array/],
    [AbortSignal.abort(), /options must be a plain object, not an object \(AbortSignal\)/],
    [new Map([['dimensions', 3]]), /options must be a plain object, not an object \(Map\)/],
    [Object.create({ dimensions: 3 }), /options must be a plain object/],
  ] as const) {
    await t.throwsAsync(model.embed(['a'], options as never), { code: 'InvalidInput', message })
  }
  await t.throwsAsync(model.tokenCount(['a'], { batchSize: 1 } as never), {
    code: 'InvalidInput',
    message: /of tokenCount/,
  })
})

test('dimensions: only those that the model gives', async (t) => {
  await t.throwsAsync(model.embed(['a'], { dimensions: 16 }), { code: 'InvalidInput', message: /16 .*32 only/ })
  await t.throwsAsync(model.embed(['a'], { dimensions: 33 }), { code: 'InvalidInput', message: /33/ })
  await t.throwsAsync(model.embed([], { dimensions: 33 }), { code: 'InvalidInput', message: /33/ })
  t.is((await model.embed(['a'], { dimensions: 32 })).dimensions, 32)

  const cut = await TextEmbedding.load(FOLDER, { descriptor: { matryoshka: [8, 16] } })
  await t.throwsAsync(cut.embed(['a'], { dimensions: 12 }), { code: 'InvalidInput', message: /8, 16 and 32/ })
  const [whole, part] = [await cut.embed(['a']), await cut.embed(['a'], { dimensions: 8 })]
  t.is(part.dimensions, 8)
  t.not(part.contractId, whole.contractId)
  const head = (whole[0] as Float32Array).slice(0, 8)
  const scale = norm(head)
  t.true(Math.abs(norm(part[0] as Float32Array) - 1) < 1e-6, 'normalised after the cut')
  t.true(
    difference(
      part[0] as Float32Array,
      head.map((x) => x / scale),
    ) < 1e-6,
    'the first values, no others',
  )
})

test('dimensions of a service are checked against the registry when it is made', (t) => {
  t.throws(() => new NativeEmbeddingService({ dimensions: 256 }), {
    code: 'InvalidInput',
    message: /256 dimensions are not available, .*all-MiniLM-L6-v2 gives 384 only/,
  })
  t.throws(() => new NativeEmbeddingService({ dimensions: 0 }), { code: 'InvalidInput' })
  t.is(new NativeEmbeddingService({ dimensions: 384 }).modelConfig().dimensions, 384)
})

test('maxLength is capped at the positions, and long texts are cut there', async (t) => {
  const short = await TextEmbedding.load(FOLDER, { maxLength: 8 })
  t.is(short.maxLength, 8)
  t.deepEqual(await short.tokenCount(['a b c d e f g h i j k']), [8])
  t.is(short.descriptor.origins.maxLength, 'option')
  t.is((await TextEmbedding.load(FOLDER, { maxLength: 100_000 })).maxLength, 64)
  await t.throwsAsync(TextEmbedding.load(FOLDER, { maxLength: 2 }), { code: 'InvalidInput', message: /at least 3/ })
})

test('what is in force can be read back, with where it came from', async (t) => {
  const minilm = await TextEmbedding.load(MINILM, { ...real(MINILM), normalize: false })
  t.like(minilm.descriptor, {
    id: MINILM,
    modelType: 'bert',
    maxLength: 256,
    dimensions: 384,
    normalize: false,
    truncate: 'end',
    queryTemplate: null,
    passageTemplate: null,
    matryoshka: false,
    license: 'Apache-2.0',
  })
  t.deepEqual(minilm.descriptor.pooling, ['mean'])
  t.like(minilm.descriptor.origins, { normalize: 'option', pooling: 'files', maxLength: 'files' })
  t.regex(minilm.descriptor.revision ?? '', /^[0-9a-f]{40}$/)
  t.throws(() => Object.assign(minilm.descriptor, { maxLength: 1 }))
})

test('the contract id says which vectors may be compared', async (t) => {
  const id = async (options: TextEmbeddingLoadOptions) => (await TextEmbedding.load(FOLDER, options)).contract
  const plain = await id({})
  t.is(await id({ batchSize: 7, threads: 2 }), plain, 'what changes no vector changes no contract')
  const others = await Promise.all([
    id({ normalize: false }),
    id({ maxLength: 8 }),
    id({ truncate: 'start' }),
    id({ descriptor: { pooling: 'cls' } }),
    id({ descriptor: { queryTemplate: 'q: {text}' } }),
  ])
  t.is(new Set([plain, ...others]).size, 6)
  t.is((await model.embed(['a'])).contractId, plain)
})

test('lists in a descriptor: every element is checked, a hole too', async (t) => {
  for (const [descriptor, message] of [
    [{ pooling: Array(1) }, /pooling must be one of .*not undefined/],
    [{ pooling: ['mean', undefined] }, /pooling must be one of/],
    [{ pooling: ['mean', 7] }, /pooling must be one of .*not 7/],
    [{ matryoshka: Array(2) }, /matryoshka must be a whole number.*not undefined/],
    [{ matryoshka: [8, '16'] }, /matryoshka.*"16"/],
    [{ matryoshka: [8, 0] }, /matryoshka.*at least 1/],
    [{ matryoshka: [8, 2 ** 40] }, /matryoshka.*at most/],
  ] as const) {
    await t.throwsAsync(TextEmbedding.load(FOLDER, { descriptor } as never), { code: 'InvalidInput', message })
  }
})

test('a value of 100,000 characters is not repeated in a message', async (t) => {
  const long = 'x'.repeat(100_000)
  const path = `./${'x'.repeat(20_000)}`
  const service = new NativeEmbeddingService({ model: FOLDER })
  const CALLS: [string, () => Promise<unknown>][] = [
    ['a model', () => TextEmbedding.load(long)],
    ['a path', () => TextEmbedding.load(path)],
    ['a path of a service', () => new NativeEmbeddingService({ model: path }).embed(['a'])],
    ['another model', () => service.embed(['a'], { model: path })],
    ['a revision', () => TextEmbedding.load(FOLDER, { revision: long })],
    ['a cache', () => TextEmbedding.load('org/name', { cacheDir: path })],
    ['an option', () => TextEmbedding.load(FOLDER, { [long]: 1 })],
    ['a template', () => TextEmbedding.load(FOLDER, { descriptor: { queryTemplate: long } })],
    ['a pooling', () => TextEmbedding.load(FOLDER, { descriptor: { pooling: long as 'mean' } })],
    ['a role', () => service.embedWithRole(['a'], long as 'query')],
    ['a priority', () => service.embed(['a'], { priority: long as 'bulk' })],
  ]
  for (const [what, call] of CALLS) {
    const error = await t.throwsAsync(async () => call(), undefined, what)
    t.true(EmbedError.is(error), `${what}: ${error?.message.slice(0, 200)}`)
    t.true((error?.message.length ?? 0) <= 4100, `${what}: ${error?.message.length} characters`)
  }
})

test('an empty list is checked as a full one is', async (t) => {
  const instructed = await TextEmbedding.load(FOLDER, { descriptor: { queryTemplate: '{instruction}: {text}' } })
  for (const texts of [[], ['a']]) {
    for (const call of [
      () => model.embed(texts, { instruction: 'find' }),
      () => model.queryEmbed(texts, { instruction: 'find', output: 'flat' }),
      () => model.tokenCount(texts, { instruction: 'find' }),
      () => instructed.queryEmbed(texts),
      () => instructed.queryTokenCount(texts),
      () => instructed.passageEmbed(texts, { instruction: 'find' }),
    ]) {
      t.like(await t.throwsAsync(call(), { code: 'InvalidInput', message: /instruction/ }), { option: 'instruction' })
    }
    t.is((await instructed.queryEmbed(texts, { instruction: 'find' })).length, texts.length)
  }
})

test('what is known of a model cannot be changed by those who are told', async (t) => {
  const cut = await TextEmbedding.load(FOLDER, { descriptor: { matryoshka: [8, 16] } })
  const service = new NativeEmbeddingService({ model: FOLDER })
  await service.ensureLoaded()
  const [entry] = listModels()
  const frozen: [string, unknown][] = [
    ['descriptor', cut.descriptor],
    ['descriptor.pooling', cut.descriptor.pooling],
    ['descriptor.matryoshka', cut.descriptor.matryoshka],
    ['descriptor.origins', cut.descriptor.origins],
    ['a service’s descriptor.pooling', service.descriptor?.pooling],
    ['a service’s descriptor.origins', service.descriptor?.origins],
    ['an entry of the registry', entry],
    ['its pooling', entry?.pooling],
    ['its matryoshka', entry?.matryoshka],
    ['tokens of a result', (await cut.embed(['a'])).tokens],
    ['one of them', (await cut.embed(['a'])).tokens[0]],
    ['tokens of a flat result', (await cut.embed(['a'], { output: 'flat' })).tokens],
    ['tokens of no texts', (await cut.embed([])).tokens],
    ['tokens of createEmbeddings', createEmbeddings([], { tokens: [{ total: 1, embedded: 1 }] }).tokens],
  ]
  t.deepEqual(
    frozen.filter(([, value]) => !Object.isFrozen(value)).map(([what]) => what),
    [],
  )
  const tokens = [{ total: 1, embedded: 1 }]
  createEmbeddings([], { tokens })
  t.false(Object.isFrozen(tokens[0]), 'what the caller gave stays the caller’s')
})
