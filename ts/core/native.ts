/**
 * The only file that touches the addon.
 *
 * Contract: {@link native} gives the addon's exports, loading them at the first use, and throws a
 * `ModelInitializationError` that names this platform, the package that is missing and what to do
 * when they cannot be loaded. Importing the package loads nothing, so an application may import it
 * everywhere and pay only where it embeds.
 *
 * Protocol with the addon: a method that works returns a promise that resolves with a tagged value,
 * either the result or a {@link NativeFailure}; it rejects only when an argument could not be
 * converted, which is a bug of this package. {@link settled} turns the tagged value into a result or
 * a typed error.
 */

import { cudaAddon } from './cuda_addon'
import { errorOfCode, ModelInitializationError } from './errors'
import type { Device } from './model_options'
import { PLATFORMS, platformName } from './platform'
import { excerpt } from './validation'

/** Roles as the addon spells them. */
export type NativeRole = 'generic' | 'query' | 'passage'

/** Kinds of models as the addon spells them. */
export type NativeKind = 'dense' | 'sparse' | 'multi-vector' | 'rerank'

/** What the addon needs to find and open a model. Absent fields mean the default. */
export interface NativeLoadRequest {
  /** Model id (`org/name`) or folder. */
  model: string
  /** Branch, tag or commit in the cache. */
  revision?: string
  /** Root of the Hugging Face cache, instead of the one that the environment names. */
  cacheDir?: string
  offline?: boolean
  token?: string
  endpoint?: string
  /** Variables that say where cache and hub are: the addon reads these and not the system's. */
  environment: Record<string, string>
  /** Folders of installed model packages that hold this model. */
  packages: string[]
  /** Tokens, special tokens counted. */
  maxLength?: number
  normalize?: boolean
  truncate?: string
  device?: string
  precision?: string
  /** What the model is to give; absent: dense. */
  kind?: NativeKind
  /** Threads of the process-wide pool. */
  threads?: number
  descriptor?: NativeDescriptorOverrides
  /** A service's: the folder rule of Qwen3-Embedding holds, and vectors of its dimensions may be saved. */
  service?: { dimensions?: number }
}

/** What a caller may say about a model instead of its files and the registry. */
export interface NativeDescriptorOverrides {
  pooling?: string[]
  /** `null`: no template, whatever files and registry say. */
  queryTemplate?: string | null
  passageTemplate?: string | null
  defaultInstruction?: string
  matryoshka?: boolean | number[]
}

/** What is known of a model before and after it is loaded. */
interface NativeModelFacts {
  id: string
  pooling: string[]
  queryTemplate: string | null
  passageTemplate: string | null
  defaultInstruction: string | null
  matryoshka: boolean | number[]
  sizeBytes: number | null
  gated: boolean
}

/** A registry row. */
export interface NativeRegistryEntry extends NativeModelFacts {
  kind: string
  family: string
  maxLength: number | null
  dimensions: number | null
  layerNormBeforeCut: boolean
  license: string
  revision: string | null
  evidence: string
  notes: string | null
  unsupported: string | null
  normalize: boolean | null
}

/** The resolved values of a loaded model. */
export interface NativeModelDescriptor extends NativeModelFacts {
  normalize: boolean
  maxLength: number
  dimensions: number
  license: string | null
  revision: string | null
  modelType: string
  truncate: string
  lowercase: boolean
  origins: {
    pooling: string
    normalize: string
    maxLength: string
    truncate: string
    queryTemplate: string
    passageTemplate: string
  }
}

/** A loaded model. */
export interface NativeModelInfo {
  dimensions: number
  maxLength: number
  contractId: string
  descriptor: NativeModelDescriptor
}

/** A loaded sparse, multi-vector or rerank model. */
export interface NativeHeadInfo {
  id: string
  revision: string | null
  modelType: string
  kind: string
  head: string
  dimensions: number
  maxLength: number
  queryLength: number | null
  truncate: string
  activation: string | null
  queryTemplate: string | null
  passageTemplate: string | null
  defaultInstruction: string | null
  contractId: string
}

/** An error as a value: `code` is one of the twelve kinds. */
export interface NativeFailure {
  code: string
  message: string
  index?: number
  limit?: number
  actual?: number
  unit?: string
  option?: string
  model?: string
}

export interface NativeEmbedOptions {
  role: NativeRole
  instruction?: string
  dimensions?: number
  batchSize?: number
  priority: string
  maxWait?: number
}

export interface NativeChunkOptions {
  role: NativeRole
  instruction?: string
  maxTokens?: number
  overlap?: number
}

/** Chunks of a text, a column for each of their fields. */
export interface NativeChunks {
  /** UTF-16 units. */
  start: Uint32Array
  /** UTF-16 units. */
  end: Uint32Array
  tokens: Uint32Array
}

export interface NativeTokenCounts {
  total: Uint32Array
  embedded: Uint32Array
}

/** Counters of one model; times in milliseconds. */
export interface NativeStats {
  calls: number
  failed: number
  refused: number
  queuedCalls: number
  queuedTexts: number
  texts: number
  truncated: number
  tokens: number
  paddedTokens: number
  batches: number
  queueMs: number
  tokenizeMs: number
  computeMs: number
  longestLayerMs: number
}

export interface NativeCancel {
  cancel(): void
}

export interface NativeTextBatch {
  push(texts: string[]): void
}

