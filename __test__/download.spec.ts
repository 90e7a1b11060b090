/** Downloading a model: what is fetched, what is left behind, and what a user is told when it goes wrong. */

import { once } from 'node:events'
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type ExecutionContext } from 'ava'
import { type DownloadProgress, EmbedError, NativeEmbeddingService, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { type Asked, COMMIT, cutAfter, etag, type Fault, Hub, ID, refuse, WEIGHTS } from './helpers/hub.ts'
import { ROOT, tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const scratch = mkdtempSync(join(tmpdir(), 'simile-download-'))
test.after.always(() => rmSync(scratch, { recursive: true, force: true }))

const MODEL_FILES = [
  '1_Pooling/config.json',
  'config.json',
  'config_sentence_transformers.json',
  'model.safetensors',
  'modules.json',
  'sentence_bert_config.json',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer_config.json',
]

interface Place {
  hub: Hub
  cacheDir: string
  options: { cacheDir: string; endpoint: string; offline: boolean }
}

/** A hub and an empty cache of one test. */
async function place(t: ExecutionContext, fault?: Fault): Promise<Place> {
  const hub = await Hub.start(fault && { fault })
  t.teardown(() => hub.stop())
  const cacheDir = mkdtempSync(join(scratch, 'cache-'))
  return { hub, cacheDir, options: { cacheDir, endpoint: hub.url, offline: false } }
}

function root(cacheDir: string): string {
  return join(cacheDir, 'models--acme--tiny')
}

function snapshot(cacheDir: string): string {
  return join(root(cacheDir), 'snapshots', COMMIT)
}

function partialOf(cacheDir: string): string[] {
  const blobs = join(root(cacheDir), 'blobs')
  return existsSync(blobs) ? readdirSync(blobs).filter((name) => name.endsWith('.incomplete')) : []
}

/** Only the weights, once or always. */
function weights(act: (asked: Asked) => unknown, times = Number.POSITIVE_INFINITY): Fault {
  let left = times
  return (asked) => (asked.file === WEIGHTS && left-- > 0 ? act(asked) : false)
}

function listing(act: (asked: Asked) => unknown, times = Number.POSITIVE_INFINITY): Fault {
  let left = times
  return (asked) => (asked.file === undefined && left-- > 0 ? act(asked) : false)
}

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

test('what another try left is used, whatever it is', async (t) => {
  const good = (await place(t)).hub.files.get(WEIGHTS) as Buffer
  const cases: [string, Buffer, string | undefined, boolean][] = [
    ['the beginning', good.subarray(0, 70_000), 'bytes=70000-', true],
    ['all of it', good, 'none', true],
    ['more than all of it', Buffer.concat([good, good]), undefined, true],
    ['another content', Buffer.alloc(70_000, 'x'), 'bytes=70000-', false],
  ]
  for (const [what, content, range, works] of cases) {
    const { hub, options, cacheDir } = await place(
      t,
      weights((asked) => refuse(asked.response, 404), 1),
    )
    await t.throwsAsync(TextEmbedding.load(ID, options))
    writeFileSync(join(root(cacheDir), 'blobs', `${etag(WEIGHTS, good)}.incomplete`), content)
    hub.seen.length = 0
    if (works) await TextEmbedding.load(ID, options)
    else {
      const error = await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'ModelInitialization' }, what)
      t.regex(error?.message ?? '', /hash/, what)
      t.deepEqual(partialOf(cacheDir), [], 'the next try starts afresh')
      await TextEmbedding.load(ID, options)
    }
    const asked = hub.seen.filter(({ path }) => path.endsWith(WEIGHTS))
    t.is(asked.length > 0 ? asked[0]?.range : 'none', range, what)
    t.true(readFileSync(join(snapshot(cacheDir), WEIGHTS)).equals(good), what)
  }
})

test('a server that ignores Range, or cannot meet it, is read from the beginning', async (t) => {
  const faults: [string, (asked: Asked) => unknown][] = [
    ['ignores', ({ response, body }) => response.writeHead(200, { 'Content-Length': body.length }).end(body)],
    ['refuses', ({ request, response, serve }) => (request.headers.range ? response.writeHead(416).end() : serve())],
  ]
  for (const [what, fault] of faults) {
    let asks = 0
    const { hub, options, cacheDir } = await place(
      t,
      weights((asked) => (asks++ === 0 ? cutAfter(asked, 50_000) : fault(asked))),
    )
    await TextEmbedding.load(ID, options)
    t.true(readFileSync(join(snapshot(cacheDir), WEIGHTS)).equals(hub.files.get(WEIGHTS) as Buffer), what)
  }
})

