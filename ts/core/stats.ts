/**
 * Counters, for bug reports and for tuning.
 */

import type { NativeStats } from './native'

/**
 * What one model has done since it was opened. Counters only grow, save for what waits now; times are summed over calls
 * or micro-batches.
 */
export interface ModelStats {
  /** Calls that gave a result. */
  readonly calls: number
  /** Calls that ended otherwise: failed, refused, aborted, disposed. */
  readonly failed: number
  /** Of these, calls that were refused as `Overloaded`. */
  readonly refused: number
  /** Calls that wait now, or are partly done. */
  readonly queuedCalls: number
  /** Their texts that wait now. */
  readonly queuedTexts: number
  /** Texts that became vectors. */
  readonly texts: number
  /** Of these, texts that were cut because they were too long. */
  readonly truncated: number
  /** Tokens that were computed, special tokens counted. */
  readonly tokens: number
  /** Tokens that padding every micro-batch to its longest text would have computed instead. */
  readonly paddedTokens: number
  /** `tokens / paddedTokens`: how much of a padded computation would have been of use. 1 before the first text. */
  readonly paddingEfficiency: number
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
  refused: 0,
  queuedCalls: 0,
  queuedTexts: 0,
  texts: 0,
  truncated: 0,
  tokens: 0,
  paddedTokens: 0,
  paddingEfficiency: 1,
  batches: 0,
  queueMs: 0,
  tokenizeMs: 0,
  computeMs: 0,
  longestLayerMs: 0,
})

/** The addon's counters as the public ones; nothing for a model that was not used yet. */
export function modelStats(from: NativeStats | undefined): ModelStats {
  if (from === undefined) return NOTHING
  return { ...NOTHING, ...from, paddingEfficiency: from.paddedTokens === 0 ? 1 : from.tokens / from.paddedTokens }
}
