/** Texts that break other libraries have a defined result here. */

import test from 'ava'
import { NativeEmbeddingService, TextEmbedding } from 'simile'
import { MINILM, real, tiny } from './helpers/models.ts'
import { bytes, norm } from './helpers/vectors.ts'

const model = await TextEmbedding.load(MINILM, real(MINILM))
const row = async (text: string) => bytes((await model.embed([text]))[0] as Float32Array)

test('a lone surrogate is U+FFFD, as if the caller had called toWellFormed', async (t) => {
  const cut = `${'x'.repeat(20)}💰`.slice(0, 21)
  t.false(cut.isWellFormed())
  t.is(await row(cut), await row(cut.toWellFormed()))
  for (const text of ['\ud800', 'a\udc00b', '\udc00\ud800']) t.is(await row(text), await row(text.toWellFormed()), text)
  t.not(await row('a💰'), await row('a\ufffd'), 'a whole pair is a character')
})

test('a lone surrogate is U+FFFD on every way into the addon: together, in a service, in an instruction', async (t) => {
  const odd = ['\ud800', 'a\udc00b', '\udc00\ud800', '💰\ud83d', `${'é'.repeat(500)}\udfff`, 'fine']
  const mended = odd.map((text) => text.toWellFormed())
  t.notDeepEqual(odd, mended)
  t.deepEqual((await model.embed(odd)).map(bytes), (await model.embed(mended)).map(bytes))
  t.deepEqual(await model.tokenCount(odd), await model.tokenCount(mended))
  const service = new NativeEmbeddingService({
    model: tiny('tiny-bert-cls'),
    descriptor: { queryTemplate: '{instruction}: {text}' },
  })
  for (const instruction of ['find \udbff', 'find']) {
    const given = (await service.embedQuery(odd, { instruction })).map(bytes)
    t.deepEqual(given, (await service.embedQuery(mended, { instruction: instruction.toWellFormed() })).map(bytes))
  }
})

test('empty, blank and invisible texts have finite vectors of length one', async (t) => {
  const texts = ['', ' ', '\n\n', '\0', '\u200b', '\ufeff', '\u2028', '\u{e0001}']
  const rows = await model.embed(texts)
  texts.forEach((text, i) => {
    const length = norm(rows[i] as Float32Array)
    t.true(Math.abs(length - 1) < 1e-5, `${JSON.stringify(text)}: length ${length}`)
  })
  t.is(bytes(rows[0] as Float32Array), bytes(rows[1] as Float32Array), 'white space alone is no token')
})

test('an empty text among others shifts nobody', async (t) => {
  const rows = await model.embed(['a', '', 'b'])
  t.is(bytes(rows[0] as Float32Array), await row('a'))
  t.is(bytes(rows[1] as Float32Array), await row(''))
  t.is(bytes(rows[2] as Float32Array), await row('b'))
})

test('NUL is a character like another', async (t) => {
  t.is(await row('nul\0inside'), await row('nulinside'), 'BERT drops control characters')
  t.is((await model.embed(['a\0b'])).tokens[0]?.total, (await model.embed(['ab'])).tokens[0]?.total)
})

test('a very long text is cut, and says so', async (t) => {
  const rows = await model.embed(['a'.repeat(1_000_000), '\n'.repeat(100_000), 'word '.repeat(50_000)])
  t.deepEqual(
    rows.tokens.map(({ embedded }) => embedded),
    [3, 2, 256],
  )
  t.deepEqual(rows.tokens[2], { total: 50_002, embedded: 256 })
  t.is(rows.truncated, 1)
})

test('exactly at the limit, one below, one above', async (t) => {
  const texts = [253, 254, 255].map((words) => 'word '.repeat(words))
  const rows = await model.embed(texts)
  t.deepEqual(rows.tokens, [
    { total: 255, embedded: 255 },
    { total: 256, embedded: 256 },
    { total: 257, embedded: 256 },
  ])
  t.is(rows.truncated, 1)
  t.is(bytes(rows[2] as Float32Array), bytes(rows[1] as Float32Array), 'what was cut has no influence')
})

test('truncate: start keeps the end, error refuses and says where', async (t) => {
  const long = `${'before '.repeat(300)}${'word '.repeat(254)}`
  const fromStart = await TextEmbedding.load(MINILM, { ...real(MINILM), truncate: 'start' })
  t.is(bytes((await fromStart.embed([long]))[0] as Float32Array), await row('word '.repeat(254)))
  const strict = await TextEmbedding.load(MINILM, { ...real(MINILM), truncate: 'error' })
  await t.throwsAsync(strict.embed(['short', long]), { code: 'TextTooLong', message: /556.*256|256.*556/s })
  const error = await strict.embed(['short', long]).catch((error) => error)
  t.like(error, { index: 1, limit: 256, actual: 556, unit: 'tokens' })
  t.is((await strict.embed(['short'])).truncated, 0)
})

test('special tokens written out are the special tokens, as in sentence-transformers', async (t) => {
  const [literal] = await model.tokenCount(['[SEP] [CLS] [MASK]'])
  t.is(literal, 5)
})

test('odd texts go through a service as well', async (t) => {
  const service = new NativeEmbeddingService({ model: tiny('tiny-bert-cls') })
  const rows = await service.embed(['\ud800', '', '\0', '🙂'.repeat(1000), 'x'.repeat(32768)])
  t.is(rows.length, 5)
  t.true(rows.every((row) => row.every(Number.isFinite)))
})
