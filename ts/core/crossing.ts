/**
 * Strings into the addon and rows out of it, a slice at a time.
 *
 * Cost: converting is work of the JavaScript thread (about 1 ms for a megabyte of text or for 1,000 rows
 * of 384 values), so a big call converts a slice, lets the event loop turn, and goes on. A slice is
 * small against {@link HOLD_MS}, which is the longest that a call holds the thread without a turn, save
 * for one text or one row that is bigger than a slice. A small call takes no turn at all.
 */

import { setImmediate } from 'node:timers/promises'
import type { NativeResult, NativeTextBatch } from './native'
import { checkText } from './validation'

/** After this many milliseconds of converting, other work of the thread has its turn. */
const HOLD_MS = 2
/** UTF-16 units of one slice of texts. */
const SLICE_UNITS = 128 * 1024
/** Texts of one slice: each costs about 0.3 us besides its length. */
const SLICE_TEXTS = 512
/** Values of one slice of rows: 256 KiB. */
const SLICE_VALUES = 64 * 1024

/** Gives the event loop a turn when the thread was held for long enough; throws the signal's reason if it is aborted. */
class Turns {
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

/** Checks the texts and hands them over. `texts` must be a copy that nobody else changes. */
export async function pushTexts(
  batch: NativeTextBatch,
  texts: readonly unknown[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const turns = new Turns(signal)
  let slice: string[] = []
  let units = 0
  for (let index = 0; index < texts.length; index++) {
    const text = checkText(texts[index], index)
    slice.push(text)
    units += text.length
    if (units >= SLICE_UNITS || slice.length === SLICE_TEXTS) {
      batch.push(slice)
      slice = []
      units = 0
      if (turns.due()) await turns.take()
    }
  }
  if (slice.length > 0) batch.push(slice)
}

/** All rows, each with its own memory. */
export async function takeRows(
  result: NativeResult,
  count: number,
  signal: AbortSignal | undefined,
): Promise<Float32Array[]> {
  const turns = new Turns(signal)
  const step = Math.max(1, Math.floor(SLICE_VALUES / result.dimensions))
  if (count <= step) return result.rows(0, count)
  const rows: Float32Array[] = []
  for (let from = 0; from < count; from += step) {
    if (turns.due()) await turns.take()
    for (const row of result.rows(from, Math.min(from + step, count))) rows.push(row)
  }
  return rows
}

/** All rows in one block. */
export async function takeFlat(
  result: NativeResult,
  count: number,
  signal: AbortSignal | undefined,
): Promise<Float32Array> {
  const { dimensions } = result
  const step = Math.max(1, Math.floor(SLICE_VALUES / dimensions))
  if (count <= step) return result.flat()
  const turns = new Turns(signal)
  const data = new Float32Array(count * dimensions)
  for (let from = 0; from < count; from += step) {
    if (turns.due()) await turns.take()
    result.rows(from, Math.min(from + step, count)).forEach((row, i) => {
      data.set(row, (from + i) * dimensions)
    })
  }
  return data
}
