/** Services: the one that computes here, and one of your own. */

import test from 'ava'
import {
  BaseEmbeddingService,
  CachedEmbeddingService,
  createEmbeddings,
  DEFAULT_MODEL,
  type EmbeddingService,
  type Embeddings,
  NativeEmbeddingService,
  type ServiceEmbedOptions,
} from 'simile'
import { runModule } from './helpers/child.ts'
import { real, tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const FOLDER = tiny('tiny-bert-mean-pooler')

test('the shortest use: default model, three lines', async (t) => {
  const service = new NativeEmbeddingService(real(DEFAULT_MODEL))
  const [query] = await service.embedQuery(['what is a vector database?'])
  t.is(query?.length, 384)
  t.deepEqual(service.modelConfig(), { model: DEFAULT_MODEL, dimensions: 384 })
  t.is(service.name, 'native')
})

test('making a service loads nothing; ensureLoaded loads; then it is loaded', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.is(service.descriptor, undefined)
  t.is(service.stats().calls, 0)
  t.is(service.modelConfig().dimensions, null, 'not known before it is loaded')
  await service.ensureLoaded()
  t.is(service.descriptor?.dimensions, 32)
  t.is(service.modelConfig().dimensions, 32)
  await service.embed(['a', 'b'])
  t.like(service.stats(), { calls: 1, failed: 0, texts: 2, truncated: 0 })
})

test('concurrent first requests share one load', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => service.embed([`text ${i}`])))
  t.is(all.length, 50)
  t.is(service.stats().calls, 50)
})

test('one service, one model', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.true(service.supportsModel(FOLDER))
  t.false(service.supportsModel(DEFAULT_MODEL))
  t.is((await service.embed(['a'], { model: FOLDER })).length, 1)
  await t.throwsAsync(service.embedQuery(['a'], { model: DEFAULT_MODEL }), {
    code: 'InvalidInput',
    message: new RegExp(`${FOLDER}, not with ${DEFAULT_MODEL}`),
  })
})

test('a failed load is remembered by its service, and by no other', async (t) => {
  const service = new NativeEmbeddingService({ model: './no/such/folder' })
  const first = await t.throwsAsync(service.ensureLoaded(), {
    code: 'ModelInitialization',
    message: /no\/such\/folder/,
  })
  const second = await t.throwsAsync(service.embed(['a']), { code: 'ModelInitialization' })
  t.is(second?.message, first?.message)
  t.is((await new NativeEmbeddingService({ model: FOLDER }).embed(['a'])).length, 1)
})

test('an aborted wait does not stop the load', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const controller = new AbortController()
  const waiting = service.ensureLoaded({ signal: controller.signal })
  controller.abort(new Error('enough'))
  await t.throwsAsync(waiting, { message: 'enough' })
  await service.ensureLoaded()
  t.is(service.descriptor?.dimensions, 32)
})

test('dispose lets requests in progress finish and refuses later ones', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const pending = service.embed(Array(500).fill('a text that takes a moment'))
  const disposed = service.dispose()
  await t.throwsAsync(service.embed(['a']), { code: 'ModelNotLoaded', message: /disposed; make a new service/ })
  t.is((await pending).length, 500)
  await disposed
  await service.dispose()
  await t.throwsAsync(service.ensureLoaded(), { code: 'ModelNotLoaded' })
  t.is(service.descriptor, undefined)
})

test('two services of one model do not share a disposal', async (t) => {
  const [one, other] = [new NativeEmbeddingService({ model: FOLDER }), new NativeEmbeddingService({ model: FOLDER })]
  await Promise.all([one.ensureLoaded(), other.ensureLoaded()])
  await one.dispose()
  t.is((await other.embed(['a'])).length, 1)
})

test('the model-local cache is empty for models that keep none', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.is(service.cacheSize(), 0)
  t.is(await service.saveCache(), 0)
})

/** A service as somebody else would write it. */
class LengthService extends BaseEmbeddingService {
  readonly name: string = 'length'
  readonly seen: (readonly [readonly string[], ServiceEmbedOptions | undefined])[] = []

  async embed(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    this.seen.push([texts, options])
    return createEmbeddings(texts.map((text) => Float32Array.of(text.length)))
  }

  supportsModel(): boolean {
    return true
  }
}

test('a service of your own has the limits, the prompts and the helpers', async (t) => {
  const service = new LengthService()
  const through: EmbeddingService = service
  const model = 'intfloat/multilingual-e5-small'
  t.deepEqual((await through.embedQuery(['ab'], { model })).toArrays(), [['query: ab'.length]])
  t.deepEqual((await through.embedPassage(['ab'], { model })).toArrays(), [['passage: ab'.length]])
  t.deepEqual((await through.embedQuery(['ab'])).toArrays(), [[2]], 'the default model has no prompt')
  t.deepEqual(Array.from(await through.embedOne('abc')), [3])
  t.deepEqual(
    service.seen.map(([texts, options]) => [texts[0], options?.priority]),
    [
      ['query: ab', 'interactive'],
      ['passage: ab', 'bulk'],
      ['ab', 'interactive'],
      ['abc', 'interactive'],
    ],
  )
  await t.throwsAsync(through.embedQuery([]), { code: 'InvalidInput' })
  await t.throwsAsync(through.embedPassage(['x'.repeat(32769)]), { code: 'TextTooLong' })
  await t.notThrowsAsync(through.embedQuery(['x'.repeat(32768)], { model }))
  await t.notThrowsAsync(through.ensureLoaded())
  t.deepEqual(through.modelConfig(model), { model, dimensions: 384 })
})

