/**
 * Strings into the addon and rows out of it, a slice at a time.
 *
 * Cost: converting is work of the JavaScript thread (about 1 ms for a megabyte of text or for 1,000 rows
 * of 384 values), so a big call converts a slice, lets the event loop turn, and goes on. A slice is small
 * against what {@link Turns} allows, which is the longest that a call holds the thread without a turn,
 * save for one text or one row that is bigger than a slice. A small call takes no turn at all.
 *
 * Invariant: a result's memory in the addon is let go when its last row was taken or the call was aborted.
 */

import { throwIfAborted } from './abort'
import type { NativeResult, NativeTextBatch } from './native'
import { Turns } from './turns'
import { checkText, type Label, ValidatedTexts } from './validation'

/** UTF-16 units of one slice of texts. */
const SLICE_UNITS = 128 * 1024
/** Texts of one slice: each costs about 0.3 us besides its length. */
const SLICE_TEXTS = 512
/** Values of one slice of rows: 256 KiB. */
const SLICE_VALUES = 64 * 1024

/** Texts of one call: proven by a service, or a copy that nobody changes, whose texts are checked on the way. */
export type CallTexts = ValidatedTexts | readonly unknown[]

/** How many texts there are. */
export function countOf(texts: CallTexts): number {
  return texts instanceof ValidatedTexts ? texts.texts.length : texts.length
}

/** Hands the texts over, checking those that are not proven: an error names one by `label`. The addon replaces a lone surrogate by U+FFFD. */
export async function pushTexts(
  batch: NativeTextBatch,
  texts: CallTexts,
  signal: AbortSignal | undefined,
  label?: Label,
): Promise<void> {
  const [list, textAt] =
    texts instanceof ValidatedTexts
      ? [texts.texts, (index: number) => texts.texts[index] as string]
      : [texts, (index: number) => checkText(texts[index], index, label)]
  const turns = new Turns(signal)
  let slice: string[] = []
  let units = 0
  for (let index = 0; index < list.length; index++) {
    const text = textAt(index)
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
  const rows: Float32Array[] = []
  await inSlices(result, count, signal, (from, to) => {
    for (const row of result.rows(from, to)) rows.push(row)
  })
  return rows
}

/** All rows in one block, which is allocated once. */
export async function takeFlat(
  result: NativeResult,
  count: number,
  signal: AbortSignal | undefined,
): Promise<Float32Array> {
  const { dimensions } = result
  let data: Float32Array | undefined
  await inSlices(result, count, signal, (from, to) => {
    const values = result.values(from, to)
    // A result of one slice is the block itself.
    if (values.length === count * dimensions) data = values
    else {
      data ??= new Float32Array(count * dimensions)
      data.set(values, from * dimensions)
    }
  })
  return data ?? new Float32Array(0)
}

/** All rows of a result whose rows have lengths of their own, with their indices where they are sparse. */
export async function takeRagged(
  result: NativeResult,
  sparse: boolean,
  signal: AbortSignal | undefined,
): Promise<{ values: Float32Array[]; indices: Uint32Array[] }> {
  const { ends } = result
  const [values, indices]: [Float32Array[], Uint32Array[]] = [[], []]
  const turns = new Turns(signal)
  try {
    throwIfAborted(signal)
    for (let from = 0, to = 0; from < ends.length; from = to) {
      if (turns.due()) await turns.take()
      const start = from === 0 ? 0 : (ends[from - 1] as number)
      // At least one row, and otherwise what a slice holds.
      for (to = from + 1; to < ends.length && (ends[to] as number) - start <= SLICE_VALUES; ) to++
      if (sparse) for (const row of result.indices(from, to)) indices.push(row)
      for (const row of result.rows(from, to)) values.push(row)
    }
  } finally {
    result.release()
  }
  return { values, indices }
}

/** Calls `take` for one range of rows after the other, with turns in between, and lets go of the result. */
async function inSlices(
  result: NativeResult,
  count: number,
  signal: AbortSignal | undefined,
  take: (from: number, to: number) => void,
): Promise<void> {
  const turns = new Turns(signal)
  const step = Math.max(1, Math.floor(SLICE_VALUES / result.dimensions))
  try {
    throwIfAborted(signal)
    for (let from = 0; from < count; from += step) {
      if (turns.due()) await turns.take()
      take(from, Math.min(from + step, count))
    }
  } finally {
    result.release()
  }
}
