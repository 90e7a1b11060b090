/**
 * A service that remembers, around any other.
 *
 * Contract: a request is checked here (texts, role, options, signal) even when all of it is found; the model
 * is the inner service's to check, so a request whose every text is found does not ask it. What is not
 * found goes to the inner service in one call, in the caller's order, a text that occurs twice once. Services
 * of this package get it as checked texts, others through their public `embedWithRole`. A result is of one
 * contract: where the inner service's contract turns out to have changed, what was found is dropped and the
 * whole request is embedded anew.
 *
 * The prompt is the inner service's to apply, so the texts here are those of the caller, and the role is part
 * of the key: one text in three roles has three entries. So has one with three instructions. Priority, batch
 * size and signal change no vector and are not.
 */

import { abortable, throwIfAborted } from './abort'
import {
  type CacheStats,
  DEFAULT_CACHE_CAPACITY,
  digestsOf,
  EmbeddingCache,
  type Entry,
  keyPrefix,
  MAX_CACHE_CAPACITY,
  sameContract,
} from './cache'
import { type Embeddings, isRow, type TokenCount, withFacts } from './embeddings'
import { atIndex, InferenceFailedError, InvalidInputError } from './errors'
import { InProgress } from './in_progress'
import type { ModelConfig } from './models'
import { type Checked, checkOptions, flag, type OptionChecks, snapshotOptions, wholeNumber } from './options'
import { type EmbeddingRole, type Priority, priorityOf } from './roles'
import {
  checkRequest,
  type EmbeddingService,
  type EnsureLoadedOptions,
  embedValidated,
  SERVICE_EMBED_CHECKS,
  type ServiceEmbedOptions,
} from './services'
import { type Entries, SingleFlight } from './single_flight'
import { Turns } from './turns'
import { describe, excerpt, proven, type ValidatedTexts } from './validation'

/** Options of {@link CachedEmbeddingService}. */
export interface CachedEmbeddingServiceOptions {
  /** The most vectors that are kept, 0 to 10,000,000. 0: none, every request goes through. Default: {@link DEFAULT_CACHE_CAPACITY}. */
  readonly capacity?: number | undefined
  /** The most bytes that they may take together. Default: as many as `capacity` vectors take. */
  readonly maxBytes?: number | undefined
  /**
   * Whether requests that miss the same text at the same time share one call of the inner service. Default
   * `false`: each makes its own.
   */
  readonly singleFlight?: boolean | undefined
}

const CACHE_CHECKS: OptionChecks<CachedEmbeddingServiceOptions> = {
  capacity: wholeNumber(0, MAX_CACHE_CAPACITY),
  maxBytes: wholeNumber(1, Number.MAX_SAFE_INTEGER),
  singleFlight: flag,
}

/** What a service must have to be wrapped. */
const METHODS = ['embedWithRole', 'ensureLoaded', 'supportsModel', 'modelConfig'] as const

/** What a service may have besides the interface. */
interface Extras {
  [embedValidated]?(valid: ValidatedTexts, role: EmbeddingRole, options?: ServiceEmbedOptions): Promise<Embeddings>
  saveCache?(): Promise<number>
  cacheSize?(): number
  dispose?(): Promise<void>
}

/** A request whose texts, role and options are checked. */
interface Request {
  readonly valid: ValidatedTexts
  readonly role: EmbeddingRole
  readonly call: Checked<ServiceEmbedOptions> & { readonly priority: Priority }
}

/**
 * A cache in memory around any service.
 *
 * ```ts
 * const service = new CachedEmbeddingService(new NativeEmbeddingService(), { maxBytes: 64 * 2 ** 20 })
 * ```
 *
 * A vector that is found is a copy, byte for byte what the inner service gave, and carries its tokens and its
 * contract id.
 */
export class CachedEmbeddingService implements EmbeddingService {
  readonly name = 'cached'
  readonly #inner: EmbeddingService & Extras
  readonly #cache: EmbeddingCache
  readonly #flights: SingleFlight | undefined
  readonly #inProgress = new InProgress()

