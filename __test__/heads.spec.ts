/** Sparse, multi-vector and rerank models: what comes back, and what is refused. */

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import {
  EmbedError,
  MultiVectorTextEmbedding,
  maxSim,
  SparseTextEmbedding,
  TextCrossEncoder,
  TextEmbedding,
  type TokenVectors,
} from 'simile'
import { tiny } from './helpers/models.ts'

// biome-ignore lint/suspicious/noExplicitAny: reference files of several shapes
const golden = (name: string): any => JSON.parse(readFileSync(join(tiny(name), 'golden.json'), 'utf8'))
const near = (got: number, want: number, largest = 1) => Math.abs(got - want) <= 1e-5 * Math.max(1, largest)

const sparse = await SparseTextEmbedding.load(tiny('tiny-splade'))
const colbert = await MultiVectorTextEmbedding.load(tiny('tiny-colbert'))
const cross = await TextCrossEncoder.load(tiny('tiny-cross-bert'))

test('sparse vectors are sorted, without zeros, and those of the reference', async (t) => {
  const { texts, sparse: want, dim } = golden('tiny-splade')
  const rows = await sparse.embed(texts)
  t.is(rows.length, texts.length)
  t.is(sparse.dimensions, dim)
  for (const [i, { indices, values }] of rows.entries()) {
    t.true(indices instanceof Uint32Array && values instanceof Float32Array)
    t.is(indices.length, values.length)
    t.true(
      indices.every((index, at) => at === 0 || index > (indices[at - 1] as number)),
      `text ${i}`,
    )
    t.true(
      values.every((value) => value > 0),
      `text ${i}`,
    )
    const got = new Map(Array.from(indices, (index, at) => [index, values[at] as number]))
    const wrong = want[i].filter(([index, value]: [number, number]) => !near(got.get(index) ?? 0, value))
    t.deepEqual(wrong, [], `text ${i}`)
  }
})

test('results are true arrays, with the facts of the call out of the way', async (t) => {
  const texts = ['a vector', 'the dog and the fox and the world '.repeat(40)]
  const ranked = await cross.rank('what is a vector', texts)
  const results = [
    [await sparse.passageEmbed(texts), sparse.contract],
    [await colbert.passageEmbed(texts), colbert.contract],
    [await cross.score('what is a vector', texts), cross.contract],
    [ranked, cross.contract],
  ] as const
  for (const [rows, contract] of results) {
    t.is(Object.getPrototypeOf(rows), Array.prototype)
    t.deepEqual(Object.keys(rows), ['0', '1'])
    t.is(rows.contractId, contract)
    t.regex(contract, /^[0-9a-f]{16}$/)
    t.is(rows.truncated, 1)
    t.deepEqual(
      rows.tokens.map(({ total, embedded }) => total > embedded),
      [false, true],
    )
  }
  const [[vectors]] = results
  t.deepEqual(JSON.parse(JSON.stringify(vectors)), vectors.toArrays())
  t.is(vectors.toArrays()[0]?.indices.length, vectors[0]?.indices.length)
})

test('token vectors and their score are those of the reference', async (t) => {
  const { texts, queries, documents, maxsim } = golden('tiny-colbert')
  const [asked, given] = [await colbert.queryEmbed(texts), await colbert.passageEmbed(texts)]
  for (const [rows, want] of [[asked, queries] as const, [given, documents] as const]) {
    t.is(rows.dimensions, 16)
    for (const [i, { data, count, dimensions }] of rows.entries()) {
      t.deepEqual([count, dimensions, data.length], [want[i].length, 16, want[i].length * 16])
      t.true(
        want[i].flat().every((value: number, at: number) => near(data[at] as number, value)),
        `text ${i}`,
      )
    }
    t.is(rows.toArrays()[0]?.length, want[0].length)
  }
  const scores = asked.flatMap((query) => given.map((document) => colbert.score(query, document)))
  t.true(maxsim.every((want: number, i: number) => near(scores[i] as number, want, want)))
  t.is(asked[0]?.count, colbert.descriptor.queryLength ?? 0)
})