test('embedOne is interactive unless a priority is named', async (t) => {
  const service = new LengthService()
  await service.embedOne('a', { priority: undefined })
  await service.embedOne('a', { priority: 'bulk' })
  t.deepEqual(
    service.seen.map(([, options]) => options?.priority),
    ['interactive', 'bulk'],
  )
})

test('a service of your own on a platform without the addon', async (t) => {
  const { status, stdout, stderr } = await runModule(
    `import { BaseEmbeddingService, createEmbeddings, NativeEmbeddingService } from 'simile'
     class Plain extends BaseEmbeddingService {
       name = 'plain'
       supportsModel() { return true }
       async embed(texts) { return createEmbeddings(texts.map((text) => Float32Array.of(text.length))) }
     }
     class Whole extends Plain {
       modelConfig(model = 'mine') { return { model, dimensions: 1 } }
       prompt(role) { return { template: role === 'query' ? 'q: {text}' : null, defaultInstruction: null } }
     }
     const said = (error) => [error.code, /plain/.test(error.message), /overrides prompt and modelConfig/.test(error.message)].join()
     const attempt = async (work) => { try { return JSON.stringify(await work()) } catch (error) { return said(error) } }
     const plain = new Plain()
     const whole = new Whole()
     for (const work of [
       () => plain.embed(['ab']),
       () => plain.embedWithRole(['ab'], 'generic'),
       () => plain.embedQuery(['ab']),
       () => plain.modelConfig(),
       () => whole.embedQuery(['ab']),
       () => whole.embedPassage(['ab']),
       () => whole.modelConfig(),
       () => new NativeEmbeddingService() && 'made',
       () => new NativeEmbeddingService({ dimensions: 384 }),
     ]) console.log(await attempt(work))`,
    { env: { NAPI_RS_NATIVE_LIBRARY_PATH: '/no/addon/here.node' } },
  )
  t.is(stderr, '')
  t.is(status, 0)
  const asks = 'ModelInitialization,true,true'
  t.deepEqual(stdout.trim().split('\n'), [
    '[[2]]',
    '[[2]]',
    asks,
    asks,
    '[[5]]',
    '[[2]]',
    '{"model":"mine","dimensions":1}',
    '"made"',
    'ModelInitialization,false,false',
  ])
})

test('embedOne of a service that breaks its word is an internal error, not an invented vector', async (t) => {
  class Broken extends LengthService {
    override async embed(texts: readonly string[]): Promise<Embeddings> {
      return createEmbeddings([...texts, ...texts].slice(1, texts.length).map(() => Float32Array.of(0)))
    }
  }
  await t.throwsAsync(new Broken().embedOne('a'), { code: 'Internal', message: /0 vectors for one text/ })
})

test('the order of calls is the order of results', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const texts = Array.from({ length: 300 }, (_, i) => 'ab '.repeat((i * 37) % 60))
  const together = (await service.embed(texts)).map(bytes)
  const alone = await Promise.all(texts.map(async (text) => bytes(await service.embedOne(text))))
  t.deepEqual(together, alone)
})

test('the base puts each text into the registry’s prompt of its role, once', async (t) => {
  const searching = 'Represent this sentence for searching relevant passages: '
  const PROMPTS: [string, string, string][] = [
    ['BAAI/bge-small-en-v1.5', searching, ''],
    ['BAAI/bge-base-en-v1.5', searching, ''],
    ['intfloat/multilingual-e5-small', 'query: ', 'passage: '],
    ['sentence-transformers/all-MiniLM-L6-v2', '', ''],
    ['nobody/knows-it', '', ''],
  ]
  for (const [model, query, passage] of PROMPTS) {
    for (const [role, prompt] of [
      ['query', query],
      ['passage', passage],
      ['generic', ''],
    ] as const) {
      const service = new LengthService()
      await service.embedWithRole(['query: text'], role, { model })
      t.deepEqual(service.seen[0]?.[0], [`${prompt}query: text`], `${model}, ${role}`)
    }
  }
})