test('errors of a server that pass are tried again', async (t) => {
  const faults: [string, Fault][] = [
    ['500 for the listing', listing(({ response }) => refuse(response, 500), 2)],
    ['503 for a file', weights(({ response }) => refuse(response, 503), 2)],
    ['a listing that is cut', listing((asked) => cutAfter(asked, 10), 2)],
    [
      '429 with a short Retry-After',
      listing(({ response }) => response.writeHead(429, { 'Retry-After': '0' }).end(), 2),
    ],
  ]
  for (const [what, fault] of faults) {
    const { options } = await place(t, fault)
    t.is((await TextEmbedding.load(ID, options)).dimensions, 32, what)
  }
})

/** What goes wrong, the code, parts of the message, and whether a partial file may stay. */
interface Row {
  what: string
  fault?: Fault
  files?: (files: Map<string, Buffer>) => void
  options?: object
  code?: 'UnsupportedModel'
  parts: (string | RegExp)[]
  keeps?: boolean
}

const ROWS: Row[] = [
  {
    what: 'no such repository',
    fault: listing(({ response }) => refuse(response, 404, 'RepoNotFound', 'Repository not found')),
    parts: [ID, '127.0.0.1', 'does not exist or is private', '404', 'HF_TOKEN'],
  },
  {
    what: 'a hub that does not tell private from missing',
    fault: listing(({ response }) => refuse(response, 401, undefined, 'Invalid username or password.')),
    parts: [ID, 'does not exist or is private', '401', 'HF_TOKEN'],
  },
  {
    what: 'no such revision',
    options: { revision: 'v9' },
    parts: [ID, "'v9'", '404', 'branch, tag or commit'],
  },
  {
    what: 'a bad token',
    options: { token: 'hf_wrong' },
    fault: listing(({ response }) => refuse(response, 401, undefined, 'Invalid credentials in Authorization header')),
    parts: ['401', 'token', /^(?!.*hf_wrong)/s],
  },
  {
    what: 'gated',
    fault: (asked) =>
      asked.file === undefined ? false : refuse(asked.response, 403, 'GatedRepo', 'Access is restricted'),
    parts: [`127.0.0.1`, `/${ID}`, 'terms', '403', 'token'],
  },
  {
    what: 'forbidden for another reason',
    fault: listing(({ response }) => refuse(response, 403, undefined, 'Your IP is blocked')),
    parts: ['403', 'Your IP is blocked'],
  },
  {
    what: 'a listed file that is not there',
    fault: weights(({ response }) => refuse(response, 404, 'EntryNotFound', 'Entry not found')),
    parts: [WEIGHTS, '404'],
  },
  {
    what: 'a limit that ends later than a load waits',
    fault: listing(({ response }) => response.writeHead(429, { 'Retry-After': '3600' }).end()),
    parts: ['429', '3600 s', 'HF_TOKEN'],
  },
  {
    what: '5xx for ever',
    fault: weights(({ response }) => refuse(response, 502)),
    parts: [WEIGHTS, '3 times', '502', 'Load again'],
  },
  {
    what: 'cut for ever',
    fault: weights((asked) => cutAfter(asked, 0)),
    parts: [WEIGHTS, '3 times', 'Load again'],
    keeps: true,
  },
  {
    what: 'redirected for ever',
    fault: weights(({ request, response }) => response.writeHead(302, { Location: request.url ?? '' }).end()),
    parts: [WEIGHTS, 'redirects', 'more than'],
  },
  {
    what: 'redirected to nowhere',
    fault: listing(({ response }) => response.writeHead(302).end()),
    parts: ['redirects', 'nowhere'],
  },
  {
    what: 'a captive portal instead of a listing',
    fault: listing(({ response }) => response.end('<html><title>Airport WLAN</title></html>')),
    parts: ['<html><title>Airport WLAN', 'log in', 'proxy'],
  },
  {
    what: 'a captive portal instead of a file',
    fault: weights(({ response }) => {
      response.writeHead(200, { 'Content-Length': 40 })
      response.end('<html><title>Airport WLAN</title></html>')
    }),
    parts: [WEIGHTS, 'web page', 'Airport WLAN'],
  },
  {
    what: 'a listing of something else',
    fault: listing(({ response }) => response.end('{"models": []}')),
    parts: ['did not answer as a hub', '{"models": []}'],
  },
  {
    what: 'another commit than the one asked for',
    options: { revision: 'f'.repeat(40) },
    fault: listing(({ response, body }) => response.end(body)),
    parts: ['f'.repeat(40), COMMIT],
  },
  {
    what: 'refused by the storage that the hub leads to',
    fault: weights(({ request, response }) =>
      response.writeHead(302, { Location: `http://localhost:${request.socket.localPort}/storage` }).end(),
    ),
    parts: ['http://localhost', '/storage'],
  },
  {
    what: 'a wrong size',
    fault: weights(({ response, body }) => {
      response.writeHead(200, { 'Content-Length': 1000 })
      response.end(body.subarray(0, 1000))
    }),
    parts: [WEIGHTS, '1000 bytes, not 108888'],
  },
  {
    what: 'too much, unannounced',
    fault: weights(({ response, body }) => {
      response.write(body)
      response.end(body)
    }),
    parts: [WEIGHTS, 'more than 108888 bytes'],
  },
  {
    what: 'a wrong hash of a large file',
    fault: weights(({ response, body }) => response.end(Buffer.alloc(body.length, 'x'))),
    parts: [WEIGHTS, 'hash', 'load again'],
  },
  {
    what: 'a wrong hash of a small file',
    fault: ({ file, response, body }) =>
      file === 'config.json' ? response.end(Buffer.alloc(body.length, 'x')) : false,
    parts: ['config.json', 'hash'],
  },
  {
    what: 'a git-lfs pointer instead of the weights',
    fault: weights(({ response }) =>
      response.end(`version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 108888\n`),
    ),
    parts: [WEIGHTS, 'git-lfs pointer'],
  },
  {
    what: 'only a pickle',
    files: (files) => files.delete(WEIGHTS),
    code: 'UnsupportedModel',
    parts: [ID, 'pytorch_model.bin', 'safetensors'],
  },
  {
    what: 'no model at all',
    files: (files) => files.delete('config.json'),
    parts: [ID, 'config.json', COMMIT],
  },
  {
    what: 'nobody there',
    options: { endpoint: 'http://127.0.0.1:9' },
    parts: ['127.0.0.1', 'refused', 'HTTPS_PROXY', 'HF_HUB_OFFLINE'],
  },
  {
    what: 'no such host',
    options: { endpoint: 'http://no-such-host.invalid' },
    parts: ['no-such-host.invalid', 'HF_ENDPOINT'],
  },
  {
    what: 'not TLS',
    options: { endpoint: 'https' },
    parts: ['127.0.0.1', 'secure connection'],
  },
  {
    what: 'offline by option',
    options: { offline: true },
    parts: [ID, 'models--acme--tiny', 'the option offline'],
  },
]

