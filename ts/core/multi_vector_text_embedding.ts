/**
 * A loaded multi-vector text embedding model: a vector for each token, and the score of two texts that is made of them.
 */

import { assertSameContract } from './contract'
import { type EmbeddingFacts, withRowFacts } from './embeddings'
import { DimensionMismatchError, InvalidInputError } from './errors'
import { HeadEmbedding } from './head_embedding'
import { HEAD_LOAD_CHECKS, type HeadLoadOptions, hidden } from './head_models'
import { ModelHandle, type RaggedRows } from './model_handle'
import type { NativeHeadInfo } from './native'
import { checkOptions, text } from './options'
import { describe } from './validation'

/** The vectors of a text's tokens, each of length one: vector `i` is `data.subarray(i * dimensions, (i + 1) * dimensions)`. */
export interface TokenVectors {
  /** `count * dimensions` values, vector after vector. */
  readonly data: Float32Array
  /** How many vectors. */
  readonly count: number
  /** Length of a vector. */
  readonly dimensions: number
  /** See {@link EmbeddingFacts.contractId}; not enumerable. Absent from vectors that this package did not make. */
  readonly contractId?: string
}

/** A true array of token vectors, a text each, with the facts of the call as properties that are not enumerable. */
export interface MultiVectorEmbeddings extends Array<TokenVectors>, EmbeddingFacts {
  /** The vectors as plain arrays: texts, tokens, values. */
  toArrays(): number[][][]
  /** Same as {@link MultiVectorEmbeddings.toArrays}, for `JSON.stringify`. */
  toJSON(): number[][][]
}

/**
 * Late interaction: for each vector of the query its largest dot product with one of the document, summed. A query or
 * document without vectors scores 0. Costs query x document x dimensions multiplications on the calling thread, about
 * 1 ms for 32 and 180 vectors of 128 values.
 *
 * @throws {@link InvalidInputError} for what are no token vectors; {@link WrongModelLoadedError} for vectors of two
 *   contracts, where both have theirs; {@link DimensionMismatchError} for vectors of different lengths.
 */
export function maxSim(query: TokenVectors, document: TokenVectors): number {
  checkVectors(query, 'query')
  checkVectors(document, 'document')
  const { dimensions } = query
  if (query.contractId && document.contractId) assertSameContract(query.contractId, document.contractId)
  if (document.dimensions !== dimensions) {
    throw new DimensionMismatchError(
      `the query's vectors have ${dimensions} dimensions, the document's ${document.dimensions}; embed both with one model`,
      { limit: dimensions, actual: document.dimensions, unit: 'dimensions' },
    )
  }
  if (document.count === 0) return 0
  let score = 0
  for (let q = 0; q < query.count; q++) {
    let best = Number.NEGATIVE_INFINITY
    for (let d = 0; d < document.count; d++) {
      let dot = 0
      for (let i = 0; i < dimensions; i++) {
        dot += (query.data[q * dimensions + i] as number) * (document.data[d * dimensions + i] as number)
      }
      if (dot > best) best = dot
    }
    score += best
  }
  return score
}

/**
 * A loaded multi-vector text embedding model: ColBERT (also as PyLate writes it) or BGE-M3.
 *
 * ```ts
 * await using model = await MultiVectorTextEmbedding.load('colbert-ir/colbertv2.0')
 * const [query] = await model.queryEmbed(['What is the capital of Germany?'])
 * const passages = await model.passageEmbed(['Berlin is the capital of Germany.', 'Bread is baked.'])
 * const scores = passages.map((passage) => model.score(query, passage))
 * ```
 *
 * A text's vectors do not depend on the other texts of the call, on batch size, priority or threads.
 */
export class MultiVectorTextEmbedding extends HeadEmbedding<MultiVectorEmbeddings> {
  private constructor(handle: ModelHandle, info: NativeHeadInfo) {
    super(handle, info, tokenRows)
  }

  /**
   * Opens a model.
   *
   * @param model - Model id (`org/name`) or folder.
   * @throws {@link InvalidInputError} for an unknown or wrong option; {@link ModelInitializationError}
   *   for a model that cannot be had or is broken; {@link UnsupportedModelError} for one that cannot be run, or is
   *   of another kind, whose class it names; the signal's reason after an abort.
   */
  static async load(model: string, options?: HeadLoadOptions): Promise<MultiVectorTextEmbedding> {
    const { signal, ...opening } = checkOptions('MultiVectorTextEmbedding.load', options, HEAD_LOAD_CHECKS)
    const handle = new ModelHandle(text(model, 'model'), opening, 'caller', 'multi-vector')
    return new MultiVectorTextEmbedding(handle, await handle.loadHead(signal))
  }

  /**
   * How well a document answers a query, as the model's authors score: {@link maxSim}, which BGE-M3 divides by the number
   * of the query's vectors.
   *
   * @throws As {@link maxSim}.
   */
  score(query: TokenVectors, document: TokenVectors): number {
    const score = maxSim(query, document)
    return this.descriptor.head === 'bge-m3' && query.count > 0 ? score / query.count : score
  }
}

/** Wrong sizes would give NaN, or the score of a part. */
function checkVectors(vectors: TokenVectors, option: 'query' | 'document'): void {
  const { data, count, dimensions } = (vectors ?? {}) as { [key in keyof TokenVectors]?: unknown }
  const refuse = (found: string) => {
    const what = 'token vectors: { data: Float32Array of count * dimensions values, count, dimensions }'
    return new InvalidInputError(`the ${option} must be ${what}, not ${found}`, { option })
  }
  if (typeof vectors !== 'object' || vectors === null || Array.isArray(vectors)) throw refuse(describe(vectors))
  if (!(data instanceof Float32Array)) throw refuse(`with data that is ${describe(data)}`)
  const sizes: [string, unknown, number][] = [
    ['count', count, 0],
    ['dimensions', dimensions, 1],
  ]
  for (const [name, value, least] of sizes) {
    if (!Number.isSafeInteger(value) || (value as number) < least) throw refuse(`with ${name} ${describe(value)}`)
  }
  if (data.length !== (count as number) * (dimensions as number)) {
    throw refuse(`with ${data.length} values for ${count} x ${dimensions}`)
  }
}

/** The vectors of one text as plain arrays. */
function plain({ data, count, dimensions }: TokenVectors): number[][] {
  return Array.from({ length: count }, (_, i) => Array.from(data.subarray(i * dimensions, (i + 1) * dimensions)))
}

function tokenRows({ values, facts }: RaggedRows): MultiVectorEmbeddings {
  const { dimensions, contractId } = facts
  const rows = values.map((data): TokenVectors => {
    const row: TokenVectors = { data, count: data.length / dimensions, dimensions }
    return hidden(row, { contractId, toJSON: () => ({ ...row, data: Array.from(data) }) })
  })
  return withRowFacts(rows, facts, plain)
}
