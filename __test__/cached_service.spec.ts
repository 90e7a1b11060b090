/** The cache around a service: what is found, what is asked for, what is never mixed. */

import test from 'ava'
import {
  BaseEmbeddingService,
  CachedEmbeddingService,
  type CachedEmbeddingServiceOptions,
  createEmbeddings,
  DEFAULT_CACHE_CAPACITY,
  EMBEDDING_ROLES,
  type EmbeddingRole,
  type EmbeddingService,
  type Embeddings,
  EmbedError,
  type ModelConfig,
  NativeEmbeddingService,
  OverloadedError,
  type ServiceEmbedOptions,
  TextTooLongError,
} from 'simile'
import { gate } from './helpers/gate.ts'
import { tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const FOLDER = tiny('tiny-bert-cls')
const LENGTH = 'text'.length

interface Call {
  texts: readonly string[]
  role: EmbeddingRole
  options: ServiceEmbedOptions | undefined
}

/** A service as somebody else writes it, from the interface alone: a row is the text's length and the role's number. */
class Plain implements EmbeddingService {
  readonly name: string = 'plain'
  readonly calls: Call[] = []
  contractId = 'contract-1'
  dimensions = 2
  answer: (texts: readonly string[], role: EmbeddingRole, options?: ServiceEmbedOptions) => Promise<Embeddings> =
    async (texts, role) =>
      createEmbeddings(
        texts.map((text) =>
          Float32Array.of(text.length, EMBEDDING_ROLES.indexOf(role), ...Array(this.dimensions - 2).fill(0)),
        ),
        {
          tokens: texts.map((text) => ({ total: text.length, embedded: Math.min(text.length, 9) })),
          ...this.contract(),
        },
      )

  contract() {
    return { contractId: this.contractId }
  }
  embed(texts: readonly string[], options?: ServiceEmbedOptions) {
    return this.embedWithRole(texts, 'generic', options)
  }
  async embedOne(text: string, options?: ServiceEmbedOptions) {
    return (await this.embed([text], options))[0] as Float32Array
  }
  embedQuery(texts: readonly string[], options?: ServiceEmbedOptions) {
    return this.embedWithRole(texts, 'query', options)
  }
  embedPassage(texts: readonly string[], options?: ServiceEmbedOptions) {
    return this.embedWithRole(texts, 'passage', options)
  }
  async embedWithRole(texts: readonly string[], role: EmbeddingRole, options?: ServiceEmbedOptions) {
    this.calls.push({ texts: [...texts], role, options })
    return this.answer(texts, role, options)
  }
  async ensureLoaded() {}
  supportsModel(model: string) {
    return model === 'mine'
  }
  modelConfig(model = 'mine'): ModelConfig {
    return { model, dimensions: null }
  }
}

function around(options?: CachedEmbeddingServiceOptions): { inner: Plain; service: CachedEmbeddingService } {
  const inner = new Plain()
  return { inner, service: new CachedEmbeddingService(inner, options) }
}

/** What the inner service was asked for, call by call. */
const asked = (inner: Plain) => inner.calls.map(({ texts }) => texts.join(' '))

/** Waits until a condition holds, a turn of the event loop at a time. */
async function until(condition: () => boolean) {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve))
}

test('misses are asked for in the caller’s order, each once; hits are not', async (t) => {
  const { inner, service } = around()
  await service.embed(['b', 'ccc'])
  const rows = await service.embed(['a', 'ccc', 'dddd', 'a', 'b', 'ee'])
  t.deepEqual(
    rows.map((row) => row[0]),
    [1, 3, 4, 1, 1, 2],
  )
  t.deepEqual(asked(inner), ['b ccc', 'a dddd ee'])
  t.deepEqual(service.cacheStats(), {
    hits: 2,
    misses: 6,
    entries: 5,
    bytes: 5 * (8 + 1000),
    capacity: DEFAULT_CACHE_CAPACITY,
    evictions: 0,
  })
})

test('a result says the same of a hit as of a miss', async (t) => {
  const { service } = around()
  const texts = ['a', 'cut at nine characters', 'b']
  const first = await service.embed(texts)
  const mixed = await service.embed([...texts, 'more'])
  t.like(first, { dimensions: 2, truncated: 1, contractId: 'contract-1' })
  t.like(mixed, { dimensions: 2, truncated: 1, contractId: 'contract-1' })
  t.deepEqual(mixed.tokens.slice(0, 3), first.tokens)
  t.deepEqual(mixed.toArrays().slice(0, 3), first.toArrays())
  t.true(Array.isArray(mixed))
  t.throws(() => Object.assign(mixed.tokens[0] as object, { total: 7 }))
})

