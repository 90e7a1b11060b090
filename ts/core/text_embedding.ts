/**
 * A loaded dense text embedding model. No limits on the number or length of texts: for the checked
 * boundary of an application, see the services.
 */

import { type EmbeddingStream, type StreamProgress, WindowedStream } from './embed_stream'
import { type Embeddings, type FlatEmbeddings, flatWithFacts, noFacts, withFacts } from './embeddings'
import { InvalidInputError } from './errors'
import { ModelHandle } from './model_handle'
import { MODEL_OPTION_CHECKS, type ModelOptions } from './model_options'
import { checkDimensions, DEFAULT_MODEL, type ModelDescriptor, modelDescriptor } from './models'
import type { NativeModelInfo } from './native'
import { anyText, callback, checkOptions, type OptionChecks, oneOf, signal, text, wholeNumber } from './options'
import { checkRole, type EmbeddingRole, type Priority, priorityOf } from './roles'
import { type ModelStats, modelStats } from './stats'
import { countTokens, type TokenCountOptions } from './token_count'
import { Turns } from './turns'
import { describe, snapshot } from './validation'

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
  /**
   * Milliseconds in which the first text of the call must be begun, from when the call was handed to the addon (a load
   * that it waits for counts). After that it is an `OverloadedError`, and nothing was computed for it. Default: no limit.
   */
  readonly maxWait?: number | undefined
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

/** Options of {@link TextEmbedding.embedStream}. */
export interface StreamOptions extends Omit<EmbedOptions, 'output'> {
  /** In which prompt the texts are embedded. Default `'generic'`: none. */
  readonly role?: EmbeddingRole | undefined
  /** Which queue the stream's windows wait in. Default `'bulk'`. */
  readonly priority?: Priority | undefined
  /** Is told after each window of up to 512 texts, before the first of its rows is delivered. */
  readonly onProgress?: ((progress: StreamProgress) => void) | undefined
  /** Rejects at once with the signal's reason and ends the source. */
  readonly signal?: AbortSignal | undefined
}

/** Options of {@link TextEmbedding.chunkText}. */
export interface ChunkOptions {
  /** The most tokens of a chunk, prompt and special tokens counted. Default: {@link TextEmbedding.maxLength}. */
  readonly maxTokens?: number | undefined
  /** The most tokens that a chunk shares with the one before it; fewer where that would cut a word. Default 0. */
  readonly overlap?: number | undefined
  /** In which prompt the chunks will be embedded, so that there is room for it. Default `'generic'`: none. */
  readonly role?: EmbeddingRole | undefined
  /** The task, for a model whose prompt takes one. */
  readonly instruction?: string | undefined
  /** Rejects the call at once with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

/** Part of a text that is embedded whole. */
export interface Chunk {
  /** `source.slice(start, end)`. */
  readonly text: string
  /** Where it begins in the source, in UTF-16 units, as JavaScript counts. */
  readonly start: number
  /** Where it ends. */
  readonly end: number
  /** Its tokens when it is embedded, prompt and special tokens counted. */
  readonly tokens: number
}

const EMBED_CHECKS: OptionChecks<EmbedOptions> = {
  batchSize: wholeNumber(1),
  dimensions: wholeNumber(1),
  instruction: anyText,
  priority: oneOf(['interactive', 'bulk']),
  maxWait: wholeNumber(1),
  output: oneOf(['rows', 'flat']),
  signal,
}
const { output: _, ...ROW_CHECKS } = EMBED_CHECKS
const STREAM_CHECKS: OptionChecks<StreamOptions> = { ...ROW_CHECKS, role: checkRole, onProgress: callback }
const CHUNK_CHECKS: OptionChecks<ChunkOptions> = {
  maxTokens: wholeNumber(1),
  overlap: wholeNumber(0),
  role: checkRole,
  instruction: anyText,
  signal,
}
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
    // Private to TypeScript only.
    if (!(handle instanceof ModelHandle)) {
      throw new InvalidInputError('a TextEmbedding is made by await TextEmbedding.load(model, options), not by new')
    }
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
    const handle = new ModelHandle(modelName(model), opening, 'caller')
    return new TextEmbedding(handle, await handle.load(signal))
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
   *   a vector that is not finite; {@link OverloadedError} when too much waits already;
   *   {@link ModelNotLoadedError} after `dispose`; the signal's reason after an abort.
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

