/**
 * One cache with Python's huggingface_hub: each finds what the other wrote, and they take turns.
 *
 * Run by `npm run test:interop`, apart from the other tests because it installs a Python package.
 */

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { type DownloadProgress, TextEmbedding } from 'simile'
import { findPython } from '../../tools/python.mjs'
import { COMMIT, etag, Hub, ID, WEIGHTS } from '../helpers/hub.ts'
import { ROOT } from '../helpers/models.ts'

const VENV = join(ROOT, 'target', 'interop')
const PYTHON = process.platform === 'win32' ? join(VENV, 'Scripts', 'python.exe') : join(VENV, 'bin', 'python')
const REQUIREMENTS = join(ROOT, 'tools', 'requirements-interop.txt')
const SCRIPT = join(ROOT, '__test__', 'interop', 'hub.py')

const scratch = realpathSync(mkdtempSync(join(tmpdir(), 'simile-interop-')))
after(() => rmSync(scratch, { recursive: true, force: true }))

/** Runs a program to its end and gives what it said; throws what it complained of. */
function run(command: string, args: string[], env = {}): string {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8', env: { ...process.env, ...env } })
  assert.equal(status, 0, `${command} ${args.join(' ')}: ${stderr}`)
  return stdout
}

/** The environment of Python: no other endpoint than loopback, no token, no proxy, no storage of its own. */
function environment(endpoint: string): Record<string, string> {
  return {
    HF_ENDPOINT: endpoint,
    HF_HUB_DISABLE_XET: '1',
    HF_HUB_DISABLE_TELEMETRY: '1',
    HF_HUB_DISABLE_IMPLICIT_TOKEN: '1',
    HF_HUB_DISABLE_PROGRESS_BARS: '1',
    HF_HOME: join(scratch, 'home'),
    NO_PROXY: '127.0.0.1',
  }
}

/** Asks Python without blocking: the hub that it talks to is in this process. */
async function python(args: string[], endpoint = 'http://127.0.0.1:9') {
  const child = spawn(PYTHON, [SCRIPT, ...args], { env: { ...process.env, ...environment(endpoint) } })
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (data) => {
    stdout += data
  })
  child.stderr.on('data', (data) => {
    stderr += data
  })
  const [status] = await once(child, 'close')
  assert.equal(status, 0, stderr)
  return JSON.parse(stdout)
}

before(() => {
  const installed = join(VENV, 'installed.txt')
  const wanted = readFileSync(REQUIREMENTS, 'utf8')
  if (existsSync(PYTHON) && existsSync(installed) && readFileSync(installed, 'utf8') === wanted) return
  rmSync(VENV, { recursive: true, force: true })
  run(findPython(), ['-m', 'venv', VENV])
  run(PYTHON, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '-r', REQUIREMENTS])
  writeFileSync(installed, wanted)
})

test('Python finds what simile downloaded, and has nothing to complain of', async (t) => {
  const hub = await Hub.start()
  t.after(() => hub.stop())
  const cacheDir = join(scratch, 'ours')
  await TextEmbedding.load(ID, { cacheDir, endpoint: hub.url, offline: false })
  const found = await python(['look', cacheDir, ID])
  const snapshot = join(cacheDir, 'models--acme--tiny', 'snapshots', COMMIT)
  assert.equal(found.snapshot, snapshot)
  assert.equal(found.config, join(snapshot, 'config.json'))
  assert.deepEqual(found.warnings, [])
  assert.deepEqual(found.refs, { main: COMMIT })
  assert.deepEqual(found.files, hub.fetched.sort())
  assert.equal(
    found.size,
    hub.fetched.reduce((sum, name) => sum + (hub.files.get(name)?.length ?? 0), 0),
  )
})

test('simile loads what Python downloaded, without a connection', async (t) => {
  const hub = await Hub.start()
  t.after(() => hub.stop())
  const cacheDir = join(scratch, 'theirs')
  await python(['download', cacheDir, ID], hub.url)
  const { connections } = hub
  const model = await TextEmbedding.load(ID, { cacheDir, endpoint: hub.url, offline: false })
  assert.equal(model.descriptor.revision, COMMIT)
  assert.equal((await model.embed(['a text']))[0]?.length, 32)
  assert.equal(hub.connections, connections)
})

test('simile adds to a cache that Python filled in part, and Python still finds all of it', async (t) => {
  const hub = await Hub.start()
  t.after(() => hub.stop())
  const cacheDir = join(scratch, 'both')
  await python(['download', cacheDir, ID], hub.url)
  const blob = join(cacheDir, 'models--acme--tiny', 'blobs', etag(WEIGHTS, hub.files.get(WEIGHTS) as Buffer))
  rmSync(existsSync(blob) ? blob : join(cacheDir, 'models--acme--tiny', 'snapshots', COMMIT, WEIGHTS))
  hub.seen.length = 0
  await TextEmbedding.load(ID, { cacheDir, endpoint: hub.url, offline: false })
  assert.deepEqual(hub.fetched, [WEIGHTS])
  const found = await python(['look', cacheDir, ID])
  assert.deepEqual(found.warnings, [])
  assert.deepEqual(found.files, Array.from(hub.files.keys()).sort())
})

test('simile waits while Python has the lock of a file', async (t) => {
  const hub = await Hub.start()
  t.after(() => hub.stop())
  const cacheDir = join(scratch, 'locked')
  const name = etag(WEIGHTS, hub.files.get(WEIGHTS) as Buffer)
  const holder = spawn(PYTHON, [SCRIPT, 'lock', join(cacheDir, '.locks', 'models--acme--tiny', `${name}.lock`)], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, ...environment('http://127.0.0.1:9') },
  })
  t.after(() => holder.kill())
  await once(holder.stdout, 'data')
  let release = () => {}
  const waiting = new Promise<void>((resolve) => {
    release = resolve
  })
  // One report when the file begins, and one at each look at the lock: without a lock it would be here after the first.
  let reports = 0
  const onProgress = ({ file }: DownloadProgress) => {
    if (file === WEIGHTS && ++reports === 3) release()
  }
  const loading = TextEmbedding.load(ID, { cacheDir, endpoint: hub.url, offline: false, onProgress })
  await Promise.race([waiting, loading])
  assert.ok(!hub.fetched.includes(WEIGHTS), 'it waits')
  holder.stdin.end()
  assert.equal((await loading).dimensions, 32)
  assert.ok(hub.fetched.includes(WEIGHTS))
})
