/**
 * One model at work, as the classes of the public API see it: opened lazily, used by any number of
 * calls at once, let go once.
 *
 * Invariants: the addon is touched at the first use, never by making a handle; a call that was aborted
 * rejects in the same turn and its work stops soon after; `dispose` lets calls in progress finish, then
 * frees the model, and every call that starts later is a `ModelNotLoadedError`. A call starts when it is
 * made: one that has yet to check its texts is in progress.
 */

import { abortable, throwIfAborted } from './abort'
import { type CallTexts, countOf, pushTexts, takeFlat, takeRagged, takeRows } from './crossing'
import {
  type EmbeddingFacts,
  type Embeddings,
  type FlatEmbeddings,
  factsOf,
  flatWithFacts,
  type TokenColumns,
  withFacts,
} from './embeddings'
import { ModelNotLoadedError } from './errors'
import { InProgress } from './in_progress'
import type { ModelOptions } from './model_options'
import { modelPackageFolders } from './model_packages'
import {
  type NativeCancel,
  type NativeChunkOptions,
  type NativeChunks,
  type NativeFailure,
  type NativeHeadInfo,
  type NativeKind,
  type NativeLoadRequest,
  type NativeModel,
  type NativeModelInfo,
  type NativeStats,
  type NativeTextBatch,
  native,
  settled,
} from './native'
import type { Checked } from './options'
import type { EmbeddingRole, Priority } from './roles'
import { excerpt, type Label } from './validation'

/** One embedding call, checked. */
export interface EmbedCall {
  readonly role: EmbeddingRole
  readonly priority: Priority
  readonly instruction?: string | undefined
  readonly dimensions?: number | undefined
  readonly batchSize?: number | undefined
  readonly maxWait?: number | undefined
  readonly signal?: AbortSignal | undefined
  /** What {@link ModelHandle.admit} gave, for a call that began with it. */
  readonly admission?: Admission | undefined
}

/** One call that cuts a text, checked. */
export interface ChunkCall {
  readonly role: EmbeddingRole
  readonly instruction?: string | undefined
  readonly maxTokens?: number | undefined
  readonly overlap?: number | undefined
  readonly signal?: AbortSignal | undefined
}

/** Rows that have lengths of their own, with their indices where they are sparse. */
export interface RaggedRows {
  readonly values: Float32Array[]
  readonly indices: Uint32Array[]
  readonly facts: EmbeddingFacts
}

/** A score for each text. */
export interface ScoredTexts {
  readonly scores: Float32Array
  readonly facts: EmbeddingFacts
}

/** Whether a call began before the model was let go. */
export interface Admission {
  readonly open: boolean
}

/**
 * Whose model it is: a service's, whose next call wants an unfinished load too, and whose vectors have these dimensions;
 * or a caller's who is alone with it.
 */
export type ModelOwner = { readonly service: { readonly dimensions: number | undefined } } | 'caller'

/** Code of the process warning about a file of saved vectors that was not used. */
const SAVED_CACHE_WARNING = 'SIMILE_SAVED_CACHE'

export class ModelHandle {
  /** Model id or folder, as asked for. */
  readonly model: string
  readonly #kind: NativeKind
  readonly #options: Checked<ModelOptions>
  readonly #owner: ModelOwner
  #native: NativeModel | undefined
  #finalStats: NativeStats | undefined
  /** Work that the addon has not settled: an aborted call is, after its caller was told. */
  readonly #inProgress = new InProgress()
  #disposal: Promise<void> | undefined
  /** Whether its only caller has left: nobody hears of the load any more. */
  #abandoned = false
  /** When the texts of the last bulk call have been handed over: bulk calls come to their queue in the order of the calls. */
  #pushed: Promise<unknown> = Promise.resolve()

  constructor(model: string, options: Checked<ModelOptions>, owner: ModelOwner, kind: NativeKind = 'dense') {
    this.model = model
    this.#kind = kind
    this.#options = options
    this.#owner = owner
  }

  /**
   * Opens the model, or waits for who opens it already. An abort rejects at once. A service's load runs on,
   * for its next call; a caller who was alone with it lets go of the model, which stops a download (what was
   * received is kept) and frees the memory of what cannot be stopped when that ends.
   */
  async load(signal: AbortSignal | undefined): Promise<NativeModelInfo> {
    return this.#load(signal, (model, cancel) => model.load(cancel))
  }

  /** As {@link ModelHandle.load}, for a model that is not dense. */
  async loadHead(signal: AbortSignal | undefined): Promise<NativeHeadInfo> {
    return this.#load(signal, (model, cancel) => model.loadHead(cancel))
  }

