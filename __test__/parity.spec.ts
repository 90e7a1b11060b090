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
    const asPublished = await TextEmbedding.load(tiny(name))
    const raw = await TextEmbedding.load(tiny(name), { normalize: false })
    t.is(asPublished.maxLength, golden.max_seq_length)
    const [vectors, unscaled] = await Promise.all([asPublished.embed(golden.texts), raw.embed(golden.texts)])
    const wrong = golden.texts.flatMap((text, i) => {
      const off = difference(vectors[i] as Float32Array, golden.vectors[i] as number[])
      const offRaw = difference(unscaled[i] as Float32Array, golden.raw[i] as number[])
      const tokens = vectors.tokens[i]?.embedded
      const fine = off <= TOLERANCE && offRaw <= TOLERANCE && tokens === golden.ids[i]?.length
      return fine ? [] : [`${i} ${JSON.stringify(text.slice(0, 40))}: ${off}, raw ${offRaw}, ${tokens} tokens`]
    })
    t.deepEqual(wrong, [])
  })
}