  /**
   * @param inner - Any service; one of your own needs no base class.
   * @throws {@link InvalidInputError} for something that is no service, and for an unknown or wrong option.
   */
  constructor(inner: EmbeddingService, options?: CachedEmbeddingServiceOptions) {
    const {
      capacity = DEFAULT_CACHE_CAPACITY,
      maxBytes,
      singleFlight = false,
    } = checkOptions('CachedEmbeddingService', options, CACHE_CHECKS)
    this.#inner = checkService(inner)
    this.#cache = new EmbeddingCache(capacity, maxBytes)
    this.#flights = singleFlight ? new SingleFlight() : undefined
  }

  /**
   * Embeds texts without a prompt, those that are not found.
   *
   * @throws {@link InvalidInputError} and {@link TextTooLongError} for a request that breaks a limit;
   *   {@link InferenceFailedError} when the inner service does not give one vector for each text; what the inner
   *   service throws, with `index` as a position in `texts`; the signal's reason after an abort.
   */
  embed(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole(texts, 'generic', options)
  }

  async embedOne(text: string, options?: ServiceEmbedOptions): Promise<Float32Array> {
    const rows = await this.#checked([text], 'generic', options, 'interactive')
    return rows[0] as Float32Array
  }

  embedQuery(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole(texts, 'query', options)
  }

  embedPassage(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole(texts, 'passage', options)
  }

  embedWithRole(texts: readonly string[], role: EmbeddingRole, options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.#checked(texts, role, options)
  }

  /** Passed on: the inner service loads. */
  ensureLoaded(options?: EnsureLoadedOptions): Promise<void> {
    return this.#inner.ensureLoaded(options)
  }

  /** Passed on to the inner service. */
  supportsModel(model: string): boolean {
    return this.#inner.supportsModel(model)
  }

  /** Passed on to the inner service. */
  modelConfig(model?: string): ModelConfig {
    return this.#inner.modelConfig(model)
  }

  /** Counters of this cache. The cache of a model, if it has one, is {@link CachedEmbeddingService.cacheSize}. */
  cacheStats(): CacheStats {
    return this.#cache.stats()
  }

  /** Forgets all vectors. What is being embedded now is not kept. The counters of hits, misses and evictions go on. */
  clearCache(): void {
    this.#cache.clear()
    this.#flights?.clear()
  }

