/** Embedding in bulk does not hold up the JavaScript thread. */

import test from 'ava'
import { runModule } from './helpers/child.ts'
import { MINILM, real } from './helpers/models.ts'

real(MINILM)

/**
 * Prints the delays of the event loop in milliseconds, first while two native threads of somebody else are
 * busy (the control: what this machine does to any program), then while as many texts are embedded.
 */
const SOURCE = `
  import { pbkdf2 } from 'node:crypto'
  import { monitorEventLoopDelay } from 'node:perf_hooks'
  import { TextEmbedding } from 'simile'
  const model = await TextEmbedding.load()
  const texts = Array.from({ length: 250 }, (_, i) => 'Passage ' + i + ': ' + 'some words that fill the page. '.repeat(5 + (i * 7) % 30))
  await model.embed(texts.slice(0, 20))

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
  const started = performance.now()
  const embedding = await measured(() => model.embed(texts))
  const took = performance.now() - started
  const control = await measured(() => busy(took))
  console.log(JSON.stringify({ control, embedding: { ...embedding, end: embedding.end.length }, took }))
`

test('p99 at most 5 ms above two other busy threads, maximum under 20 ms', async (t) => {
  // The bound is about us, so a run that the machine disturbed is measured again.
  const tries: string[] = []
  for (let i = 0; i < 4; i++) {
    const { stdout, stderr } = await runModule(SOURCE)
    t.is(stderr, '')
    const { control, embedding, took } = JSON.parse(stdout)
    t.is(embedding.end, 250)
    t.true(took > 300, `only ${took} ms of work: too little to measure`)
    tries.push(`embedding p99 ${embedding.p99} max ${embedding.max}, control p99 ${control.p99} max ${control.max}`)
    if (embedding.p99 <= control.p99 + 5 && embedding.max < Math.max(20, control.max + 5)) {
      t.log(tries.join('\n'))
      return t.pass()
    }
  }
  return t.fail(tries.join('\n'))
})

test('handing over many texts and taking many rows leaves turns to others', async (t) => {
  const { stdout, stderr } = await runModule(`
    import { monitorEventLoopDelay } from 'node:perf_hooks'
    import { TextEmbedding } from 'simile'
    const model = await TextEmbedding.load()
    const texts = Array.from({ length: 100_000 }, (_, i) => 'a' + i)
    const long = Array.from({ length: 100 }, (_, i) => 'é' + 'word '.repeat(20_000) + i)
    let ticks = 0
    const timer = setInterval(() => ticks++, 1)
    const delays = monitorEventLoopDelay({ resolution: 1 })
    delays.enable()
    await model.tokenCount(texts)
    await model.tokenCount(long)
    delays.disable()
    clearInterval(timer)
    console.log(JSON.stringify({ ticks, max: delays.max / 1e6 }))
  `)
  t.is(stderr, '')
  const { ticks, max } = JSON.parse(stdout)
  t.log(`${ticks} ticks, longest delay ${max} ms`)
  t.true(ticks > 20, `${ticks} ticks of a 1 ms timer`)
  t.true(max < 100, `longest delay ${max} ms`)
})
