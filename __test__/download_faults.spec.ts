/** Downloading: what goes wrong, what a user is told, and what is left behind. */

import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { EmbedError, TextEmbedding } from 'simile'
import { listing, partialOf, place, root, snapshot, weights } from './helpers/download.ts'
import { type Asked, COMMIT, cutAfter, type Fault, ID, refuse, WEIGHTS } from './helpers/hub.ts'
import { ROOT } from './helpers/models.ts'

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
  },
  {
    what: 'cut for ever after a while',
    fault: weights((asked) => cutAfter(asked, 1000)),
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
    what: 'cut for ever by the storage that the hub leads to',
    fault: weights((asked) =>
      asked.request.headers.host?.startsWith('localhost')
        ? cutAfter(asked, 0)
        : asked.response
            .writeHead(302, { Location: `http://localhost:${asked.request.socket.localPort}${asked.request.url}` })
            .end(),
    ),
    parts: ['http://localhost:', '3 times'],
  },
  {
    what: 'redirected to a port that is none',
    fault: weights(({ response }) => response.writeHead(302, { Location: 'http://127.0.0.1:99999/' }).end()),
    parts: ['http://127.0.0.1:99999/', 'no URL'],
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
    what: 'only an ONNX graph',
    files: (files) => [WEIGHTS, 'pytorch_model.bin'].map((name) => files.delete(name)),
    code: 'UnsupportedModel',
    parts: [ID, 'onnx/model.onnx', 'safetensors'],
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
  hub.files.delete('pytorch_model.bin')
  await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'UnsupportedModel' })
  t.deepEqual(hub.fetched, [])
})

test('a pickle is fetched where there is nothing else, and found again without a connection', async (t) => {
  const { hub, options } = await place(t)
  for (const name of [...hub.files.keys()]) {
    if (name === WEIGHTS || name === 'modules.json' || name.startsWith('1_Pooling')) hub.files.delete(name)
  }
  for (const name of ['config.json', 'pytorch_model.bin']) {
    hub.files.set(name, readFileSync(join(ROOT, '__test__', 'fixtures', 'torch', 'bert', name)))
  }
  t.is((await TextEmbedding.load(ID, options)).dimensions, 8)
  t.true(hub.fetched.includes('pytorch_model.bin'), hub.fetched.join())
  const { connections } = hub
  t.is((await TextEmbedding.load(ID, options)).dimensions, 8)
  t.is(hub.connections, connections)
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

test('an id of any length is not repeated whole', async (t) => {
  for (const id of ['x'.repeat(100_000), `./${'x'.repeat(100_000)}`]) {
    const error = await t.throwsAsync(TextEmbedding.load(id))
    t.true((error?.message.length ?? 0) < 1000)
  }
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
