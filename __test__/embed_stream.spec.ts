/** Streams: any number of texts, in order, in bounded memory, ended in every way. */

import test from 'ava'
import { type EmbeddingStream, EmbedError, type StreamProgress, TextEmbedding } from 'simile'
import { tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const model = await TextEmbedding.load(tiny('tiny-bert-cls'))
const turn = () => new Promise((resolve) => setImmediate(resolve))
const texts = (count: number) => Array.from({ length: count }, (_, i) => `text ${i} ${'and more '.repeat(i % 7)}`)

/** A source that tells how far it was read and how it was ended. */
class Source {
  read = 0
  returned = 0
  constructor(
    readonly list: readonly unknown[],
    readonly wait: (index: number) => Promise<unknown> | undefined = () => undefined,
  ) {}
  get sync(): Iterable<string> {
    return { [Symbol.iterator]: () => ({ next: () => this.#step(), return: () => this.#end() }) }
  }
  get async(): AsyncIterable<string> {
    return {
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          await this.wait(this.read)
          return this.#step()
        },
        return: async () => this.#end(),
      }),
    }
  }
  #step(): IteratorResult<string> {
    if (this.read === this.list.length) return { done: true, value: undefined }
    const value = this.list[this.read++]
    if (value instanceof Error) throw value
    return { done: false, value: value as string }
  }
  #end(): IteratorResult<string> {
    this.returned++
    return { done: true, value: undefined }
  }
}

/** All rows of a stream, and what it ended with. */
async function drain(stream: EmbeddingStream) {
  const rows: Float32Array[] = []
  try {
    for await (const row of stream) rows.push(row)
    return { rows, error: undefined }
  } catch (error) {
    return { rows, error }
  }
}

test('the rows of a stream are those of one call, in order, from every kind of source', async (t) => {
  const list = texts(1300)
  const expected = (await model.passageEmbed(list)).map(bytes)
  function* generator() {
    yield* list
  }
  async function* asyncGenerator() {
    for (const [i, text] of list.entries()) {
      if (i % 100 === 0) await turn()
      yield text
    }
  }
  const SOURCES: [string, Iterable<string> | AsyncIterable<string>][] = [
    ['an array', list],
    ['a set', new Set(list)],
    ['a generator', generator()],
    ['an async generator', asyncGenerator()],
    ['an async source that never waits', new Source(list).async],
  ]
  for (const [what, source] of SOURCES) {
    const stream = model.embedStream(source, { role: 'passage' })
    const { rows, error } = await drain(stream)
    t.is(error, undefined, what)
    t.deepEqual(rows.map(bytes), expected, what)
    t.is(stream.texts, 1300, what)
  }
})

test('what is known of a stream: space, progress, cuts', async (t) => {
  const cut = await TextEmbedding.load(tiny('tiny-bert-cls'), { descriptor: { matryoshka: true } })
  const list = [...texts(700), 'a '.repeat(100), ...texts(100), 'b '.repeat(100)]
  const told: StreamProgress[] = []
  const stream = cut.embedStream(list, { dimensions: 8, onProgress: (progress) => told.push(progress) })
  const whole = await cut.embed(list, { dimensions: 8 })
  t.like(stream, { dimensions: 8, contractId: whole.contractId, texts: 0, tokens: 0, truncated: 0 })
  const { rows } = await drain(stream)
  t.true(rows.every((row) => row.length === 8))
  const tokens = whole.tokens.reduce((sum, { embedded }) => sum + embedded, 0)
  t.like(stream, { texts: 802, tokens, truncated: 2 })
  t.deepEqual(
    told.map(({ texts, truncated }) => [texts, truncated]),
    [
      [512, 0],
      [802, 2],
    ],
  )
  t.deepEqual(told.at(-1), { texts: 802, tokens, truncated: 2 })
})

test('nothing is read before the first row is asked for, and never further than two windows ahead', async (t) => {
  const source = new Source(texts(6000))
  const stream = model.embedStream(source.sync)
  await turn()
  t.is(source.read, 0)
  let delivered = 0
  let furthest = 0
  for await (const _ of stream) {
    delivered++
    furthest = Math.max(furthest, source.read - delivered)
    if (delivered % 500 === 0) await turn()
  }
  t.is(delivered, 6000)
  t.true(furthest <= 3 * 512, `${furthest} texts ahead`)
  t.is(source.returned, 0, 'it ended by itself')

  const huge = new Source(Array.from({ length: 40 }, () => 'x'.repeat(300_000)))
  for await (const _ of model.embedStream(huge.sync)) break
  t.true(huge.read <= 12, `${huge.read} texts of 300,000 units were read`)
})

