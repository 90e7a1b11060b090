/**
 * Runs one JavaScript engine: `node node_host.mjs ADAPTER OPTIONS_JSON`. The protocol is in `lib/engine_process.mjs`.
 *
 * An adapter exports `load(options)` and `embed(texts)`; `embed` resolves with one unit-length `Float32Array` a text, in
 * the order of the texts. All that an engine does from string to vector is inside the measured time.
 */

import { writeFileSync } from 'node:fs'
import { monitorEventLoopDelay, performance } from 'node:perf_hooks'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { readCorpus } from '../lib/corpora.mjs'

const [adapter, options] = process.argv.slice(2)
const corpora = new Map()
let engine

console.log = console.error // stdout belongs to the protocol

const commands = {
  /** Import, load and first vector. */
  async load() {
    const start = performance.now()
    engine = await import(pathToFileURL(adapter).href)
    await engine.load(JSON.parse(options))
    await engine.embed(['hello world'])
    return { ms: performance.now() - start }
  },

  /** One call with all texts of a corpus. `file`: where to write the vectors, row after row. */
  async embed({ corpus, file }) {
    const texts = textsOf(corpus)
    const start = performance.now()
    const vectors = await engine.embed(texts)
    const ms = performance.now() - start
    if (file !== undefined) writeFileSync(file, Buffer.concat(vectors.map(bytes)))
    return { ms, rows: vectors.length }
  },

  /** One text a call, one call after the other. */
  async latency({ corpus, count, warm }) {
    const texts = textsOf(corpus).slice(0, count)
    for (const text of texts.slice(0, warm)) await engine.embed([text])
    const ms = []
    for (const text of texts) {
      const start = performance.now()
      await engine.embed([text])
      ms.push(performance.now() - start)
    }
    return { ms }
  },

  /** How late a 1 ms timer fires while the whole corpus is embedded again and again, for at least `seconds`. */
  async eventLoop({ corpus, seconds }) {
    const texts = textsOf(corpus)
    await engine.embed(texts.slice(0, 64))
    const delay = monitorEventLoopDelay({ resolution: 1 })
    delay.enable()
    const end = performance.now() + 1000 * seconds
    while (performance.now() < end) await engine.embed(texts)
    delay.disable()
    const ms = (nanoseconds) => nanoseconds / 1e6
    return { p50: ms(delay.percentile(50)), p99: ms(delay.percentile(99)), max: ms(delay.max), samples: delay.count }
  },
}

function textsOf(corpus) {
  if (!corpora.has(corpus)) corpora.set(corpus, readCorpus(corpus))
  return corpora.get(corpus)
}

function bytes(row) {
  return Buffer.from(row.buffer, row.byteOffset, row.byteLength)
}

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...args } = JSON.parse(line)
  let answer
  try {
    answer = { ok: true, ...(await commands[command](args)) }
  } catch (error) {
    answer = { ok: false, error: String(error?.stack ?? error) }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
process.exit(0) // some engines keep the process alive
