/**
 * One engine in one process.
 *
 * The process runs `host/node_host.mjs` or `host/python_host.py` with the adapter's path and its options as JSON, reads
 * one JSON command a line on stdin and answers one JSON line on stdout: `{ "ok": true, ... }` or
 * `{ "ok": false, "error": "..." }`. Between commands it sleeps in that read. What engines print goes to a log.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdirSync, openSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { memoryOf } from './memory.mjs'
import { BENCH, LOGS, ONNX_MODEL, readJson, SETUP } from './paths.mjs'

export class EngineProcess {
  #child
  #answers
  #log

  /**
   * @param {import('./catalogue.mjs').Engine} engine
   * @param {{ threads: number }} settings
   */
  constructor(engine, { threads }) {
    this.engine = engine
    const { model, python } = readJson(SETUP)
    const [program, host] = engine.host === 'node' ? [process.execPath, 'node_host.mjs'] : [python, 'python_host.py']
    const options = JSON.stringify({ model, onnxModel: ONNX_MODEL, threads, ...engine.options })
    mkdirSync(LOGS, { recursive: true })
    this.#log = path.join(LOGS, `${engine.name.replaceAll(' ', '_')}.log`)
    const log = openSync(this.#log, 'w')
    this.#child = spawn(program, [path.join(BENCH, 'host', host), engine.adapter, options], {
      stdio: ['pipe', 'pipe', log],
      env: environment(threads),
    })
    closeSync(log)
    // Both end in a closed stdout, which `request` reports.
    this.#child.on('error', (error) => writeFileSync(this.#log, String(error)))
    this.#child.stdin.on('error', () => {})
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]()
  }

  /** @param {string} command  @param {object} [args]  @returns {Promise<any>} */
  async request(command, args = {}) {
    this.#child.stdin.write(`${JSON.stringify({ command, ...args })}\n`)
    const { value, done } = await this.#answers.next()
    const answer = done ? { ok: false, error: await this.#lastWords() } : JSON.parse(value)
    if (!answer.ok) throw new Error(`${this.engine.name}, ${command}: ${answer.error}`)
    return answer
  }

  /** Why the process ended, as far as can be known. */
  async #lastWords() {
    if (this.#child.pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null) {
      await once(this.#child, 'exit')
    }
    const how = this.#child.signalCode ?? `exit code ${this.#child.exitCode}`
    return `the process ended with ${how}; it said: ${readFileSync(this.#log, 'utf8').slice(-2000)}`
  }

  get pid() {
    return this.#child.pid
  }

  /** Megabytes that the process uses and used at most. */
  memory() {
    return memoryOf(this.#child.pid)
  }

  async close() {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null || this.#child.pid === undefined) return
    const exited = once(this.#child, 'exit')
    this.#child.stdin.end()
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 10_000)
    await exited
    clearTimeout(timer)
  }
}

/** The user's environment without what would change an engine: thread counts are set for all, network is off. */
function environment(threads) {
  const { OPENBLAS_CORETYPE, MKL_ENABLE_INSTRUCTIONS, ...rest } = process.env
  return {
    ...rest,
    SIMILE_THREADS: String(threads),
    OMP_NUM_THREADS: String(threads),
    UV_THREADPOOL_SIZE: String(Math.max(threads, 4)), // 4 is libuv's own default
    TOKENIZERS_PARALLELISM: 'true',
    HF_HUB_OFFLINE: '1',
  }
}
