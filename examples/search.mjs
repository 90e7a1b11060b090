// Semantic search over a list: `node examples/search.mjs ["a question"]`.
//
// Passages are embedded once and kept as one block of memory; a query is one call and one pass over the block. Vectors
// of this model have length one, so the dot product is the cosine similarity.

import { TextEmbedding } from 'simile'

const passages = [
  'HNSW is a graph index: it finds approximate nearest neighbours of a vector in logarithmic time.',
  'A sourdough loaf needs flour, water, salt, a starter and a very hot oven.',
  'The moon raises two tides a day because the earth turns under two bulges of water.',
  'Write-ahead logging lets a database recover committed transactions after a crash.',
  'A bicycle stays upright because it steers into a fall.',
  'Compound interest is paid on the interest that has already been paid.',
]
const question = process.argv.slice(2).join(' ') || 'how does a vector database find similar items quickly?'

const model = await TextEmbedding.load()
const { data, dimensions } = await model.passageEmbed(passages, { output: 'flat' })
const [query] = await model.queryEmbed([question])

const similarity = (row) => {
  let sum = 0
  for (let i = 0; i < dimensions; i++) sum += query[i] * data[row * dimensions + i]
  return sum
}
const hits = passages.map((text, row) => ({ text, score: similarity(row) })).sort((a, b) => b.score - a.score)
for (const { text, score } of hits.slice(0, 3)) console.log(score.toFixed(3), text)

await model.dispose()
