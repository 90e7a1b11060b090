// Long documents, more of them than fit in memory: `node examples/bulk.mjs [FOLDER] ["a question"]`.
//
// Each Markdown page is cut into chunks that the model embeds whole; the chunks go through a stream, which reads the
// next pages while it computes. Only the vectors are kept. A real program would hand them to an index as they come.

import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { assertSameContract, TextEmbedding } from 'simile'

const [folder = 'docs', question = 'which fields does an error have?'] = process.argv.slice(2)

const model = await TextEmbedding.load()
const found = []

async function* passages() {
  for (const file of (await readdir(folder)).filter((name) => name.endsWith('.md')).sort()) {
    const page = await readFile(join(folder, file), 'utf8')
    for (const { text, start } of await model.chunkText(page, { role: 'passage', overlap: 24 })) {
      found.push({ file, start })
      yield text
    }
  }
}

const stream = model.embedStream(passages(), {
  role: 'passage',
  onProgress: ({ texts, tokens }) => console.log(`${texts} chunks, ${tokens} tokens`),
})
const vectors = []
for await (const vector of stream) vectors.push(vector)
console.log(`${vectors.length} chunks of ${folder} embedded, ${stream.truncated} of them cut`)

const queries = await model.queryEmbed([question])
assertSameContract(queries, stream)
const score = (vector) => vector.reduce((sum, x, i) => sum + x * queries[0][i], 0)
const hits = found.map((chunk, i) => ({ ...chunk, score: score(vectors[i]) })).sort((a, b) => b.score - a.score)
for (const { file, start, score } of hits.slice(0, 3)) console.log(score.toFixed(3), `${file}, from character ${start}`)

await model.dispose()