test('what goes wrong is said, and nothing that resolves is left behind', async (t) => {
  for (const { what, fault, files, options, code = 'ModelInitialization', parts, keeps = false } of ROWS) {
    const here = await place(t, fault)
    files?.(here.hub.files)
    const given = { ...here.options, ...options }
    if (given.endpoint === 'https') given.endpoint = here.hub.url.replace('http:', 'https:')
    const error = await TextEmbedding.load(ID, given).then(
      () => undefined,
      (error) => error,
    )
    if (!EmbedError.is(error)) {
      t.fail(`${what}: ${error}`)
      continue
    }
    t.is(error.code as string, code, `${what}: ${error.message}`)
    t.is(error.model, ID, what)
    for (const part of parts) {
      const said = typeof part === 'string' ? error.message.includes(part) : part.test(error.message)
      t.true(said, `${what}: ${part} is not in: ${error.message}`)
    }
    t.false(existsSync(join(root(here.cacheDir), 'refs')), what)
    t.false(existsSync(join(root(here.cacheDir), 'snapshots')), what)
    t.is(partialOf(here.cacheDir).length > 0, keeps, what)
    await t.throwsAsync(TextEmbedding.load(ID, { ...here.options, offline: true }), { code: 'ModelInitialization' })
    // The same cache serves the next try.
    if (fault !== undefined) {
      here.hub.fault = undefined
      t.is((await TextEmbedding.load(ID, here.options)).dimensions, 32, what)
    }
  }
})

test('weights in formats that are not loaded are not fetched', async (t) => {
  const { hub, options } = await place(t)
  hub.files.delete(WEIGHTS)
  await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'UnsupportedModel' })
  t.deepEqual(hub.fetched, [])
})

test('the token goes to the hub and to no other host', async (t) => {
  const storage = await place(t)
  const { hub, options } = await place(
    t,
    weights(({ request, response }) => response.writeHead(302, { Location: `${storage.hub.url}${request.url}` }).end()),
  )
  await TextEmbedding.load(ID, { ...options, token: 'hf_secret' })
  t.true(hub.seen.every(({ authorization }) => authorization === 'Bearer hf_secret'))
  t.deepEqual(
    storage.hub.seen.map(({ path, authorization }) => [path, authorization]),
    [[`/${ID}/resolve/${COMMIT}/${WEIGHTS}`, undefined]],
  )
})