test('a source that waits for the answer to its last text gets it', async (t) => {
  const waiting: (() => void)[] = []
  async function* asks() {
    for (let i = 0; i < 5; i++) {
      yield `question ${i}`
      await new Promise<void>((resolve) => waiting.push(resolve))
    }
  }
  let answers = 0
  for await (const row of model.embedStream(asks())) {
    t.is(row.length, 32)
    answers++
    while (waiting.length === 0) await turn()
    waiting.shift()?.()
  }
  t.is(answers, 5)
})

test('a consumer slower than a source that pauses: no text is lost, and nothing that goes wrong', async (t) => {
  const broken = new Error('the file ended')
  const turns = async (count: number) => {
    for (let i = 0; i < count; i++) await turn()
  }
  for (const [what, list, error] of [
    ['texts', texts(12), undefined],
    ['a failure', [...texts(7), broken], broken],
  ] as const) {
    for (const [pause, slow] of [
      [3, 30],
      [10, 40],
      [30, 100],
      [30, 10],
    ] as const) {
      const source = new Source(list, () => turns(pause))
      const stream = model.embedStream(source.async)
      const rows: string[] = []
      const outcome = await (async () => {
        for await (const row of stream) {
          rows.push(bytes(row))
          await turns(slow)
        }
      })().then(
        () => undefined,
        (error) => error,
      )
      const good = (list as unknown[]).filter((text): text is string => typeof text === 'string')
      const at = `${what}, pause ${pause}, slow ${slow}`
      t.is(outcome, error, at)
      t.deepEqual(rows, (await model.embed(good)).map(bytes), at)
      t.is(stream.texts, good.length, at)
    }
  }
})

test('a stream is gone through once', async (t) => {
  const stream = model.embedStream(texts(3))
  t.is((await drain(stream)).rows.length, 3)
  t.true(EmbedError.is((await drain(stream)).error, 'InvalidInput'))
})

test('reading, computing and delivering overlap', async (t) => {
  const source = new Source(texts(1500))
  const alone = await TextEmbedding.load(tiny('tiny-bert-cls'))
  const stream = alone.embedStream(source.sync)
  const rows = stream[Symbol.asyncIterator]()
  await rows.next()
  // The first row is there: the next windows are read and computed without anybody asking.
  while (source.read < 1500 || alone.stats().texts < 1024) await turn()
  t.is(stream.texts, 512, 'one window was delivered')
  await rows.return(undefined)
})

test('a window is delivered when it is computed, not with the one after it', async (t) => {
  const alone = await TextEmbedding.load(tiny('tiny-bert-cls'))
  // So long that handing them over takes several turns of the event loop, in which the next window is read.
  const long = Array.from({ length: 2048 }, (_, i) => `${i} ${'a longer text '.repeat(120)}`)
  const computed: number[] = []
  for await (const _ of alone.embedStream(long, { onProgress: () => computed.push(alone.stats().texts) })) {
  }
  // Were the windows in one another's way, two of them would be done whenever the first of them is told.
  t.true((computed[0] as number) < 1024, `${computed}`)
})

test('break ends the source and what was begun', async (t) => {
  for (const kind of ['sync', 'async'] as const) {
    const source = new Source(texts(5000))
    let rows = 0
    for await (const _ of model.embedStream(source[kind])) {
      rows++
      if (rows === 10) break
    }
    t.is(source.returned, 1, kind)
    const { read } = source
    await model.embed(['after'], { priority: 'bulk' })
    t.is(source.read, read, 'nothing is read any more')
  }
})

test('an empty source', async (t) => {
  for (const source of [[], new Source([]).sync, new Source([]).async]) {
    const stream = model.embedStream(source as Iterable<string>)
    t.deepEqual(await drain(stream), { rows: [], error: undefined })
    t.is(stream.texts, 0)
  }
})

test('an error comes after the rows of the texts before it, and names its place in the whole', async (t) => {
  const strict = await TextEmbedding.load(tiny('tiny-bert-cls'), { truncate: 'error' })
  const broken = new Error('the file ended')
  const CASES: [string, unknown, TextEmbedding, number, (error: unknown) => boolean, number][] = [
    ['the source throws', broken, model, 700, (error) => error === broken, 0],
    ['no string', 7, model, 700, (error) => EmbedError.is(error, 'InvalidInput') && error.index === 700, 1],
    ['a hole', undefined, model, 700, (error) => EmbedError.is(error, 'InvalidInput') && error.index === 700, 1],
    [
      'too long',
      'a '.repeat(99),
      strict,
      512,
      (error) =>
        EmbedError.is(error, 'TextTooLong') && error.index === 700 && /^text 700 has \d+ tokens/.test(error.message),
      1,
    ],
  ]
  for (const [what, element, model, delivered, right, returned] of CASES) {
    for (const kind of ['sync', 'async'] as const) {
      const source = new Source([...texts(700), element, ...texts(3000)])
      const { rows, error } = await drain(model.embedStream(source[kind]))
      t.true(right(error), `${what}: ${error}`)
      t.is(rows.length, delivered, what)
      t.is(source.returned, returned, what)
      if (delivered === 700) t.is(source.read, 701, `${what}: nothing is read after it`)
    }
  }
})

