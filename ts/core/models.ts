/**
 * Models as data: what the registry knows of a model before it is loaded, and what a service was
 * configured to make of it.
 */

import { InvalidInputError } from './errors'
import type { Pooling, Truncate } from './model_options'
import { type NativeModelDescriptor, native } from './native'
import { anyText } from './options'
import type { PromptTemplate } from './roles'
import { excerpt } from './validation'

/** The model of a service or of `TextEmbedding.load` that names none: small, general, English, Apache-2.0. */
export const DEFAULT_MODEL = 'sentence-transformers/all-MiniLM-L6-v2'

/** What is known of a model before its files are seen. */
export interface RegistryEntry {
  /** `org/name` on the hub. */
  readonly id: string
  /** How the vectors of a text's tokens become one; several are concatenated in this order. */
  readonly pooling: readonly Pooling[]
  /** Prompt of a query; `null`: none. */
  readonly queryTemplate: PromptTemplate
  /** Prompt of a passage; `null`: none. */
  readonly passageTemplate: PromptTemplate
  /** What `{instruction}` in a prompt stands for when a call gives none; `null`: it must be given. */
  readonly defaultInstruction: string | null
  /** Tokens of the longest text that is embedded whole, prompt and special tokens counted. */
  readonly maxLength: number
  /** Whether vectors have length one. */
  readonly normalize: boolean
  /** Length of a vector. */
  readonly dimensions: number
  /** Whether vectors may be cut to fewer dimensions: not at all, to any number, or to those listed. */
  readonly matryoshka: boolean | readonly number[]
  /** SPDX identifier of the licence of the weights; `null`: not known. */
  readonly license: string | null
  /** Bytes of the weights, to two digits; `null`: not known. */
  readonly sizeBytes: number | null
  /** Whether its licence has to be accepted on the hub first. */
  readonly gated: boolean
}

/** Where a value in force comes from: an option of the load, the model's files, the registry, or nobody said anything. */
export type Origin = 'option' | 'files' | 'registry' | 'default'

/** A loaded model's facts as they are in force: options beat files, files beat the registry. */
export interface ModelDescriptor extends RegistryEntry {
  /** Model id; for a folder, the folder as it was given. */
  readonly id: string
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

/** Every model of the registry, the default first. A model outside it loads all the same if its architecture is supported. */
export function listModels(): RegistryEntry[] {
  registry ??= native()
    .listModels()
    .map((entry) => frozen(entry as RegistryEntry))
  return [...registry]
}

let registry: readonly RegistryEntry[] | undefined

/** What the registry knows of a model; `undefined` for a model outside it. Ids are the same in upper and lower case, as on the hub. */
export function describeModel(id: string): RegistryEntry | undefined {
  const wanted = anyText(id, 'id').toLowerCase()
  return listModels().find((model) => model.id.toLowerCase() === wanted)
}

/**
 * Checks the dimensions that a configuration asks for against the registry. A model outside it is checked
 * when it is loaded.
 */
export function checkModelConfig(model: string, dimensions: number): void {
  const known = describeModel(model)
  if (known !== undefined) checkDimensions(model, known, dimensions)
}

/** Checks that a model gives vectors of these dimensions. */
export function checkDimensions(
  model: string,
  { dimensions: limit, matryoshka }: Pick<RegistryEntry, 'dimensions' | 'matryoshka'>,
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
function frozen<T extends RegistryEntry>(known: T): T {
  Object.freeze(known.pooling)
  Object.freeze(known.matryoshka)
  return Object.freeze(known)
}
