/**
 * The order of the measurements.
 *
 * All engines are loaded, one process each, and sleep while another works. They take turns within every round, and the
 * one that begins moves on from round to round, so that the drift of a shared machine hits all alike and none has always
 * the same predecessor. Nothing is timed before an engine's vectors have been checked.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { checkAgreement } from './agreement.mjs'
import { BUSY_THREADS } from './catalogue.mjs'
import { watchDisturbance } from './disturbance.mjs'
import { EngineProcess } from './engine_process.mjs'
import { quantile } from './statistics.mjs'

/** Between two turns: OpenMP and onnxruntime workers spin for a while after their work. */
const SETTLE_MS = 200
/** One short text at a time: enough for a p95 with ten texts above it. */
const LATENCY = { corpus: 'short', count: 200, warm: 20 }
const EVENT_LOOP = { corpus: 'mixed', seconds: 5 }

/**
 * @typedef {object} Plan
 * @property {import('./catalogue.mjs').Engine[]} engines
 * @property {string[]} corpora
 * @property {number} rounds
 * @property {number} loads processes started to time the load; of several the first only warms the file cache
 * @property {number} eventLoopRounds 0: not measured
 * @property {number} threads
 */

/**
 * @typedef {object} Measured what is known of one engine
 * @property {number[]} loadMs
 * @property {Record<string, { min: number, mean: number, maxDifference: number }>} agreement by corpus
 * @property {Record<string, number[]>} passMs by corpus, one a round
 * @property {{ p50: number, p95: number }[]} latencyMs one a round
 * @property {{ p50: number, p99: number, max: number }[]} eventLoopMs one a round
 * @property {ReturnType<typeof import('./memory.mjs').memoryOf>} memory after the passes
 */

/**
 * @param {Plan} plan
 * @param {(text: string) => void} progress
 * @returns {Promise<{ engines: Record<string, Measured>, control: Measured['eventLoopMs'], others: number | null }>} `others`: see
 *   `watchDisturbance`, over the timed rounds
 */
export async function measure(plan, progress) {
  const measured = Object.fromEntries(
    plan.engines.map(({ name }) => [
      name,
      { loadMs: [], agreement: {}, passMs: {}, latencyMs: [], eventLoopMs: [], memory: null },
    ]),
  )
  const processes = []
  try {
    await load(plan, processes, measured, progress)
    await check(plan, processes, measured, progress)
    const disturbance = watchDisturbance(processes.map(({ pid }) => pid))
    await time(plan, processes, measured, progress)
    const others = disturbance()
    for (const process of processes) measured[process.engine.name].memory = process.memory()
    const control = await eventLoop(plan, processes, measured, progress)
    return { engines: measured, control, others }
  } finally {
    await Promise.all(processes.map((process) => process.close()))
  }
}

/** Loads every engine `loads` times, each time in a new process; the last ones stay in `processes`. */
async function load({ engines, loads, threads }, processes, measured, progress) {
  for (let round = 0; round < loads; round++) {
    await Promise.all(processes.splice(0).map((process) => process.close()))
    for (const engine of engines) {
      const process = new EngineProcess(engine, { threads })
      processes.push(process)
      const { ms } = await process.request('load')
      if (round > 0 || loads === 1) measured[engine.name].loadMs.push(ms)
      progress(`load ${round + 1}/${loads}  ${engine.name}  ${ms.toFixed(0)} ms`)
    }
  }
}

/** Every engine is asked before the run gives up, so that one run shows all that is wrong. */
async function check({ corpora }, processes, measured, progress) {
  const failures = []
  for (const process of processes) {
    for (const corpus of corpora) {
      try {
        const agreement = await checkAgreement(process, corpus)
        measured[process.engine.name].agreement[corpus] = agreement
        progress(`check  ${corpus}  ${process.engine.name}  cosine at least ${agreement.min.toFixed(6)}`)
      } catch (error) {
        failures.push(error)
      }
    }
  }
  if (failures.length > 0) throw new AggregateError(failures, failures.map(({ message }) => message).join('\n'))
}

async function time({ corpora, rounds }, processes, measured, progress) {
  for (let round = 0; round < rounds; round++) {
    for (const corpus of corpora) {
      for (const process of turns(processes, round)) {
        await sleep(SETTLE_MS)
        const { ms } = await process.request('embed', { corpus })
        const { passMs } = measured[process.engine.name]
        passMs[corpus] = [...(passMs[corpus] ?? []), ms]
        progress(`round ${round + 1}/${rounds}  ${corpus}  ${process.engine.name}  ${ms.toFixed(0)} ms`)
      }
    }
    for (const process of turns(processes, round)) {
      await sleep(SETTLE_MS)
      const { ms } = await process.request('latency', LATENCY)
      measured[process.engine.name].latencyMs.push({ p50: quantile(ms, 0.5), p95: quantile(ms, 0.95) })
      progress(
        `round ${round + 1}/${rounds}  one short text  ${process.engine.name}  p50 ${quantile(ms, 0.5).toFixed(2)} ms`,
      )
    }
  }
}

/** Only Node engines have an event loop to hold up; the control takes part like one of them. */
async function eventLoop({ eventLoopRounds, threads }, processes, measured, progress) {
  const control = new EngineProcess(BUSY_THREADS, { threads })
  const results = []
  try {
    await control.request('load')
    const subjects = [control, ...processes.filter(({ engine }) => engine.host === 'node')]
    for (let round = 0; round < eventLoopRounds; round++) {
      for (const process of turns(subjects, round)) {
        await sleep(SETTLE_MS)
        const { p50, p99, max } = await process.request('eventLoop', EVENT_LOOP)
        const list = process === control ? results : measured[process.engine.name].eventLoopMs
        list.push({ p50, p99, max })
        progress(
          `event loop ${round + 1}/${eventLoopRounds}  ${process.engine.name}  p99 ${p99.toFixed(1)} ms  max ${max.toFixed(1)} ms`,
        )
      }
    }
  } finally {
    await control.close()
  }
  return results
}

function turns(processes, round) {
  const first = round % processes.length
  return [...processes.slice(first), ...processes.slice(0, first)]
}