test('what onProgress throws is what the stream rejects with', async (t) => {
  const source = new Source(texts(3000))
  const stop = new Error('stop')
  const { rows, error } = await drain(
    model.embedStream(source.sync, {
      onProgress() {
        throw stop
      },
    }),
  )
  t.is(error, stop)
  t.is(rows.length, 0)
  t.is(source.returned, 1)
})

test('an abort rejects with the reason: before, between two rows, while the source waits, while it is computed', async (t) => {
  const before = new Source(texts(10))
  const early = await drain(model.embedStream(before.sync, { signal: AbortSignal.abort('before') }))
  t.is(early.error, 'before')
  t.is(before.read, 0)

  const between = new AbortController()
  const source = new Source(texts(3000))
  let rows = 0
  const error = await (async () => {
    for await (const _ of model.embedStream(source.sync, { signal: between.signal })) {
      rows++
      if (rows === 5) between.abort('between')
    }
  })().catch((error) => error)
  t.deepEqual([error, rows, source.returned], ['between', 5, 1])

  const waiting = new AbortController()
  const stuck = new Source(texts(10), (index) => (index === 3 ? new Promise(() => {}) : undefined))
  const iterator = model.embedStream(stuck.async, { signal: waiting.signal })[Symbol.asyncIterator]()
  for (let i = 0; i < 3; i++) t.false((await iterator.next()).done)
  const next = iterator.next()
  waiting.abort('waiting')
  t.is(await next.catch((error) => error), 'waiting')
  t.is(stuck.returned, 1)
  t.true((await iterator.next()).done)

  const computing = new AbortController()
  const many = new Source(Array.from({ length: 2000 }, () => 'some text that takes a while '.repeat(20)))
  const pending = drain(model.embedStream(many.sync, { signal: computing.signal }))
  while (many.read === 0) await turn()
  computing.abort('computing')
  t.is((await pending).error, 'computing')
})

test('break does not wait for a source that never answers', async (t) => {
  const stuck = new Source(texts(10), (index) => (index === 3 ? new Promise(() => {}) : undefined))
  for await (const _ of model.embedStream(stuck.async)) break
  t.is(stuck.returned, 1)
})

test('what the source throws at its end is told, unless something else came first', async (t) => {
  const ending = {
    *[Symbol.iterator]() {
      try {
        yield* texts(3000)
      } finally {
        // biome-ignore lint/correctness/noUnsafeFinally: a source may do that
        throw new Error('at the end')
      }
    },
  }
  await t.throwsAsync(
    async () => {
      for await (const _ of model.embedStream(ending)) break
    },
    { message: 'at the end' },
  )
  const { error } = await drain(
    model.embedStream(ending, {
      onProgress() {
        throw new Error('first')
      },
    }),
  )
  t.is((error as Error).message, 'first')
})

test('refused at once: what is no source, and wrong options', (t) => {
  for (const source of ['a text', 7, null, undefined, {}, { length: 1, 0: 'a' }, () => ['a']]) {
    t.throws(() => model.embedStream(source as never), { code: 'InvalidInput', message: /iterable/ })
  }
  for (const [options, message] of [
    [{ output: 'flat' }, /unknown option "output" of embedStream/],
    [{ role: 'document' }, /role must be one of generic, query, passage/],
    [{ onProgress: true }, /onProgress must be a function/],
    [{ dimensions: 16 }, /16 dimensions/],
    [{ instruction: 'find' }, /instruction/],
    [{ batchSize: 0 }, /batchSize/],
    [null, /plain object/],
  ] as const) {
    t.throws(() => model.embedStream(['a'], options as never), { code: 'InvalidInput', message })
  }
})

test('a stream of a model that is disposed of', async (t) => {
  const short = await TextEmbedding.load(tiny('tiny-bert-cls'))
  const rows = short.embedStream(texts(5000))[Symbol.asyncIterator]()
  await rows.next()
  await short.dispose()
  await t.throwsAsync(
    async () => {
      while (!(await rows.next()).done);
    },
    { code: 'ModelNotLoaded' },
  )
  t.throws(() => short.embedStream(['a']), { code: 'ModelNotLoaded' })
})

test('an iterator that gives no results ends the stream, and not the process', async (t) => {
  for (const result of [undefined, null, 7]) {
    for (const kind of [Symbol.iterator, Symbol.asyncIterator]) {
      const source = { [kind]: () => ({ next: () => result }) }
      const { error } = await drain(model.embedStream(source as never))
      t.regex(String(error), /the iterator gave/)
    }
  }
})
