/**
 * A loaded dense text embedding model. No limits on the number or length of texts: for the checked
 * boundary of an application, see the services.
 */

import { type Embeddings, type FlatEmbeddings, flatWithFacts, withFacts } from './embeddings'
import { ModelHandle } from './model_handle'
import { MODEL_OPTION_CHECKS, type ModelOptions } from './model_options'
import { checkDimensions, DEFAULT_MODEL, type ModelDescriptor, modelDescriptor } from './models'
import type { NativeModelInfo } from './native'
import { anyText, checkOptions, type OptionChecks, oneOf, signal, text, wholeNumber } from './options'
import { type EmbeddingRole, type Priority, priorityOf } from './roles'
import { type ModelStats, modelStats } from './stats'
import { snapshot } from './validation'

/** Options of {@link TextEmbedding.load}. */
export interface TextEmbeddingLoadOptions extends ModelOptions {
  /** Rejects at once and stops a download, whose files are kept as far as they are; the next load goes on from there. */
  readonly signal?: AbortSignal | undefined
}

/** Shape of a result: an array of vectors, or one block of memory. */
export type Output = 'rows' | 'flat'

/** Options of one embedding call. */
export interface EmbedOptions {
  /** Most texts of this call in a micro-batch. Never changes a result. Default: that of `load`, else 32. */
  readonly batchSize?: number | undefined
  /** Keeps the first so many values of each vector, for a Matryoshka model. Default: all. */
  readonly dimensions?: number | undefined
  /** The task, for a model whose prompt takes one. */
  readonly instruction?: string | undefined
  /** Which queue the call waits in. Default: interactive for at most 16 queries, else bulk. */
  readonly priority?: Priority | undefined
  /** `'rows'`: an array of vectors. `'flat'`: one block of memory. Default `'rows'`. */
  readonly output?: Output | undefined
  /** Rejects the call at once with the signal's reason and stops its work. */
  readonly signal?: AbortSignal | undefined
}

/** {@link EmbedOptions} of a call that gives an array of vectors. */
export interface RowOptions extends EmbedOptions {
  /** An array of vectors, which is the default. */
  readonly output?: 'rows' | undefined
}

/** {@link EmbedOptions} of a call that gives one block of memory. */
export interface FlatOptions extends EmbedOptions {
  /** One block of memory. */
  readonly output: 'flat'
}

/** Options of a token count. */
export interface TokenCountOptions {
  /** The task, for a model whose prompt takes one. */
  readonly instruction?: string | undefined
  /** Rejects the call at once with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

const EMBED_CHECKS: OptionChecks<EmbedOptions> = {
  batchSize: wholeNumber(1),
  dimensions: wholeNumber(1),
  instruction: anyText,
  priority: oneOf(['interactive', 'bulk']),
  output: oneOf(['rows', 'flat']),
  signal,
}
const TOKEN_COUNT_CHECKS: OptionChecks<TokenCountOptions> = { instruction: anyText, signal }
const LOAD_CHECKS: OptionChecks<TextEmbeddingLoadOptions> = { ...MODEL_OPTION_CHECKS, signal }

/**
 * A loaded dense text embedding model.
 *
 * ```ts
 * await using model = await TextEmbedding.load()
 * const passages = await model.passageEmbed(['Berlin is the capital of Germany.'])
 * const [query] = await model.queryEmbed(['What is the capital of Germany?'])
 * ```
 *
 * A text's vector does not depend on the other texts of the call, on batch size, priority or threads:
 * on one processor it is the same bytes.
 */
export class TextEmbedding {
  readonly #handle: ModelHandle
  readonly #info: NativeModelInfo
  readonly #descriptor: ModelDescriptor

  private constructor(handle: ModelHandle, info: NativeModelInfo) {
    this.#handle = handle
    this.#info = info
    this.#descriptor = modelDescriptor(info.descriptor)
  }

  /**
   * Opens a model.
   *
   * @param model - Model id (`org/name`) or folder. Default: {@link DEFAULT_MODEL}. An id is looked for
   *   in installed model packages (`@simile-models/org--name`), then in the Hugging Face cache; what is in neither
   *   is downloaded into the cache.
   * @throws {@link InvalidInputError} for an unknown or wrong option; {@link ModelInitializationError}
   *   for a model that cannot be had or is broken; {@link UnsupportedModelError} for one that cannot be run;
   *   the signal's reason after an abort.
   */
  static async load(model: string = DEFAULT_MODEL, options?: TextEmbeddingLoadOptions): Promise<TextEmbedding> {
    const { signal, ...opening } = checkOptions('TextEmbedding.load', options, LOAD_CHECKS)
    const handle = new ModelHandle(text(model, 'model'), opening)
    return new TextEmbedding(handle, await handle.load(signal, 'caller'))
  }

  /** Model id or folder, as asked for. */
  get model(): string {
    return this.#handle.model
  }

  /** Length of a vector. */
  get dimensions(): number {
    return this.#info.dimensions
  }