test('rows are copied on the way in and on the way out', async (t) => {
  const { inner, service } = around()
  const given: Float32Array[] = []
  inner.answer = async (texts) => {
    given.push(...texts.map(() => Float32Array.of(1, 2)))
    return createEmbeddings(given)
  }
  const [first] = await service.embed(['a'])
  given[0]?.fill(7)
  first?.fill(8)
  const [one, other] = await service.embed(['a', 'a'])
  t.deepEqual(
    [Array.from(one as Float32Array), Array.from(other as Float32Array)],
    [
      [1, 2],
      [1, 2],
    ],
  )
  t.not(one?.buffer, other?.buffer)
  one?.fill(9)
  t.deepEqual(Array.from((await service.embed(['a']))[0] as Float32Array), [1, 2])
  t.is(inner.calls.length, 1)
})

test('what changes a vector is in the key, and what does not is not', async (t) => {
  const { inner, service } = around()
  const { signal } = new AbortController()
  const SAME: [string, () => Promise<unknown>][] = [
    ['embed again', () => service.embed(['text'])],
    ['embedOne', () => service.embedOne('text')],
    ['the role by name', () => service.embedWithRole(['text'], 'generic')],
    ['another priority', () => service.embed(['text'], { priority: 'interactive' })],
    ['another batch size', () => service.embed(['text'], { batchSize: 1 })],
    ['a signal', () => service.embed(['text'], { signal })],
    ['the model by its name', () => service.embed(['text'], { model: 'mine' })],
    ['options that are undefined', () => service.embed(['text'], { instruction: undefined })],
  ]
  const OTHER: [string, () => Promise<unknown>][] = [
    ['a query', () => service.embedQuery(['text'])],
    ['a passage', () => service.embedPassage(['text'])],
    ['an instruction', () => service.embedQuery(['text'], { instruction: 'find' })],
    ['another instruction', () => service.embedQuery(['text'], { instruction: '' })],
    ['another model', () => service.embed(['text'], { model: 'other' })],
    ['another text', () => service.embed(['text '])],
    ['a text in another form of Unicode', () => service.embed(['e\u0301'])],
    ['that form', () => service.embed(['\u00e9'])],
    ['a lone surrogate', () => service.embed(['\ud800'])],
    ['another one', () => service.embed(['\ud801'])],
  ]
  await service.embed(['text'])
  const wrong: string[] = []
  for (const [expected, cases] of [
    [0, SAME],
    [1, OTHER],
    [0, OTHER],
  ] as const) {
    for (const [what, call] of cases) {
      const before = inner.calls.length
      await call()
      if (inner.calls.length - before !== expected) wrong.push(`${what}: ${inner.calls.length - before} calls`)
    }
  }
  t.deepEqual(wrong, [])
  await t.notThrowsAsync(service.embed(['text'], { signal }))
})

test('dimensions that are known only after the load are one space with those before', async (t) => {
  const service = new CachedEmbeddingService(new NativeEmbeddingService({ model: FOLDER }))
  t.is(service.modelConfig().dimensions, null)
  await service.embed(['text'])
  t.is(service.modelConfig().dimensions, 32)
  await service.embed(['text'])
  t.like(service.cacheStats(), { hits: 1, misses: 1, entries: 1 })
})

test('a service that is told to make another space meanwhile: nothing of the call in between is kept', async (t) => {
  const { inner, service } = around()
  const { answer } = inner
  let config: ModelConfig = { model: 'mine', dimensions: 2 }
  inner.modelConfig = () => config
  for (const next of [
    { model: 'mine', dimensions: 3 },
    { model: 'other', dimensions: 2 },
  ]) {
    inner.answer = async (...args) => {
      config = next
      return answer(...args)
    }
    config = { model: 'mine', dimensions: 2 }
    await service.embed(['a'])
    t.is(service.cacheStats().entries, 0)
  }
})

