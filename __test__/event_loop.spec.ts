/**
 * Embedding in bulk does not hold up the JavaScript thread.
 *
 * The promise: while a bulk call computes, the event loop's delay has a 99th percentile of at most 5 ms above
 * the control's, and a maximum under 20 ms. The control is the same program while two native threads of
 * somebody else are busy: it measures what this machine, with whatever else runs on it, does to any program
 * at that moment. A machine that delays the control by more than 15 ms cannot show a maximum under 20 ms for
 * anybody, so there, and only there, the maximum may be 5 ms above the control's. Up to three tries, since a
 * disturbance may come in one half of a run and not in the other.
 */

import test from 'ava'
import { runModule } from './helpers/child.ts'
import { MINILM, real, tiny } from './helpers/models.ts'

real(MINILM)

const IMPORTS = `
  import { pbkdf2 } from 'node:crypto'
  import { monitorEventLoopDelay } from 'node:perf_hooks'
`
/** `measured` gives the delays during some work in milliseconds; `busy` is the control's work. */
const MEASURE = `
  async function measured(work) {
    const delays = monitorEventLoopDelay({ resolution: 1 })
    delays.enable()
    const end = await work()
    delays.disable()
    return { p99: delays.percentile(99) / 1e6, max: delays.max / 1e6, end }
  }
  async function busy(milliseconds) {
    const end = performance.now() + milliseconds
    const spin = () => new Promise((resolve) => pbkdf2('a', 'b', 200_000, 64, 'sha512', resolve))
    await Promise.all([1, 2].map(async () => { while (performance.now() < end) await spin() }))
  }
`

/**
 * Prints the delays of the event loop in milliseconds, first while texts are embedded, then, for as long, while
 * two native threads of somebody else are busy (the control: what this machine does to any program).
 */
const SOURCE = `
  ${IMPORTS}
  import { TextEmbedding } from 'simile'
  const model = await TextEmbedding.load()
  const texts = Array.from({ length: 250 }, (_, i) => 'Passage ' + i + ': ' + 'some words that fill the page. '.repeat(5 + (i * 7) % 30))
  await model.embed(texts.slice(0, 20))

  ${MEASURE}
  const started = performance.now()
  const embedding = await measured(() => model.embed(texts))
  const took = performance.now() - started
  const control = await measured(() => busy(took))
  console.log(JSON.stringify({ control, embedding: { ...embedding, end: embedding.end.length }, took }))
`

const TRIES = 3

test('p99 at most 5 ms above two other busy threads, maximum under 20 ms', async (t) => {
  for (let i = 1; i <= TRIES; i++) {
    const { stdout, stderr } = await runModule(SOURCE)
    t.is(stderr, '')
    const { control, embedding, took } = JSON.parse(stdout)
    t.is(embedding.end, 250)
    t.true(took > 300, `only ${took} ms of work: too little to measure`)
    const most = Math.max(20, control.max + 5)
    t.log(`embedding p99 ${embedding.p99} max ${embedding.max}; control p99 ${control.p99} max ${control.max} ms`)
    if (embedding.p99 <= control.p99 + 5 && embedding.max < most) return
    if (i === TRIES) t.fail(`p99 ${embedding.p99}, at most ${control.p99 + 5}; maximum ${embedding.max}, under ${most}`)
  }
})

/** Big inputs and big results: what is converted on the JavaScript thread, with next to nothing to compute. */
const CROSSINGS: [what: string, work: string][] = [
  ["20,000 texts over, as many rows back: 'rows'", "await model.embed(texts, { output: 'rows' })"],
  ["20,000 texts over, as many rows back: 'flat'", "await model.embed(texts, { output: 'flat' })"],
  ['a service at its limits, 1,000 texts of 32,768 bytes', 'await service.embed(most)'],
]
for (const [what, work] of CROSSINGS) {
  test(`the thread has turns for others: ${what}`, async (t) => {
    for (let i = 1; i <= TRIES; i++) {
      const { stdout, stderr } = await runModule(`
        ${IMPORTS}
        import { NativeEmbeddingService, TextEmbedding } from 'simile'
        ${MEASURE}
        const folder = ${JSON.stringify(tiny('tiny-bert-cls'))}
        const model = await TextEmbedding.load(folder)
        const service = new NativeEmbeddingService({ model: folder })
        await service.ensureLoaded()
        const texts = Array.from({ length: 20_000 }, (_, i) => 'a' + i)
        // Flat strings, as they come from a file: the longest by their length alone, and the longest that has to be measured.
        const flat = (text) => Buffer.from(text).toString()
        const long = [flat('\u8a9e'.repeat(10_922)), flat('x'.repeat(32_764) + '\u{1f642}')]
        const most = Array.from({ length: 1000 }, (_, i) => long[i % 2])
        await model.embed(texts.slice(0, 100))
        let ticks = 0
        const timer = setInterval(() => ticks++, 1)
        const started = performance.now()
        const crossing = await measured(async () => { ${work} })
        const took = performance.now() - started
        clearInterval(timer)
        const control = await measured(() => busy(took))
        console.log(JSON.stringify({ ticks, max: crossing.max, control: control.max }))
      `)
      t.is(stderr, '')
      const { ticks, max, control } = JSON.parse(stdout)
      const most = Math.max(20, control + 5)
      t.log(`${ticks} ticks, longest delay ${max} ms, of the control ${control} ms`)
      t.true(ticks > 20, `${ticks} ticks of a 1 ms timer`)
      if (max < most) return
      if (i === TRIES) t.fail(`longest delay ${max} ms, must be under ${most}`)
    }
  })
}
