// As smoke.mjs, from CommonJS.

const assert = require('node:assert/strict')
const { NativeEmbeddingService, TextEmbedding } = require('simile')

async function main() {
  const folder = process.argv[2]
  const service = new NativeEmbeddingService({ model: folder })
  const [query] = await service.embedQuery(['what is a vector database?'])
  assert.equal(query.length, 32)
  const model = await TextEmbedding.load(folder)
  const rows = await model.queryEmbed(['what is a vector database?'])
  assert.deepEqual(rows[0], query)
  console.log(`ok ${process.version}`)
}

main()