test('BM25 needs no files and no network', async (t) => {
  await using model = await SparseTextEmbedding.load('qdrant/BM25')
  t.is(model.descriptor.head, 'bm25')
  t.deepEqual([model.maxLength, model.descriptor.maxLength], [4_294_967_295, 4_294_967_295], 'no limit')
  t.is(model.descriptor.dimensions, 2_147_483_648)
  const rows = await model.passageEmbed(['The dog saw a dog.', '', 'the', 'A dog'])
  // Of two words, one of them twice: 2 (1.2 + 1) / (2 + 1.2 (0.25 + 0.75 * 3 / 256)).
  const [dog, saw] = (rows[0]?.values.length === 2 ? rows[0].values : []) as unknown as [number, number]
  const weight = (f: number, n: number) => (f * 2.2) / (f + 1.2 * (0.25 + (0.75 * n) / 256))
  const sorted = [dog, saw].sort((a, b) => b - a) as [number, number]
  t.true(near(sorted[0], weight(2, 3)) && near(sorted[1], weight(1, 3)), `${sorted}`)
  t.deepEqual(
    rows.tokens.map(({ total }) => total),
    [3, 0, 0, 1],
  )
  t.is(rows[1]?.indices.length, 0)
  const [query] = await model.queryEmbed(['which dogs?'])
  t.deepEqual([...(query?.values ?? [])], [1])
  t.deepEqual(query?.indices, rows[3]?.indices)
  t.true(rows[0]?.indices.includes(query?.indices[0] as number))
})

test('a reranker with a prompt takes an instruction', async (t) => {
  await using model = await TextCrossEncoder.load(tiny('tiny-qwen3-reranker'))
  t.is(model.descriptor.head, 'yes-no')
  const [usual] = await model.score('what is a vector', ['a list'])
  const instruction = model.descriptor.defaultInstruction as string
  const [same] = await model.score('what is a vector', ['a list'], { instruction })
  const [other] = await model.score('what is a vector', ['a list'], { instruction: 'find lists' })
  t.is(same, usual)
  t.not(other, usual)
})

test('maxSim by hand', (t) => {
  const of = (...rows: number[][]): TokenVectors => ({
    data: new Float32Array(rows.flat()),
    count: rows.length,
    dimensions: 2,
  })
  t.is(maxSim(of([1, 0], [0, 1]), of([1, 0], [0.5, 0.25])), 1.25)
  t.is(maxSim(of([1, 0]), of([-1, 0])), -1)
  t.is(maxSim(of([1, 0]), of()), 0)
  const other = { data: new Float32Array(1), count: 1, dimensions: 1 }
  const error = t.throws(() => maxSim(of([1, 0]), other))
  t.true(EmbedError.is(error) && error.code === 'DimensionMismatch')
})

test('maxSim refuses what are no token vectors', (t) => {
  const right: TokenVectors = { data: new Float32Array(4), count: 2, dimensions: 2 }
  // biome-ignore lint/suspicious/noExplicitAny: wrong on purpose
  const cases: [any, RegExp][] = [
    [undefined, /not undefined/],
    [[right], /not an array/],
    [new Float32Array(4), /with data that is undefined/],
    [{ ...right, data: [1, 0, 0, 1] }, /with data that is an array/],
    [{ ...right, count: 1.5 }, /with count 1\.5/],
    [{ ...right, count: -2, dimensions: -2 }, /with count -2/],
    [{ ...right, dimensions: undefined }, /with dimensions undefined/],
    [{ data: new Float32Array(0), count: 3, dimensions: 0 }, /with dimensions 0/],
    [{ ...right, count: 3 }, /with 4 values for 3 x 2/],
  ]
  for (const [wrong, found] of cases) {
    for (const option of ['query', 'document']) {
      for (const score of [maxSim, colbert.score.bind(colbert)]) {
        const error = t.throws(() => (option === 'query' ? score(wrong, right) : score(right, wrong)))
        t.true(EmbedError.is(error, 'InvalidInput') && error.option === option, `${found} ${option}: ${error}`)
        t.regex(String(error?.message), new RegExp(`the ${option} must be token vectors: .*${found.source}`))
      }
    }
  }
})

test('token vectors of two contracts are not scored', async (t) => {
  await using other = await MultiVectorTextEmbedding.load(tiny('tiny-colbert'), { maxLength: 16 })
  t.not(other.contract, colbert.contract)
  const [query] = await colbert.queryEmbed(['what is a vector'])
  const [document] = await other.passageEmbed(['a vector'])
  if (query === undefined || document === undefined) return t.fail('no vectors')
  t.deepEqual([query.contractId, document.contractId], [colbert.contract, other.contract])
  const error = t.throws(() => colbert.score(query, document))
  t.true(EmbedError.is(error, 'WrongModelLoaded'), `${error}`)
  t.true(error?.message.includes(colbert.contract) && error.message.includes(other.contract))
  // Vectors that were stored have none unless their owner keeps it.
  t.is(typeof colbert.score(query, { ...document }), 'number')
})