  async #load<T extends object>(
    signal: AbortSignal | undefined,
    load: (model: NativeModel, cancel: NativeCancel) => Promise<T | NativeFailure>,
  ): Promise<T> {
    throwIfAborted(signal)
    const model = this.#open()
    const cancel = new (native(this.#options.device).NativeCancel)()
    return abortable(
      signal,
      () => this.#inProgress.count(async () => this.#settled(model, await load(model, cancel))),
      () => {
        cancel.cancel()
        if (this.#owner !== 'caller') return
        model.dispose()
        this.#abandoned = true
      },
    )
  }

  /** Runs a call that has something to do before it needs the model; a disposal that comes later waits for it. */
  admit<T>(call: (admission: Admission) => Promise<T>): Promise<T> {
    const admission = { open: this.#disposal === undefined }
    return this.#inProgress.count(() => call(admission))
  }

  /** Throws what a call would: the reason of an aborted signal, `ModelNotLoaded` after disposal. */
  assertUsable(signal: AbortSignal | undefined, admission?: Admission): void {
    throwIfAborted(signal)
    this.#open(admission)
  }

  /** Throws what a call with this instruction, or with none, would. The model must be loaded. */
  checkInstruction(role: EmbeddingRole, instruction: string | undefined): void {
    const failure = this.#open().checkInstruction(role, instruction)
    if (failure !== null) settled(failure, this.model)
  }

  /** Identity of the vector space at these dimensions. The model must be loaded. */
  contract(dimensions: number): string {
    return this.#open().contract(dimensions)
  }

  /** What is known of the loaded model; `undefined` before. */
  info(): NativeModelInfo | undefined {
    return this.#disposal === undefined ? (this.#native?.info() ?? undefined) : undefined
  }

  /** Counters of the model; `undefined` before the first use. After disposal they stand still. */
  stats(): NativeStats | undefined {
    return this.#native?.stats() ?? this.#finalStats
  }

  /** Embeds texts into an array of rows. */
  embed(texts: CallTexts, call: EmbedCall): Promise<Embeddings>
  embed(texts: CallTexts, call: EmbedCall, output: 'rows' | 'flat'): Promise<Embeddings | FlatEmbeddings>
  async embed(
    texts: CallTexts,
    call: EmbedCall,
    output: 'rows' | 'flat' = 'rows',
  ): Promise<Embeddings | FlatEmbeddings> {
    return this.#withTexts(texts, call, async (model, batch, cancel) => {
      const result = this.#settled(model, await model.embed(batch, this.#nativeOptions(call), cancel))
      const columns = { total: result.tokensTotal, embedded: result.tokensEmbedded }
      const facts = factsOf(columns, result.dimensions, result.contractId)
      const count = countOf(texts)
      return output === 'flat'
        ? flatWithFacts(await takeFlat(result, count, call.signal), count, facts)
        : withFacts(await takeRows(result, count, call.signal), facts)
    })
  }

  /** Embeds texts into rows that have lengths of their own. `dimensions` is for the facts. */
  async ragged(texts: CallTexts, call: EmbedCall, dimensions: number): Promise<RaggedRows> {
    return this.#withTexts(texts, call, async (model, batch, cancel) => {
      const result = this.#settled(model, await model.embed(batch, this.#nativeOptions(call), cancel))
      const columns = { total: result.tokensTotal, embedded: result.tokensEmbedded }
      const facts = factsOf(columns, dimensions, result.contractId)
      return { ...(await takeRagged(result, this.#kind === 'sparse', call.signal)), facts }
    })
  }

  /** Scores each text with its query: `queries` holds one for all, or one for each. */
  async score(queries: CallTexts, texts: CallTexts, call: EmbedCall): Promise<ScoredTexts> {
    return this.#withTexts(
      texts,
      call,
      async (model, batch, cancel, ofQueries) => {
        const result = this.#settled(model, await model.score(ofQueries, batch, this.#nativeOptions(call), cancel))
        const columns = { total: result.tokensTotal, embedded: result.tokensEmbedded }
        const facts = factsOf(columns, result.dimensions, result.contractId)
        return { scores: await takeFlat(result, countOf(texts), call.signal), facts }
      },
      queries,
      'document',
    )
  }

  /** Counts the tokens of each text in the prompt of its role. */
  async tokenCounts(texts: CallTexts, call: EmbedCall): Promise<TokenColumns> {
    const { role, instruction, priority } = call
    return this.#withTexts(texts, call, async (model, batch, cancel) =>
      this.#settled(model, await model.tokenCounts(batch, role, instruction, priority, cancel)),
    )
  }

  /** Cuts a text into chunks that are embedded whole. */
  async chunks(text: string, { signal, ...options }: ChunkCall): Promise<NativeChunks> {
    return this.#withTexts([text], { signal, priority: 'bulk' }, async (model, batch, cancel) =>
      this.#settled(model, await model.chunks(batch, options as NativeChunkOptions, cancel)),
    )
  }

  /** Writes the saved vectors of the model to their file, and gives their number. A disposal waits for it. */
  async saveCache(): Promise<number> {
    const model = this.#native
    if (model === undefined || this.#disposal !== undefined) return 0
    const { entries } = await this.#inProgress.count(async () => this.#settled(model, await model.saveCache()))
    return entries
  }

  /** Vectors that would be saved now. */
  cacheSize(): number {
    return this.#disposal === undefined ? (this.#native?.cacheSize() ?? 0) : 0
  }

  /** Lets calls in progress finish, then frees the model. */
  dispose(): Promise<void> {
    this.#disposal ??= this.#inProgress.idle().then(() => {
      this.#finalStats = this.#native?.stats()
      this.#native?.dispose()
      this.#native = undefined
    })
    return this.#disposal
  }

  /** Hands the texts over and does `work` with them, until it is done or the signal aborts. */
  async #withTexts<T>(
    texts: CallTexts,
    { signal, admission, priority }: Pick<EmbedCall, 'signal' | 'admission' | 'priority'>,
    work: (model: NativeModel, batch: NativeTextBatch, cancel: NativeCancel, queries: NativeTextBatch) => Promise<T>,
    queries: CallTexts = [],
    label?: Label,
  ): Promise<T> {
    throwIfAborted(signal)
    const model = this.#open(admission)
    const { NativeCancel, NativeTextBatch } = native(this.#options.device)
    const cancel = new NativeCancel()
    const run = async () => {
      const [batch, ofQueries] = [new NativeTextBatch(), new NativeTextBatch()]
      const push = async () => {
        await pushTexts(ofQueries, queries, signal)
        await pushTexts(batch, texts, signal, label)
      }
      // A call with few texts would else overtake one whose texts take several turns of the event loop.
      const pushed = priority === 'bulk' ? this.#pushed.then(push) : push()
      if (priority === 'bulk') this.#pushed = pushed.catch(() => {})
      await pushed
      return work(model, batch, cancel, ofQueries)
    }
    return abortable(
      signal,
      () => this.#inProgress.count(run),
      () => cancel.cancel(),
    )
  }

  #open({ open }: Admission = { open: this.#disposal === undefined }): NativeModel {
    if (!open) {
      const remedy = this.#owner === 'caller' ? 'load it again' : 'make a new service'
      throw new ModelNotLoadedError(`${excerpt(this.model)} was disposed; ${remedy} to use it`, { model: this.model })
    }
    if (this.#native === undefined) {
      const { batchSize: _, onProgress, ...options } = this.#options
      const packages = modelPackageFolders(this.model)
      const environment = { ...process.env }
      const service = this.#owner !== 'caller' && { service: serviceOptions(this.#owner.service) }
      // Checked options have the addon's shapes: lists where one value or a list may be given.
      const shape = { environment, kind: this.#kind, ...options, ...service }
      const request = { model: this.model, packages, ...shape } as NativeLoadRequest
      const { NativeModel } = native(this.#options.device)
      this.#native = onProgress ? new NativeModel(request, () => this.#reportProgress()) : new NativeModel(request)
    }
    return this.#native
  }

  /** A result of the addon. Whoever waited for a download hears of its end before of this. */
  #settled<T extends object>(model: NativeModel, value: T | NativeFailure): T {
    this.#reportProgress(model)
    for (const warning of model.takeWarnings()) {
      process.emitWarning(warning, { type: 'SimileWarning', code: SAVED_CACHE_WARNING })
    }
    return settled(value, this.model)
  }

  #reportProgress(model = this.#native): void {
    const { onProgress } = this.#options
    if (!onProgress || !model || this.#abandoned) return
    for (const progress of model.takeProgress()) {
      try {
        onProgress(progress)
      } catch (error) {
        // The load is not to blame, and a promise that nobody asked about would hide it.
        process.nextTick(() => {
          throw error
        })
      }
    }
  }

  #nativeOptions(call: EmbedCall) {
    const { role, priority, instruction, dimensions, batchSize = this.#options.batchSize, maxWait } = call
    return {
      role,
      priority,
      ...(instruction !== undefined && { instruction }),
      ...(dimensions !== undefined && { dimensions }),
      ...(batchSize !== undefined && { batchSize }),
      ...(maxWait !== undefined && { maxWait }),
    }
  }
}

function serviceOptions({ dimensions }: { readonly dimensions: number | undefined }) {
  return dimensions === undefined ? {} : { dimensions }
}