test('around the native service: the same bytes, tokens and contract; the model is asked on a miss only', async (t) => {
  const inner = new NativeEmbeddingService({ model: FOLDER })
  const service = new CachedEmbeddingService(inner)
  const texts = ['the dog', 'x '.repeat(200), '', 'the dog']
  for (const role of EMBEDDING_ROLES) {
    const plain = await inner.embedWithRole(texts, role)
    for (const pass of ['miss', 'hit']) {
      const rows = await service.embedWithRole(texts, role)
      t.deepEqual(rows.map(bytes), plain.map(bytes), `${role}, ${pass}`)
      t.deepEqual(rows.tokens, plain.tokens)
      t.like(rows, { contractId: plain.contractId, truncated: 1, dimensions: 32 })
    }
  }
  const before = inner.stats().texts
  await service.embed(['the dog', ''])
  t.is(inner.stats().texts, before)
  await t.throwsAsync(service.embed(['the dog'], { model: 'someone/else' }), {
    code: 'InvalidInput',
    message: /not with/,
  })
})

test('truncate: error fails each time, and says which text of the caller’s it is', async (t) => {
  const service = new CachedEmbeddingService(new NativeEmbeddingService({ model: FOLDER, truncate: 'error' }))
  const long = 'x '.repeat(200)
  await service.embed(['a', 'b'])
  for (const texts of [
    ['a', 'b', 'c', long],
    ['a', long],
    [long, long],
  ]) {
    const error = await t.throwsAsync(service.embed(texts), { code: 'TextTooLong', message: /chunkText/ })
    t.like(error, { index: texts.indexOf(long), unit: 'tokens', limit: 64 })
  }
  t.is(service.cacheStats().entries, 2)
})

test('an error of the inner service is about the caller’s text', async (t) => {
  const { inner, service } = around()
  await service.embed(['a', 'b'])
  const original = new TextTooLongError('too long for me', { index: 1, limit: 3, actual: 4, unit: 'bytes' })
  inner.answer = () => Promise.reject(original)
  const error = await t.throwsAsync(service.embed(['a', 'x', 'x', 'b', 'yyyy']), { instanceOf: TextTooLongError })
  t.like(error, { index: 4, limit: 3, actual: 4, unit: 'bytes', message: 'too long for me', cause: original })
  const same = await t.throwsAsync(service.embed(['x', 'yyyy']))
  t.is(same, original, 'nothing to say: it is the same position')
})

test('a wrong number of vectors, or no vectors, is an error, and nothing of it is kept', async (t) => {
  const row = Float32Array.of(1)
  const ANSWERS: [string, unknown, RegExp][] = [
    ['too few', createEmbeddings([row]), /"plain" gave 1 vectors for 2 texts/],
    ['none', createEmbeddings([]), /gave 0 vectors/],
    ['too many', createEmbeddings([row, row, row]), /gave 3 vectors/],
    ['nothing', undefined, /gave undefined/],
    ['a hole', Object.assign(Array(2), { 0: row }), /gave undefined as vector 1/],
    ['another length', [row, Float32Array.of(1, 2)], /as vector 1/],
    ['plain arrays', [[1], [2]], /gave an array as vector 0/],
    ['no number', [row, Float32Array.of(Number.NaN)], /a vector 1 that is not finite: value 0 is NaN/],
    ['nothing in them', [new Float32Array(0), new Float32Array(0)], /as vector 0/],
  ]
  for (const options of [{}, { singleFlight: true }, { capacity: 0 }]) {
    // Without a cache the rows go through untouched: only their number is looked at.
    for (const [what, answer, message] of options.capacity === 0 ? ANSWERS.slice(0, 4) : ANSWERS) {
      const { inner, service } = around(options)
      inner.answer = async () => answer as Embeddings
      await t.throwsAsync(service.embed(['a', 'b']), { code: 'InferenceFailed', message }, what)
      t.is(service.cacheStats().entries, 0, what)
    }
  }
})

test('a service that knows no contract, no tokens and gives a plain array', async (t) => {
  const { inner, service } = around()
  inner.answer = async (texts) => texts.map((text) => Float32Array.of(text.length)) as unknown as Embeddings
  for (const texts of [
    ['a', 'bb'],
    ['bb', 'ccc'],
    ['a', 'ccc'],
  ]) {
    const rows = await service.embed(texts)
    t.deepEqual(
      rows.toArrays(),
      texts.map((text) => [text.length]),
    )
    t.like(rows, { contractId: '', truncated: 0, dimensions: 1 })
    t.deepEqual(rows.tokens, [])
  }
  inner.answer = async (texts) =>
    createEmbeddings(
      texts.map(() => Float32Array.of(0)),
      { truncated: 1 },
    )
  t.is((await service.embed(['x', 'y'])).truncated, 2, 'which one is not known: none is overlooked')
})

