/** Many calls at once, too many, and too late. Tests that measure time have the queue for themselves. */

import { setImmediate } from 'node:timers/promises'
import test from 'ava'
import { OverloadedError, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const FOLDER = tiny('tiny-bert-cls')

test('512 calls at once each get their own rows', async (t) => {
  const model = await TextEmbedding.load(FOLDER)
  const words = ['the', 'dog', 'fox', 'world', 'hello']
  const expected = await model.embed(words)
  const calls = Array.from({ length: 512 }, (_, call) =>
    call % 2 === 0
      ? model.embed([words[call % 5] as string])
      : model.embed([words[call % 5] as string], { priority: 'interactive' }),
  )
  const wrong: number[] = []
  for (const [call, rows] of (await Promise.all(calls)).entries()) {
    const [row] = rows
    if (rows.length !== 1 || row === undefined || bytes(row) !== bytes(expected[call % 5] as Float32Array)) {
      wrong.push(call)
    }
  }
  t.deepEqual(wrong, [])
  t.like(model.stats(), { calls: 513, failed: 0, refused: 0, queuedCalls: 0, queuedTexts: 0 })
})

test.serial('20,000 small texts: one call and 2,000 calls give the same, and neither takes for ever', async (t) => {
  const model = await TextEmbedding.load(FOLDER)
  const texts = Array.from({ length: 20_000 }, (_, index) => `text ${index}`)
  const start = performance.now()
  const one = await model.embed(texts)
  const alone = performance.now() - start
  const calls = Array.from({ length: 2000 }, (_, call) => model.embed(texts.slice(call * 10, call * 10 + 10)))
  const many = (await Promise.all(calls)).flat()
  const together = performance.now() - start - alone
  t.is(many.length, one.length)
  t.true(many.every((row, index) => bytes(row) === bytes(one[index] as Float32Array)))
  // A call costs something, but not what grows with the calls that wait: that was a factor of 25.
  t.true(together < 8 * alone + 2000, `${together} ms against ${alone} ms`)
})

test('a full queue refuses bulk calls at once, queries go on, and there is room again afterwards', async (t) => {
  const { stdout, stderr, status } = await runModule(
    `import { TextEmbedding, OverloadedError } from 'simile'
     const model = await TextEmbedding.load(${JSON.stringify(FOLDER)})
     const texts = Array(4000).fill('the dog and the fox '.repeat(20))
     const first = model.embed(texts)
     while (model.stats().queuedCalls === 0) await new Promise((resolve) => setImmediate(resolve))
     const settled = Promise.allSettled([...Array(8)].map(() => model.embed(texts)))
     const query = await model.queryEmbed(['hello'])
     const errors = (await settled).flatMap(({ reason }) => reason ?? [])
     const [error] = errors
     console.log((await first).length, errors.length > 0, errors.every((one) => one instanceof OverloadedError), query.length)
     console.log(error.limit, error.actual > error.limit, error.unit, /embedStream/.test(error.message))
     console.log(model.stats().refused === errors.length, model.stats().queuedCalls, (await model.embed(texts)).length)`,
    { env: { SIMILE_QUEUE_MB: '1' } },
  )
  t.is(stderr, '')
  t.is(stdout, '4000 true true 1\n1048576 true bytes true\ntrue 0 4000\n')
  t.is(status, 0)
})

test('texts that wait for a model being downloaded are bounded too', async (t) => {
  const { stdout, stderr, status } = await runModule(
    `import { once } from 'node:events'
     import { mkdtempSync, rmSync } from 'node:fs'
     import { createServer } from 'node:net'
     import { tmpdir } from 'node:os'
     import { join } from 'node:path'
     import { NativeEmbeddingService, OverloadedError } from 'simile'
     // A hub that takes the connection and never answers.
     const sockets = []
     const hub = createServer((socket) => sockets.push(socket.on('error', () => {}))).listen(0, '127.0.0.1')
     await once(hub, 'listening')
     const cacheDir = mkdtempSync(join(tmpdir(), 'simile-load-'))
     const options = { endpoint: 'http://127.0.0.1:' + hub.address().port, cacheDir, offline: false }
     const service = new NativeEmbeddingService({ model: 'simile-test/never', ...options })
     const texts = Array(30).fill('x'.repeat(30_000))
     const abort = new AbortController()
     const call = () => service.embed(texts, { signal: abort.signal }).catch((error) => error)
     const calls = [call(), call()]
     const error = await Promise.race(calls)
     console.log(error instanceof OverloadedError, error.unit, error.limit, error.actual > error.limit, error.model)
     console.log(/being loaded/.test(error.message), service.stats().refused)
     const local = new NativeEmbeddingService({ model: ${JSON.stringify(FOLDER)} })
     await local.ensureLoaded()
     console.log((await local.embed(texts)).length)
     abort.abort()
     console.log((await Promise.all(calls)).map((error) => error.name).sort().join())
     sockets.forEach((socket) => socket.destroy())
     hub.close()
     rmSync(cacheDir, { recursive: true })`,
    { env: { SIMILE_QUEUE_MB: '1' } },
  )
  t.is(stderr, '')
  t.is(stdout, 'true bytes 1048576 true simile-test/never\ntrue 1\n30\nAbortError,OverloadedError\n')
  t.is(status, 0)
})

test('SIMILE_QUEUE_MB: what is not allowed is the error of every load', async (t) => {
  for (const value of ['0', 'much', '1.5', '-1']) {
    const { stdout } = await runModule(
      `import { NativeEmbeddingService, TextEmbedding } from 'simile'
       const folder = ${JSON.stringify(FOLDER)}
       const said = (error) => console.log(error.code, error.option, error.message)
       await TextEmbedding.load(folder).catch(said)
       await new NativeEmbeddingService({ model: folder }).embed(['a']).catch(said)`,
      { env: { SIMILE_QUEUE_MB: value } },
    )
    t.regex(stdout, new RegExp(`^(InvalidInput SIMILE_QUEUE_MB .*"${value}".*whole number.*\\n){2}$`))
  }
})

test.serial('maxWait: a call that is not begun in time is refused, one that is begun is not', async (t) => {
  const model = await TextEmbedding.load(FOLDER)
  // Many turns of the dispatcher, all before the calls that follow.
  const busy = model.embed(Array(20_000).fill('the dog and the fox and the world '.repeat(8)))
  while (model.stats().queuedCalls === 0) await setImmediate()
  const patient = model.embed(['hello'], { maxWait: 600_000 })
  const error = await t.throwsAsync(model.embed(['hello'], { maxWait: 1 }), { instanceOf: OverloadedError })
  t.like(error, { code: 'Overloaded', limit: 1, unit: 'ms', option: 'maxWait' })
  t.true(((error as OverloadedError).actual ?? 0) >= 1)
  t.is((await patient).length, 1)
  t.is((await busy).length, 20_000)
  t.is((await model.embed(['hello'], { maxWait: 600_000 })).length, 1)
  t.like(model.stats(), { calls: 3, failed: 1, refused: 1, queuedCalls: 0, queuedTexts: 0 })
})

test('maxWait must be a whole number of at least 1', async (t) => {
  const model = await TextEmbedding.load(FOLDER)
  for (const maxWait of [0, -1, 1.5, '10', Number.POSITIVE_INFINITY]) {
    await t.throwsAsync(model.embed(['a'], { maxWait } as object), {
      code: 'InvalidInput',
      message: /^maxWait must be/,
    })
  }
})

test.serial('a text of megabytes is given up soon after an abort, and queries run meanwhile', async (t) => {
  const model = await TextEmbedding.load(FOLDER)
  const long = 'the dog and the fox and the world '.repeat(600_000)
  const controller = new AbortController()
  const call = model.embed([long], { signal: controller.signal })
  const reason = new Error('not wanted any more')
  const rejected = t.throwsAsync(call)
  t.is((await model.queryEmbed(['hello'])).length, 1)
  controller.abort(reason)
  t.is(await rejected, reason)
  // Tokenising 20 MB takes seconds; what is bulk too comes through long before.
  const start = performance.now()
  t.is((await model.embed(['hello'])).length, 1)
  t.true(performance.now() - start < 4000, `${performance.now() - start} ms`)
})

test('a stream waits for room in the queue, also when it fills it by itself', async (t) => {
  const { stdout, stderr, status } = await runModule(
    `import { TextEmbedding } from 'simile'
     const model = await TextEmbedding.load(${JSON.stringify(FOLDER)})
     const texts = Array.from({ length: 2000 }, (_, i) => i + ' the dog and the fox '.repeat(100))
     const other = model.embed(texts)
     let rows = 0
     for await (const _ of model.embedStream(texts)) rows++
     console.log(rows, (await other).length, model.stats().refused > 0)`,
    { env: { SIMILE_QUEUE_MB: '1' } },
  )
  t.is(stderr, '')
  t.is(stdout, '2000 2000 true\n')
  t.is(status, 0)
})
