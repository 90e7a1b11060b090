/**
 * A service that computes in this process.
 *
 * Invariants: one service has one model, and says so when another is asked for; making a service reads no
 * file of a model and starts no thread (with `dimensions` it loads the addon, whose registry says which
 * dimensions the model has, so it throws where there is no addon; without, it checks options only); the model is loaded once, at the first request or at `ensureLoaded`, however many
 * requests wait for it; a load that failed stays failed for this service (make a new one once the cause
 * is mended), and a load whose waiters gave up goes on for the next.
 */

import type { Embeddings } from './embeddings'
import { dimensionsFromEnv, EMBED_DIM_VARIABLE } from './environment'
import { InvalidInputError } from './errors'
import { type Admission, ModelHandle } from './model_handle'
import { MODEL_OPTION_CHECKS, type ModelOptions } from './model_options'
import {
  checkDimensions,
  checkModelConfig,
  DEFAULT_MODEL,
  describeModel,
  type ModelConfig,
  type ModelDescriptor,
  modelDescriptor,
} from './models'
import { checkOptions, type OptionChecks, optionsObject, signal, snapshotOptions, text, wholeNumber } from './options'
import { type EmbeddingRole, type Priority, priorityOf } from './roles'
import {
  BaseEmbeddingService,
  checkRequest,
  type EnsureLoadedOptions,
  embedValidated,
  SERVICE_EMBED_CHECKS,
  type ServiceEmbedOptions,
} from './services'
import { type ModelStats, modelStats } from './stats'
import { excerpt, proven, type ValidatedTexts } from './validation'

/** Options of {@link NativeEmbeddingService}. */
export interface NativeEmbeddingServiceOptions extends ModelOptions {
  /** Model id (`org/name`) or folder. Default: {@link DEFAULT_MODEL}. */
  readonly model?: string | undefined
  /** Length of the vectors, for a Matryoshka model. Default: the model's own. */
  readonly dimensions?: number | undefined
}

const SERVICE_CHECKS: OptionChecks<NativeEmbeddingServiceOptions> = {
  ...MODEL_OPTION_CHECKS,
  model: text,
  dimensions: wholeNumber(1),
}
const ENSURE_LOADED_CHECKS: OptionChecks<EnsureLoadedOptions> = { signal }

/**
 * A lazily loaded model behind the limits of a service.
 *
 * ```ts
 * const service = new NativeEmbeddingService()
 * const [query] = await service.embedQuery(['what is a vector database?'])
 * ```
 */
export class NativeEmbeddingService extends BaseEmbeddingService {
  readonly name = 'native'
  readonly #handle: ModelHandle
  readonly #dimensions: number | undefined

  /**
   * @throws {@link InvalidInputError} for an unknown or wrong option, and for dimensions that a model of
   *   the registry cannot be cut to. Dimensions of another model are checked when it is loaded.
   * @throws {@link ModelInitializationError} for `dimensions` where the addon cannot be loaded.
   */
  constructor(options?: NativeEmbeddingServiceOptions) {
    super()
    const {
      model = DEFAULT_MODEL,
      dimensions,
      ...opening
    } = checkOptions('NativeEmbeddingService', options, SERVICE_CHECKS)
    if (dimensions !== undefined) checkModelConfig(model, dimensions)
    this.#handle = new ModelHandle(model, opening, { service: { dimensions } })
    this.#dimensions = dimensions
  }

  /**
   * A service whose dimensions come from the environment variable `SIMILE_EMBED_DIM`; absent or blank
   * means the model's own. Nothing else in the package reads that variable.
   *
   * @param env - Where to look instead of `process.env`.
   */
  static fromEnv(
    options?: Omit<NativeEmbeddingServiceOptions, 'dimensions'>,
    env: Readonly<Record<string, string | undefined>> = process.env,
  ): NativeEmbeddingService {
    const given: NativeEmbeddingServiceOptions = optionsObject(options)
    if (given.dimensions !== undefined) {
      throw new InvalidInputError(`fromEnv takes dimensions from ${EMBED_DIM_VARIABLE}, not from its options`, {
        option: 'dimensions',
      })
    }
    return new NativeEmbeddingService({ ...given, dimensions: dimensionsFromEnv(env) })
  }

  /**
   * Embeds texts without a prompt.
   *
   * @throws {@link InvalidInputError} for a request that breaks a limit, an unknown or wrong option, and
   *   another model; {@link TextTooLongError} for a text over 32,768 bytes, and under `truncate: 'error'`
   *   over the model's tokens; {@link ModelInitializationError} and {@link UnsupportedModelError} when
   *   the model cannot be loaded; {@link InferenceFailedError} for a vector that is not finite;
   *   {@link OverloadedError} when too much waits already; {@link ModelNotLoadedError} after `dispose`; the signal's reason after an abort.
   */
  embed(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole(texts, 'generic', options)
  }

