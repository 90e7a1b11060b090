/**
 * The boundary between an application and whatever makes its embeddings.
 *
 * An application takes an {@link EmbeddingService} and need not know whether it computes here, asks a
 * server or keeps a cache. {@link BaseEmbeddingService} is the interface with everything filled in that
 * follows from `embed`: extend it for a service of your own.
 *
 * The base needs the addon for one thing: what its registry knows of a model, which is asked for the
 * prompts of `embedQuery` and `embedPassage` and for `modelConfig`. A service that overrides `prompt` and
 * `modelConfig` works on a platform without the addon; there the base's own two are an error that says so,
 * because a prompt that is left out is a wrong vector.
 */

import type { Embeddings } from './embeddings'
import { InternalError, InvalidInputError, ModelInitializationError } from './errors'
import { DEFAULT_MODEL, describeModel, type ModelConfig, type RegistryEntry } from './models'
import {
  anyText,
  type OptionChecks,
  oneOf,
  optionsObject,
  pendingSignal,
  signal,
  snapshotOptions,
  text,
  wholeNumber,
} from './options'
import { applyPrompt, checkRole, type EmbeddingRole, type Priority, type Prompt, priorityOf } from './roles'
import { describe, excerpt, MAX_TEXT_BYTES, proven, type ValidatedTexts, validateTexts } from './validation'

/** Options of one request to a service. */
export interface ServiceEmbedOptions {
  /** The model that the caller counts on. A service of one model refuses another one. Default: the service's. */
  readonly model?: string | undefined
  /** Most texts of this request in a micro-batch. Never changes a result. Default: 32. */
  readonly batchSize?: number | undefined
  /** The task, for a model whose prompt takes one. */
  readonly instruction?: string | undefined
  /** Which queue the request waits in. Default: interactive for `embedOne` and for at most 16 queries, else bulk. */
  readonly priority?: Priority | undefined
  /**
   * Milliseconds in which the first text of the call must be begun, from when the call was handed to the addon (a load
   * that it waits for counts). After that it is an `OverloadedError`, and nothing was computed for it. Default: no limit.
   */
  readonly maxWait?: number | undefined
  /** Rejects the request at once with the signal's reason and stops its work. */
  readonly signal?: AbortSignal | undefined
}