test('a single row becomes plain arrays in JSON, and its enumerable properties are its values', async (t) => {
  const [weights] = await sparse.embed(['a vector'])
  const [vectors] = await colbert.passageEmbed(['a vector'])
  if (weights === undefined || vectors === undefined) return t.fail('no rows')
  const { indices, values } = weights
  t.deepEqual(JSON.parse(JSON.stringify(weights)), { indices: [...indices], values: [...values] })
  const { data, count, dimensions } = vectors
  t.deepEqual(JSON.parse(JSON.stringify(vectors)), { data: [...data], count, dimensions })
  t.deepEqual(
    [Object.keys(weights), Object.keys(vectors)],
    [
      ['indices', 'values'],
      ['data', 'count', 'dimensions'],
    ],
  )
})

test('what is scored is what was given, whatever its owner does to it afterwards', async (t) => {
  const pairs: [string, string][] = [
    ['what is a vector', 'a list'],
    ['what is a vector', 'a dog'],
  ]
  const want = [...(await cross.predict(pairs))]
  const running = cross.predict(pairs)
  pairs[0] = ['the', 'the']
  ;(pairs[1] as [string, string])[1] = 'the fox'
  pairs.length = 1
  t.deepEqual([...(await running)], want)
})

for (const name of ['tiny-cross-bert', 'tiny-st6-cross-bert', 'tiny-cross-xlmr', 'tiny-qwen3-reranker']) {
  test(`scores of ${name} are those of the reference`, async (t) => {
    const { pairs, scores: want } = golden(name)
    await using model = await TextCrossEncoder.load(tiny(name))
    const scores = await model.predict(pairs)
    t.true(
      want.every((value: number, i: number) => near(scores[i] as number, value, value)),
      `${scores}`,
    )
    const [query] = pairs[0]
    const documents = pairs.map(([, document]: [string, string]) => document)
    const ofOne = await model.score(query, documents)
    t.is(ofOne[0], scores[0])
    t.deepEqual([...(await model.predict(documents.map((document: string) => [query, document])))], [...ofOne])
  })
}

test('rank sorts by score, ties by position, and keeps what is asked for', async (t) => {
  const query = 'what is a vector'
  const documents = ['a list', 'a vector is a list of numbers', 'the dog', 'a list']
  const scores = await cross.score(query, documents)
  const ranked = await cross.rank(query, documents)
  const expected = scores
    .map((score, index) => ({ index, score }))
    .sort((a, b) => b.score - a.score || a.index - b.index)
  t.deepEqual([...ranked], expected)
  t.is(scores[0], scores[3])
  t.true(ranked.findIndex(({ index }) => index === 0) + 1 === ranked.findIndex(({ index }) => index === 3))
  const best = await cross.rank(query, documents, { topK: 2, returnDocuments: true })
  t.deepEqual(
    [...best],
    expected.slice(0, 2).map((row) => ({ ...row, document: documents[row.index] as string })),
  )
  t.is(best.tokens.length, 4)
})

test('no texts: an empty result that waits for nothing', async (t) => {
  for (const rows of [await sparse.embed([]), await colbert.queryEmbed([]), await cross.score('q', [])]) {
    t.deepEqual([...rows], [])
    t.is(rows.truncated, 0)
    t.deepEqual(rows.tokens, [])
  }
  t.deepEqual([...(await cross.predict([]))], [])
  t.deepEqual([...(await cross.rank('q', [], { topK: 3 }))], [])
})

test('tokens are counted as they are embedded', async (t) => {
  const texts = ['a vector', 'the dog and the fox and the world '.repeat(40)]
  const rows = await colbert.queryEmbed(texts)
  t.deepEqual(
    await colbert.queryTokenCount(texts),
    rows.tokens.map(({ embedded }) => embedded),
  )
  t.true((rows.tokens[0]?.embedded as number) < 32, 'what fills a query up is no token of it')
  t.deepEqual(await sparse.tokenCount(texts), [4, 64])
})

