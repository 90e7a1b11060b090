/**
 * AbortSignal, from any realm, without leaks.
 *
 * Invariants: one listener per signal however many calls wait on it, gone when the last of them ends,
 * so a signal that lives as long as the program can be given to every call; a waiting call rejects in
 * the same turn as the abort, with the signal's reason, whatever the work does; what the work gives
 * afterwards is dropped without an unhandled rejection.
 */

const waiting = new WeakMap<AbortSignal, { calls: Set<() => void>; stop: () => void }>()

/** Whether a value can be used as a signal. By shape: a signal of another realm is none of our `AbortSignal`. */
export function isAbortSignal(value: unknown): value is AbortSignal {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof (value as AbortSignal).aborted === 'boolean' &&
    typeof (value as AbortSignal).addEventListener === 'function' &&
    typeof (value as AbortSignal).removeEventListener === 'function'
  )
}

/** Throws the signal's reason if it is aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw signal.reason
}

/** Calls `callback` once when the signal aborts; the function returned takes that back. The signal must not be aborted yet. */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  let entry = waiting.get(signal)
  if (entry === undefined) {
    const calls = new Set<() => void>()
    const fire = () => {
      waiting.delete(signal)
      for (const call of calls) call()
    }
    signal.addEventListener('abort', fire, { once: true })
    entry = { calls, stop: () => signal.removeEventListener('abort', fire) }
    waiting.set(signal, entry)
  }
  const { calls, stop } = entry
  calls.add(callback)
  return () => {
    if (calls.delete(callback) && calls.size === 0 && waiting.get(signal)?.calls === calls) {
      waiting.delete(signal)
      stop()
    }
  }
}

/**
 * Runs `work` unless the signal is aborted, and rejects with the signal's reason as soon as it is.
 * `cancel` is called at that moment, so that the work can stop.
 */
export function abortable<T>(
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
  cancel: () => void = () => {},
): Promise<T> {
  if (signal === undefined) return work()
  if (signal.aborted) return Promise.reject(signal.reason)
  return new Promise<T>((resolve, reject) => {
    const release = onAbort(signal, () => {
      cancel()
      reject(signal.reason)
    })
    work().then(
      (value) => {
        release()
        resolve(value)
      },
      (error) => {
        release()
        reject(error)
      },
    )
  })
}
