/**
 * A loaded reranker: scores how well a text answers a query, by reading both together.
 */

import { type EmbeddingFacts, factProperties, noFacts } from './embeddings'
import { InvalidInputError } from './errors'
import {
  HEAD_CALL_CHECKS,
  HEAD_LOAD_CHECKS,
  type HeadCallOptions,
  type HeadLoadOptions,
  type HeadModelDescriptor,
  headDescriptor,
} from './head_models'
import { type Admission, ModelHandle } from './model_handle'
import type { NativeHeadInfo } from './native'
import { type Checked, checkOptions, flag, type OptionChecks, text, wholeNumber } from './options'
import { priorityOf } from './roles'
import { type ModelStats, modelStats } from './stats'
import { Turns } from './turns'
import { describe, snapshot } from './validation'

/** A true array of scores in the order of the texts, with the facts of the call as properties that are not enumerable. */
export interface Scores extends Array<number>, Omit<EmbeddingFacts, 'dimensions'> {}

/** A document and its score. */
export interface RankedDocument {
  /** Its position in the list that was given. */
  readonly index: number
  /** The larger, the better it answers the query. */
  readonly score: number
  /** The document, when it was asked for by `returnDocuments`. */
  readonly document?: string
}

/**
 * A true array of documents, the best first, with the facts of the call as properties that are not enumerable. `tokens`
 * is in the order of the documents that were given.
 */
export interface RankedDocuments extends Array<RankedDocument>, Omit<EmbeddingFacts, 'dimensions'> {}

/** Options of {@link TextCrossEncoder.rank}. */
export interface RankOptions extends HeadCallOptions {
  /** The most documents that come back. Default: all. */
  readonly topK?: number | undefined
  /** Whether the documents come back too. Default: no. */
  readonly returnDocuments?: boolean | undefined
}

const RANK_CHECKS: OptionChecks<RankOptions> = { ...HEAD_CALL_CHECKS, topK: wholeNumber(1), returnDocuments: flag }

/**
 * A loaded reranker (cross encoder): BERT and RoBERTa kinds of one label, and Qwen3-Reranker.
 *
 * ```ts
 * await using model = await TextCrossEncoder.load('cross-encoder/ms-marco-MiniLM-L6-v2')
 * const ranked = await model.rank('What is the capital of Germany?', documents, { topK: 3 })
 * ```
 *
 * A pair's score does not depend on the other pairs of the call, on batch size, priority or threads. Scores of one model
 * can be compared with each other only.
 */
export class TextCrossEncoder {
  readonly #handle: ModelHandle
  readonly #info: NativeHeadInfo
  readonly #descriptor: HeadModelDescriptor

  private constructor(handle: ModelHandle, info: NativeHeadInfo) {
    // Private to TypeScript only.
    if (!(handle instanceof ModelHandle)) {
      throw new InvalidInputError(
        'a TextCrossEncoder is made by await TextCrossEncoder.load(model, options), not by new',
      )
    }
    this.#handle = handle
    this.#info = info
    this.#descriptor = headDescriptor(info)
  }

  /**
   * Opens a model.
   *
   * @param model - Model id (`org/name`) or folder.
   * @throws {@link InvalidInputError} for an unknown or wrong option; {@link ModelInitializationError}
   *   for a model that cannot be had or is broken; {@link UnsupportedModelError} for one that cannot be run, or is
   *   of another kind, whose class it names; the signal's reason after an abort.
   */
  static async load(model: string, options?: HeadLoadOptions): Promise<TextCrossEncoder> {
    const { signal, ...opening } = checkOptions('TextCrossEncoder.load', options, HEAD_LOAD_CHECKS)
    const handle = new ModelHandle(text(model, 'model'), opening, 'caller', 'rerank')
    return new TextCrossEncoder(handle, await handle.loadHead(signal))
  }

  /** Model id or folder, as asked for. */
  get model(): string {
    return this.#handle.model
  }

  /** Tokens of the longest pair that is read whole, special tokens counted. */
  get maxLength(): number {
    return this.#info.maxLength
  }

  /** The values in use. */
  get descriptor(): HeadModelDescriptor {
    return this.#descriptor
  }

  /** Identity of the scores: only those of one contract may be compared. */
  get contract(): string {
    return this.#info.contractId
  }

  /**
   * Scores of documents for one query, in the order of the documents. An empty list gives an empty result.
   *
   * @throws {@link InvalidInputError} for a query that is no string, documents that are not an array of strings, and an
   *   unknown or wrong option; {@link TextTooLongError} under `truncate: 'error'`; {@link InferenceFailedError} for a
   *   score that is not finite; {@link OverloadedError} when too much waits already; {@link ModelNotLoadedError} after
   *   `dispose`; the signal's reason after an abort.
   */
  async score(query: string, documents: readonly string[], options?: HeadCallOptions): Promise<Scores> {
    const asked = checkQuery(query)
    const copy = snapshot(documents, 'document')
    return this.#score([asked], copy, checkOptions('score', options, HEAD_CALL_CHECKS))
  }

