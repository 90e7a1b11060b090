/** Counting the tokens of texts without embedding them: the same for every model that reads texts one by one. */

import type { ModelHandle } from './model_handle'
import { anyText, checkOptions, type OptionChecks, signal } from './options'
import { countPriority, type EmbeddingRole } from './roles'
import { snapshot } from './validation'

/** Options of a token count. */
export interface TokenCountOptions {
  /** The task, for a model whose prompt takes one. */
  readonly instruction?: string | undefined
  /** Rejects the call at once with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

const CHECKS: OptionChecks<TokenCountOptions> = { instruction: anyText, signal }

/** Tokens of each text in the prompt of `role` that survive truncation. */
export async function countTokens(
  handle: ModelHandle,
  method: string,
  texts: readonly string[],
  role: EmbeddingRole,
  options: TokenCountOptions | undefined,
): Promise<number[]> {
  const copy = snapshot(texts)
  const call = checkOptions(method, options, CHECKS)
  if (copy.length === 0) {
    handle.assertUsable(call.signal)
    handle.checkInstruction(role, call.instruction)
    return []
  }
  const { embedded } = await handle.tokenCounts(copy, { role, priority: countPriority(copy.length), ...call })
  return Array.from(embedded)
}