test('a redirect on the hub itself keeps the token, and a part of a file its range', async (t) => {
  let cut = false
  const { hub, options } = await place(t, (asked) => {
    if (asked.file !== WEIGHTS) return false
    const { request, response } = asked
    if (!request.url?.includes('moved')) return response.writeHead(307, { Location: `${request.url}?moved` }).end()
    if (cut) return false
    cut = true
    return cutAfter(asked, 50_000)
  })
  await TextEmbedding.load(ID, { ...options, token: 'hf_secret' })
  const asked = hub.seen.filter(({ path }) => path.endsWith(WEIGHTS))
  t.is(asked.length, 4)
  t.true(asked.every(({ authorization }) => authorization === 'Bearer hf_secret'))
  t.truthy(asked[3]?.range)
})

test('the environment: endpoint, token, offline; an option beats it', async (t) => {
  const { hub, cacheDir, options } = await place(t)
  const source = (more: object) => `import { TextEmbedding } from 'simile'
    await TextEmbedding.load('${ID}', ${JSON.stringify(more)}).then(
      (model) => console.log(model.dimensions), (error) => console.log(error.code, error.message))`
  const empty = { HF_HUB_OFFLINE: undefined, HF_HUB_DISABLE_IMPLICIT_TOKEN: undefined, HF_HUB_CACHE: cacheDir }
  const env = { ...empty, HF_ENDPOINT: `${hub.url}/`, HF_TOKEN: ' hf_of_env\n' }

  const offline = await runModule(source({}), { env: { ...env, TRANSFORMERS_OFFLINE: 'yes' } })
  t.regex(offline.stdout, /^ModelInitialization .*models--acme--tiny.*TRANSFORMERS_OFFLINE/s, offline.stderr)
  t.is(hub.connections, 0)

  const bad = await runModule(source({}), { env: { ...env, HF_ENDPOINT: 'hub.example.com' } })
  t.regex(bad.stdout, /^InvalidInput HF_ENDPOINT .*hub\.example\.com.*https:\/\/huggingface\.co/s, bad.stderr)

  const proxy = await runModule(source({}), { env: { ...env, NO_PROXY: '', http_proxy: 'a proxy' } })
  t.regex(proxy.stdout, /^InvalidInput http_proxy /, proxy.stderr)

  const loaded = await runModule(source({}), { env })
  t.is(loaded.stdout, '32\n', loaded.stderr)
  t.true(hub.seen.every(({ authorization }) => authorization === 'Bearer hf_of_env'))

  rmSync(cacheDir, { recursive: true })
  hub.seen.length = 0
  const given = await runModule(source({ ...options, token: 'hf_given' }), {
    env: { ...env, HF_HUB_OFFLINE: '1', HF_ENDPOINT: 'http://127.0.0.1:9' },
  })
  t.is(given.stdout, '32\n', given.stderr)
  t.true(hub.seen.every(({ authorization }) => authorization === 'Bearer hf_given'))
})

test('a proxy of the environment is asked, unless NO_PROXY names the host', async (t) => {
  const { hub, options } = await place(t)
  const proxied: string[] = []
  const proxy = await Hub.start()
  t.teardown(() => proxy.stop())
  // A proxy that lets nobody through.
  proxy.onConnect((target) => proxied.push(target))
  const source = `import { TextEmbedding } from 'simile'
    await TextEmbedding.load('${ID}', ${JSON.stringify(options)}).then(
      (model) => console.log(model.dimensions), (error) => console.log(error.code, error.message))`
  const env = { HTTP_PROXY: proxy.url, NO_PROXY: '' }
  const refused = await runModule(source, { env })
  t.regex(refused.stdout, /^ModelInitialization .*proxy/s, refused.stderr)
  t.true(proxied.every((target) => target === hub.url.slice('http://'.length)) && proxied.length > 0)
  const direct = await runModule(source, { env: { ...env, NO_PROXY: 'localhost, 127.0.0.1' } })
  t.is(direct.stdout, '32\n', direct.stderr)
})