test('a result is of one contract: what was kept of another model goes', async (t) => {
  for (const change of ['contractId', 'dimensions'] as const) {
    const { inner, service } = around()
    await service.embed(['a', 'bb', 'old'])
    if (change === 'contractId') inner.contractId = 'contract-2'
    else inner.dimensions = 3
    const rows = await service.embed(['bb', 'new', 'a'])
    t.deepEqual(asked(inner), ['a bb old', 'new', 'bb new a'], 'the whole request anew, in one call')
    t.like(rows, { contractId: inner.contractId, dimensions: inner.dimensions })
    t.is(service.cacheStats().entries, 3, 'and the old entries are gone')
    await service.embed(['a', 'bb', 'new'])
    t.is(inner.calls.length, 3)
    await service.embed(['old'])
    t.is(inner.calls.length, 4)
  }
})

test('checks are the cache’s own, in the order of every service, even when all is found', async (t) => {
  const { inner, service } = around()
  await service.embed(['text'])
  const aborted = AbortSignal.abort(new Error('aborted before'))
  const CASES: [string, unknown, unknown, unknown, object][] = [
    ['no text', [], 'generic', { nonsense: 1, signal: aborted }, { code: 'InvalidInput', limit: 1 }],
    ['too many', Array(1001).fill('text'), 'x', { nonsense: 1 }, { code: 'InvalidInput', limit: 1000 }],
    ['too long', ['x'.repeat(32769)], 'x', { nonsense: 1 }, { code: 'TextTooLong', index: 0 }],
    ['no string', ['text', 1], 'generic', {}, { code: 'InvalidInput', index: 1 }],
    ['a role', ['text'], 'document', { nonsense: 1 }, { code: 'InvalidInput', option: 'role' }],
    ['an option', ['text'], 'generic', { nonsense: 1, signal: aborted }, { code: 'InvalidInput', option: 'nonsense' }],
    ['options', ['text'], 'generic', null, { code: 'InvalidInput' }],
    ['the signal', ['text'], 'generic', { signal: aborted }, { message: 'aborted before' }],
  ]
  for (const [what, texts, role, options, expected] of CASES) {
    for (const one of [service, around({ capacity: 0 }).service, new CachedEmbeddingService(service)]) {
      const error = await t.throwsAsync(
        one.embedWithRole(texts as [], role as 'query', options as never),
        undefined,
        what,
      )
      t.like(error, expected, what)
    }
  }
  t.is(inner.calls.length, 1)
})

test('capacity 0: every request goes through, unchanged', async (t) => {
  const { inner, service } = around({ capacity: 0 })
  await service.embed(['a', 'a'])
  await service.embed(['a', 'a'], { model: 'other', instruction: 'x', batchSize: 3 })
  t.deepEqual(asked(inner), ['a a', 'a a'])
  t.deepEqual(inner.calls[1]?.options, { model: 'other', instruction: 'x', batchSize: 3, priority: 'bulk' })
  t.deepEqual(service.cacheStats(), { hits: 0, misses: 0, entries: 0, bytes: 0, capacity: 0, evictions: 0 })
})

test('the least recently used goes first, by entries and by bytes', async (t) => {
  for (const options of [{ capacity: 3 }, { maxBytes: 3 * 1008 }]) {
    const { inner, service } = around(options)
    for (const text of ['a', 'bb', 'ccc', 'a', 'dddd']) await service.embed([text])
    t.like(service.cacheStats(), { entries: 3, evictions: 1, bytes: 3 * 1008 })
    await service.embed(['a', 'ccc', 'dddd'])
    t.is(inner.calls.length, 4, 'the oldest by use was bb')
    await service.embed(['bb'])
    t.is(inner.calls.length, 5)
  }
  const { inner, service } = around({ maxBytes: 1007 })
  t.is((await service.embed(['a', 'bb'])).length, 2)
  t.is((await service.embed(['a', 'bb'])).length, 2)
  t.like(service.cacheStats(), { entries: 0, bytes: 0 })
  t.is(inner.calls.length, 2, 'nothing fits')
})

test('a request larger than the cache has all of its rows', async (t) => {
  const { service } = around({ capacity: 2 })
  const texts = Array.from({ length: 50 }, (_, i) => 'x'.repeat(i))
  t.deepEqual(
    (await service.embed(texts)).map((row) => row[0]),
    texts.map((text) => text.length),
  )
})