  /**
   * Documents in the order of their scores for a query, the best first; equal ones in the order in which they were
   * given. Otherwise as {@link TextCrossEncoder.score}.
   */
  async rank(query: string, documents: readonly string[], options?: RankOptions): Promise<RankedDocuments> {
    const asked = checkQuery(query)
    const copy = snapshot(documents, 'document')
    const { topK, returnDocuments = false, ...call } = checkOptions('rank', options, RANK_CHECKS)
    const scores = await this.#score([asked], copy, call)
    const ranked = scores
      .map((score, index): RankedDocument => ({ index, score }))
      .sort((a, b) => b.score - a.score || a.index - b.index)
      .slice(0, topK)
    const rows = returnDocuments ? ranked.map((row) => ({ ...row, document: copy[row.index] as string })) : ranked
    return withFacts(rows, scores)
  }

  /** Scores of pairs of a query and a document, in their order. Otherwise as {@link TextCrossEncoder.score}. */
  async predict(pairs: readonly (readonly [string, string])[], options?: HeadCallOptions): Promise<Scores> {
    const copy = snapshotPairs(pairs)
    const call = checkOptions('predict', options, HEAD_CALL_CHECKS)
    return this.#handle.admit(async (admission) => {
      const [queries, documents] = await splitPairs(copy, call.signal)
      return this.#score(queries, documents, { ...call, admission })
    })
  }

  /** What this model has done since it was loaded. */
  stats(): ModelStats {
    return modelStats(this.#handle.stats())
  }

  /** Lets calls in progress finish, then frees the model. Later calls are a {@link ModelNotLoadedError}. */
  dispose(): Promise<void> {
    return this.#handle.dispose()
  }

  /** Same as {@link TextCrossEncoder.dispose}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  async #score(
    queries: readonly unknown[],
    documents: readonly unknown[],
    { priority, ...call }: Checked<HeadCallOptions> & { readonly admission?: Admission },
  ): Promise<Scores> {
    if (documents.length === 0) {
      this.#handle.assertUsable(call.signal, call.admission)
      this.#handle.checkInstruction('generic', call.instruction)
      return withFacts([], noFacts(1, this.contract))
    }
    // Somebody waits for the order of a query's best documents, as for the query itself.
    const asked = { role: 'generic', priority: priorityOf('query', documents.length, priority), ...call } as const
    const { scores, facts } = await this.#handle.score(queries, documents, asked)
    return withFacts(Array.from(scores), facts)
  }
}

/** Hangs the facts of a call on its rows, save for their length. */
function withFacts<Row>(rows: Row[], facts: Omit<EmbeddingFacts, 'dimensions'>) {
  return Object.defineProperties(rows, factProperties(facts)) as Row[] & Omit<EmbeddingFacts, 'dimensions'>
}

function checkQuery(query: unknown): string {
  if (typeof query === 'string') return query
  throw new InvalidInputError(`the query must be a string, not ${describe(query)}`, { option: 'query' })
}

/** Pairs between two looks at the clock. */
const SLICE_PAIRS = 512

/** A copy of the caller's pairs, in one turn: each that is an array is copied too, since its owner may change it. */
function snapshotPairs(pairs: unknown): unknown[] {
  if (Array.isArray(pairs)) return Array.from(pairs, (pair: unknown) => (Array.isArray(pair) ? pair.slice(0, 3) : pair))
  throw new InvalidInputError(`pairs must be an array of [query, document], not ${describe(pairs)}`, {
    option: 'pairs',
  })
}

/** The queries and the documents of a copy of pairs, each of which must be an array of two strings. */
async function splitPairs(pairs: readonly unknown[], signal: AbortSignal | undefined): Promise<[string[], string[]]> {
  const [queries, documents]: [string[], string[]] = [[], []]
  const turns = new Turns(signal)
  for (const [index, pair] of pairs.entries()) {
    const [query, document] = Array.isArray(pair) && pair.length === 2 ? (pair as unknown[]) : []
    if (typeof query !== 'string' || typeof document !== 'string') throw wrongPair(pair, index)
    queries.push(query)
    documents.push(document)
    if (queries.length % SLICE_PAIRS === 0 && turns.due()) await turns.take()
  }
  return [queries, documents]
}

function wrongPair(pair: unknown, index: number): InvalidInputError {
  const what = Array.isArray(pair)
    ? `an array of ${pair.length > 2 ? 'more than 2' : pair.length}: ${pair.slice(0, 2).map(describe).join(', ')}`
    : describe(pair)
  return new InvalidInputError(`pair ${index} must be an array of two strings, not ${what}`, { index, option: 'pairs' })
}
