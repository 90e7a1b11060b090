/**
 * Work that a disposal has to wait for.
 *
 * Invariant: `idle` resolves in a moment at which nothing that is counted runs.
 */

export class InProgress {
  #running = 0
  #waiting: (() => void)[] = []

  /** Does `work`, which is in progress until it has settled. */
  async count<T>(work: () => Promise<T>): Promise<T> {
    this.#running++
    try {
      return await work()
    } finally {
      this.#running--
      if (this.#running === 0) for (const resolve of this.#waiting.splice(0)) resolve()
    }
  }

  /** Waits until nothing is in progress. */
  idle(): Promise<void> {
    if (this.#running === 0) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}
