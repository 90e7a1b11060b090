/** Downloading: what is fetched, where it goes, how it is resumed, reported and stopped. */

import { once } from 'node:events'
import { existsSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { type DownloadProgress, NativeEmbeddingService, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { MODEL_FILES, partialOf, partialWeights, place, received, root, snapshot, weights } from './helpers/download.ts'
import { gate } from './helpers/gate.ts'
import { type Asked, COMMIT, cutAfter, etag, ID, refuse, WEIGHTS } from './helpers/hub.ts'
import { tiny } from './helpers/models.ts'
import { readTensors } from './helpers/safetensors.ts'
import { bytes } from './helpers/vectors.ts'

test('an id that is not here is downloaded: its files, no others, in the layout of the shared cache', async (t) => {
  const { hub, cacheDir, options } = await place(t)
  const model = await TextEmbedding.load(ID, options)
  t.is(model.descriptor.revision, COMMIT)
  t.deepEqual(hub.fetched.sort(), MODEL_FILES)
  const local = await TextEmbedding.load(tiny('tiny-bert-cls'))
  t.is(
    bytes((await model.embed(['a text']))[0] as Float32Array),
    bytes((await local.embed(['a text']))[0] as Float32Array),
  )

  t.is(readFileSync(join(root(cacheDir), 'refs/main'), 'utf8'), COMMIT)
  for (const name of MODEL_FILES) {
    const content = hub.files.get(name) as Buffer
    const path = join(snapshot(cacheDir), name)
    t.true(readFileSync(path).equals(content), name)
    if (process.platform !== 'win32') {
      t.is(readlinkSync(path), `${name.includes('/') ? '../' : ''}../../blobs/${etag(name, content)}`, name)
    }
  }
  t.deepEqual(partialOf(cacheDir), [])
})

test('a warm cache opens no connection, also where nothing listens', async (t) => {
  const { hub, options } = await place(t)
  await TextEmbedding.load(ID, options)
  const { connections } = hub
  for (const more of [{}, { revision: 'main' }, { revision: COMMIT }, { endpoint: 'http://127.0.0.1:9' }]) {
    const events: DownloadProgress[] = []
    await TextEmbedding.load(ID, { ...options, ...more, onProgress: (event) => events.push(event) })
    t.deepEqual(events, [])
  }
  t.is(hub.connections, connections)
})

test('revisions: a branch, a tag, a reference with slashes, a commit', async (t) => {
  for (const revision of ['v1', 'refs/pr/1', COMMIT]) {
    const { cacheDir, options } = await place(t)
    const model = await TextEmbedding.load(ID, { ...options, revision })
    t.is(model.descriptor.revision, COMMIT, revision)
    t.is(existsSync(join(root(cacheDir), 'refs', revision)), revision !== COMMIT, revision)
  }
})

test('a revision that is not in the cache is downloaded, and shares what it can', async (t) => {
  const { hub, options } = await place(t)
  await TextEmbedding.load(ID, options)
  const { length } = hub.fetched
  await TextEmbedding.load(ID, { ...options, revision: 'v1' })
  t.is(hub.fetched.length, length, 'every blob was here')
})

test('a snapshot of which something is missing is completed', async (t) => {
  const { hub, cacheDir, options } = await place(t)
  await TextEmbedding.load(ID, options)
  for (const name of ['tokenizer.json', 'model.safetensors', '1_Pooling/config.json']) {
    const blob = join(root(cacheDir), 'blobs', etag(name, hub.files.get(name) as Buffer))
    rmSync(existsSync(blob) ? blob : join(snapshot(cacheDir), name))
    hub.seen.length = 0
    await TextEmbedding.load(ID, options)
    t.deepEqual(hub.fetched, [name])
  }
})

test('a service downloads at its first request, once for all who ask', async (t) => {
  const { hub, options } = await place(t)
  const events: DownloadProgress[] = []
  const service = new NativeEmbeddingService({ ...options, model: ID, onProgress: (event) => events.push(event) })
  t.is(hub.connections, 0)
  const [first, second] = await Promise.all([service.embed(['a']), service.embedQuery(['b'])])
  t.is(first.length + second.length, 2)
  t.deepEqual(hub.fetched.sort(), MODEL_FILES)
  t.is(events.at(-1)?.loaded, events.at(-1)?.total)
})

test('two loads at once transfer once', async (t) => {
  const { hub, options } = await place(t)
  const models = await Promise.all([TextEmbedding.load(ID, options), TextEmbedding.load(ID, options)])
  t.deepEqual(
    models.map(({ dimensions }) => dimensions),
    [32, 32],
  )
  t.deepEqual(hub.fetched.sort(), MODEL_FILES)
})

test('progress: at 0 first, whole last, never backwards, before the load resolves', async (t) => {
  const { hub, options } = await place(
    t,
    weights(async ({ response, body }) => {
      response.writeHead(200, { 'Content-Length': body.length })
      for (let at = 0; at < body.length; at += 20_000) {
        response.write(body.subarray(at, at + 20_000))
        await new Promise((resolve) => setTimeout(resolve, 60))
      }
      response.end()
    }),
  )
  const events: DownloadProgress[] = []
  await TextEmbedding.load(ID, { ...options, onProgress: (event) => events.push(event) })
  const total = MODEL_FILES.reduce((sum, name) => sum + (hub.files.get(name)?.length ?? 0), 0)
  t.like(events[0], { model: ID, loaded: 0, total, fileLoaded: 0 })
  const size = hub.files.get(WEIGHTS)?.length
  t.like(events.at(-1), { model: ID, file: WEIGHTS, loaded: total, total, fileLoaded: size, fileTotal: size })
  t.true(events.length >= 4, `${events.length} events`)
  t.true(events.every((event, i) => event.loaded >= (events[i - 1]?.loaded ?? 0) && event.total === total))
  t.is(events.filter(({ loaded }) => loaded === total).length, 1)
})

test('a listener that throws is an uncaught exception, and the load goes on', async (t) => {
  const { options } = await place(t)
  const { stdout, stderr, status } = await runModule(
    `import { TextEmbedding } from 'simile'
     let uncaught = 0
     process.on('uncaughtException', (error) => { uncaught += error.message === 'in a listener' ? 1 : 0 })
     const onProgress = () => { throw new Error('in a listener') }
     const model = await TextEmbedding.load('${ID}', { ...${JSON.stringify(options)}, onProgress })
     setImmediate(() => console.log(model.dimensions, uncaught >= 2))`,
  )
  t.is(stderr, '')
  t.is(stdout, '32 true\n')
  t.is(status, 0)
})

test('a connection that is cut is resumed where it was', async (t) => {
  const { hub, options, cacheDir } = await place(
    t,
    weights((asked) => cutAfter(asked, 50_000), 1),
  )
  await TextEmbedding.load(ID, options)
  const ranges = hub.seen.filter(({ path }) => path.endsWith(WEIGHTS)).map(({ range }) => range)
  t.is(ranges.length, 2)
  t.is(ranges[0], undefined)
  const from = Number(/^bytes=(\d+)-$/.exec(ranges[1] ?? '')?.[1])
  t.true(from > 0 && from <= 50_000, `${ranges[1]}`)
  t.deepEqual(partialOf(cacheDir), [])
})

test('what another try left is used, and if it was wrong the load starts afresh', async (t) => {
  const good = (await place(t)).hub.files.get(WEIGHTS) as Buffer
  const cases: [string, Buffer, (string | undefined)[]][] = [
    ['the beginning', good.subarray(0, 70_000), ['bytes=70000-']],
    ['all of it', good, []],
    ['more than all of it', Buffer.concat([good, good]), [undefined]],
    ['another content', Buffer.alloc(70_000, 'x'), ['bytes=70000-', undefined]],
    ['another content, as long', Buffer.alloc(good.length, 'x'), [undefined]],
  ]
  for (const [what, content, ranges] of cases) {
    const here = await place(
      t,
      weights((asked) => refuse(asked.response, 404), 1),
    )
    const { hub, options, cacheDir } = here
    await t.throwsAsync(TextEmbedding.load(ID, options))
    writeFileSync(partialWeights(here), content)
    hub.seen.length = 0
    await TextEmbedding.load(ID, options)
    const asked = hub.seen.filter(({ path }) => path.endsWith(WEIGHTS))
    t.deepEqual(
      asked.map(({ range }) => range),
      ranges,
      what,
    )
    t.true(readFileSync(join(snapshot(cacheDir), WEIGHTS)).equals(good), what)
    t.deepEqual(partialOf(cacheDir), [], what)
  }
})

test('a hub whose content is wrong is blamed after one fresh start', async (t) => {
  const here = await place(
    t,
    weights(({ response, body }) => response.end(Buffer.alloc(body.length, 'y'))),
  )
  const { hub, options, cacheDir } = here
  await t.throwsAsync(TextEmbedding.load(ID, options), { message: /hash/ })
  writeFileSync(partialWeights(here), Buffer.alloc(hub.files.get(WEIGHTS)?.length ?? 0, 'x'))
  hub.seen.length = 0
  await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'ModelInitialization', message: /hash/ })
  t.is(hub.fetched.length, 1)
  t.deepEqual(partialOf(cacheDir), [])
})

