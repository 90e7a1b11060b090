/** Downloads and processes: two at once, one that is killed, one that ends, a worker that is terminated. */

import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import test from 'ava'
import { TextEmbedding } from 'simile'
import { startModule } from './helpers/child.ts'
import { type Asked, etag, Hub, ID, WEIGHTS } from './helpers/hub.ts'
import { ROOT } from './helpers/models.ts'

const scratch = mkdtempSync(join(tmpdir(), 'simile-processes-'))
test.after.always(() => rmSync(scratch, { recursive: true, force: true }))

/** A hub whose first answer with the weights waits; `asked` resolves when they are asked for. */
async function slowHub(act: (asked: Asked, hub: Hub) => void) {
  let tell = (_: Asked) => {}
  const asked = new Promise<Asked>((resolve) => {
    tell = resolve
  })
  let first = true
  const hub = await Hub.start({
    fault: (one) => {
      if (one.file !== WEIGHTS || !first) return false
      first = false
      act(one, hub)
      tell(one)
    },
  })
  const cacheDir = mkdtempSync(join(scratch, 'cache-'))
  const options = { cacheDir, endpoint: hub.url, offline: false }
  const size = hub.files.get(WEIGHTS)?.length as number
  const partial = join(
    cacheDir,
    'models--acme--tiny/blobs',
    `${etag(WEIGHTS, hub.files.get(WEIGHTS) as Buffer)}.incomplete`,
  )
  return { hub, options, asked, size, partial }
}

/** A process that loads the model and says how it goes. */
function loader(options: object): string {
  return `import { TextEmbedding } from 'simile'
    const onProgress = ({ file }) => console.log('at', file)
    const model = await TextEmbedding.load('${ID}', { ...${JSON.stringify(options)}, onProgress })
    console.log('loaded', model.dimensions)`
}

test('two processes at once: one transfers, the other waits and uses it', async (t) => {
  const { hub, options, asked, size } = await slowHub(() => {})
  t.teardown(() => hub.stop())
  const one = startModule(loader(options))
  const { serve } = await asked
  const other = startModule(loader(options))
  await other.said(/^at model\.safetensors$/)
  serve()
  t.is(await one.said(/^loaded/), 'loaded 32')
  t.is(await other.said(/^loaded/), 'loaded 32')
  t.deepEqual([await one.ended, await other.ended], [0, 0])
  t.is(hub.sent.get(WEIGHTS), size)
  for (const [name, content] of hub.files) {
    if (hub.sent.has(name)) t.is(hub.sent.get(name), content.length, name)
  }
})

test('a process that is killed leaves what it has, and the next one goes on from there', async (t) => {
  const BEGINNING = 60_000
  const { hub, options, asked, size, partial } = await slowHub(({ response, body }, hub) => {
    response.writeHead(200, { 'Content-Length': body.length })
    response.write(body.subarray(0, BEGINNING))
    hub.count(WEIGHTS, BEGINNING)
  })
  t.teardown(() => hub.stop())
  const killed = startModule(loader(options))
  await asked
  while (!existsSync(partial) || statSync(partial).size < BEGINNING) await pause(5)
  killed.child.kill('SIGKILL')
  t.is(await killed.ended, 'SIGKILL')
  await t.throwsAsync(TextEmbedding.load(ID, { ...options, offline: true }), { code: 'ModelInitialization' })
  t.is((await TextEmbedding.load(ID, options)).dimensions, 32)
  t.is(hub.seen.at(-1)?.range, `bytes=${BEGINNING}-`)
  t.is(hub.sent.get(WEIGHTS), size, 'nothing was sent twice')
  t.false(existsSync(partial))
})

test('a download that nobody waits for keeps no process alive', async (t) => {
  const { hub, options, asked } = await slowHub(() => {})
  t.teardown(() => hub.stop())
  const source = `import { NativeEmbeddingService } from 'simile'
    const service = new NativeEmbeddingService({ ...${JSON.stringify(options)}, model: '${ID}', onProgress() {} })
    const controller = new AbortController()
    process.once('message', () => controller.abort(new Error('enough')))
    await service.ensureLoaded({ signal: controller.signal }).catch(({ message }) => console.log(message))`
  const child = startModule(source)
  await asked
  child.child.send('abort')
  t.is(await child.said(/./), 'enough')
  t.is(await child.ended, 0)
})

test('a worker that is terminated ends its download', async (t) => {
  const { hub, options, asked } = await slowHub(() => {})
  t.teardown(() => hub.stop())
  const worker = new Worker(
    `const { TextEmbedding } = require(${JSON.stringify(ROOT)})
     TextEmbedding.load('${ID}', { ...${JSON.stringify(options)}, onProgress() {} })`,
    { eval: true },
  )
  const { request } = await asked
  const closed = once(request.socket, 'close')
  await worker.terminate()
  await closed
  t.pass()
})
