/**
 * A loaded sparse text embedding model: a weight for each of some words of a vocabulary.
 */

import { type EmbeddingFacts, withRowFacts } from './embeddings'
import { HeadEmbedding } from './head_embedding'
import { HEAD_LOAD_CHECKS, type HeadLoadOptions, hidden } from './head_models'
import { ModelHandle, type RaggedRows } from './model_handle'
import type { NativeHeadInfo } from './native'
import { checkOptions, text } from './options'

/** A sparse vector: the dot product of two is the sum over the indices that both have. */
export interface SparseVector {
  /** Which words, in ascending order. */
  readonly indices: Uint32Array
  /** The weight of each, none of them 0. */
  readonly values: Float32Array
}

/** A sparse vector as plain arrays. */
export interface SparseArrays {
  /** Which words, in ascending order. */
  readonly indices: number[]
  /** The weight of each. */
  readonly values: number[]
}

/** A true array of sparse vectors, with the facts of the call as properties that are not enumerable. */
export interface SparseEmbeddings extends Array<SparseVector>, EmbeddingFacts {
  /** The vectors as plain arrays, for JSON and for the clients of vector databases. */
  toArrays(): SparseArrays[]
  /** Same as {@link SparseEmbeddings.toArrays}, for `JSON.stringify`. */
  toJSON(): SparseArrays[]
}

/**
 * A loaded sparse text embedding model: SPLADE, BGE-M3's lexical weights, BM42, or BM25, which needs no model.
 *
 * ```ts
 * await using model = await SparseTextEmbedding.load('prithivida/Splade_PP_en_v1')
 * const [{ indices, values }] = await model.passageEmbed(['Berlin is the capital of Germany.'])
 * ```
 *
 * A text's vector does not depend on the other texts of the call, on batch size, priority or threads.
 */
export class SparseTextEmbedding extends HeadEmbedding<SparseEmbeddings> {
  private constructor(handle: ModelHandle, info: NativeHeadInfo) {
    super(handle, info, sparseRows)
  }

  /**
   * Opens a model.
   *
   * @param model - Model id (`org/name`) or folder.
   * @throws {@link InvalidInputError} for an unknown or wrong option; {@link ModelInitializationError}
   *   for a model that cannot be had or is broken; {@link UnsupportedModelError} for one that cannot be run, or is
   *   of another kind, whose class it names; the signal's reason after an abort.
   */
  static async load(model: string, options?: HeadLoadOptions): Promise<SparseTextEmbedding> {
    const { signal, ...opening } = checkOptions('SparseTextEmbedding.load', options, HEAD_LOAD_CHECKS)
    const handle = new ModelHandle(text(model, 'model'), opening, 'caller', 'sparse')
    return new SparseTextEmbedding(handle, await handle.loadHead(signal))
  }
}

/** A vector as plain arrays. */
function plain({ indices, values }: SparseVector): SparseArrays {
  return { indices: Array.from(indices), values: Array.from(values) }
}

function sparseRows({ values, indices, facts }: RaggedRows): SparseEmbeddings {
  const rows = values.map((weights, i): SparseVector => {
    const row: SparseVector = { indices: indices[i] as Uint32Array, values: weights }
    return hidden(row, { toJSON: () => plain(row) })
  })
  return withRowFacts(rows, facts, plain)
}