test('an answer that is something else does not spoil what was received', async (t) => {
  const PAGE = '<html><title>Airport WLAN</title></html>'
  const cases: [string, (asked: Asked) => unknown, RegExp][] = [
    ['a web page', ({ response }) => response.end(PAGE), /web page.*Airport/s],
    [
      'a web page of unknown length',
      ({ response }) => {
        response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' })
        response.write(PAGE)
        response.end()
      },
      /web page.*Airport/s,
    ],
    [
      'another part',
      ({ response, body }) => {
        response.writeHead(206, { 'Content-Range': `bytes 10-${body.length - 1}/${body.length}` })
        response.end(body.subarray(10))
      },
      /another part/,
    ],
    [
      'a compressed answer',
      ({ response }) => response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(Buffer.alloc(30)),
      /encoded \(gzip\)/,
    ],
  ]
  for (const [what, act, message] of cases) {
    const here = await place(t, weights(act, 2))
    const { hub, options } = here
    await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'ModelInitialization' }, what)
    const good = hub.files.get(WEIGHTS) as Buffer
    writeFileSync(partialWeights(here), good.subarray(0, 70_000))
    await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'ModelInitialization', message }, what)
    t.true(readFileSync(partialWeights(here)).equals(good.subarray(0, 70_000)), what)
    await TextEmbedding.load(ID, options)
    t.is(hub.seen.at(-1)?.range, 'bytes=70000-', what)
  }
})