export interface NativeResult {
  /** Length of a row; 0 when rows have lengths of their own. */
  readonly dimensions: number
  /** Where each row ends, in values from the first row on; empty when all have `dimensions` values. */
  readonly ends: Uint32Array
  readonly tokensTotal: Uint32Array
  readonly tokensEmbedded: Uint32Array
  readonly contractId: string
  /** Rows `from` up to, not including, `to`, each in memory of its own. To be taken once, from the first to the last. */
  rows(from: number, to: number): Float32Array[]
  /** Indices of the values of sparse rows `from` up to, not including, `to`. To be taken before the rows. */
  indices(from: number, to: number): Uint32Array[]
  /** Rows `from` up to, not including, `to`, one after the other in one array. Taken in order, as `rows` are. */
  values(from: number, to: number): Float32Array
  /** Lets go of the rows that were not taken. May be called at any time and more than once. */
  release(): void
}

/** How far a download is, in bytes. */
export interface NativeProgress {
  model: string
  file: string
  loaded: number
  total: number
  fileLoaded: number
  fileTotal: number
}

export interface NativeModel {
  load(cancel: NativeCancel): Promise<NativeModelInfo | NativeFailure>
  /** As `load`, for a model that is not dense. */
  loadHead(cancel: NativeCancel): Promise<NativeHeadInfo | NativeFailure>
  info(): NativeModelInfo | null
  /** Reports of a download that were not taken yet. The addon calls `wake` when there are some. */
  takeProgress(): NativeProgress[]
  embed(
    batch: NativeTextBatch,
    options: NativeEmbedOptions,
    cancel: NativeCancel,
  ): Promise<NativeResult | NativeFailure>
  /** Scores each text with its query: one for all texts, or one for each. */
  score(
    queries: NativeTextBatch,
    batch: NativeTextBatch,
    options: NativeEmbedOptions,
    cancel: NativeCancel,
  ): Promise<NativeResult | NativeFailure>
  tokenCounts(
    batch: NativeTextBatch,
    role: NativeRole,
    instruction: string | undefined,
    priority: string,
    cancel: NativeCancel,
  ): Promise<NativeTokenCounts | NativeFailure>
  /** Cuts the batch's one text. */
  chunks(
    batch: NativeTextBatch,
    options: NativeChunkOptions,
    cancel: NativeCancel,
  ): Promise<NativeChunks | NativeFailure>
  /** Why the loaded model does not take this instruction, or none; `null`: it does. */
  checkInstruction(role: NativeRole, instruction: string | undefined): NativeFailure | null
  /** Contract id of vectors with these dimensions; the model must be loaded. */
  contract(dimensions: number): string
  /** Writes the saved vectors of the model to their file; 0 where there are none. */
  saveCache(): Promise<{ entries: number } | NativeFailure>
  /** Vectors that would be saved now. */
  cacheSize(): number
  /** What went wrong, was no failure, and was not taken yet. */
  takeWarnings(): string[]
  stats(): NativeStats
  dispose(): void
}

export interface NativeCpuFeatures {
  isa: string
  available: string[]
  threads: number
  parallelism: number
  architecture: string
}

/** The addon's exports. */
export interface NativeBinding {
  NativeModel: new (request: NativeLoadRequest, wake?: () => void) => NativeModel
  NativeTextBatch: new () => NativeTextBatch
  NativeCancel: new () => NativeCancel
  cpuFeatures(): NativeCpuFeatures | NativeFailure
  /** The registry: dense models first, and the default one first of all. */
  listModels(): NativeRegistryEntry[]
}

let binding: NativeBinding | undefined
let failure: ModelInitializationError | undefined

/**
 * The addon that computes on `device`, loaded at the first call: an object of one addon means nothing to another. A failure of
 * the ordinary one is remembered: trying again would end the same way.
 */
export function native(device?: Device): NativeBinding {
  if (device?.startsWith('cuda')) return cudaAddon()
  if (failure !== undefined) throw failure
  try {
    // The loader is generated by the build, so it has no types here; __test__/types checks it against NativeBinding.
    binding ??= require('../native/binding.cjs') as NativeBinding
    return binding
  } catch (cause) {
    failure = addonMissing(cause)
    throw failure
  }
}

/** The loader's own error blames a bug of npm; ours says what is missing here and how to get it. */
function addonMissing(cause: unknown): ModelInitializationError {
  const platform = platformName()
  return new ModelInitializationError(
    `the addon of simile could not be loaded on ${platform} (Node ${process.versions.node}). It comes in the optional ` +
      `package simile-${platform}. If that is not installed, install again with optional packages and, where the lock ` +
      'file was made on another platform, without it; in a checkout of the repository run "npm run build". ' +
      `NAPI_RS_NATIVE_LIBRARY_PATH may name the .node file instead. There are packages for ${PLATFORMS.join(', ')}. ` +
      `The loader said: ${reasons(cause)}`,
    { cause, allowed: PLATFORMS },
  )
}

/**
 * The loader chains one error per place that it looked in, below one of its own. A place that is not there
 * says less than a file that could not be opened (a C library that is too old, for instance): that comes first.
 */
function reasons(error: unknown): string {
  const found: string[] = []
  for (let next = error; next instanceof Error; next = next.cause) found.push(next.message.split('\n', 1)[0] as string)
  const places = (found.length > 1 ? found.slice(1) : found).filter((reason) => !/wasi|wasm/.test(reason))
  const missing = (reason: string) => reason.startsWith('Cannot find module')
  return [...places.filter((reason) => !missing(reason)), ...places.filter(missing)].join('; ')
}

/** Longest message of the addon that is passed on whole: one that lists every place of a search has 1,000 units or so. */
const MESSAGE_UNITS = 4000

/** Turns a tagged value of the addon into a result or a typed error; `model` is the one that was at work. */
export function settled<T extends object>(value: T | NativeFailure, model?: string): T {
  if (!isFailure(value)) return value
  const { code, message, ...facts } = value
  throw errorOfCode(code, excerpt(message, MESSAGE_UNITS), { model, ...facts })
}

function isFailure(value: object): value is NativeFailure {
  return 'code' in value && 'message' in value
}
