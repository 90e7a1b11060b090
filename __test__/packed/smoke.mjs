// What every supported runtime must do with the installed packages: `node smoke.mjs MODEL_FOLDER`. Prints `ok` last.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import * as esm from 'simile'

const folder = isMainThread ? process.argv[2] : workerData
const { CachedEmbeddingService, EmbedError, InvalidInputError, NativeEmbeddingService, TextEmbedding } = esm

const service = new NativeEmbeddingService({ model: folder })
const [query] = await service.embedQuery(['what is a vector database?'])
assert.equal(query.length, 32)

const cached = new CachedEmbeddingService(service)
for (let i = 0; i < 2; i++) assert.deepEqual((await cached.embedQuery(['what is a vector database?']))[0], query)
assert.equal(cached.cacheStats().hits, 1)

if (isMainThread) {
  // One class, however it is imported.
  const cjs = createRequire(import.meta.url)('simile')
  assert.equal(cjs.NativeEmbeddingService, NativeEmbeddingService)
  assert.equal(cjs.InvalidInputError, InvalidInputError)
  assert.deepEqual(Object.keys(esm).sort(), Object.keys(cjs).sort())
  assert.equal(createRequire(import.meta.url)('simile/package.json').name, 'simile')

  const error = await service.embed([]).catch((error) => error)
  assert.ok(error instanceof InvalidInputError && error instanceof EmbedError && error instanceof Error)
  assert.equal(error.code, 'InvalidInput')

  const controller = new AbortController()
  const model = await TextEmbedding.load(folder)
  const pending = model.embed(Array(20_000).fill('a text that takes a moment'), { signal: controller.signal })
  setImmediate(() => controller.abort(new Error('stop')))
  await assert.rejects(pending, { message: 'stop' })
  await model.dispose()
  await assert.rejects(model.embed(['a']), { code: 'ModelNotLoaded' })

  const inWorker = await new Promise((resolve, reject) => {
    new Worker(new URL(import.meta.url), { workerData: folder }).on('message', resolve).on('error', reject)
  })
  assert.deepEqual(inWorker, Array.from(query))
  console.log(`ok ${process.version}`)
} else {
  parentPort.postMessage(Array.from(query))
}