  /** Tokens of the longest text that is embedded whole, special tokens counted. */
  get maxLength(): number {
    return this.#info.maxLength
  }

  /** The values in use: options before files before registry. */
  get descriptor(): ModelDescriptor {
    return this.#descriptor
  }

  /** Identity of the vector space at full dimensions: see {@link EmbeddingFacts.contractId}. */
  get contract(): string {
    return this.#info.contractId
  }

  /**
   * Embeds texts without a prompt. An empty list gives an empty result.
   *
   * @throws {@link InvalidInputError} for texts that are not an array of strings and for an unknown or
   *   wrong option; {@link TextTooLongError} under `truncate: 'error'`; {@link InferenceFailedError} for
   *   a vector that is not finite; {@link ModelNotLoadedError} after `dispose`; the signal's reason after an abort.
   */
  embed(texts: readonly string[], options?: RowOptions): Promise<Embeddings>
  embed(texts: readonly string[], options: FlatOptions): Promise<FlatEmbeddings>
  embed(texts: readonly string[], options?: EmbedOptions): Promise<Embeddings | FlatEmbeddings>
  embed(texts: readonly string[], options?: EmbedOptions): Promise<Embeddings | FlatEmbeddings> {
    return this.#embed('embed', texts, 'generic', options)
  }

  /** Embeds queries, in the model's query prompt if it has one. Otherwise as {@link TextEmbedding.embed}. */
  queryEmbed(texts: readonly string[], options?: RowOptions): Promise<Embeddings>
  queryEmbed(texts: readonly string[], options: FlatOptions): Promise<FlatEmbeddings>
  queryEmbed(texts: readonly string[], options?: EmbedOptions): Promise<Embeddings | FlatEmbeddings>
  queryEmbed(texts: readonly string[], options?: EmbedOptions): Promise<Embeddings | FlatEmbeddings> {
    return this.#embed('queryEmbed', texts, 'query', options)
  }

  /** Embeds passages, in the model's passage prompt if it has one. Otherwise as {@link TextEmbedding.embed}. */
  passageEmbed(texts: readonly string[], options?: RowOptions): Promise<Embeddings>
  passageEmbed(texts: readonly string[], options: FlatOptions): Promise<FlatEmbeddings>
  passageEmbed(texts: readonly string[], options?: EmbedOptions): Promise<Embeddings | FlatEmbeddings>
  passageEmbed(texts: readonly string[], options?: EmbedOptions): Promise<Embeddings | FlatEmbeddings> {
    return this.#embed('passageEmbed', texts, 'passage', options)
  }

  /** Tokens of each text that survive truncation, special tokens counted, without a prompt. */
  tokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return this.#tokenCount('tokenCount', texts, 'generic', options)
  }

  /** Tokens of each text in the query prompt that survive truncation. */
  queryTokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return this.#tokenCount('queryTokenCount', texts, 'query', options)
  }

  /** Tokens of each text in the passage prompt that survive truncation. */
  passageTokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return this.#tokenCount('passageTokenCount', texts, 'passage', options)
  }

  /** What this model has done since it was loaded. */
  stats(): ModelStats {
    return modelStats(this.#handle.stats())
  }

  /** Lets calls in progress finish, then frees the model. Later calls are a {@link ModelNotLoadedError}. */
  dispose(): Promise<void> {
    return this.#handle.dispose()
  }

  /** Same as {@link TextEmbedding.dispose}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  async #embed(
    method: string,
    texts: readonly string[],
    role: EmbeddingRole,
    options: EmbedOptions | undefined,
  ): Promise<Embeddings | FlatEmbeddings> {
    const copy = snapshot(texts)
    const { output = 'rows', priority, ...call } = checkOptions(method, options, EMBED_CHECKS)
    if (copy.length === 0) return this.#nothing(output, call)
    return this.#handle.embed(copy, { role, priority: priorityOf(role, copy.length, priority), ...call }, output)
  }

  /** The result of no texts, made here: it waits in no queue. What is wrong with the call is wrong all the same. */
  #nothing(output: Output, { dimensions = this.dimensions, signal }: Pick<EmbedOptions, 'dimensions' | 'signal'>) {
    checkDimensions(this.model, this.#descriptor, dimensions)
    this.#handle.assertUsable(signal)
    const facts = { dimensions, tokens: [], truncated: 0, contractId: this.#handle.contract(dimensions) }
    return output === 'flat' ? flatWithFacts(new Float32Array(0), 0, facts) : withFacts([], facts)
  }

  async #tokenCount(
    method: string,
    texts: readonly string[],
    role: EmbeddingRole,
    options: TokenCountOptions | undefined,
  ): Promise<number[]> {
    const copy = snapshot(texts)
    const call = checkOptions(method, options, TOKEN_COUNT_CHECKS)
    if (copy.length === 0) {
      this.#handle.assertUsable(call.signal)
      return []
    }
    const { embedded } = await this.#handle.tokenCounts(copy, { role, ...call })
    return Array.from(embedded)
  }
}
