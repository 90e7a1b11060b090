// Search by words, then by reading: `node examples/hybrid.mjs ["a question"]`.
//
// BM25 needs no model: its vectors are word numbers and weights, and a dot product finds what shares words with the
// question. With the id or folder of a reranker in RERANKER the hits are put in order by it: it reads question and passage
// together, which costs more and is why it only sees the hits.

import { SparseTextEmbedding, TextCrossEncoder } from 'simile'

const passages = [
  'HNSW is a graph index: it finds approximate nearest neighbours of a vector in logarithmic time.',
  'A sourdough loaf needs flour, water, salt, a starter and a very hot oven.',
  'A vector database stores vectors and finds the items that are similar to a given one.',
  'Write-ahead logging lets a database recover committed transactions after a crash.',
]
const question = process.argv.slice(2).join(' ') || 'how do vector databases find similar items?'

const bm25 = await SparseTextEmbedding.load('Qdrant/bm25')
const [query] = await bm25.queryEmbed([question])
const vectors = await bm25.passageEmbed(passages)

const overlap = (a, b) => {
  let sum = 0
  for (let i = 0, j = 0; i < a.indices.length && j < b.indices.length; ) {
    if (a.indices[i] === b.indices[j]) sum += a.values[i++] * b.values[j++]
    else if (a.indices[i] < b.indices[j]) i++
    else j++
  }
  return sum
}
let hits = vectors
  .map((vector, i) => ({ document: passages[i], score: overlap(query, vector) }))
  .filter(({ score }) => score > 0)
  .sort((a, b) => b.score - a.score)

if (process.env.RERANKER) {
  const reranker = await TextCrossEncoder.load(process.env.RERANKER)
  const documents = hits.map(({ document }) => document)
  hits = await reranker.rank(question, documents, { returnDocuments: true })
  await reranker.dispose()
}
for (const { document, score } of hits) console.log(score.toFixed(3), document)

await bm25.dispose()
