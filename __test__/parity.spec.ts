/** The same numbers as sentence-transformers in float32 with an empty prompt, through the public API. */

import test from 'ava'
import { TextEmbedding } from 'simile'
import { MINILM, MINILM_L3, real, reference, tiny, tinyGolden, tinyNames } from './helpers/models.ts'
import { difference } from './helpers/vectors.ts'

/** Largest difference allowed, on normalised vectors; of the largest component otherwise. */
const TOLERANCE = 1e-5

for (const id of [MINILM, MINILM_L3]) {
  test(`${id} on all reference texts, the odd and the long ones included`, async (t) => {
    const { items, final, dim, max_seq_length } = reference(id)
    const model = await TextEmbedding.load(id, real(id))
    t.is(model.dimensions, dim)
    t.is(model.maxLength, max_seq_length)
    const texts = items.map(({ text }) => text)
    const rows = await model.embed(texts)
    const wrong = items.flatMap(({ text, ids, tokens_before_truncation: total }, i) => {
      const problems: string[] = []
      const off = difference(rows[i] as Float32Array, final.subarray(i * dim, (i + 1) * dim))
      if (!(off <= TOLERANCE)) problems.push(`differs by ${off}`)
      const tokens = rows.tokens[i]
      if (tokens?.embedded !== ids.length) problems.push(`${tokens?.embedded} tokens embedded, not ${ids.length}`)
      if (tokens?.total !== total) problems.push(`${tokens?.total} tokens in all, not ${total}`)
      return problems.length > 0 ? [`${i} ${JSON.stringify(text.slice(0, 40))}: ${problems.join(', ')}`] : []
    })
    t.deepEqual(wrong, [])
    t.is(rows.truncated, items.filter(({ ids, tokens_before_truncation: total }) => ids.length < total).length)
    t.true(rows.truncated > 0, 'the reference texts hold some beyond the limit')
  })
}

for (const name of tinyNames()) {
  test(`${name}, normalised and not`, async (t) => {
    const golden = tinyGolden(name)
    // The reference of these normalises, though their files list no Normalize module.
    const asPublished = await TextEmbedding.load(tiny(name), name.startsWith('tiny-jina') ? { normalize: true } : {})
    const raw = await TextEmbedding.load(tiny(name), { normalize: false })
    // Where no file states a limit, ours is 512 and the reference's the position table.
    if (golden.max_seq_length !== undefined && asPublished.descriptor.origins.maxLength !== 'default') {
      t.is(asPublished.maxLength, golden.max_seq_length)
    }
    const [vectors, unscaled] = await Promise.all([asPublished.embed(golden.texts), raw.embed(golden.texts)])
    const wrong = golden.texts.flatMap((text, i) => {
      const off = difference(vectors[i] as Float32Array, golden.vectors[i] as number[])
      const offRaw = golden.raw ? difference(unscaled[i] as Float32Array, golden.raw[i] as number[]) : 0
      const tokens = vectors.tokens[i]?.embedded
      const fine = off <= TOLERANCE && offRaw <= TOLERANCE && tokens === golden.ids[i]?.length
      return fine ? [] : [`${i} ${JSON.stringify(text.slice(0, 40))}: ${off}, raw ${offRaw}, ${tokens} tokens`]
    })
    t.deepEqual(wrong, [])
  })
}

test('a text without tokens is a zero vector of a static model, and has no chunks and no tokens', async (t) => {
  const model = await TextEmbedding.load(tiny('tiny-static'))
  const [blank, word] = await model.embed([' ', 'the dog'])
  t.deepEqual(blank, new Float32Array(32))
  t.true(Math.abs(Math.hypot(...(word as Float32Array)) - 1) < 1e-6)
  t.deepEqual(await model.tokenCount(['', ' ', 'the dog']), [0, 0, 2])
  t.deepEqual(await model.chunkText(' '), [])
  t.is((await model.chunkText('the dog and the fox '.repeat(3), { maxTokens: 5 })).length, 3)
  t.is(model.maxLength, 512)
})