  override async embedOne(text: string, options?: ServiceEmbedOptions): Promise<Float32Array> {
    const rows = await this.#checked([text], 'generic', options, 'interactive')
    return rows[0] as Float32Array
  }

  override async embedWithRole(
    texts: readonly string[],
    role: EmbeddingRole,
    options?: ServiceEmbedOptions,
  ): Promise<Embeddings> {
    return this.#checked(texts, role, options)
  }

  /**
   * Loads the model, or waits for the load in progress.
   *
   * @throws {@link InvalidInputError} for dimensions of this service that the loaded model does not give; otherwise as {@link NativeEmbeddingService.embed} does for the model.
   */
  override async ensureLoaded(options?: EnsureLoadedOptions): Promise<void> {
    const { signal } = checkOptions('ensureLoaded', options, ENSURE_LOADED_CHECKS)
    const { descriptor } = await this.#handle.load(signal)
    if (this.#dimensions !== undefined) checkDimensions(this.#handle.model, descriptor, this.#dimensions)
  }

  /** Whether `model` is this service's one model. */
  supportsModel(model: string): boolean {
    return text(model, 'model') === this.#handle.model
  }

  /** For this service's model: the dimensions configured, else the model's own where they are known. */
  override modelConfig(model: string = this.#handle.model): ModelConfig {
    if (!this.supportsModel(model)) return super.modelConfig(model)
    const dimensions =
      this.#dimensions ?? this.#handle.info()?.dimensions ?? describeModel(model, { kind: 'dense' })?.dimensions
    return { model, dimensions: dimensions ?? null }
  }

  /** The values in use, once the model is loaded: options before files before registry. */
  get descriptor(): ModelDescriptor | undefined {
    const info = this.#handle.info()
    return info && modelDescriptor(info.descriptor)
  }

  /**
   * Identity of the vector space of this service's vectors, once the model is loaded and until `dispose`: see
   * {@link EmbeddingFacts.contractId}.
   */
  get contract(): string | undefined {
    const info = this.#handle.info()
    return info && this.#handle.contract(this.#dimensions ?? info.dimensions)
  }

  /** What this service's model has done since it was loaded. */
  stats(): ModelStats {
    return modelStats(this.#handle.stats())
  }

  /**
   * Writes the vectors that a Qwen3 model keeps to their file, and gives their number: 0 before the model is loaded, after
   * `dispose`, and for other models, which keep none. The file is replaced as a whole: who reads or saves it at the same
   * time meets the old one or the new one. It is restored by the next load of the same model with the same options.
   *
   * @throws {@link TaskFailedError} when the file cannot be written; what was there is untouched then.
   */
  saveCache(): Promise<number> {
    return this.#handle.saveCache()
  }

  /** Vectors that a Qwen3 model keeps, restored ones included; 0 as {@link NativeEmbeddingService.saveCache} gives 0. */
  cacheSize(): number {
    return this.#handle.cacheSize()
  }

  /** Lets requests in progress finish, then frees the model. Later requests are a {@link ModelNotLoadedError}. */
  dispose(): Promise<void> {
    return this.#handle.dispose()
  }

  /** Same as {@link NativeEmbeddingService.dispose}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose()
  }

  /** @internal */
  override [embedValidated](
    valid: ValidatedTexts,
    role: EmbeddingRole,
    options?: ServiceEmbedOptions,
  ): Promise<Embeddings> {
    return this.#run(proven(valid), role, options)
  }

  /** A request from outside: its texts and its role are checked first. It counts as in progress meanwhile. */
  #checked(
    texts: readonly string[],
    role: EmbeddingRole,
    options: ServiceEmbedOptions | undefined,
    priority?: Priority,
  ): Promise<Embeddings> {
    const given = snapshotOptions(options)
    return this.#handle.admit(async (admission) => {
      const valid = await checkRequest(texts, role, given)
      return this.#run(valid, role, given, priority, admission)
    })
  }

  /** What follows the texts in the order of checks: options, model, signal. The prompt is the addon's to apply. */
  async #run(
    valid: ValidatedTexts,
    role: EmbeddingRole,
    options: ServiceEmbedOptions | undefined,
    priority: Priority = priorityOf(role, valid.texts.length),
    admission?: Admission,
  ): Promise<Embeddings> {
    const { model, ...call } = checkOptions('an embedding request', options, SERVICE_EMBED_CHECKS)
    if (model !== undefined && !this.supportsModel(model)) {
      throw new InvalidInputError(
        `this service embeds with ${excerpt(this.#handle.model)}, not with ${excerpt(model)}; make a service for each model`,
        { model, option: 'model', allowed: [this.#handle.model] },
      )
    }
    return this.#handle.embed(valid, { role, priority, dimensions: this.#dimensions, admission, ...call })
  }
}
