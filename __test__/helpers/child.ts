/** Programs that use the package, each in a process of its own. */

import { spawn } from 'node:child_process'
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