test('clearing: nothing is found, and what is under way is not kept', async (t) => {
  for (const singleFlight of [false, true]) {
    const { inner, service } = around({ singleFlight })
    const { answer } = inner
    await service.embed(['a'])
    const held = gate()
    inner.answer = async (...args) => {
      await held.promise
      return answer(...args)
    }
    const pending = service.embed(['b'])
    await until(() => inner.calls.length === 2)
    service.clearCache()
    inner.answer = answer
    t.is((await service.embed(['b'])).length, 1, 'nobody joins what was begun before the clearing')
    held.resolve()
    t.is((await pending).length, 1)
    t.deepEqual(asked(inner), ['a', 'b', 'b'])
    t.like(service.cacheStats(), { entries: 1, hits: 0, misses: 3 })
  }
})

test('what is not kept here is passed on', async (t) => {
  const inner = new NativeEmbeddingService({ model: FOLDER })
  const service = new CachedEmbeddingService(inner)
  t.is(service.name, 'cached')
  await service.ensureLoaded()
  t.is(inner.descriptor?.dimensions, 32)
  t.true(service.supportsModel(FOLDER))
  t.false(service.supportsModel('other/model'))
  t.deepEqual(service.modelConfig(), { model: FOLDER, dimensions: 32 })
  t.is(await service.saveCache(), 0)
  t.is(service.cacheSize(), 0)
  await service.embed(['a'])
  await service.dispose()
  await t.throwsAsync(service.embed(['a']), { code: 'ModelNotLoaded' }, 'nothing is found after a disposal')
  await t.throwsAsync(service.ensureLoaded(), { code: 'ModelNotLoaded' })

  const { service: other } = around()
  t.is(await other.saveCache(), 0)
  t.is(other.cacheSize(), 0)
  await other.dispose()
  await other[Symbol.asyncDispose]()
})

test('what can be wrapped, and how', (t) => {
  for (const inner of [undefined, null, 'native', {}, () => {}, { embed() {} }]) {
    t.throws(() => new CachedEmbeddingService(inner as never), { code: 'InvalidInput', message: /embedWithRole/ })
  }
  for (const [options, message] of [
    [{ capacity: -1 }, /capacity.*at least 0/],
    [{ capacity: 1.5 }, /capacity/],
    [{ capacity: 10_000_001 }, /capacity.*at most 10000000/],
    [{ maxBytes: 0 }, /maxBytes.*at least 1/],
    [{ singleFlight: 'yes' }, /singleFlight/],
    [{ ttl: 3 }, /unknown option "ttl".*capacity, maxBytes, singleFlight/],
    [[], /plain object/],
  ] as const) {
    t.throws(() => new CachedEmbeddingService(new Plain(), options as never), { code: 'InvalidInput', message })
  }
  t.is(DEFAULT_CACHE_CAPACITY, 10_000)
})

test('caches around caches: the innermost is asked for what none has', async (t) => {
  const inner = new Plain()
  const middle = new CachedEmbeddingService(inner, { capacity: 100 })
  const outer = new CachedEmbeddingService(middle, { capacity: 1 })
  await outer.embed(['a', 'bb'])
  t.deepEqual((await outer.embed(['a', 'bb', 'ccc'])).toArrays(), [
    [1, 0],
    [2, 0],
    [3, 0],
  ])
  t.deepEqual(asked(inner), ['a bb', 'ccc'])
  t.like(middle.cacheStats(), { hits: 1, misses: 3 })
})

test('a text is checked once however many caches it goes through', async (t) => {
  const long = 'é'.repeat(16_000) // long enough to be measured
  const { byteLength } = Buffer
  let measured = 0
  Buffer.byteLength = (...args) => {
    if (args[0] === long) measured++
    return byteLength(...args)
  }
  t.teardown(() => {
    Buffer.byteLength = byteLength
  })
  const native = new NativeEmbeddingService({ model: FOLDER })
  await new CachedEmbeddingService(new CachedEmbeddingService(native)).embed([long])
  t.is(measured, 1)
})