/** Options of {@link EmbeddingService.ensureLoaded}. */
export interface EnsureLoadedOptions {
  /** Stops waiting. The load itself goes on: the next request wants it. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Texts in, one vector per text out, in order; or an {@link EmbedError}, never part of a result.
 *
 * A request holds 1 to 1,000 texts of at most 32,768 UTF-8 bytes each. What is wrong with it is found
 * in this order: number of texts, each text, role, options, model, signal.
 */
export interface EmbeddingService {
  /** What kind of service this is, for logs. Not the model's name: see {@link EmbeddingService.modelConfig}. */
  readonly name: string
  /** Embeds texts without a prompt. */
  embed(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings>
  /** Embeds one text without a prompt, ahead of bulk work. */
  embedOne(text: string, options?: ServiceEmbedOptions): Promise<Float32Array>
  /** Embeds what is searched for. Not interchangeable with `embed` for a model that has prompts. */
  embedQuery(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings>
  /** Embeds what is found. Not interchangeable with `embed` for a model that has prompts. */
  embedPassage(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings>
  /** Embeds in the prompt of a role; the limits are about the texts without it. */
  embedWithRole(texts: readonly string[], role: EmbeddingRole, options?: ServiceEmbedOptions): Promise<Embeddings>
  /** Loads what the first request would load. */
  ensureLoaded(options?: EnsureLoadedOptions): Promise<void>
  /** Whether this service can embed with a model. */
  supportsModel(model: string): boolean
  /** The vector space of this service for a model. Default: its own model. */
  modelConfig(model?: string): ModelConfig
}

/** An instruction is put in front of every text of a request, so it has the limit of a text. */
function instructionText(value: unknown, name: string): string {
  const instruction = anyText(value, name)
  const bytes = Buffer.byteLength(instruction, 'utf8')
  if (bytes <= MAX_TEXT_BYTES) return instruction
  throw new InvalidInputError(`${name} has ${bytes} UTF-8 bytes; a service takes at most ${MAX_TEXT_BYTES}`, {
    option: name,
    limit: MAX_TEXT_BYTES,
    actual: bytes,
    unit: 'bytes',
  })
}

/** The checks of {@link ServiceEmbedOptions}. */
export const SERVICE_EMBED_CHECKS: OptionChecks<ServiceEmbedOptions> = {
  model: text,
  batchSize: wholeNumber(1),
  instruction: instructionText,
  priority: oneOf(['interactive', 'bulk']),
  maxWait: wholeNumber(1),
  signal,
}

/**
 * The first checks of a request, the same in every service: its texts, then its role. Options are checked after
 * them; an abort of their signal ends the measuring of texts.
 */
export async function checkRequest(
  texts: readonly string[],
  role: EmbeddingRole,
  options: ServiceEmbedOptions | undefined,
): Promise<ValidatedTexts> {
  const valid = await validateTexts(texts, pendingSignal(options))
  checkRole(role)
  return valid
}

/**
 * How one service of this package hands checked texts to another. It is a symbol, and its argument can
 * only be made by this package, so nobody gets around the limits of a request by it.
 *
 * @internal
 */
export const embedValidated = Symbol('simile.embedValidated')

/**
 * {@link EmbeddingService} with every method that follows from `embed`. Override `prompt` and `modelConfig`
 * to do without the registry, and so without the addon.
 */
export abstract class BaseEmbeddingService implements EmbeddingService {
  abstract readonly name: string
  /**
   * Embeds texts without a prompt: one vector per text, in order, or a rejection. A text may be longer
   * than the limit of a request by the prompt that `embedWithRole` has put in front of it. Texts are as the
   * caller gave them: a lone surrogate is U+FFFD once the text is encoded, or after `toWellFormed()`.
   */
  abstract embed(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings>
  abstract supportsModel(model: string): boolean

  /** @throws {@link InternalError} if `embed` gives anything but one vector. */
  async embedOne(text: string, options?: ServiceEmbedOptions): Promise<Float32Array> {
    const { priority = 'interactive', ...rest } = optionsObject(options)
    const rows = await this.embed([text], { ...rest, priority })
    const count = Array.isArray(rows) ? rows.length : undefined
    const [row] = count === 1 ? rows : []
    if (row !== undefined) return row
    throw new InternalError(`${this.name}.embed gave ${count ?? describe(rows)} vectors for one text`, {
      limit: 1,
      ...(count !== undefined && { actual: count }),
      unit: 'texts',
    })
  }

  embedQuery(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole(texts, 'query', options)
  }

  embedPassage(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole(texts, 'passage', options)
  }

  /**
   * Checks the texts, puts each into the prompt of the role once, and calls `embed` with the other
   * options, which are for `embed` to check.
   */
  async embedWithRole(
    texts: readonly string[],
    role: EmbeddingRole,
    options?: ServiceEmbedOptions,
  ): Promise<Embeddings> {
    const given = snapshotOptions(options)
    const valid = await checkRequest(texts, role, given)
    const { instruction: wanted, ...rest } = optionsObject(given)
    const instruction = wanted === undefined ? undefined : instructionText(wanted, 'instruction')
    const prompt = this.prompt(role, rest.model)
    const priority = priorityOf(role, valid.texts.length, rest.priority)
    return this.embed(applyPrompt(prompt, valid.texts, instruction), { ...rest, priority })
  }

  /** Nothing to load, unless a service says otherwise. */
  async ensureLoaded(_options?: EnsureLoadedOptions): Promise<void> {}

  /**
   * The model at the dimensions that the registry knows.
   *
   * @throws {@link ModelInitializationError} where the addon, which holds the registry, cannot be loaded:
   *   override this to do without.
   */
  modelConfig(model: string = DEFAULT_MODEL): ModelConfig {
    return { model: text(model, 'model'), dimensions: known(this, model)?.dimensions ?? null }
  }

  /**
   * The prompt of a role: that of the registry, unless a service knows better. `generic` has none, and
   * asks nobody.
   *
   * @throws {@link ModelInitializationError} where the addon, which holds the registry, cannot be loaded:
   *   override this to do without. A prompt is never left out in silence.
   */
  protected prompt(role: EmbeddingRole, model?: string): Prompt {
    const entry = role === 'generic' ? undefined : known(this, this.modelConfig(model).model)
    return {
      template: (role === 'query' ? entry?.queryTemplate : entry?.passageTemplate) ?? null,
      defaultInstruction: entry?.defaultInstruction ?? null,
    }
  }

  /**
   * As `embedWithRole`, for texts that another service of this package has checked. A service that does
   * not override it gets them through its public method.
   *
   * @internal
   */
  [embedValidated](valid: ValidatedTexts, role: EmbeddingRole, options?: ServiceEmbedOptions): Promise<Embeddings> {
    return this.embedWithRole([...proven(valid).texts], role, options)
  }
}

/** What the registry knows of a service's model. The loader's error comes with what its author can do about it. */
function known(service: EmbeddingService, model: string): RegistryEntry | undefined {
  try {
    return describeModel(model, { kind: 'dense' })
  } catch (cause) {
    if (!(cause instanceof ModelInitializationError)) throw cause
    throw new ModelInitializationError(
      `the service "${service.name}" asks the registry about ${excerpt(model)}, and the registry is in the addon; a service ` +
        `that overrides prompt and modelConfig does without. ${cause.message}`,
      { cause, model, ...(cause.allowed !== undefined && { allowed: cause.allowed }) },
    )
  }
}