  /** Passed on: writes the model's own cache to disk and gives the number of entries; 0 for a service that has none. */
  async saveCache(): Promise<number> {
    return (await this.#inner.saveCache?.()) ?? 0
  }

  /** Passed on: entries of the model's own cache; 0 for a service that has none. */
  cacheSize(): number {
    return this.#inner.cacheSize?.() ?? 0
  }

  /**
   * Lets requests in progress finish, forgets all vectors for good, and disposes of the inner service where that can be
   * done, so wrap a service that others use too without disposing of the wrapper. Later requests go through to it.
   */
  async dispose(): Promise<void> {
    this.#cache.close()
    this.#flights?.clear()
    await this.#inProgress.idle()
    await this.#inner.dispose?.()
  }

  /** Same as {@link CachedEmbeddingService.dispose}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  /** @internal */
  [embedValidated](valid: ValidatedTexts, role: EmbeddingRole, options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.#inProgress.count(() => this.#run(proven(valid), role, options))
  }

  #checked(
    texts: readonly string[],
    role: EmbeddingRole,
    options: ServiceEmbedOptions | undefined,
    priority?: Priority,
  ): Promise<Embeddings> {
    const given = snapshotOptions(options)
    return this.#inProgress.count(async () => {
      const valid = await checkRequest(texts, role, given)
      return this.#run(valid, role, given, priority)
    })
  }

  /** What follows the texts in the order of checks: options, signal. Then the work, which an abort leaves at once. */
  async #run(
    valid: ValidatedTexts,
    role: EmbeddingRole,
    options: ServiceEmbedOptions | undefined,
    usual: Priority = priorityOf(role, valid.texts.length),
  ): Promise<Embeddings> {
    const { priority = usual, ...rest } = checkOptions('an embedding request', options, SERVICE_EMBED_CHECKS)
    const request: Request = { valid, role, call: { ...rest, priority } }
    throwIfAborted(rest.signal)
    return abortable(rest.signal, () =>
      this.#cache.enabled ? this.#through(request) : this.#ask(valid, request, rest.signal),
    )
  }

  /** Looks up all texts, has those embedded that are not there, and puts the rows together in the caller's order. */
  async #through(request: Request): Promise<Embeddings> {
    const { valid, role, call } = request
    const space = { config: this.#config(call.model), role, instruction: call.instruction }
    const digests = await digestsOf(valid.texts, call.signal)
    throwIfAborted(call.signal)
    const prefix = keyPrefix(space)
    const keys = digests.map((digest) => prefix + digest)
    // From here to the first call there is no wait, so that a clearing comes before all of it or after.
    const { generation } = this.#cache
    const found = new Map<string, Entry>()
    /** Where each text occurs first. */
    const positions = new Map<string, number>()
    keys.forEach((key, index) => {
      const entry = this.#cache.get(key)
      if (entry !== undefined) found.set(key, entry)
      if (!positions.has(key)) positions.set(key, index)
    })
    const positionsOf = (some: readonly string[]) => some.map((key) => positions.get(key) as number)

    /** Gets entries from the inner service and keeps them. An error's `index` is a position in `wanted`. */
    const fetch = async (wanted: readonly string[], signal: AbortSignal | undefined): Promise<Entries> => {
      const indices = positionsOf(wanted)
      const entries = this.#entries(await this.#ask(valid.subset(indices), request, signal))
      const config = this.#config(call.model)
      // A model's own dimensions are not known before it is loaded: the next lookup will know them. Whatever else
      // changed meanwhile, nobody can tell which of both these rows are of.
      const { model, dimensions } = space.config
      if (model === config.model && (dimensions === null || dimensions === config.dimensions)) {
        const kept = keyPrefix({ ...space, config })
        const at = (i: number) => kept + (digests[indices[i] as number] as string)
        this.#cache.set(config, new Map(entries.map((entry, i) => [at(i), entry])), generation)
      }
      return new Map(entries.map((entry, i) => [wanted[i] as string, entry]))
    }
    const wanted = [...positions.keys()].filter((key) => !found.has(key))
    const fresh = await this.#located(positionsOf(wanted), () => {
      if (wanted.length === 0) return Promise.resolve(new Map<string, Entry>())
      if (this.#flights === undefined) return fetch(wanted, call.signal)
      return this.#flights.entries(wanted, `${call.priority} ${call.maxWait ?? ''}`, fetch, call.signal)
    })
    const entries = keys.map((key) => (fresh.get(key) ?? found.get(key)) as Entry)
    const [first] = entries as [Entry]
    if (entries.every((entry) => sameContract(entry, first))) return assemble(entries, call.signal)
    // The inner service changed between then and now, or between two calls that were joined: one call is of one contract.
    const unique = [...positions.keys()]
    const anew = await this.#located(positionsOf(unique), () => fetch(unique, call.signal))
    return assemble(
      keys.map((key) => anew.get(key) as Entry),
      call.signal,
    )
  }

  /** Does `work` on texts at these positions; an error about one of them names its position in the caller's array. */
  async #located<T>(positions: readonly number[], work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw atIndex(error, (index) => positions[index])
    }
  }

  /** Asks the inner service, in the way that suits it, and counts what comes back. */
  async #ask(valid: ValidatedTexts, { role, call }: Request, signal: AbortSignal | undefined): Promise<Embeddings> {
    const { signal: _, ...rest } = call
    const options = signal === undefined ? rest : { ...rest, signal }
    const inner = this.#inner
    const rows =
      typeof inner[embedValidated] === 'function'
        ? await inner[embedValidated](valid, role, options)
        : await inner.embedWithRole([...valid.texts], role, options)
    if (Array.isArray(rows) && rows.length === valid.texts.length) return rows
    const what = Array.isArray(rows) ? `${rows.length} vectors` : describe(rows)
    throw new InferenceFailedError(
      `the service "${excerpt(String(inner.name))}" gave ${what} for ${valid.texts.length} texts`,
      {
        limit: valid.texts.length,
        ...(Array.isArray(rows) && { actual: rows.length }),
        unit: 'texts',
      },
    )
  }

  /**
   * Copies of an answer's rows, each of the same length, with what is known of each. A service of others may
   * know nothing; one that says how many texts were cut, but not which, is taken to have cut them all, so that
   * none is overlooked.
   */
  #entries(rows: Embeddings): Entry[] {
    const given = rows as Partial<Embeddings>
    const tokens = Array.isArray(given.tokens) && given.tokens.length === rows.length ? given.tokens : []
    const contractId = typeof given.contractId === 'string' ? given.contractId : ''
    const dimensions = rows[0]?.length
    return Array.from(rows, (row, index) => {
      if (!isRow(row) || row.length !== dimensions || row.length === 0) {
        throw this.#broken(`${describe(row)} as vector ${index}, not a Float32Array as long as the first`, index)
      }
      const bad = row.findIndex((value) => !Number.isFinite(value))
      if (bad !== -1) throw this.#broken(`a vector ${index} that is not finite: value ${bad} is ${row[bad]}`, index)
      const count = isCount(tokens[index]) ? Object.freeze({ ...tokens[index] }) : undefined
      const cut = count === undefined ? (given.truncated ?? 0) > 0 : count.embedded < count.total
      return { row: row.slice(), tokens: count, cut, contractId }
    })
  }

  /** The inner service's vector space, looked at: it may be anybody's code. */
  #config(model: string | undefined): ModelConfig {
    const config: unknown = this.#inner.modelConfig(model)
    const { model: name, dimensions } = (config ?? {}) as Partial<ModelConfig>
    if (typeof name === 'string' && (dimensions === null || Number.isInteger(dimensions))) return config as ModelConfig
    throw this.#broken(`${describe(config)} as its modelConfig, not { model, dimensions }`)
  }

  #broken(what: string, index?: number): InferenceFailedError {
    const name = excerpt(String(this.#inner.name))
    return new InferenceFailedError(`the service "${name}" gave ${what}`, { ...(index !== undefined && { index }) })
  }
}