test('a result depends neither on batch-mates nor on order, batch size, priority and threads', async (t) => {
  const { texts } = golden('tiny-splade')
  const reversed = [...texts].reverse()
  const bytes = (rows: { toArrays(): unknown[] }) => JSON.stringify(rows.toArrays())
  for (const model of [sparse, colbert]) {
    const want = bytes(await model.passageEmbed(texts))
    t.is(bytes(await model.passageEmbed(texts, { batchSize: 1, priority: 'interactive' })), want)
    const backwards = await model.passageEmbed(reversed, { batchSize: 3 })
    t.is(JSON.stringify(backwards.toArrays().reverse()), want)
  }
  const want = [...(await cross.score('what is a vector', texts))]
  t.deepEqual([...(await cross.score('what is a vector', reversed, { batchSize: 1 }))].reverse(), want)
})

test('a folder of another kind names the class that loads it', async (t) => {
  const classes = { TextEmbedding, SparseTextEmbedding, MultiVectorTextEmbedding, TextCrossEncoder }
  const folders = {
    'tiny-bert-cls': 'TextEmbedding',
    'tiny-splade': 'SparseTextEmbedding',
    'tiny-colbert': 'MultiVectorTextEmbedding',
    'tiny-cross-bert': 'TextCrossEncoder',
  }
  for (const [folder, right] of Object.entries(folders)) {
    for (const [name, one] of Object.entries(classes)) {
      if (name === right) continue
      const error = await t.throwsAsync(one.load(tiny(folder)))
      t.true(EmbedError.is(error) && error.code === 'UnsupportedModel', `${folder} by ${name}: ${error}`)
      t.regex(String(error?.message), new RegExp(`${right} loads it`))
    }
  }
})

test('what is wrong with a call is refused by name', async (t) => {
  // biome-ignore lint/suspicious/noExplicitAny: wrong on purpose
  const wrong = (value: unknown) => value as any
  const cases: [() => Promise<unknown>, RegExp][] = [
    [() => sparse.embed(wrong('a text')), /texts must be an array of strings/],
    [() => sparse.embed(wrong(['a', 1])), /text 1 must be a string, not 1/],
    [() => sparse.embed(['a'], wrong({ dimensions: 3 })), /unknown option "dimensions" of embed; it knows batchSize/],
    [() => sparse.embed(['a'], { instruction: 'find' }), /no place for one/],
    [() => sparse.embed([], { instruction: 'find' }), /no place for one/],
    [() => colbert.queryEmbed(['a'], { batchSize: 0 }), /batchSize must be a whole number of at least 1, not 0/],
    [() => cross.score(wrong(['q']), ['a']), /the query must be a string, not an array/],
    [() => cross.score('q', wrong('a')), /documents must be an array of strings, not "a"/],
    [() => cross.rank('q', wrong(null)), /documents must be an array of strings, not null/],
    [() => cross.score('q', wrong(['a', 1])), /document 1 must be a string, not 1/],
    [() => cross.score('q', ['a'], { instruction: 'find' }), /no place for one/],
    [() => cross.rank('q', ['a'], { topK: 0 }), /topK must be a whole number of at least 1/],
    [() => cross.rank('q', ['a'], wrong({ returnDocuments: 1 })), /returnDocuments must be true or false/],
    [() => cross.predict(wrong('q')), /pairs must be an array of \[query, document\], not "q"/],
    [() => cross.predict(wrong([['q', 'a'], ['q']])), /pair 1 must be an array of two strings, not an array of 1: "q"/],
    [() => cross.predict(wrong([['q', 'a', 'b']])), /pair 0 must be .*not an array of more than 2: "q", "a"/],
    [
      () => cross.predict(wrong([['q', 'a'], undefined, ['q', 'a']])),
      /pair 1 must be an array of two strings, not undefined/,
    ],
    [() => cross.predict(wrong([['q', 7]])), /pair 0 must be .*: "q", 7/],
    [() => SparseTextEmbedding.load(wrong(undefined)), /model must be a string that is not blank, not undefined/],
    [() => TextCrossEncoder.load('x', wrong({ normalize: true })), /unknown option "normalize"/],
    [() => TextCrossEncoder.load(tiny('tiny-cross-bert'), { truncate: 'start' }), /truncate is start/],
  ]
  for (const [call, message] of cases) {
    const error = await t.throwsAsync(call)
    t.true(EmbedError.is(error) && error.code === 'InvalidInput', `${message}: ${error}`)
    t.regex(String(error?.message), message)
  }
  for (const { new: make } of [SparseTextEmbedding, MultiVectorTextEmbedding, TextCrossEncoder].map((one) => ({
    new: () => new (wrong(one))(),
  }))) {
    t.throws(make, { message: /is made by await \w+\.load\(model, options\), not by new/ })
  }
})