test('a service on the base that caps texts in its own embed keeps its cap; one that overrides embedWithRole is asked there', async (t) => {
  const cap = (text: string) => {
    if (Buffer.byteLength(text) > 32768) throw new TextTooLongError('capped', { index: 0 })
  }
  class Capped extends BaseEmbeddingService {
    readonly name: string = 'capped'
    async embed(texts: readonly string[]): Promise<Embeddings> {
      texts.forEach(cap)
      return createEmbeddings(texts.map((text) => Float32Array.of(text.length)))
    }
    supportsModel() {
      return true
    }
  }
  class Direct extends Capped {
    override async embedWithRole(texts: readonly string[]): Promise<Embeddings> {
      texts.forEach(cap)
      return createEmbeddings(texts.map((text) => Float32Array.of(-text.length)))
    }
  }
  const model = 'intfloat/multilingual-e5-small'
  const full = 'x'.repeat(32768)
  const capped = new CachedEmbeddingService(new Capped())
  await t.throwsAsync(capped.embedQuery([full], { model }), { code: 'TextTooLong', message: 'capped' })
  t.deepEqual((await capped.embedQuery(['ab'], { model })).toArrays(), [['query: ab'.length]])
  t.deepEqual((await new CachedEmbeddingService(new Direct()).embedQuery([full], { model })).toArrays(), [[-32768]])
})

test('an aborted request rejects at once, whatever the inner service does with the signal', async (t) => {
  for (const options of [{}, { singleFlight: true }, { capacity: 0 }]) {
    const { inner, service } = around(options)
    inner.answer = () => new Promise(() => {})
    const controller = new AbortController()
    const pending = service.embed(['a'], { signal: controller.signal })
    await until(() => inner.calls.length === 1)
    controller.abort(new Error('enough'))
    await t.throwsAsync(pending, { message: 'enough' })
    t.true(inner.calls[0]?.options?.signal?.aborted, 'and the inner service is told')
  }
})

test('without single flight each request asks; with it they share', async (t) => {
  for (const [singleFlight, expected] of [
    [false, ['a bb', 'bb ccc']],
    [true, ['a bb', 'ccc']],
  ] as const) {
    const { inner, service } = around({ singleFlight })
    const [one, other] = await Promise.all([service.embed(['a', 'bb']), service.embed(['bb', 'ccc', 'bb'])])
    t.deepEqual(asked(inner), [...expected])
    t.deepEqual(one.toArrays(), [
      [1, 0],
      [2, 0],
    ])
    t.deepEqual(other.toArrays(), [
      [2, 0],
      [3, 0],
      [2, 0],
    ])
    one[1]?.fill(9)
    t.is(other[0]?.[0], 2, 'each has memory of its own')
  }
})

/** Two requests for one text, the second joined to the first, which is held. */
async function joined(calls: ((service: CachedEmbeddingService) => Promise<unknown>)[]) {
  const { inner, service } = around({ singleFlight: true })
  const held = gate()
  const { answer } = inner
  inner.answer = async (...args) => {
    await held.promise
    return answer(...args)
  }
  const pending = calls.map((call) => call(service))
  for (const promise of pending) promise.catch(() => {})
  await until(() => inner.calls.length > 0)
  return { inner, service, held, pending }
}

test('single flight: who aborts leaves alone; when the last has left the call is aborted and nobody joins it', async (t) => {
  const [one, two] = [new AbortController(), new AbortController()]
  const { inner, service, held, pending } = await joined([
    (service) => service.embed(['a'], { signal: one.signal }),
    (service) => service.embed(['a'], { signal: two.signal }),
    (service) => service.embed(['a']),
  ])
  one.abort(new Error('one'))
  await t.throwsAsync(pending[0] as Promise<unknown>, { message: 'one' })
  t.false(inner.calls[0]?.options?.signal?.aborted)
  held.resolve()
  t.is(((await pending[2]) as Embeddings).length, 1)
  t.is(((await pending[1]) as Embeddings).length, 1)
  t.is(inner.calls.length, 1)
  t.is(service.cacheStats().entries, 1)

  const all = [new AbortController(), new AbortController()]
  const other = await joined(
    all.map(
      ({ signal }) =>
        (service) =>
          service.embed(['a'], { signal }),
    ),
  )
  for (const controller of all) controller.abort(new Error('all'))
  for (const promise of other.pending) await t.throwsAsync(promise, { message: 'all' })
  t.true(other.inner.calls[0]?.options?.signal?.aborted)
  const next = other.service.embed(['a'])
  await until(() => other.inner.calls.length === 2)
  other.held.resolve()
  t.is((await next).length, 1)
})

test('single flight: a failure reaches all who joined and is not kept', async (t) => {
  const { inner, service, held, pending } = await joined([
    (service) => service.embed(['a']),
    (service) => service.embed(['b', 'a']),
  ])
  held.reject(new Error('broken'))
  for (const promise of pending) await t.throwsAsync(promise, { message: 'broken' })
  t.is(service.cacheStats().entries, 0)
  inner.answer = new Plain().answer
  t.is((await service.embed(['a'])).length, 1)
})

