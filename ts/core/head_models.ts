/**
 * What sparse, multi-vector and rerank models have in common: their options and their descriptor.
 */

import { MODEL_OPTION_CHECKS, type ModelOptions, type Truncate } from './model_options'
import type { NativeHeadInfo } from './native'
import { anyText, type OptionChecks, oneOf, signal, wholeNumber } from './options'
import type { Priority, PromptTemplate } from './roles'

/** Options of opening a sparse, multi-vector or rerank model. */
export interface HeadLoadOptions extends Omit<ModelOptions, 'normalize' | 'descriptor'> {
  /** Rejects at once and stops a download, whose files are kept as far as they are; the next load goes on from there. */
  readonly signal?: AbortSignal | undefined
}

/** Options of one call of such a model. */
export interface HeadCallOptions {
  /** Most texts of this call in a micro-batch. Never changes a result. Default: that of `load`, else 32. */
  readonly batchSize?: number | undefined
  /** The task, for a model whose prompt takes one. */
  readonly instruction?: string | undefined
  /** Which queue the call waits in. Default: interactive for at most 16 queries or scored texts, else bulk. */
  readonly priority?: Priority | undefined
  /** Milliseconds in which the first text of the call must be begun; after that it is an `OverloadedError`. Default: no limit. */
  readonly maxWait?: number | undefined
  /** Rejects the call at once with the signal's reason and stops its work. */
  readonly signal?: AbortSignal | undefined
}

/** The facts of a loaded model of these kinds, as they are in force. */
export interface HeadModelDescriptor {
  /** Model id; for a folder, the folder as it was given. */
  readonly id: string
  /** Commit of its files, where one is known. */
  readonly revision: string | null
  /** `model_type` of its `config.json`; empty for a model without one. */
  readonly modelType: string
  /** What it gives. */
  readonly kind: 'sparse' | 'multi-vector' | 'rerank'
  /** What computes it, for example `'splade'`, `'colbert'` or `'classifier'`. */
  readonly head: string
  /**
   * Sparse: indices are below it, which is words of the vocabulary, or 2147483648 for the hashed words of BM25 and BM42.
   * Multi-vector: values of a token's vector. Rerank: 1.
   */
  readonly dimensions: number
  /** Tokens of the longest text (rerank: pair) that is read whole, special tokens counted. 4294967295: no limit, as of BM25. */
  readonly maxLength: number
  /** The same of a query, where queries have a limit of their own. */
  readonly queryLength: number | null
  /** What happens to a text that is too long. */
  readonly truncate: Truncate
  /** Rerank: what a logit goes through, `'identity'`, `'sigmoid'` or `'softmax'`. */
  readonly activation: string | null
  /** Prompt of a query; `null`: none. */
  readonly queryTemplate: PromptTemplate
  /** Prompt of a passage; `null`: none. */
  readonly passageTemplate: PromptTemplate
  /** The task of a call that gives no `instruction`; `null`: the model's prompt has no place for one, or a call must give it. */
  readonly defaultInstruction: string | null
}

const { normalize: _, descriptor: __, ...OPENING } = MODEL_OPTION_CHECKS

/** The checks of {@link HeadLoadOptions}. */
export const HEAD_LOAD_CHECKS: OptionChecks<HeadLoadOptions> = { ...OPENING, signal }

/** The checks of {@link HeadCallOptions}. */
export const HEAD_CALL_CHECKS: OptionChecks<HeadCallOptions> = {
  batchSize: wholeNumber(1),
  instruction: anyText,
  priority: oneOf(['interactive', 'bulk']),
  maxWait: wholeNumber(1),
  signal,
}

/** The addon's facts as the public ones. */
export function headDescriptor({ contractId: _, ...facts }: NativeHeadInfo): HeadModelDescriptor {
  return Object.freeze(facts as HeadModelDescriptor)
}

/** Gives a row properties that are not enumerable. */
export function hidden<Row extends object>(row: Row, values: Readonly<Record<string, unknown>>): Row {
  for (const [name, value] of Object.entries(values)) Object.defineProperty(row, name, { value })
  return row
}