test('a text that is too long is refused under the policy error, with its place', async (t) => {
  await using model = await TextCrossEncoder.load(tiny('tiny-cross-bert'), { truncate: 'error' })
  const error = await t.throwsAsync(model.score('q', ['a', 'the dog and the fox '.repeat(40)]))
  t.true(EmbedError.is(error) && error.code === 'TextTooLong' && error.index === 1 && error.limit === 64, `${error}`)
})

test('an abort rejects with its reason, and a disposed model is not loaded', async (t) => {
  const controller = new AbortController()
  const reason = new Error('changed my mind')
  const calls = [
    sparse.embed(Array(200).fill('a vector is a list'), { signal: controller.signal }),
    cross.score('q', Array(200).fill('a vector is a list'), { signal: controller.signal }),
  ]
  controller.abort(reason)
  for (const call of calls) t.is(await t.throwsAsync(call), reason)

  const model = await SparseTextEmbedding.load(tiny('tiny-splade'))
  const running = model.embed(['a vector'])
  await model.dispose()
  t.is((await running).length, 1)
  const error = await t.throwsAsync(model.embed(['a']))
  t.true(EmbedError.is(error) && error.code === 'ModelNotLoaded')
  t.is(model.stats().texts, 1)
})

test('an aborted load rejects at once with the reason; the next load works', async (t) => {
  for (const [one, folder] of [
    [SparseTextEmbedding, 'tiny-st6-splade'],
    [MultiVectorTextEmbedding, 'tiny-colbert'],
    [TextCrossEncoder, 'tiny-cross-xlmr'],
  ] as const) {
    const controller = new AbortController()
    const reason = new Error(folder)
    const loading = one.load(tiny(folder), { signal: controller.signal })
    controller.abort(reason)
    t.is(await t.throwsAsync(loading), reason)
    t.is(await t.throwsAsync(one.load(tiny(folder), { signal: controller.signal })), reason)
    await using model = await one.load(tiny(folder))
    t.is(model.model, tiny(folder))
  }
})

test('a reranker that is disposed of finishes what runs', async (t) => {
  const documents = Array.from({ length: 50 }, (_, i) => `a vector is a list of ${i}`)
  const pairs = documents.map((document) => ['what is a vector', document] as const)
  const want = [...(await cross.score('what is a vector', documents))]
  const model = await TextCrossEncoder.load(tiny('tiny-cross-bert'))
  const running = [
    model.score('what is a vector', documents),
    model.predict(pairs),
    model.rank('what is a vector', documents),
  ] as const
  await model.dispose()
  const [scores, predicted, ranked] = await Promise.all(running)
  t.deepEqual([...scores], want)
  t.deepEqual([...predicted], want)
  t.deepEqual(
    ranked.map(({ index, score }) => score === want[index]),
    Array(50).fill(true),
  )
  t.deepEqual(model.stats().texts, 150)
  for (const call of [() => model.score('q', ['a']), () => model.rank('q', []), () => model.predict([])]) {
    const error = await t.throwsAsync(call)
    t.true(EmbedError.is(error, 'ModelNotLoaded'), `${error}`)
  }
})

test('a call of several slices equals single calls', async (t) => {
  // More texts than a slice on the way in (512), and more values than one on the way out (65,536).
  const words = ['a', 'vector', 'the', 'dog', 'fox', 'list', 'world', 'numbers']
  const texts = Array.from({ length: 600 }, (_, i) => `${words[i % 8]} ${words[(i >> 3) % 8]} `.repeat(1 + (i % 5)))
  for (const model of [sparse, colbert]) {
    const rows = await model.passageEmbed(texts)
    t.is(rows.length, 600)
    t.is(rows.tokens.length, 600)
    const singles = await Promise.all(texts.map((text) => model.passageEmbed([text])))
    const wrong = rows.toArrays().flatMap((row, i) => {
      return JSON.stringify([row]) === JSON.stringify(singles[i]?.toArrays()) ? [] : [i]
    })
    t.deepEqual(wrong, [], model.model)
  }
  const pairs = texts.map((text) => ['what is a vector', text] as const)
  const single = await Promise.all(pairs.map((pair) => cross.predict([pair])))
  t.deepEqual(
    [...(await cross.predict(pairs))],
    single.map(([score]) => score),
  )
})
