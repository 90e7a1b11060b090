/**
 * The control of the event-loop measurement: as many native threads as the engines use are busy, and nothing runs on the
 * JavaScript thread. PBKDF2 computes on libuv's pool, in calls so long that their completions hardly wake the loop.
 */

import { pbkdf2 } from 'node:crypto'
import { promisify } from 'node:util'

const derive = promisify(pbkdf2)
const ITERATIONS = 1_000_000 // 0.3 to 1 s a call
let threads

/** @param {{ threads: number }} options */
export async function load(options) {
  threads = options.threads
}

/** Keeps the threads busy for one call each; gives no vectors. */
export async function embed() {
  await Promise.all(Array.from({ length: threads }, () => derive('password', 'salt', ITERATIONS, 32, 'sha256')))
  return []
}
