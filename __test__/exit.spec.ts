/** A process that used the package ends as it wants to, with the exit code that it wants. */

import test from 'ava'
import { type Outcome, runModule } from './helpers/child.ts'
import { MINILM, real } from './helpers/models.ts'

real(MINILM)
const LOADED = `import { TextEmbedding } from 'simile'
  const model = await TextEmbedding.load()
  const job = Array.from({ length: 2000 }, (_, i) => 'text ' + i + ' and more of it'.repeat(20))`

const CASES: [string, string, Partial<Outcome>][] = [
  ['end of the program', `${LOADED}; console.log((await model.embed(['a'])).length)`, { status: 0, stdout: '1\n' }],
  ['only imported', `import 'simile'; console.log('imported')`, { status: 0, stdout: 'imported\n' }],
  [
    'a service that was never used',
    `import { NativeEmbeddingService } from 'simile'; new NativeEmbeddingService()`,
    { status: 0, stdout: '' },
  ],
  [
    'a result that nobody awaits still comes',
    `${LOADED}; model.embed(['a']).then((rows) => console.log(rows.length))`,
    { status: 0, stdout: '1\n' },
  ],
  [
    'process.exit with work in flight',
    `${LOADED}; model.embed(job); setImmediate(() => process.exit(3))`,
    { status: 3 },
  ],
  [
    'process.exit in mid-load',
    `import { TextEmbedding } from 'simile'; TextEmbedding.load(); setImmediate(() => process.exit(4))`,
    { status: 4 },
  ],
  [
    'an uncaught exception with work in flight',
    `${LOADED}; model.embed(job); setImmediate(() => { throw new Error('mine') })`,
    { status: 1 },
  ],
  [
    'disposed',
    `${LOADED}; await model.embed(['a']); await model.dispose(); console.log('gone')`,
    { status: 0, stdout: 'gone\n' },
  ],
  [
    'aborted, and the work is left behind',
    `${LOADED}
     const controller = new AbortController()
     const pending = model.embed(job, { signal: controller.signal })
     setImmediate(() => controller.abort('stop'))
     await pending.catch((reason) => console.log(reason))`,
    { status: 0, stdout: 'stop\n' },
  ],
  ['an error that nobody catches', `${LOADED}; await model.embed(['a'], { nonsense: 1 })`, { status: 1, stdout: '' }],
]

for (const [what, source, expected] of CASES) {
  test(what, async (t) => {
    const outcome = await runModule(source, { timeoutMs: 60_000 })
    t.is(outcome.signal, null, `killed; stderr: ${outcome.stderr}`)
    t.like(outcome, expected, outcome.stderr)
  })
}

test('an uncaught exception is the one that is reported', async (t) => {
  const { stderr } = await runModule(`${LOADED}; model.embed(job); setImmediate(() => { throw new Error('mine') })`)
  t.regex(stderr, /Error: mine/)
})

test('nothing is printed', async (t) => {
  const { stdout, stderr } = await runModule(`${LOADED}; await model.embed(['a']); await model.dispose()`)
  t.is(stdout + stderr, '')
})
