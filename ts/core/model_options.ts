/**
 * The options that decide which model is opened and what its vectors are, shared by everything that
 * opens one.
 */

import { anyText, checkOptions, flag, type OptionChecks, oneOf, text, wholeNumber } from './options'
import type { PromptTemplate } from './roles'

/** Where a text that is too long is cut; `'error'` refuses it. Template and special tokens are never cut. */
export type Truncate = 'end' | 'start' | 'error'
/** What computes. */
export type Device = 'cpu'
/** How the weights are kept and multiplied. */
export type Precision = 'f32'
/** How the vectors of a text's tokens become one vector. */
export type Pooling = 'cls' | 'mean' | 'max' | 'mean_sqrt_len_tokens' | 'weightedmean' | 'lasttoken'

/** What to take instead of what the model's files and the registry say. */
export interface DescriptorOverrides {
  /**
   * Pooling, one or several to concatenate. Default: `1_Pooling/config.json`, else the registry, else mean.
   */
  readonly pooling?: Pooling | readonly Pooling[] | undefined
  /** Prompt of a query, with `{text}` once and, if it takes one, `{instruction}`; `null`: none. */
  readonly queryTemplate?: PromptTemplate | undefined
  /** Prompt of a passage; `null`: none. */
  readonly passageTemplate?: PromptTemplate | undefined
  /** What `{instruction}` in a prompt stands for when a call gives none. */
  readonly defaultInstruction?: string | undefined
  /** Whether vectors may be cut to fewer dimensions: not at all, to any number, or to those listed. */
  readonly matryoshka?: boolean | readonly number[] | undefined
}

/** The largest pool that can be asked for: past it a count is more likely a mistake than a machine. */
const MAX_THREADS = 512

/** Options for opening a model. */
export interface ModelOptions {
  /** Branch, tag or commit. Default `main`. */
  readonly revision?: string | undefined
  /** What computes. Default `'cpu'`. */
  readonly device?: Device | undefined
  /** Precision of weights and arithmetic. Default `'f32'`. */
  readonly precision?: Precision | undefined
  /**
   * Longest text in tokens, prompt and special tokens counted; capped at what the model has positions for.
   * Default: `sentence_bert_config.json`, else the registry, else what tokenizer and positions allow, at most 512.
   */
  readonly maxLength?: number | undefined
  /** Most texts of one call in a micro-batch. Never changes a result. Default: 32. */
  readonly batchSize?: number | undefined
  /** Whether to scale vectors to length one. Default: what the model does. */
  readonly normalize?: boolean | undefined
  /**
   * What happens to a text that is too long. Default: `truncation_side` of `tokenizer_config.json`, else
   * `'end'`. What was cut is reported with every result.
   */
  readonly truncate?: Truncate | undefined
  /** What to take instead of the model's own files and the registry. */
  readonly descriptor?: DescriptorOverrides | undefined
  /**
   * Threads of the pool that all models of the process share, 1 to 512; what the last load asked for holds.
   * Default: `SIMILE_THREADS`, else what processor affinity and container quota allow. Never changes a result.
   */
  readonly threads?: number | undefined
  /** Root of the Hugging Face cache. Default: `HF_HUB_CACHE`, `HF_HOME`, `~/.cache/huggingface/hub`. */
  readonly cacheDir?: string | undefined
}

const pooling = oneOf(['cls', 'mean', 'max', 'mean_sqrt_len_tokens', 'weightedmean', 'lasttoken'])
const template = (value: unknown, name: string) => (value === null ? null : anyText(value, name))

const DESCRIPTOR_CHECKS: OptionChecks<DescriptorOverrides> = {
  pooling: (value, name) =>
    Array.isArray(value) ? Array.from(value, (one) => pooling(one, name)) : [pooling(value, name)],
  queryTemplate: template,
  passageTemplate: template,
  defaultInstruction: anyText,
  matryoshka: (value, name) =>
    Array.isArray(value) ? Array.from(value, (one) => wholeNumber(1)(one, name)) : flag(value, name),
}

/** The checks of {@link ModelOptions}. */
export const MODEL_OPTION_CHECKS: OptionChecks<ModelOptions> = {
  revision: text,
  device: oneOf(['cpu']),
  precision: oneOf(['f32']),
  maxLength: wholeNumber(1),
  batchSize: wholeNumber(1),
  normalize: flag,
  truncate: oneOf(['end', 'start', 'error']),
  descriptor: (value, name) => checkOptions(name, value, DESCRIPTOR_CHECKS),
  threads: wholeNumber(1, MAX_THREADS),
  cacheDir: text,
}