test('an instruction of a service on the base goes into its prompt, or is refused', async (t) => {
  class Instructed extends LengthService {
    constructor(
      readonly template: string | null,
      readonly defaultInstruction: string | null,
    ) {
      super()
    }
    protected override prompt() {
      return { template: this.template, defaultInstruction: this.defaultInstruction }
    }
  }
  const CASES: [string | null, string | null, string | undefined, string | RegExp][] = [
    ['{instruction}: {text}', 'find', undefined, 'find: {text}'],
    ['{instruction}: {text}', 'find', 'name {text}', 'name {text}: {text}'],
    ['{instruction}: {text}', 'find', '', ': {text}'],
    ['{instruction}: {text}', null, undefined, /needs an instruction/],
    ['query: {text}', null, 'find', /has no place for one/],
    [null, null, 'find', /has no place for one/],
    [`${'long '.repeat(1000)}{text}`, null, 'find', /^.{0,450}$/],
  ]
  for (const [template, defaultInstruction, instruction, expected] of CASES) {
    const service = new Instructed(template, defaultInstruction)
    const call = service.embedQuery(['{text}'], { instruction })
    if (expected instanceof RegExp) {
      t.like(await t.throwsAsync(call, { code: 'InvalidInput', message: expected }), { option: 'instruction' })
      t.is(service.seen.length, 0)
    } else {
      await call
      t.deepEqual(service.seen[0]?.[0], [expected])
      t.is(service.seen[0]?.[1]?.instruction, undefined, 'the prompt is made: there is nothing left to instruct')
    }
  }
})

test('embedQuery and embedPassage are embedWithRole, so that overriding it is enough', async (t) => {
  class Roles extends LengthService {
    readonly roles: string[] = []
    override embedWithRole(texts: readonly string[], role: 'query', options?: ServiceEmbedOptions) {
      this.roles.push(role)
      return super.embedWithRole(texts, role, options)
    }
  }
  const service = new Roles()
  await service.embedQuery(['a'])
  await service.embedPassage(['a'])
  t.deepEqual(service.roles, ['query', 'passage'])
})

test('the base checks texts, then the role, then the instruction, and then asks embed', async (t) => {
  const service = new LengthService()
  const CASES: [unknown, unknown, unknown, object][] = [
    [[], 'document', { instruction: 'x' }, { limit: 1, unit: 'texts' }],
    [Array(1001).fill(7), 'document', {}, { limit: 1000, unit: 'texts' }],
    [['a', 7], 'document', {}, { index: 1, option: 'texts' }],
    [['x'.repeat(32769), 7], 'document', {}, { code: 'TextTooLong', index: 0 }],
    [['a'], 'document', { instruction: 'x' }, { option: 'role' }],
    [['a'], 'document', 7, { option: 'role' }],
    [['a'], 'query', { instruction: 'x' }, { option: 'instruction' }],
    [['a'], 'query', 7, { code: 'InvalidInput' }],
  ]
  for (const [texts, role, options, expected] of CASES) {
    const call = service.embedWithRole(texts as string[], role as 'query', options as ServiceEmbedOptions)
    t.like(await t.throwsAsync(call), expected, JSON.stringify(expected))
  }
  t.is(service.seen.length, 0)
  await service.embedQuery(['a'], { instruction: undefined, unheardOf: 1 } as ServiceEmbedOptions)
  t.like(service.seen[0]?.[1], { unheardOf: 1 }, 'options of its own are for the service to check')
})

test('ensureLoaded embeds nothing, and the model-local cache stays empty after a load', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  await service.ensureLoaded()
  t.like(service.stats(), { calls: 0, texts: 0, tokens: 0, batches: 0 })
  t.is(await service.saveCache(), 0)
  t.is(service.cacheSize(), 0)
})

test('dimensions that the loaded model does not give are told by ensureLoaded already', async (t) => {
  const wrong = new NativeEmbeddingService({ model: FOLDER, dimensions: 16 })
  const loading = await t.throwsAsync(wrong.ensureLoaded(), { code: 'InvalidInput', message: /16 dimensions.*32 only/ })
  t.like(loading, { option: 'dimensions', limit: 32, actual: 16, unit: 'dimensions' })
  const embedding = await t.throwsAsync(wrong.embed(['a']), { code: 'InvalidInput' })
  t.like(embedding, { option: 'dimensions', limit: 32, actual: 16 })
  const right = new NativeEmbeddingService({ model: FOLDER, dimensions: 16, descriptor: { matryoshka: [16] } })
  await t.notThrowsAsync(right.ensureLoaded())
})

test('a model that is no string is refused by everything that takes one', (t) => {
  const native = new NativeEmbeddingService({ model: FOLDER })
  for (const service of [native, new CachedEmbeddingService(native), new LengthService()]) {
    for (const wrong of [1, '', null, {}, 'x'.repeat(100_000)] as unknown as string[]) {
      const error = t.throws(() => service.modelConfig(wrong), { code: 'InvalidInput', message: /^model must/ })
      t.true((error?.message.length ?? 0) < 500)
      if (service instanceof LengthService) continue
      t.throws(() => service.supportsModel(wrong), { code: 'InvalidInput', message: /^model must/ })
    }
  }
})
