/**
 * A loaded model that makes of each text a row of a length of its own: what sparse and multi-vector models
 * have in common. No limits on the number or length of texts.
 */

import { noFacts } from './embeddings'
import { InvalidInputError } from './errors'
import { HEAD_CALL_CHECKS, type HeadCallOptions, type HeadModelDescriptor, headDescriptor } from './head_models'
import { ModelHandle, type RaggedRows } from './model_handle'
import type { NativeHeadInfo } from './native'
import { checkOptions } from './options'
import { type EmbeddingRole, priorityOf } from './roles'
import { type ModelStats, modelStats } from './stats'
import { countTokens, type TokenCountOptions } from './token_count'
import { snapshot } from './validation'

/** What {@link SparseTextEmbedding} and {@link MultiVectorTextEmbedding} have in common. It is not made by itself. */
export abstract class HeadEmbedding<Result> {
  readonly #handle: ModelHandle
  readonly #info: NativeHeadInfo
  readonly #descriptor: HeadModelDescriptor
  /** What the rows of a call become. */
  readonly #resultOf: (rows: RaggedRows) => Result

  /** @internal */
  protected constructor(handle: ModelHandle, info: NativeHeadInfo, resultOf: (rows: RaggedRows) => Result) {
    // Private to TypeScript only.
    if (!(handle instanceof ModelHandle)) {
      const name = new.target.name
      throw new InvalidInputError(`a ${name} is made by await ${name}.load(model, options), not by new`)
    }
    this.#handle = handle
    this.#resultOf = resultOf
    this.#info = info
    this.#descriptor = headDescriptor(info)
  }

  /** Model id or folder, as asked for. */
  get model(): string {
    return this.#handle.model
  }

  /** Sparse: words of the vocabulary. Multi-vector: values of a token's vector. */
  get dimensions(): number {
    return this.#info.dimensions
  }

  /** Tokens of the longest passage that is read whole, special tokens counted. */
  get maxLength(): number {
    return this.#info.maxLength
  }

  /** The values in use. */
  get descriptor(): HeadModelDescriptor {
    return this.#descriptor
  }

  /** Identity of the vector space: see {@link EmbeddingFacts.contractId}. */
  get contract(): string {
    return this.#info.contractId
  }

  /**
   * Embeds texts without a prompt; where queries and passages differ otherwise, as passages. An empty list gives an
   * empty result.
   *
   * @throws {@link InvalidInputError} for texts that are not an array of strings and for an unknown or
   *   wrong option; {@link TextTooLongError} under `truncate: 'error'`; {@link InferenceFailedError} for
   *   a value that is not finite; {@link OverloadedError} when too much waits already;
   *   {@link ModelNotLoadedError} after `dispose`; the signal's reason after an abort.
   */
  embed(texts: readonly string[], options?: HeadCallOptions): Promise<Result> {
    return this.#embed('embed', texts, 'generic', options)
  }

  /** Embeds queries. Otherwise as {@link HeadEmbedding.embed}. */
  queryEmbed(texts: readonly string[], options?: HeadCallOptions): Promise<Result> {
    return this.#embed('queryEmbed', texts, 'query', options)
  }

  /** Embeds passages. Otherwise as {@link HeadEmbedding.embed}. */
  passageEmbed(texts: readonly string[], options?: HeadCallOptions): Promise<Result> {
    return this.#embed('passageEmbed', texts, 'passage', options)
  }

  /** Tokens of each text that survive truncation, special tokens counted, without a prompt. */
  tokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return countTokens(this.#handle, 'tokenCount', texts, 'generic', options)
  }

  /** Tokens of each text as a query that survive truncation. */
  queryTokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return countTokens(this.#handle, 'queryTokenCount', texts, 'query', options)
  }

  /** Tokens of each text as a passage that survive truncation. */
  passageTokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return countTokens(this.#handle, 'passageTokenCount', texts, 'passage', options)
  }

  /** What this model has done since it was loaded. */
  stats(): ModelStats {
    return modelStats(this.#handle.stats())
  }

  /** Lets calls in progress finish, then frees the model. Later calls are a {@link ModelNotLoadedError}. */
  dispose(): Promise<void> {
    return this.#handle.dispose()
  }

  /** Same as {@link HeadEmbedding.dispose}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  async #embed(
    method: string,
    texts: readonly string[],
    role: EmbeddingRole,
    options: HeadCallOptions | undefined,
  ): Promise<Result> {
    const copy = snapshot(texts)
    const { priority, ...call } = checkOptions(method, options, HEAD_CALL_CHECKS)
    if (copy.length === 0) {
      this.#handle.assertUsable(call.signal)
      this.#handle.checkInstruction(role, call.instruction)
      return this.#resultOf({ values: [], indices: [], facts: noFacts(this.dimensions, this.contract) })
    }
    const asked = { role, priority: priorityOf(role, copy.length, priority), ...call }
    return this.#resultOf(await this.#handle.ragged(copy, asked, this.dimensions))
  }
}
