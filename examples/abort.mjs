// A deadline for a call, and priorities: `node examples/abort.mjs`.
//
// The bulk job is stopped after a while: its promise rejects at once with the signal's own reason, and the work that is
// still queued is dropped. The query in between does not wait for the bulk job to end.

import { NativeEmbeddingService } from 'simile'

const service = new NativeEmbeddingService()
await service.ensureLoaded()

const texts = Array.from(
  { length: 1000 },
  (_, i) => `Paragraph ${i}. ${'Some text that takes a while to embed. '.repeat(25)}`,
)
const controller = new AbortController()
const bulk = service.embedPassage(texts, { signal: controller.signal })

const [query] = await service.embedQuery(['who waits for whom?'])
console.log(`a query of ${query.length} dimensions was answered while ${texts.length} texts were being embedded`)

controller.abort('too slow')
try {
  await bulk
  console.log('the bulk job had finished already')
} catch (reason) {
  console.log(`stopped: ${reason}`)
}
