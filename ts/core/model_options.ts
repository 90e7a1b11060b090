/**
 * The options that decide which model is opened and what its vectors are, shared by everything that
 * opens one.
 */

import { InvalidInputError } from './errors'
import { anyText, callback, checkOptions, flag, type OptionChecks, oneOf, text, wholeNumber } from './options'
import type { PromptTemplate } from './roles'
import { describe } from './validation'

/** Where a text that is too long is cut; `'error'` refuses it. Template and special tokens are never cut. */
export type Truncate = 'end' | 'start' | 'error'
/**
 * What computes: the processor; an NVIDIA GPU (Linux x64, with the optional package `simile-cuda-linux-x64`), the first or
 * the one of that number; the GPU of a Mac.
 */
export type Device = 'cpu' | 'cuda' | `cuda:${number}` | 'metal'
/** How the weights are kept and multiplied. The CPU knows `'f32'` only. */
export type Precision = 'f32' | 'f16' | 'bf16'
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

/** How far the download of a model is, in bytes. What an earlier try left on this machine counts as loaded. */
export interface DownloadProgress {
  /** Model id. */
  readonly model: string
  /** The file that is being transferred, relative to the model. */
  readonly file: string
  /** Bytes of the model that are on this machine. */
  readonly loaded: number
  /** Bytes of the model, known from the first event on. */
  readonly total: number
  /** Bytes of the file that are on this machine. */
  readonly fileLoaded: number
  /** Bytes of the file. */
  readonly fileTotal: number
}

/** The largest pool that can be asked for: past it a count is more likely a mistake than a machine. */
const MAX_THREADS = 512

/** Options for opening a model. */
export interface ModelOptions {
  /** Branch, tag or commit. Default `main`. */
  readonly revision?: string | undefined
  /** What computes. Default `'cpu'`. A device that cannot be used is a `ModelInitializationError` of the load. */
  readonly device?: Device | undefined
  /**
   * Precision of weights and arithmetic. Default `'f32'`. What a device or model does not compute soundly in 16 bits is
   * refused as `UnsupportedModelError`, before a download where the model is registered.
   */
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
  /**
   * Whether to open no connection: a model that is not on this machine is an error then. Default: whether
   * `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE` is `1`, `true`, `yes` or `on`.
   */
  readonly offline?: boolean | undefined
  /**
   * Access token for the hub, for private and gated models. It is sent to the endpoint and to no other host.
   * Default: `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN`, the file `HF_TOKEN_PATH`, the file `token` in `HF_HOME`.
   */
  readonly token?: string | undefined
  /** Base URL of the hub. Default: `HF_ENDPOINT`, else `https://huggingface.co`. */
  readonly endpoint?: string | undefined
  /**
   * Called as a download goes on, at most 20 times a second: when it begins, and for the last time when all is here,
   * before the load resolves. Never when nothing is downloaded. What it throws is an uncaught exception, as in an
   * event handler; the load goes on.
   */
  readonly onProgress?: ((progress: DownloadProgress) => void) | undefined
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

function hubUrl(value: unknown, name: string): string {
  if (typeof value === 'string' && /^https?:\/\/[^/?#@\s]+(\/[^?#@\s]*)?$/i.test(value)) return value
  // Not echoed where it may hold a password.
  const shown = String(value).includes('@') ? 'one with a user name' : describe(value)
  throw new InvalidInputError(`${name} must be a URL like https://huggingface.co, not ${shown}`, { option: name })
}

function device(value: unknown, name: string): Device {
  if (typeof value === 'string' && /^(cpu|cuda|cuda:\d{1,4}|metal)$/.test(value)) return value as Device
  const allowed = ['cpu', 'cuda', 'cuda:N', 'metal']
  const message = `${name} must be one of ${allowed.join(', ')} (N: number of a GPU, from 0), not ${describe(value)}`
  throw new InvalidInputError(message, { option: name, allowed })
}

/** The checks of {@link ModelOptions}. */
export const MODEL_OPTION_CHECKS: OptionChecks<ModelOptions> = {
  revision: text,
  device,
  precision: oneOf(['f32', 'f16', 'bf16']),
  maxLength: wholeNumber(1),
  batchSize: wholeNumber(1),
  normalize: flag,
  truncate: oneOf(['end', 'start', 'error']),
  descriptor: (value, name) => checkOptions(name, value, DESCRIPTOR_CHECKS),
  threads: wholeNumber(1, MAX_THREADS),
  cacheDir: text,
  offline: flag,
  token: (value, name) => {
    // Not echoed: it may be a secret with a mistake in it.
    if (typeof value === 'string' && /^[\x21-\x7e]+$/.test(value)) return value
    throw new InvalidInputError(`${name} must be a string of printable ASCII without spaces`, { option: name })
  },
  endpoint: hubUrl,
  onProgress: callback,
}
