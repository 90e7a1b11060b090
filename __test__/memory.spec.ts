/** Memory comes back. */

import { readFileSync } from 'node:fs'
import test from 'ava'
import { runModule } from './helpers/child.ts'
import { MINILM, real } from './helpers/models.ts'

// Anonymous memory is read from /proc, which only Linux has; the code under test is the same everywhere.
const onLinux = process.platform === 'linux' ? test : test.skip
real(MINILM)

const RSS_ANON = `
  import { readFileSync } from 'node:fs'
  const anonymous = () => Number(/RssAnon:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024
`

onLinux('20 times loaded, used and disposed: the last cycles need no more than the first', async (t) => {
  t.regex(readFileSync('/proc/self/status', 'utf8'), /RssAnon/)
  const { status, stdout, stderr } = await runModule(
    `${RSS_ANON}
     import { TextEmbedding } from 'simile'
     const texts = Array.from({ length: 32 }, (_, i) => 'text ' + i + ' with more words'.repeat(i % 20))
     const megabytes = []
     for (let cycle = 0; cycle < 20; cycle++) {
       const model = await TextEmbedding.load()
       await model.embed(texts)
       await model.dispose()
       await new Promise(setImmediate)
       globalThis.gc()
       // The model is freed by a thread of its own: wait until the figure has come to rest.
       let last = Infinity
       for (let still = 0; still < 4; ) {
         const now = anonymous()
         still = Math.abs(now - last) < 0.5 ? still + 1 : 0
         last = now
         await new Promise((resolve) => setTimeout(resolve, 25))
       }
       megabytes.push(last)
     }
     console.log(JSON.stringify(megabytes))`,
    { node: ['--expose-gc'] },
  )
  t.is(status, 0, stderr)
  const megabytes: number[] = JSON.parse(stdout)
  t.log(megabytes.map(Math.round).join(' '))
  const mean = (list: number[]) => list.reduce((a, b) => a + b) / list.length
  const [early, late] = [mean(megabytes.slice(2, 5)), mean(megabytes.slice(15))]
  t.true(late <= early * 1.1, `${late} MB in the last five cycles, ${early} MB in cycles three to five`)
})

onLinux(
  'five aborted loads leave nothing: their models go when the loads end, without a garbage collection',
  async (t) => {
    const { status, stdout, stderr } = await runModule(
      `${RSS_ANON}
     import { TextEmbedding } from 'simile'
     const settled = async (most) => {
       // The load goes on in the background and its model is freed there: wait for the figure, with a deadline.
       const deadline = performance.now() + 20_000
       let now
       do {
         await new Promise((resolve) => setTimeout(resolve, 20))
         now = anonymous()
       } while (now > most && performance.now() < deadline)
       return now
     }
     const before = anonymous()
     const model = await TextEmbedding.load()
     await model.embed(['warm'])
     const loaded = anonymous()
     await model.dispose()
     const idle = await settled(before + (loaded - before) / 2)
     const after = []
     for (let i = 0; i < 5; i++) {
       const controller = new AbortController()
       const pending = TextEmbedding.load(undefined, { signal: controller.signal })
       // Late enough that the load has begun, which its growing memory shows, and early enough that it is not done.
       const deadline = performance.now() + 20_000
       while (anonymous() < idle + 1 && performance.now() < deadline) await new Promise(setImmediate)
       controller.abort()
       const error = await pending.catch((error) => error)
       if (error?.name !== 'AbortError') throw new Error('not aborted: the load was over')
       after.push(await settled(idle + (loaded - before) / 2))
     }
     console.log(JSON.stringify({ before, loaded, idle, after }))`,
    )
    t.is(status, 0, stderr)
    const { before, loaded, idle, after } = JSON.parse(stdout) as {
      before: number
      loaded: number
      idle: number
      after: number[]
    }
    t.log(
      `loaded ${Math.round(loaded - before)} MB; above idle after each abort: ${after.map((x) => Math.round(x - idle))}`,
    )
    t.true(loaded - before > 20, 'a load is big enough to be seen')
    t.true(Math.max(...after) <= idle + (loaded - before) / 2, `${after} MB, ${idle} MB before`)
  },
)

onLinux('bulk work does not pile up', async (t) => {
  const { status, stdout, stderr } = await runModule(
    `${RSS_ANON}
     import { TextEmbedding } from 'simile'
     const model = await TextEmbedding.load()
     const texts = Array.from({ length: 100 }, (_, i) => 'text ' + i + ' with more words'.repeat(i % 60))
     const megabytes = []
     for (let round = 0; round < 8; round++) {
       await model.embed(texts)
       globalThis.gc()
       megabytes.push(anonymous())
     }
     console.log(JSON.stringify(megabytes))`,
    { node: ['--expose-gc'] },
  )
  t.is(status, 0, stderr)
  const megabytes: number[] = JSON.parse(stdout)
  t.log(megabytes.map(Math.round).join(' '))
  t.true((megabytes[7] as number) <= (megabytes[2] as number) * 1.1, megabytes.join(' '))
})

test('two services of one model share its weights', async (t) => {
  const { stdout, stderr } = await runModule(
    `import { NativeEmbeddingService } from 'simile'
     const services = Array.from({ length: 6 }, () => new NativeEmbeddingService())
     const before = process.memoryUsage.rss()
     await services[0].ensureLoaded()
     const one = process.memoryUsage.rss() - before
     await Promise.all(services.map((service) => service.ensureLoaded()))
     const all = process.memoryUsage.rss() - before
     console.log(all < one * 2, Math.round(one / 1e6), Math.round(all / 1e6))`,
  )
  t.regex(stdout, /^true/, stdout + stderr)
})
