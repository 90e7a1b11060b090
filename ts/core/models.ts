/**
 * Models as data: what the registry knows of a model before it is loaded, and what a service was
 * configured to make of it.
 */

import { InvalidInputError } from './errors'
import type { Pooling, Truncate } from './model_options'
import { type NativeModelDescriptor, native } from './native'
import { anyText, checkOptions, type OptionChecks, oneOf } from './options'
import type { PromptTemplate } from './roles'
import { excerpt } from './validation'

/** The model of a service or of `TextEmbedding.load` that names none: small, general, English, Apache-2.0. */
export const DEFAULT_MODEL = 'sentence-transformers/all-MiniLM-L6-v2'

/** What a model makes of a text: a vector, weights of words, a vector for each token, or a score of a pair. */
export type ModelKind = 'dense' | 'sparse' | 'multi-vector' | 'rerank'

/** The architecture of a model of the registry. */
export type ModelFamily =
  | 'bert'
  | 'xlm-roberta'
  | 'mpnet'
  | 'jina-bert'
  | 'nomic-bert'
  | 'gte'
  | 'modernbert'
  | 'gemma3'
  | 'qwen3'
  | 'xlm-roberta-flash'
  | 'static'
  | 'bm25'

/**
 * What the numbers of a model rest on: its own weights, whose vectors the tests compare with the reference; a tiny
 * checkpoint of the same architecture, head and options, so that the weights themselves were never seen; or nothing
 * but what is written of it.
 */
export type Evidence = 'real weights' | 'tiny checkpoint' | 'unverified'

/** What is known of a model both before and after it is loaded. */
export interface ModelFacts {
  /** `org/name` on the hub. */
  readonly id: string
  /** How the vectors of a text's tokens become one; several are concatenated in this order. */
  readonly pooling: readonly Pooling[]
  /** Prompt of a query; `null`: none. */
  readonly queryTemplate: PromptTemplate
  /** Prompt of a passage; `null`: none. */
  readonly passageTemplate: PromptTemplate
  /** What `{instruction}` in a prompt stands for when a call gives none; `null`: no prompt has it, or a call must give it. */
  readonly defaultInstruction: string | null
  /** Whether vectors may be cut to fewer dimensions: not at all, to any number, or to those listed. */
  readonly matryoshka: boolean | readonly number[]
  /** SPDX identifier of the licence of the weights; `null`: not known. */
  readonly license: string | null
  /** Bytes of the weights, to two digits; `null`: not known. */
  readonly sizeBytes: number | null
  /** Whether its licence has to be accepted on the hub first. */
  readonly gated: boolean
}

/**
 * A row of the registry: what is known of a model before its files are seen. `pooling`, `normalize`, `matryoshka` and
 * `layerNormBeforeCut` are facts of dense models and mean nothing in rows of other kinds; the prompt of Qwen3-Reranker is
 * part of its head, so its row has a `defaultInstruction` and no template.
 */
export interface RegistryEntry extends ModelFacts {
  readonly kind: ModelKind
  readonly family: ModelFamily
  /** Tokens of the longest text that is embedded whole, prompt and special tokens counted; `null`: any length. */
  readonly maxLength: number | null
  /** Length of a vector, of a token's vector, or of the sparse space; `null`: a score, or a space without an end. */
  readonly dimensions: number | null
  /** Whether a vector that is cut to fewer dimensions is layer-normalised before (whole, without weights). */
  readonly layerNormBeforeCut: boolean
  /** Whether vectors have length one; `null`: its `modules.json` says, and they have in a folder without one. */
  readonly normalize: boolean | null
  readonly license: string
  /** The commit whose weights were compared with the reference; `null`: none was, or it is not known. */
  readonly revision: string | null
  readonly evidence: Evidence
  /** What else a user should know; `null`: nothing. */
  readonly notes: string | null
  /** Why it cannot be loaded; `null`: it can. Such a model is refused before anything of it is downloaded. */
  readonly unsupported: string | null
}

/** Where a value in force comes from: an option of the load, the model's files, the registry, or nobody said anything. */
export type Origin = 'option' | 'files' | 'registry' | 'default'

