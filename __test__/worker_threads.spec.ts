/** Worker threads: each may load, embed and end, in any order, and the process lives. */

import test from 'ava'
import { runModule } from './helpers/child.ts'
import { tiny } from './helpers/models.ts'

const FOLDER = JSON.stringify(tiny('tiny-bert-cls'))

test('eight workers and the main thread give the same bytes', async (t) => {
  const { status, stdout, stderr } = await runModule(`
    import { Worker, isMainThread } from 'node:worker_threads'
    import { TextEmbedding } from 'simile'
    const inWorker = \`
      import { parentPort } from 'node:worker_threads'
      const { TextEmbedding } = await import('simile')
      const model = await TextEmbedding.load(${FOLDER})
      const rows = await model.embed(['one', 'two', 'three'])
      parentPort.postMessage(rows.map((row) => Buffer.from(row.buffer).toString('hex')).join())
    \`
    const run = () => new Promise((resolve, reject) => {
      const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(inWorker.replaceAll("'simile'", JSON.stringify(import.meta.resolve('simile'))))))
      worker.on('message', resolve).on('error', reject)
    })
    const model = await TextEmbedding.load(${FOLDER})
    const here = (await model.embed(['one', 'two', 'three'])).map((row) => Buffer.from(row.buffer).toString('hex')).join()
    const there = await Promise.all(Array.from({ length: 8 }, run))
    console.log(there.filter((rows) => rows === here).length)
  `)
  t.is(stderr, '')
  t.is(stdout, '8\n')
  t.is(status, 0)
})

test('workers that end or are terminated while they load or embed take nobody with them', async (t) => {
  const { status, signal, stdout, stderr } = await runModule(`
    import { Worker } from 'node:worker_threads'
    const entry = JSON.stringify(import.meta.resolve('simile'))
    const source = (body) => new URL('data:text/javascript,' + encodeURIComponent(
      'import { parentPort } from "node:worker_threads"; import { TextEmbedding } from ' + entry + ';' + body))
    const bodies = [
      // ends with work in flight that it waits for
      'const model = await TextEmbedding.load(${FOLDER}); await model.embed(Array(50).fill("a text")); parentPort.postMessage("go")',
      // says go in mid-load and in mid-embedding, to be terminated there
      'parentPort.postMessage("go"); await TextEmbedding.load(${FOLDER})',
      'const model = await TextEmbedding.load(${FOLDER}); const all = model.embed(Array(5000).fill("a longer text ".repeat(20))); parentPort.postMessage("go"); await all',
      // exits by itself with work in flight
      'const model = await TextEmbedding.load(${FOLDER}); model.embed(Array(5000).fill("a longer text ".repeat(20))); parentPort.postMessage("go"); setImmediate(() => process.exit(0))',
    ]
    let ended = 0
    for (let round = 0; round < 10; round++) {
      await Promise.all(bodies.map((body, kind) => new Promise((resolve, reject) => {
        const worker = new Worker(source(body))
        worker.on('error', reject).on('exit', () => { ended++; resolve() })
        worker.on('message', () => { if (kind === 1 || kind === 2) worker.terminate() })
      })))
    }
    console.log(ended)
  `)
  t.is(signal, null, stderr)
  t.is(stdout, '40\n', stderr)
  t.is(status, 0)
})

test('a thousand workers, ended at every point of their work: the process works on and keeps nothing', async (t) => {
  const { status, signal, stdout, stderr } = await runModule(
    `
    import { readFileSync } from 'node:fs'
    import { Worker } from 'node:worker_threads'
    import { TextEmbedding } from 'simile'
    const entry = JSON.stringify(import.meta.resolve('simile'))
    const source = (body) => new URL('data:text/javascript,' + encodeURIComponent(
      'import { parentPort } from "node:worker_threads"; import { TextEmbedding } from ' + entry + ';' + body))
    const load = 'const model = await TextEmbedding.load(${FOLDER});'
    const kinds = [
      // terminated while the module or the addon is loaded
      { body: load, at: 'online' },
      // terminated in mid-load
      { body: 'const loading = TextEmbedding.load(${FOLDER}); parentPort.postMessage("go"); await loading', at: 'message' },
      // terminated in mid-work, with a result on its way
      { body: load + 'const all = model.embed(Array(300).fill("a longer text ".repeat(20))); parentPort.postMessage("go"); await all', at: 'message' },
      // ends by itself, with a result and a model that nobody disposed of
      { body: load + 'await model.embed(["one", "two"])', at: 'never' },
    ]
    const codes = new Map()
    const life = ({ body, at }) => new Promise((resolve, reject) => {
      const worker = new Worker(source(body))
      worker.on('error', reject).on('exit', (code) => { codes.set(code, (codes.get(code) ?? 0) + 1); resolve() })
      if (at !== 'never') worker.once(at, () => worker.terminate())
    })
    const model = await TextEmbedding.load(${FOLDER})
    const bytes = async () => (await model.embed(['one', 'two'])).map((row) => Buffer.from(row.buffer).toString('hex')).join()
    const before = await bytes()
    // No /proc: no figure, and the rest of the test stands.
    const threads = () => process.platform === 'linux' ? Number(/Threads:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) : 0
    const threadsBefore = threads()
    let next = 0
    const lane = async () => { while (next < 1000) await life(kinds[next++ % kinds.length]) }
    await Promise.all([lane(), lane(), lane(), lane()])
    const ended = [...codes.values()].reduce((sum, count) => sum + count, 0)
    const others = [...codes.keys()].filter((code) => code !== 0 && code !== 1)
    console.log(JSON.stringify({ ended, others, same: (await bytes()) === before, more: threads() - threadsBefore }))
  `,
    { timeoutMs: 240_000 },
  )
  t.is(signal, null, stderr)
  t.is(stderr, '')
  t.is(status, 0)
  const { more, ...rest } = JSON.parse(stdout)
  t.deepEqual(rest, { ended: 1000, others: [], same: true })
  t.true(more <= 2, `${more} threads more than before: workers leave threads behind`)
})