function isCount(value: unknown): value is TokenCount {
  const { total, embedded } = (value ?? {}) as Partial<TokenCount>
  return typeof total === 'number' && typeof embedded === 'number'
}

/** A result of copies of what is kept. */
async function assemble(entries: readonly Entry[], signal: AbortSignal | undefined): Promise<Embeddings> {
  const turns = new Turns(signal)
  const rows: Float32Array[] = []
  const tokens: TokenCount[] = []
  let truncated = 0
  for (const { row, tokens: count, cut } of entries) {
    rows.push(row.slice())
    if (count !== undefined) tokens.push(count)
    if (cut) truncated++
    if (turns.due()) await turns.take()
  }
  const [first] = entries as [Entry]
  return withFacts(rows, {
    dimensions: first.row.length,
    // All or none, as the inner service gave them: half of a list would be read as that of other texts.
    tokens: Object.freeze(tokens.length === rows.length ? tokens : []),
    truncated,
    contractId: first.contractId,
  })
}

function checkService(inner: unknown): EmbeddingService & Extras {
  const service = inner as Partial<EmbeddingService> | null | undefined
  const lacking = METHODS.filter((method) => typeof service?.[method] !== 'function')
  if (lacking.length === 0) return inner as EmbeddingService
  throw new InvalidInputError(
    `CachedEmbeddingService wraps an EmbeddingService, which has ${METHODS.join(', ')}; ${describe(inner)} has no ${lacking.join(', ')}`,
    { option: 'inner', allowed: METHODS },
  )
}
