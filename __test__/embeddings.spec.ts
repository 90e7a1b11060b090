/** What comes back from a call. */

import test from 'ava'
import { createEmbeddings, NativeEmbeddingService, TextEmbedding } from 'simile'
import { tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const model = await TextEmbedding.load(tiny('tiny-bert-cls'))
const TEXTS = ['one', 'a little more than one', 'the dog and the fox and the world '.repeat(40)]

test('a result is a true array of rows', async (t) => {
  const rows = await model.embed(TEXTS)
  t.true(Array.isArray(rows))
  t.is(Object.getPrototypeOf(rows), Array.prototype)
  t.is(rows.length, 3)
  for (const row of rows) {
    t.true(row instanceof Float32Array)
    t.is(row.length, model.dimensions)
  }
  const [first] = rows
  t.is(first, rows[0])
})

test('facts of the call are there and out of the way', async (t) => {
  const rows = await model.embed(TEXTS)
  t.deepEqual(Object.keys(rows), ['0', '1', '2'])
  t.is(rows.dimensions, model.dimensions)
  t.is(rows.contractId, model.contract)
  t.is(rows.tokens.length, 3)
  t.is(rows.truncated, 1)
  t.deepEqual(
    rows.tokens.map(({ total, embedded }) => total > embedded),
    [false, false, true],
  )
  t.is(rows.tokens[2]?.embedded, model.maxLength)
  t.is(rows.tokens, rows.tokens, 'made once')
})

test('every row has its own memory', async (t) => {
  const rows = await model.embed(TEXTS)
  const buffers = new Set(rows.map((row) => row.buffer))
  t.is(buffers.size, rows.length)
  for (const row of rows) t.is(row.buffer.byteLength, row.byteLength)

  const kept = bytes(rows[1] as Float32Array)
  rows[0]?.fill(7)
  structuredClone(rows[2], { transfer: [rows[2]?.buffer as ArrayBuffer] })
  t.is(bytes(rows[1] as Float32Array), kept)
  t.is(rows[2]?.length, 0, 'transferred away')
})

test('plain arrays, and JSON that is arrays of numbers', async (t) => {
  const rows = await model.embed(TEXTS.slice(0, 2))
  const plain = rows.toArrays()
  t.true(plain.every((row) => Array.isArray(row) && row.every((x) => typeof x === 'number')))
  t.deepEqual(plain[1], Array.from(rows[1] as Float32Array))
  t.deepEqual(JSON.parse(JSON.stringify(rows)), plain)
})

test('flat: the same values in one block', async (t) => {
  const rows = await model.embed(TEXTS)
  const flat = await model.embed(TEXTS, { output: 'flat' })
  t.like(flat, { count: 3, dimensions: rows.dimensions, truncated: 1, contractId: rows.contractId })
  t.deepEqual(flat.tokens, rows.tokens)
  t.is(flat.data.length, 3 * flat.dimensions)
  t.is(flat.data.buffer.byteLength, flat.data.byteLength)
  rows.forEach((row, i) => {
    t.is(bytes(flat.data.slice(i * flat.dimensions, (i + 1) * flat.dimensions)), bytes(row))
  })
})

test('more rows than cross at once, in order, as rows and flat', async (t) => {
  const count = 10_000
  const texts = Array.from({ length: count }, (_, i) => `${i % 100}`)
  const known = await model.embed(texts.slice(0, 100))
  const rows = await model.embed(texts)
  const flat = await model.embed(texts, { output: 'flat' })
  t.is(rows.length, count)
  t.is(flat.count, count)
  const wrong = rows.flatMap((row, i) => {
    const expected = bytes(known[i % 100] as Float32Array)
    const block = flat.data.slice(i * flat.dimensions, (i + 1) * flat.dimensions)
    return bytes(row) === expected && bytes(block) === expected ? [] : [i]
  })
  t.deepEqual(wrong, [])
})

test('no texts: an empty result for a model, a refusal by a service', async (t) => {
  const model = await TextEmbedding.load(tiny('tiny-bert-cls')) // its own: others count their calls meanwhile
  const rows = await model.embed([])
  t.deepEqual([...rows], [])
  t.like(rows, { dimensions: model.dimensions, truncated: 0, contractId: model.contract })
  t.deepEqual(rows.tokens, [])
  const flat = await model.queryEmbed([], { output: 'flat' })
  t.like(flat, { count: 0, dimensions: model.dimensions })
  t.is(flat.data.length, 0)
  t.deepEqual(await model.tokenCount([]), [])
  t.is(model.stats().calls, 0, 'the model was not touched')
  await t.throwsAsync(model.embed([], { signal: AbortSignal.abort(new Error('no')) }), { message: 'no' })
  await t.throwsAsync(new NativeEmbeddingService({ model: tiny('tiny-bert-cls') }).embed([]), { code: 'InvalidInput' })
})

test('token counts are what the model sees', async (t) => {
  const { tokens } = await model.embed(TEXTS)
  t.deepEqual(
    await model.tokenCount(TEXTS),
    tokens.map(({ embedded }) => embedded),
  )
})

test('createEmbeddings gives rows of another service the same shape', (t) => {
  const rows = createEmbeddings([Float32Array.of(1, 2), Float32Array.of(3, 4)], {
    tokens: [
      { total: 2, embedded: 2 },
      { total: 9, embedded: 5 },
    ],
  })
  t.like(rows, { dimensions: 2, truncated: 1, contractId: '' })
  t.deepEqual(rows.toArrays(), [
    [1, 2],
    [3, 4],
  ])
})
