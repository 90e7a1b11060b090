/** Downloading: who is asked, with which token, through what, and what the environment and options say of it. */

import { readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { NativeEmbeddingService, TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { place, weights } from './helpers/download.ts'
import { COMMIT, cutAfter, Hub, ID, WEIGHTS } from './helpers/hub.ts'
import { ROOT } from './helpers/models.ts'

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
  const { hub, options } = await place(t, undefined, { cert: readFileSync(cert), key: readFileSync(key) })
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