test('weights in several files: those that the index names, whatever their names are', async (t) => {
  const { hub, options } = await place(t)
  const local = tiny('tiny-bert-cls')
  const SHARD = 'weights_1.safetensors'
  const weight_map = Object.fromEntries([...readTensors(join(local, WEIGHTS)).keys()].map((name) => [name, SHARD]))
  hub.files.set(SHARD, hub.files.get(WEIGHTS) as Buffer)
  hub.files.set('model-00001-of-00001.safetensors', Buffer.from('not named by the index'))
  hub.files.set('model.safetensors.index.json', Buffer.from(JSON.stringify({ weight_map })))
  hub.files.delete(WEIGHTS)
  const events: DownloadProgress[] = []
  const model = await TextEmbedding.load(ID, { ...options, onProgress: (event) => events.push(event) })
  t.is(
    bytes((await model.embed(['a text']))[0] as Float32Array),
    bytes((await (await TextEmbedding.load(local)).embed(['a text']))[0] as Float32Array),
  )
  const wanted = [...MODEL_FILES.filter((name) => name !== WEIGHTS), SHARD, 'model.safetensors.index.json']
  t.deepEqual(hub.fetched.sort(), wanted.sort())
  t.is(events[0]?.loaded, 0)
  t.is(events.at(-1)?.loaded, events.at(-1)?.total)
})

