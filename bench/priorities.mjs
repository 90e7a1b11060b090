/**
 * Whether queries stay quick while a bulk call runs, and what that costs the bulk call.
 *
 *     npm run bench:priorities -- [--passages 10000] [--queries 50] [model ...]
 *
 * Models are ids or folders; by default all-MiniLM-L6-v2 of `.models/hub`. For each it measures queries of nine words on
 * the idle engine, the same at random moments of one bulk call, the bulk throughput with and without a query a second
 * (interleaved, so that what drifts on a shared machine hits both alike), and how soon an aborted bulk call ends. Exits
 * with 1 when a criterion is missed. Latencies mean something on an otherwise idle machine only, so the load is printed.
 */

import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { ROOT } from './lib/paths.mjs'
import { median, quantile } from './lib/statistics.mjs'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    passages: { type: 'string', default: '10000' },
    queries: { type: 'string', default: '50' },
    'cache-dir': { type: 'string', default: path.join(ROOT, '.models/hub') },
  },
})
const PASSAGES = Number(values.passages)
const QUERIES = Number(values.queries)
const ROUNDS = 5
const WORDS =
  'the of and in to a is for that with by as on are this from at which be an have model water city engine river light search'.split(
    ' ',
  )

const { TextEmbedding } = await import(pathToFileURL(path.join(ROOT, 'dist/esm/index.js')).href)
const random = seeded(1)
const text = (words) => Array.from({ length: words }, () => WORDS[Math.floor(random() * WORDS.length)]).join(' ')
const results = []
for (const id of positionals.length > 0 ? positionals : ['sentence-transformers/all-MiniLM-L6-v2']) {
  results.push(await measure(id))
}
process.exitCode = results.every(Boolean) ? 0 : 1

async function measure(id) {
  print(`${id}, ${PASSAGES} passages, load ${os.loadavg()[0].toFixed(2)} on ${os.availableParallelism()} processors`)
  const model = await TextEmbedding.load(id, { cacheDir: values['cache-dir'] })
  const passages = Array.from({ length: PASSAGES }, () => text(20 + Math.floor(random() * 100)))
  await model.passageEmbed(passages.slice(0, 64))
  const query = async () => {
    const start = performance.now()
    await model.queryEmbed([text(9)])
    return performance.now() - start
  }

  const idle = []
  for (let i = 0; i < QUERIES * 2; i++) idle.push(await query())
  const idleP50 = median(idle)
  print(`  idle: p50 ${ms(idleP50)}, p95 ${ms(quantile(idle, 0.95))}`)

  const start = performance.now()
  const bulk = { done: false }
  const running = model.passageEmbed(passages).then(() => {
    bulk.done = true
    return performance.now() - start
  })
  const under = []
  while (under.length < QUERIES && !bulk.done) {
    await sleep(random() * 200)
    if (!bulk.done) under.push(await query())
  }
  const took = await running
  const { longestLayerMs } = model.stats()
  const p95 = quantile(under, 0.95)
  print(
    `  while bulk runs: p50 ${ms(median(under))}, p95 ${ms(p95)} of ${under.length}; longest layer ${ms(longestLayerMs)}`,
  )
  print(`  bulk: ${(PASSAGES / (took / 1e3)).toFixed(0)} passages/s`)

  const part = passages.slice(0, Math.ceil(PASSAGES / 10))
  const [without, withQueries] = [[], []]
  for (let round = 0; round < ROUNDS; round++) {
    without.push(await time(model, part))
    const ticking = setInterval(query, 1000)
    withQueries.push(await time(model, part))
    clearInterval(ticking)
  }
  const loss = 1 - 1 / median(withQueries.map((time, round) => time / without[round]))
  print(`  bulk with a query a second: ${percent(loss)} slower (${ROUNDS} rounds of ${part.length} passages)`)

  const abort = await abortLatency(model, passages)
  print(
    `  abort: rejected after ${ms(abort.latency)}, ${abort.tokens} tokens counted and ${ms(abort.cpu)} computed afterwards`,
  )
  await model.dispose()

  const limit = 3 * idleP50 + longestLayerMs
  return [
    check(under.length === QUERIES, `${QUERIES} queries came while the bulk call ran`),
    check(p95 <= limit, `p95 ${ms(p95)} <= 3 x idle p50 + longest layer = ${ms(limit)}`),
    check(loss < 0.1, `a query a second costs bulk ${percent(loss)} < 10 %`),
    check(abort.latency <= 5, `an abort rejects in ${ms(abort.latency)} <= 5 ms`),
    check(abort.tokens === 0, `no token is counted after an abort`),
    check(abort.cpu <= 2 * os.availableParallelism() * longestLayerMs, `an abort ends the work within two layers`),
  ].every(Boolean)
}

async function time(model, texts) {
  const start = performance.now()
  await model.passageEmbed(texts)
  return performance.now() - start
}

/** Aborts a bulk call that has computed for a while; what is done for it afterwards, in a quarter of a second. */
async function abortLatency(model, passages) {
  const controller = new AbortController()
  const call = model.passageEmbed(passages, { signal: controller.signal }).catch(() => performance.now())
  await sleep(700)
  const start = performance.now()
  controller.abort()
  const latency = (await call) - start
  const { tokens } = model.stats()
  const cpu = process.cpuUsage()
  await sleep(250)
  const { user, system } = process.cpuUsage(cpu)
  return { latency, tokens: model.stats().tokens - tokens, cpu: (user + system) / 1e3 }
}

function check(passed, what) {
  print(`  ${passed ? 'ok    ' : 'MISSED'} ${what}`)
  return passed
}

function print(line) {
  process.stdout.write(`${line}\n`)
}

function ms(value) {
  return `${value.toFixed(1)} ms`
}

function percent(share) {
  return `${(share * 100).toFixed(1)} %`
}

/** Numbers from 0 to 1, the same in each run (a 31-bit Lehmer generator). */
function seeded(seed) {
  let state = seed
  return () => {
    state = (state * 48271) % 0x7fffffff
    return state / 0x7fffffff
  }
}
