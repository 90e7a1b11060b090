/** Programs that use the package, each in a process of its own. */

import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { HUB, ROOT } from './models.ts'

export interface Outcome {
  status: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
}

export interface ChildOptions {
  env?: Record<string, string | undefined>
  /** Options of node itself. */
  node?: string[]
  cwd?: string
  /** After this the child is killed, which a test sees as `signal`. */
  timeoutMs?: number
}

/** Runs an ES module given as text, from the root of the repository, with the real models at hand. */
export function runModule(source: string, options: ChildOptions = {}): Promise<Outcome> {
  return run(['--input-type=module', '--eval', source], options)
}

/** Runs node. */
export function run(args: string[], { env = {}, node = [], cwd = ROOT, timeoutMs = 120_000 }: ChildOptions = {}) {
  return new Promise<Outcome>((resolve, reject) => {
    const child = spawn(process.execPath, [...node, ...args], {
      cwd,
      env: { ...process.env, NODE_OPTIONS: '', HF_HUB_CACHE: HUB, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: timeoutMs,
      killSignal: 'SIGKILL',
    })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (chunk) => {
      stdout += chunk
    })
    child.stderr.setEncoding('utf8').on('data', (chunk) => {
      stderr += chunk
    })
    child.on('error', reject)
    child.on('close', (status, signal) => resolve({ status, signal, stdout, stderr }))
  })
}

export interface Running {
  child: ChildProcess
  /** Resolves at the first line of its output that matches; rejects when it ends without one. */
  said(pattern: RegExp): Promise<string>
  /** Status or signal, when it has ended. */
  ended: Promise<number | NodeJS.Signals | null>
}

/** Starts an ES module given as text, to be watched while it runs. */
export function startModule(source: string, env: Record<string, string | undefined> = {}): Running {
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    cwd: ROOT,
    env: { ...process.env, NODE_OPTIONS: '', ...env },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    timeout: 120_000,
    killSignal: 'SIGKILL',
  })
  const lines: string[] = []
  const heard = new Set<() => void>()
  const tell = () => {
    for (const listener of heard) listener()
  }
  let over = false
  createInterface(child.stdout as Readable).on('line', (line) => {
    lines.push(line)
    tell()
  })
  const ended = new Promise<number | NodeJS.Signals | null>((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (status, signal) => {
      over = true
      tell()
      resolve(signal ?? status)
    })
  })
  const said = (pattern: RegExp) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const line = lines.find((line) => pattern.test(line))
        if (line === undefined && !over) return
        heard.delete(look)
        if (line === undefined) reject(new Error(`it ended without ${pattern}, having said ${JSON.stringify(lines)}`))
        else resolve(line)
      }
      heard.add(look)
      look()
    })
  return { child, said, ended }
}