/** A loaded model's facts as they are in force: options beat files, files beat the registry. */
export interface ModelDescriptor extends ModelFacts {
  /** Model id; for a folder, the folder as it was given. */
  readonly id: string
  /**
   * Tokens of the longest text that is embedded whole, prompt and special tokens counted. 4294967295: no limit, as of
   * a static model whose files set none.
   */
  readonly maxLength: number
  /** Whether vectors have length one. */
  readonly normalize: boolean
  /** Length of a vector. */
  readonly dimensions: number
  /** Commit of its files, where one is known. */
  readonly revision: string | null
  /** `model_type` of its `config.json`. */
  readonly modelType: string
  /** What happens to a text that is too long. */
  readonly truncate: Truncate
  /** Whether texts are lower-cased first, as `sentence_bert_config.json` may ask. */
  readonly lowercase: boolean
  /** Where the values come from. A pooling by `'default'` deserves a look: mean was assumed. */
  readonly origins: Readonly<
    Record<'pooling' | 'normalize' | 'maxLength' | 'truncate' | 'queryTemplate' | 'passageTemplate', Origin>
  >
}

/** What a service was told to make: one vector space. */
export interface ModelConfig {
  /** Model id or folder. */
  readonly model: string
  /** Length of the vectors; `null`: the model's own length, not known before it is loaded. */
  readonly dimensions: number | null
}

/** Which rows of the registry: of this kind, of this architecture; without either all. */
export interface ModelFilter {
  readonly kind?: ModelKind | undefined
  readonly family?: ModelFamily | undefined
}

/**
 * Every model of the registry, or those that a filter lets through, dense ones first and the default first of all. A model
 * outside it loads all the same if its architecture is supported. A model that makes several things of a text has a row for
 * each.
 *
 * @throws {@link InvalidInputError} for an unknown option, kind or family.
 */
export function listModels(filter?: ModelFilter): RegistryEntry[] {
  const { kind, family } = checkOptions('listModels', filter, FILTER_CHECKS)
  return rows().filter((row) => (kind ?? row.kind) === row.kind && (family ?? row.family) === row.family)
}

/**
 * What the registry knows of a model; `undefined` for a model outside it. Ids are the same in upper and lower case, as on
 * the hub. Of a model with several kinds it is the dense row, or that of the `kind` given.
 */
export function describeModel(id: string, options?: Pick<ModelFilter, 'kind'>): RegistryEntry | undefined {
  const wanted = anyText(id, 'id').toLowerCase()
  const { kind } = checkOptions('describeModel', options, { kind: FILTER_CHECKS.kind })
  return rows().find((row) => row.id.toLowerCase() === wanted && (kind ?? row.kind) === row.kind)
}

const FILTER_CHECKS: OptionChecks<ModelFilter> = {
  kind: oneOf(['dense', 'sparse', 'multi-vector', 'rerank']),
  family: oneOf([
    'bert',
    'xlm-roberta',
    'mpnet',
    'jina-bert',
    'nomic-bert',
    'gte',
    'modernbert',
    'gemma3',
    'qwen3',
    'xlm-roberta-flash',
    'static',
    'bm25',
  ]),
}

function rows(): readonly RegistryEntry[] {
  registry ??= native()
    .listModels()
    .map((entry) => frozen(entry as RegistryEntry))
  return registry
}

let registry: readonly RegistryEntry[] | undefined

/**
 * Checks the dimensions that a configuration asks for against the registry. A model outside it is checked
 * when it is loaded.
 */
export function checkModelConfig(model: string, dimensions: number): void {
  const known = describeModel(model, { kind: 'dense' })
  if (known?.dimensions == null) return
  checkDimensions(model, { dimensions: known.dimensions, matryoshka: known.matryoshka }, dimensions)
}

/** Checks that a model gives vectors of these dimensions. */
export function checkDimensions(
  model: string,
  { dimensions: limit, matryoshka }: Pick<ModelDescriptor, 'dimensions' | 'matryoshka'>,
  dimensions: number,
): void {
  const shorter = Array.isArray(matryoshka) ? matryoshka.includes(dimensions) : matryoshka
  if (dimensions === limit || (dimensions < limit && shorter)) return
  const given = Array.isArray(matryoshka)
    ? `${matryoshka.join(', ')} and ${limit}`
    : matryoshka
      ? `1 to ${limit}`
      : `${limit} only`
  throw new InvalidInputError(`${dimensions} dimensions are not available, ${excerpt(model)} gives ${given}`, {
    model,
    option: 'dimensions',
    limit,
    actual: dimensions,
    unit: 'dimensions',
  })
}

/** The addon's descriptor of a loaded model as the public one: the same fields, their words typed. */
export function modelDescriptor(from: NativeModelDescriptor): ModelDescriptor {
  const known = frozen(from as ModelDescriptor)
  Object.freeze(known.origins)
  return known
}

/** What is known of a model, not to be changed by those who are told. */
function frozen<T extends ModelFacts>(known: T): T {
  Object.freeze(known.pooling)
  Object.freeze(known.matryoshka)
  return Object.freeze(known)
}
