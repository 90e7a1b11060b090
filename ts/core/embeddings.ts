/**
 * What an embedding call gives back.
 *
 * Contract: one row per text, in the order of the texts; a row is f32 in memory of its own, so a row
 * can be kept, transferred or written to without touching another. What is known about the whole call
 * hangs on the array as properties that are not enumerable: it logs, compares, spreads and loops as the
 * plain array that it is.
 */

import { DimensionMismatchError, InvalidInputError } from './errors'
import { describe } from './validation'

/** Tokens of one text, special tokens counted. `embedded < total` says that the text was cut. */
export interface TokenCount {
  /** Tokens before truncation. */
  readonly total: number
  /** Tokens that the model saw. */
  readonly embedded: number
}

/** What is known about the result of one call besides its vectors. */
export interface EmbeddingFacts {
  /** Length of every row. */
  readonly dimensions: number
  /** Per text, in the order of the texts: tokens before and after truncation. */
  readonly tokens: readonly TokenCount[]
  /** How many texts were cut. 0 means that every token of every text was embedded. */
  readonly truncated: number
  /**
   * Identity of the vector space: a hash of weights, tokenizer, pooling, prompts, length, truncation,
   * normalisation, dimensions and precision. Store it with the vectors; vectors whose ids differ must
   * not be compared. Empty for a service that has none.
   */
  readonly contractId: string
}

/** A true array of rows, with the facts of the call as properties that are not enumerable. */
export interface Embeddings extends Array<Float32Array>, EmbeddingFacts {
  /** The rows as plain arrays, for JSON and for libraries that want `number[][]`. */
  toArrays(): number[][]
  /** Same as {@link Embeddings.toArrays}, so that `JSON.stringify` gives `[[...], ...]` and not an object per row. */
  toJSON(): number[][]
}

/** All rows in one block of memory: row `i` is `data.subarray(i * dimensions, (i + 1) * dimensions)`. */
export interface FlatEmbeddings extends EmbeddingFacts {
  /** `count * dimensions` values, row after row. */
  readonly data: Float32Array
  /** Number of rows, which is the number of texts. */
  readonly count: number
}

/** By its tag: a row that the addon made is of another realm than this file where a test runner has its own. */
export function isRow(value: unknown): value is Float32Array {
  return Object.prototype.toString.call(value) === '[object Float32Array]'
}

/**
 * Gives rows the shape of a result, for a service of your own: `dimensions` defaults to the length of
 * the first row, `tokens` to none, `truncated` to those of `tokens` that were cut.
 *
 * @throws {@link InvalidInputError} for a row that is no `Float32Array`, {@link DimensionMismatchError} for one of
 *   another length, each with its index.
 */
export function createEmbeddings(rows: readonly Float32Array[], facts: Partial<EmbeddingFacts> = {}): Embeddings {
  const dimensions = facts.dimensions ?? rows[0]?.length ?? 0
  rows.forEach((row, index) => {
    if (!isRow(row)) {
      throw new InvalidInputError(`row ${index} must be a Float32Array, not ${describe(row)}`, { index })
    }
    if (row.length !== dimensions) {
      throw new DimensionMismatchError(`row ${index} has ${row.length} dimensions, not ${dimensions}`, {
        index,
        limit: dimensions,
        actual: row.length,
        unit: 'dimensions',
      })
    }
  })
  const tokens = Object.freeze((facts.tokens ?? []).map((count) => Object.freeze({ ...count })))
  return withFacts([...rows], {
    dimensions,
    tokens,
    truncated: facts.truncated ?? tokens.filter(({ total, embedded }) => embedded < total).length,
    contractId: facts.contractId ?? '',
  })
}

/** Token counts as they come from the addon: one pair of columns for all texts. */
export interface TokenColumns {
  readonly total: Uint32Array
  readonly embedded: Uint32Array
}

/** The facts of a call, with the per-text objects made at the first look: most callers never look. */
export function factsOf({ total, embedded }: TokenColumns, dimensions: number, contractId: string): EmbeddingFacts {
  let truncated = 0
  for (let i = 0; i < total.length; i++) if ((embedded[i] as number) < (total[i] as number)) truncated++
  let tokens: readonly TokenCount[] | undefined
  return {
    dimensions,
    truncated,
    contractId,
    get tokens() {
      tokens ??= Object.freeze(
        Array.from(total, (count, i) => Object.freeze({ total: count, embedded: embedded[i] as number })),
      )
      return tokens
    },
  }
}

/** Hangs the facts on the rows. The array given becomes the result. */
export function withFacts(rows: Float32Array[], facts: EmbeddingFacts): Embeddings {
  return withRowFacts(rows, facts, (row) => Array.from(row))
}

/** Hangs the facts of a call on its rows, and what the rows are as plain arrays. The array given becomes the result. */
export function withRowFacts<Row, Plain>(
  rows: Row[],
  facts: EmbeddingFacts,
  plain: (row: Row) => Plain,
): Row[] & EmbeddingFacts & { toArrays(): Plain[]; toJSON(): Plain[] } {
  const toArrays = () => rows.map(plain)
  return Object.defineProperties(rows, {
    dimensions: { value: facts.dimensions },
    ...factProperties(facts),
    toArrays: { value: toArrays },
    toJSON: { value: toArrays },
  }) as Row[] & EmbeddingFacts & { toArrays(): Plain[]; toJSON(): Plain[] }
}

/** What is known about the texts of a call, as properties that are not enumerable. */
export function factProperties(facts: Omit<EmbeddingFacts, 'dimensions'>): PropertyDescriptorMap {
  return {
    tokens: { get: () => facts.tokens },
    truncated: { value: facts.truncated },
    contractId: { value: facts.contractId },
  }
}

/** The facts of a call without texts. */
export function noFacts(dimensions: number, contractId: string): EmbeddingFacts {
  return { dimensions, tokens: Object.freeze([]), truncated: 0, contractId }
}

/** One block with its facts. */
export function flatWithFacts(data: Float32Array, count: number, facts: EmbeddingFacts): FlatEmbeddings {
  return Object.defineProperties({ data, count }, Object.getOwnPropertyDescriptors(facts)) as FlatEmbeddings
}