/** A fault of the first answer with the weights: so many bytes, then nothing more. `closed` when its asker is gone. */
function stuckAfter(bytes: number) {
  const { promise: closed, resolve: tell } = gate()
  const fault = weights(({ request, response, body }) => {
    request.socket.once('close', tell)
    response.writeHead(200, { 'Content-Length': body.length })
    response.write(body.subarray(0, bytes))
  }, 1)
  return { fault, closed }
}

test('abort stops a download at once and keeps what came; the next load goes on from there', async (t) => {
  const { fault, closed } = stuckAfter(60_000)
  const here = await place(t, fault)
  const { hub, options, cacheDir } = here
  const controller = new AbortController()
  const pending = TextEmbedding.load(ID, { ...options, signal: controller.signal })
  await received(here, 60_000)
  controller.abort(new Error('enough'))
  await t.throwsAsync(pending, { message: 'enough' })
  await closed
  t.is(partialOf(cacheDir).length, 1)
  t.false(existsSync(join(root(cacheDir), 'refs')))
  await TextEmbedding.load(ID, options)
  t.is(hub.seen.at(-1)?.range, 'bytes=60000-')
})

test('two services want one model and the one that transfers gives up: the other goes on from there', async (t) => {
  const { fault, closed } = stuckAfter(60_000)
  const here = await place(t, fault)
  const { hub, options } = here
  const first = new NativeEmbeddingService({ ...options, model: ID })
  const controller = new AbortController()
  const given = first.ensureLoaded({ signal: controller.signal })
  await received(here, 60_000)
  const { promise: waiting, resolve: tell } = gate()
  const onProgress = ({ file, fileLoaded }: DownloadProgress) => {
    if (file === WEIGHTS && fileLoaded === 60_000) tell()
  }
  const second = new NativeEmbeddingService({ ...options, model: ID, onProgress })
  const pending = second.embed(['a'])
  await waiting
  controller.abort(new Error('enough'))
  await t.throwsAsync(given, { message: 'enough' })
  await first.dispose()
  await closed
  t.is((await pending)[0]?.length, 32)
  t.deepEqual(
    hub.seen.filter(({ path }) => path.endsWith(WEIGHTS)).map(({ range }) => range),
    [undefined, 'bytes=60000-'],
  )
})

test("a service's download runs on when its waiter gives up", async (t) => {
  let answer = () => {}
  const { promise: asking, resolve: asked } = gate()
  const { hub, options } = await place(
    t,
    weights(({ serve }) => {
      answer = serve
      asked()
    }, 1),
  )
  const service = new NativeEmbeddingService({ ...options, model: ID })
  const controller = new AbortController()
  const pending = service.ensureLoaded({ signal: controller.signal })
  await asking
  controller.abort(new Error('not now'))
  await t.throwsAsync(pending, { message: 'not now' })
  answer()
  t.is((await service.embed(['a']))[0]?.length, 32)
  t.deepEqual(hub.fetched.sort(), MODEL_FILES)
})

test('disposing of a service whose waiter gave up stops its download', async (t) => {
  const { promise: asking, resolve: asked } = gate()
  let closed: Promise<unknown> = Promise.resolve()
  const { options } = await place(
    t,
    weights(({ request }) => {
      closed = once(request.socket, 'close')
      asked()
    }, 1),
  )
  const service = new NativeEmbeddingService({ ...options, model: ID })
  const controller = new AbortController()
  const pending = service.ensureLoaded({ signal: controller.signal })
  await asking
  controller.abort(new Error('enough'))
  await t.throwsAsync(pending, { message: 'enough' })
  await service.dispose()
  await closed
  t.pass()
})