test('https: a certificate of the system is trusted, another is not', async (t) => {
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => join(ROOT, '__test__/fixtures/tls', name)) as [
    string,
    string,
  ]
  const hub = await Hub.start({ tls: { cert: readFileSync(cert), key: readFileSync(key) } })
  t.teardown(() => hub.stop())
  const options = { cacheDir: mkdtempSync(join(scratch, 'cache-')), endpoint: hub.url, offline: false }
  const source = `import { TextEmbedding } from 'simile'
    await TextEmbedding.load('${ID}', ${JSON.stringify(options)}).then(
      (model) => console.log(model.dimensions), (error) => console.log(error.code, error.message))`
  const untrusted = await runModule(source)
  t.regex(untrusted.stdout, /^ModelInitialization .*127\.0\.0\.1.*secure connection.*SSL_CERT_FILE/s, untrusted.stderr)
  t.deepEqual(hub.seen, [])
  // Where the system's store is not a file, a test has no way to add to it.
  if (process.platform !== 'linux') return
  const trusted = await runModule(source, { env: { SSL_CERT_FILE: cert } })
  t.is(trusted.stdout, '32\n', trusted.stderr)
})

test('options are checked at once, and a secret is not repeated', async (t) => {
  const cases: [object, RegExp][] = [
    [{ offline: 'yes' }, /^offline must be true or false/],
    [{ endpoint: 'huggingface.co' }, /^endpoint must be a URL like https.*huggingface\.co/],
    [{ endpoint: 'https://u:secret@hub' }, /^endpoint must be a URL like (?!.*secret)/],
    [{ token: 'hf secret' }, /^token must be (?!.*hf secret)/],
    [{ token: 7 }, /^token must be a string/],
    [{ onProgress: 'log' }, /^onProgress must be a function/],
  ]
  for (const [options, message] of cases) {
    await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'InvalidInput', message })
    t.throws(() => new NativeEmbeddingService({ model: ID, ...options }), { code: 'InvalidInput', message })
  }
})

test('an id of any length is not repeated whole', async (t) => {
  for (const id of ['x'.repeat(100_000), `./${'x'.repeat(100_000)}`]) {
    const error = await t.throwsAsync(TextEmbedding.load(id))
    t.true((error?.message.length ?? 0) < 1000)
  }
})

test('abort stops a download at once and keeps what came; the next load goes on from there', async (t) => {
  let begun = () => {}
  const beginning = new Promise<void>((resolve) => {
    begun = resolve
  })
  let closed: Promise<unknown> = Promise.resolve()
  const { hub, options, cacheDir } = await place(
    t,
    weights(({ request, response, body }) => {
      closed = once(request.socket, 'close')
      response.writeHead(200, { 'Content-Length': body.length })
      // The rest never comes.
      response.write(body.subarray(0, 60_000), begun)
    }, 1),
  )
  const controller = new AbortController()
  const events: DownloadProgress[] = []
  const pending = TextEmbedding.load(ID, {
    ...options,
    signal: controller.signal,
    onProgress: (event) => {
      events.push(event)
    },
  })
  await beginning
  controller.abort(new Error('enough'))
  await t.throwsAsync(pending, { message: 'enough' })
  await closed
  t.is(partialOf(cacheDir).length, 1)
  t.false(existsSync(join(root(cacheDir), 'refs')))
  await TextEmbedding.load(ID, options)
  const kept = hub.seen.filter(({ path }) => path.endsWith(WEIGHTS)).at(-1)?.range
  t.true(kept === undefined || /^bytes=\d+-$/.test(kept))
})

test("a service's download runs on when its waiter gives up", async (t) => {
  let answer = () => {}
  let asked = () => {}
  const asking = new Promise<void>((resolve) => {
    asked = resolve
  })
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
  let asked = () => {}
  const asking = new Promise<void>((resolve) => {
    asked = resolve
  })
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

test('a cache that cannot be written: what is there loads, a download says what to do', async (t) => {
  const { options, cacheDir } = await place(t)
  // A file where a folder must be made: also the superuser, who may write anywhere, is refused.
  writeFileSync(join(cacheDir, 'models--acme--tiny'), '')
  await t.throwsAsync(TextEmbedding.load(ID, options), {
    code: 'ModelInitialization',
    message: /could not write .*models--acme--tiny.*cacheDir.*HF_HUB_CACHE/s,
  })
  rmSync(join(cacheDir, 'models--acme--tiny'))
  await TextEmbedding.load(ID, options)
  const times = () =>
    readdirSync(cacheDir, { recursive: true }).map((name) => {
      const { mtimeMs, ctimeMs } = statSync(join(cacheDir, String(name)))
      return [name, mtimeMs, ctimeMs]
    })
  const before = times()
  await TextEmbedding.load(ID, options)
  const after = times()
  t.deepEqual(after, before, 'a found model writes nothing')
})