test('single flight: an error about one text is theirs who asked for it, at their position', async (t) => {
  const { inner, held, pending } = await joined([
    (service) => service.embed(['good', 'bad']),
    (service) => service.embed(['other', 'x', 'bad']),
    (service) => service.embed(['good']),
  ])
  const plain = new Plain()
  inner.answer = async (texts, role) => {
    const index = texts.indexOf('bad')
    if (index >= 0) throw new TextTooLongError('bad', { index })
    return plain.answer(texts, role)
  }
  held.reject(new TextTooLongError('bad', { index: 1 }))
  t.like(await t.throwsAsync(pending[0] as Promise<unknown>), { code: 'TextTooLong', index: 1 })
  t.like(await t.throwsAsync(pending[1] as Promise<unknown>), { code: 'TextTooLong', index: 2 })
  t.deepEqual(((await pending[2]) as Embeddings).toArrays(), [[LENGTH, 0]], 'its text is not at fault')
})

test('single flight: a query does not wait for bulk work', async (t) => {
  const { inner, held, pending } = await joined([(service) => service.embed(['a']), (service) => service.embedOne('a')])
  await until(() => inner.calls.length === 2)
  t.deepEqual(
    inner.calls.map(({ options }) => options?.priority),
    ['bulk', 'interactive'],
  )
  held.resolve()
  await Promise.all(pending)
})

test('single flight: joined calls of two contracts are not mixed', async (t) => {
  const { inner, service, held, pending } = await joined([(service) => service.embed(['a'])])
  inner.answer = new Plain().answer
  inner.contractId = 'contract-2'
  const fresh = new Plain()
  fresh.contractId = 'contract-2'
  inner.answer = fresh.answer
  const mixed = service.embed(['a', 'bb'])
  await until(() => inner.calls.length === 2)
  // The one that was held answers as the old model did.
  inner.contractId = 'contract-1'
  held.resolve()
  t.is((await (pending[0] as Promise<Embeddings>)).contractId, 'contract-1')
  const rows = await mixed
  t.is(rows.contractId, 'contract-2')
  t.deepEqual(asked(inner), ['a', 'bb', 'a bb'])
})

test('random requests at once, with aborts and failures: every promise settles, and every row is right', async (t) => {
  let state = 42
  const random = (below: number) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
  for (const options of [{ capacity: 20 }, { capacity: 20, singleFlight: true }]) {
    const { inner, service } = around(options)
    const { answer } = inner
    inner.answer = async (texts, role, options) => {
      for (let turns = random(4); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve))
      options?.signal?.throwIfAborted()
      if (random(10) === 0) throw new EmbedError('InferenceFailed', 'by chance', { index: random(texts.length) })
      return answer(texts, role, options)
    }
    const outcomes = { right: 0, failed: 0, aborted: 0 }
    const one = async () => {
      const texts = Array.from({ length: 1 + random(5) }, () => 'x'.repeat(random(30)))
      const role = EMBEDDING_ROLES[random(3)] as EmbeddingRole
      const controller = new AbortController()
      if (random(5) === 0) setImmediate(() => controller.abort('left'))
      if (random(50) === 0) service.clearCache()
      try {
        const rows = await service.embedWithRole(texts, role, { signal: controller.signal })
        t.deepEqual(
          rows.toArrays(),
          texts.map((text) => [text.length, EMBEDDING_ROLES.indexOf(role)]),
        )
        outcomes.right++
      } catch (error) {
        if (error === 'left') outcomes.aborted++
        else if (EmbedError.is(error) && (error.index as number) < texts.length) outcomes.failed++
        else throw error
      }
    }
    for (let round = 0; round < 40; round++) await Promise.all(Array.from({ length: 10 }, one))
    t.is(outcomes.right + outcomes.failed + outcomes.aborted, 400)
    t.true(outcomes.right > 100 && outcomes.failed > 5 && outcomes.aborted > 5, JSON.stringify(outcomes))
    t.true(service.cacheStats().entries <= 20)
  }
})

test('single flight: requests that wait differently long are not joined', async (t) => {
  const { inner, service } = around({ singleFlight: true })
  const held = gate()
  const { answer } = inner
  inner.answer = async (texts, role, options) => {
    await held.promise
    if (options?.maxWait === 1) throw new OverloadedError('too late', { limit: 1, unit: 'ms' })
    return answer(texts, role, options)
  }
  const hasty = service.embed(['a'], { maxWait: 1 })
  const patient = service.embed(['a'])
  await until(() => inner.calls.length === 2)
  held.resolve()
  await t.throwsAsync(hasty, { code: 'Overloaded' })
  t.is((await patient).length, 1)
})

