/**
 * Turns of the event loop within long work of the JavaScript thread.
 *
 * Work that goes through many texts or rows asks {@link Turns.due} after each piece and awaits
 * {@link Turns.take} when it says so. Work that is shorter than {@link HOLD_MS} takes no turn at all.
 */

import { setImmediate } from 'node:timers/promises'

/** After this many milliseconds of work, other work of the thread has its turn. */
const HOLD_MS = 2

/** Gives the event loop a turn when the thread was held for long enough; throws the signal's reason if it is aborted. */
export class Turns {
  #since = performance.now()
  readonly #signal: AbortSignal | undefined

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal
  }

  /** Whether a turn is due. Asked first, so that a small call has no `await` in it. */
  due(): boolean {
    return performance.now() - this.#since > HOLD_MS
  }

  async take(): Promise<void> {
    await setImmediate()
    if (this.#signal?.aborted) throw this.#signal.reason
    this.#since = performance.now()
  }
}
