/** AbortSignal: before, during and after; often; and from elsewhere. */

import test from 'ava'
import { NativeEmbeddingService, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { MINILM, real, tiny } from './helpers/models.ts'

const model = await TextEmbedding.load(MINILM, real(MINILM))
const LONG_JOB = Array.from(
  { length: 3000 },
  (_, i) => `Paragraph ${i}. ${'Some text that takes a while. '.repeat(40)}`,
)

test('aborted before: rejects with the reason and touches nothing', async (t) => {
  // Of its own: the other tests of this file use the shared one meanwhile.
  const model = await TextEmbedding.load(tiny('tiny-bert-cls'))
  const reason = { any: 'value' }
  const signal = AbortSignal.abort(reason)
  const calls = model.stats().calls
  for (const call of [
    model.embed(['a'], { signal }),
    model.queryEmbed(['a'], { signal }),
    model.tokenCount(['a'], { signal }),
    new NativeEmbeddingService({ model: './no/such/folder' }).embed(['a'], { signal }),
    new NativeEmbeddingService({ model: './no/such/folder' }).ensureLoaded({ signal }),
    TextEmbedding.load('./no/such/folder', { signal }),
  ]) {
    t.is(await call.catch((error) => error), reason)
  }
  t.is(model.stats().calls, calls)
})

test('aborted during: rejects at once, stops computing, and the model goes on', async (t) => {
  const controller = new AbortController()
  const pending = model.embed(LONG_JOB, { signal: controller.signal })
  // The work has begun for certain once a query has got in between.
  await model.queryEmbed(['who waits for whom?'])
  const started = performance.now()
  controller.abort()
  const error = await pending.catch((error) => error)
  const waited = performance.now() - started
  t.is(error, controller.signal.reason)
  t.is(error.name, 'AbortError')
  t.true(waited < 50, `rejected after ${waited} ms`)

  // Nothing of the aborted call is computed any more once another call of the same queue has gone through.
  await model.embed(['after'], { priority: 'bulk' })
  const { texts, tokens } = model.stats()
  await model.embed(['after'], { priority: 'bulk' })
  t.is(model.stats().texts, texts + 1)
  t.true(model.stats().tokens - tokens < 10)
})

test('aborted while the texts are handed over', async (t) => {
  const controller = new AbortController()
  const many = Array.from({ length: 200_000 }, (_, i) => `text ${i} ${'x'.repeat(200)}`)
  const pending = model.embed(many, { signal: controller.signal })
  queueMicrotask(() => controller.abort(new Error('changed my mind')))
  await t.throwsAsync(pending, { message: 'changed my mind' })
  t.is((await model.embed(['a'])).length, 1)
})

test('aborted after: the result stays', async (t) => {
  const controller = new AbortController()
  const rows = await model.embed(['a'], { signal: controller.signal })
  controller.abort()
  t.is(rows[0]?.length, 384)
})

test('AbortSignal.timeout rejects with its TimeoutError', async (t) => {
  const error = await model.embed(LONG_JOB, { signal: AbortSignal.timeout(20) }).catch((error) => error)
  t.is(error.name, 'TimeoutError')
})

test('an aborted load rejects at once; the next load works', async (t) => {
  const controller = new AbortController()
  const pending = TextEmbedding.load(tiny('tiny-bert-cls'), { signal: controller.signal })
  controller.abort(new Error('enough'))
  await t.throwsAsync(pending, { message: 'enough' })
  t.is((await TextEmbedding.load(tiny('tiny-bert-cls'))).dimensions, 32)
})

test('one of many calls on one signal is not all of them', async (t) => {
  const [one, other] = [new AbortController(), new AbortController()]
  const kept = model.embed(LONG_JOB.slice(0, 50), { signal: other.signal })
  const dropped = model.embed(LONG_JOB.slice(0, 50), { signal: one.signal })
  one.abort(new Error('only this one'))
  await t.throwsAsync(dropped, { message: 'only this one' })
  t.is((await kept).length, 50)
})

test('a signal of another shape is enough', async (t) => {
  const listeners = new Set<() => void>()
  const signal = {
    aborted: false,
    reason: undefined as unknown,
    addEventListener: (_: string, listener: () => void) => listeners.add(listener),
    removeEventListener: (_: string, listener: () => void) => listeners.delete(listener),
  }
  await model.embed(['a'], { signal: signal as unknown as AbortSignal })
  t.is(listeners.size, 0, 'the listener is gone')
  const pending = model.embed(LONG_JOB, { signal: signal as unknown as AbortSignal })
  t.is(listeners.size, 1)
  Object.assign(signal, { aborted: true, reason: 'foreign' })
  for (const listener of listeners) listener()
  t.is(await pending.catch((error) => error), 'foreign')
})

test('the same signal 10,000 times, in turn and at once, without a warning or a listener left', async (t) => {
  const { status, stdout, stderr } = await runModule(`
    import { getEventListeners } from 'node:events'
    import { TextEmbedding } from 'simile'
    process.on('warning', (warning) => console.log('warning', warning.name))
    const model = await TextEmbedding.load(${JSON.stringify(tiny('tiny-bert-cls'))})
    const { signal } = new AbortController()
    let most = 0
    for (let i = 0; i < 5000; i++) {
      const pending = model.embed(['a'], { signal })
      most = Math.max(most, getEventListeners(signal, 'abort').length)
      await pending
    }
    const together = Array.from({ length: 5000 }, () => model.embed(['a'], { signal }))
    most = Math.max(most, getEventListeners(signal, 'abort').length)
    await Promise.all(together)
    console.log(most, getEventListeners(signal, 'abort').length)
  `)
  t.is(stderr, '')
  t.is(stdout, '1 0\n')
  t.is(status, 0)
})