test('single flight: a call that gave its result is not aborted afterwards', async (t) => {
  const { inner, service } = around({ singleFlight: true })
  const aborted: unknown[] = []
  const { answer } = inner
  inner.answer = (texts, role, options) => {
    options?.signal?.addEventListener('abort', () => aborted.push(texts))
    return answer(texts, role, options)
  }
  const controller = new AbortController()
  await Promise.all([service.embed(['a']), service.embed(['a'], { signal: controller.signal }), service.embed(['b'])])
  controller.abort()
  t.deepEqual(aborted, [])
})

test('a disposal lets requests in progress finish, whatever they were at', async (t) => {
  for (const options of [{}, { capacity: 0 }, { singleFlight: true }]) {
    const native = new NativeEmbeddingService({ model: FOLDER })
    const service = new CachedEmbeddingService(native, options)
    const request = service.embed(['the dog'])
    const disposal = Promise.all([service.dispose(), service.dispose()])
    t.is((await request).length, 1, JSON.stringify(options))
    await disposal
    await t.throwsAsync(service.embed(['the dog']), { code: 'ModelNotLoaded' })
  }
})

/** A service on the base, which adds nothing. */
class Own extends BaseEmbeddingService {
  readonly name = 'own'
  supportsModel() {
    return true
  }
  async embed(texts: readonly string[]) {
    return createEmbeddings(texts.map(() => Float32Array.of(1)))
  }
}

test('what only looks like checked texts is refused, so nobody gets around the limits', async (t) => {
  const native = new NativeEmbeddingService({ model: FOLDER })
  for (const service of [native, new CachedEmbeddingService(native), new Own()]) {
    const [hook] = Object.getOwnPropertySymbols(
      service instanceof Own ? BaseEmbeddingService.prototype : Object.getPrototypeOf(service),
    ).filter(({ description }) => description === 'simile.embedValidated') as [symbol]
    const call = async () =>
      (service as never as Record<symbol, (texts: object, role: string) => Promise<unknown>>)[hook]?.(
        { texts: ['a'] },
        'generic',
      )
    await t.throwsAsync(call, { code: 'InvalidInput', message: /made by this package only/ }, service.name)
  }
})

test('an instruction has the limit of a text', async (t) => {
  const { service } = around()
  const limit = { code: 'InvalidInput', message: /instruction has 32769 UTF-8 bytes.*at most 32768/ }
  const native = new NativeEmbeddingService({ model: FOLDER })
  for (const one of [service, native, new Own()]) {
    await t.throwsAsync(one.embedQuery(['a'], { instruction: 'x'.repeat(32_769) }), limit)
  }
})

test('odd facts of an inner service are no facts, and an odd modelConfig is its error', async (t) => {
  for (const facts of [{ tokens: null }, { tokens: [null] }, { tokens: [7] }, { contractId: 7 }]) {
    const { inner, service } = around()
    inner.answer = async () => Object.assign([Float32Array.of(1)], facts) as never
    const rows = await service.embed(['a'])
    t.deepEqual([rows.tokens, rows.contractId, rows.length], [[], '', 1], JSON.stringify(facts))
  }
  for (const config of [null, {}, { model: 'a' }, { model: 1, dimensions: null }]) {
    const { inner, service } = around()
    inner.modelConfig = () => config as never
    await t.throwsAsync(service.embed(['a']), { code: 'InferenceFailed', message: /as its modelConfig/ })
  }
})

test('single flight: those who are left after an error about another text share a call again', async (t) => {
  const { inner, service } = around({ singleFlight: true })
  const held = gate()
  const { answer } = inner
  inner.answer = async (texts, role, options) => {
    await held.promise
    const index = texts.indexOf('bad')
    if (index !== -1) throw new TextTooLongError('no', { index })
    return answer(texts, role, options)
  }
  const first = service.embed(['bad', 'x'])
  const others = Array.from({ length: 50 }, () => service.embed(['x']))
  await until(() => inner.calls.length === 1)
  held.resolve()
  await t.throwsAsync(first, { code: 'TextTooLong' })
  t.true((await Promise.all(others)).every(({ length }) => length === 1))
  t.is(inner.calls.length, 2)
})