  /**
   * Embeds texts of an iterable one after the other, in bounded memory: three windows of at most 512 texts are
   * in it at a time, of which one is read, one computed and one delivered.
   *
   * ```ts
   * for await (const row of model.embedStream(lines, { role: 'passage' })) await index.add(row)
   * ```
   *
   * Rows come in the order of the texts. How many were cut is told by the stream's `truncated`.
   *
   * @throws {@link InvalidInputError} at once for a source that cannot be gone through and for an unknown or
   *   wrong option; {@link ModelNotLoadedError} after `dispose`. While rows are taken, after the rows of the texts before it: what the source throws, as it
   *   is; {@link InvalidInputError} for an element that is no string; what {@link TextEmbedding.embed} throws,
   *   with `index` as a position in the stream. The signal's reason after an abort, at once.
   */
  embedStream(texts: Iterable<string> | AsyncIterable<string>, options?: StreamOptions): EmbeddingStream {
    const {
      role = 'generic',
      priority = 'bulk',
      dimensions = this.dimensions,
      signal,
      onProgress,
      ...call
    } = checkOptions('embedStream', options, STREAM_CHECKS)
    checkDimensions(this.model, this.#descriptor, dimensions)
    this.#handle.checkInstruction(role, call.instruction)
    return new WindowedStream({
      source: texts,
      dimensions,
      contractId: this.#handle.contract(dimensions),
      embed: (window, signal) => this.#handle.embed(window, { role, priority, dimensions, ...call, signal }),
      signal,
      onProgress,
    })
  }

  /**
   * Cuts a long text into chunks that are embedded whole in the prompt of `role`: at white space where that can
   * be, within a word only where the word alone is longer than a chunk, never within a character. All of the text
   * is in a chunk but the white space between them; a blank text has none.
   *
   * ```ts
   * const chunks = await model.chunkText(book, { role: 'passage', overlap: 32 })
   * const rows = await model.passageEmbed(chunks.map(({ text }) => text))
   * ```
   *
   * Costs about 1 s for a megabyte, off the JavaScript thread; queries go before it.
   *
   * @throws {@link InvalidInputError} for a text that is no string, an unknown or wrong option, chunks that leave
   *   no room for text or are longer than the model's limit, and an overlap that leaves no room for anything new;
   *   {@link ModelNotLoadedError} after `dispose`; the signal's reason after an abort.
   */
  async chunkText(text: string, options?: ChunkOptions): Promise<Chunk[]> {
    const source: unknown = text
    if (typeof source !== 'string') {
      throw new InvalidInputError(`the text to cut must be a string, not ${describe(source)}`, { option: 'text' })
    }
    const { role = 'generic', ...call } = checkOptions('chunkText', options, CHUNK_CHECKS)
    const { start, end, tokens } = await this.#handle.chunks(source, { role, ...call })
    const turns = new Turns(call.signal)
    const chunks: Chunk[] = []
    for (const [i, from] of start.entries()) {
      const to = end[i] as number
      chunks.push({ text: source.slice(from, to), start: from, end: to, tokens: tokens[i] as number })
      if (turns.due()) await turns.take()
    }
    return chunks
  }

  /** Tokens of each text that survive truncation, special tokens counted, without a prompt. */
  tokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return countTokens(this.#handle, 'tokenCount', texts, 'generic', options)
  }

  /** Tokens of each text in the query prompt that survive truncation. */
  queryTokenCount(texts: readonly string[], options?: TokenCountOptions): Promise<number[]> {
    return countTokens(this.#handle, 'queryTokenCount', texts, 'query', options)
  }

  /** Tokens of each text in the passage prompt that survive truncation. */
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
    if (copy.length === 0) return this.#nothing(output, role, call)
    return this.#handle.embed(copy, { role, priority: priorityOf(role, copy.length, priority), ...call }, output)
  }

  /** The result of no texts, made here: it waits in no queue. What is wrong with the call is wrong all the same. */
  #nothing(output: Output, role: EmbeddingRole, call: Pick<EmbedOptions, 'dimensions' | 'instruction' | 'signal'>) {
    const { dimensions = this.dimensions, instruction, signal } = call
    checkDimensions(this.model, this.#descriptor, dimensions)
    this.#handle.assertUsable(signal)
    this.#handle.checkInstruction(role, instruction)
    const facts = noFacts(dimensions, this.#handle.contract(dimensions))
    return output === 'flat' ? flatWithFacts(new Float32Array(0), 0, facts) : withFacts([], facts)
  }
}

/** The name of a model, the first argument; options in its place are a likely mistake. */
function modelName(model: unknown): string {
  if (typeof model !== 'object' || model === null) return text(model, 'model')
  throw new InvalidInputError(
    `model must be a string, not ${describe(model)}; options are the second argument: TextEmbedding.load(undefined, options) for the default model`,
    { option: 'model' },
  )
}
