/**
 * Counters, for bug reports and for tuning.
 */

import type { NativeStats } from './native'

/** What one model has done since it was opened. Counters only grow; times are summed over calls or micro-batches. */
export interface ModelStats {
  /** Calls that gave a result. */
  readonly calls: number
  /** Calls that ended otherwise: failed, aborted, disposed. */
  readonly failed: number
  /** Texts that became vectors. */
  readonly texts: number
  /** Of these, texts that were cut because they were too long. */
  readonly truncated: number
  /** Tokens that were computed, special tokens counted. */
  readonly tokens: number
  /** Tokens that padding every micro-batch to its longest text would have computed instead. */
  readonly paddedTokens: number
  /** Micro-batches. */
  readonly batches: number
  /** Milliseconds that calls waited before their texts were tokenised. */
  readonly queueMs: number
  /** Milliseconds in which texts were tokenised. */
  readonly tokenizeMs: number
  /** Milliseconds in which micro-batches ran. */
  readonly computeMs: number
  /** Longest time, in milliseconds, between two points where an interactive call can get in. */
  readonly longestLayerMs: number
}

const NOTHING: ModelStats = Object.freeze({
  calls: 0,
  failed: 0,
  texts: 0,
  truncated: 0,
  tokens: 0,
  paddedTokens: 0,
  batches: 0,
  queueMs: 0,
  tokenizeMs: 0,
  computeMs: 0,
  longestLayerMs: 0,
})

/** The addon's counters as the public ones; nothing for a model that was not used yet. */
export function modelStats(from: NativeStats | undefined): ModelStats {
  return from === undefined ? NOTHING : { ...NOTHING, ...from }
}
