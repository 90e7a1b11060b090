/**
 * Every error of this package.
 *
 * Contract: what goes wrong is an {@link EmbedError} with a stable `code`, one class per code, and the
 * facts of the case as fields, so that a program never has to read a message. Two things are not an
 * `EmbedError`: an aborted call rejects with its signal's own reason, and a bug of this package that
 * JavaScript finds first (a `TypeError` from within).
 *
 * The codes are those of the service document plus `Overloaded`. They are part of the public API: a
 * code is never renamed or given another meaning within a major version.
 */

/** The kinds of {@link EmbedError}, in the order of the table in the services guide. */
export const EMBED_ERROR_CODES = [
  'ModelNotLoaded',
  'WrongModelLoaded',
  'ModelInitialization',
  'InferenceFailed',
  'TaskFailed',
  'InvalidInput',
  'TextTooLong',
  'DimensionMismatch',
  'UnsupportedModel',
  'Internal',
  'TierMismatch',
  'Overloaded',
] as const

/** One of the twelve stable codes. */
export type EmbedErrorCode = (typeof EMBED_ERROR_CODES)[number]

/** The facts of a case. Each is present where it means something, and absent otherwise. */
export interface EmbedErrorFacts {
  /** Position of the offending text in the caller's array, from 0. */
  readonly index?: number | undefined
  /** The limit that was passed, in {@link unit}. */
  readonly limit?: number | undefined
  /** What was found instead, in {@link unit}. */
  readonly actual?: number | undefined
  /** What `limit` and `actual` count: `'texts'`, `'bytes'`, `'tokens'`, `'dimensions'`, `'ms'`. */
  readonly unit?: string | undefined
  /** The model that the case is about. */
  readonly model?: string | undefined
  /** The name of the option or environment variable at fault. */
  readonly option?: string | undefined
  /** Every value that would have been right, where that is a short list. */
  readonly allowed?: readonly (string | number)[] | undefined
  /** The error underneath. */
  readonly cause?: unknown
}

/**
 * Base of every error of this package. Catch one kind by class (`error instanceof TextTooLongError`)
 * or, where the error may come from another realm or another copy of the package, by code:
 * `EmbedError.is(error, 'TextTooLong')`.
 */
export class EmbedError extends Error implements EmbedErrorFacts {
  /** Which kind this is. Stable. */
  readonly code: EmbedErrorCode
  declare readonly index?: number | undefined
  declare readonly limit?: number | undefined
  declare readonly actual?: number | undefined
  declare readonly unit?: string | undefined
  declare readonly model?: string | undefined
  declare readonly option?: string | undefined
  declare readonly allowed?: readonly (string | number)[] | undefined

  /** For a service of your own; this package throws the subclasses. */
  constructor(code: EmbedErrorCode, message: string, facts: EmbedErrorFacts = {}) {
    super(message, 'cause' in facts && facts.cause !== undefined ? { cause: facts.cause } : undefined)
    this.code = code
    // Only the facts that are there become fields, so that a printed error shows no empty ones.
    for (const [name, value] of Object.entries(facts)) {
      if (name !== 'cause' && value !== undefined) {
        Object.defineProperty(this, name, { value, enumerable: true, writable: false, configurable: true })
      }
    }
  }

  /**
   * Whether a value is an error of this package, of the given kind where one is given. Goes by `code`
   * and `name`, so that it also holds for an error of another realm (a `vm` context) or of another
   * copy of the package, where `instanceof` does not.
   */
  static is<C extends EmbedErrorCode = EmbedErrorCode>(error: unknown, code?: C): error is EmbedErrorOf<C> {
    if (typeof error !== 'object' || error === null) return false
    const { code: found, name } = error as { code?: unknown; name?: unknown }
    if (code !== undefined && found !== code) return false
    return isEmbedErrorCode(found) && (name === 'EmbedError' || name === `${found}Error`)
  }
}

/** An {@link EmbedError} of a known code. */
export type EmbedErrorOf<C extends EmbedErrorCode> = EmbedError & {
  /** The code asked for. */
  readonly code: C
}

/** Gives a class its name where `Error` looks for it, under minifiers too. */
function nameClass(type: { prototype: Error }, name: string): void {
  Object.defineProperty(type.prototype, 'name', { value: name, configurable: true, writable: true })
}

function isEmbedErrorCode(code: unknown): code is EmbedErrorCode {
  return (EMBED_ERROR_CODES as readonly unknown[]).includes(code)
}

/** A service needs to be loaded before this use, or was disposed. Load it, or make a new one. */
export class ModelNotLoadedError extends EmbedError {
  declare readonly code: 'ModelNotLoaded'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('ModelNotLoaded', message, facts)
  }
}

/** The loaded model is not the one that was expected, after a switch elsewhere. Retry once the choice of model is settled. */
export class WrongModelLoadedError extends EmbedError {
  declare readonly code: 'WrongModelLoaded'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('WrongModelLoaded', message, facts)
  }
}

/**
 * The model could not be found, read or opened; also: the addon for this platform could not be loaded.
 * The message names the file or the place and what to do. A service remembers it: make a new service
 * once the cause is mended.
 */
export class ModelInitializationError extends EmbedError {
  declare readonly code: 'ModelInitialization'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('ModelInitialization', message, facts)
  }
}

/** The model ran and gave no usable result (`index` names the text whose vector was not finite). */
export class InferenceFailedError extends EmbedError {
  declare readonly code: 'InferenceFailed'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('InferenceFailed', message, facts)
  }
}

/** The background work of this call was lost, for instance to a panic in the addon. Other calls are not touched. */
export class TaskFailedError extends EmbedError {
  declare readonly code: 'TaskFailed'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('TaskFailed', message, facts)
  }
}

/** The request is wrong and will stay wrong: mend it before trying again. The message says what is allowed. */
export class InvalidInputError extends EmbedError {
  declare readonly code: 'InvalidInput'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('InvalidInput', message, facts)
  }
}

/** A text is longer than a limit: `unit` is `'bytes'` for the limit of a service, `'tokens'` under `truncate: 'error'`. `TextEmbedding.chunkText` cuts it. */
export class TextTooLongError extends EmbedError {
  declare readonly code: 'TextTooLong'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('TextTooLong', message, facts)
  }
}

/** Vectors of different length met where they had to be equal (`limit` expected, `actual` found). */
export class DimensionMismatchError extends EmbedError {
  declare readonly code: 'DimensionMismatch'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('DimensionMismatch', message, facts)
  }
}

/** This model, architecture or file is one that the package cannot run; the message names the value and what it can run. */
export class UnsupportedModelError extends EmbedError {
  declare readonly code: 'UnsupportedModel'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('UnsupportedModel', message, facts)
  }
}

/** An invariant of the package or of a service failed: please report it. */
export class InternalError extends EmbedError {
  declare readonly code: 'Internal'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('Internal', message, facts)
  }
}

/** Stored vectors of another quantisation tier than the operation expects. */
export class TierMismatchError extends EmbedError {
  declare readonly code: 'TierMismatch'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('TierMismatch', message, facts)
  }
}

/**
 * Too much waits: the queue is full (`unit` is `'bytes'`), or the call was not begun within its `maxWait` (`'ms'`).
 * Nothing of it was computed. Wait for results before sending more.
 */
export class OverloadedError extends EmbedError {
  declare readonly code: 'Overloaded'
  constructor(message: string, facts?: EmbedErrorFacts) {
    super('Overloaded', message, facts)
  }
}

const CLASS_OF_CODE = {
  ModelNotLoaded: ModelNotLoadedError,
  WrongModelLoaded: WrongModelLoadedError,
  ModelInitialization: ModelInitializationError,
  InferenceFailed: InferenceFailedError,
  TaskFailed: TaskFailedError,
  InvalidInput: InvalidInputError,
  TextTooLong: TextTooLongError,
  DimensionMismatch: DimensionMismatchError,
  UnsupportedModel: UnsupportedModelError,
  Internal: InternalError,
  TierMismatch: TierMismatchError,
  Overloaded: OverloadedError,
} satisfies Record<EmbedErrorCode, new (message: string, facts?: EmbedErrorFacts) => EmbedError>

nameClass(EmbedError, 'EmbedError')
for (const code of EMBED_ERROR_CODES) nameClass(CLASS_OF_CODE[code], `${code}Error`)

/**
 * An error about a text as the caller knows the text: with its position in the caller's array (also where the
 * message begins with it), and the error given as its cause. What names no text, and what names it rightly, comes back as it is.
 */
export function atIndex(error: unknown, indexOf: (index: number) => number | undefined): unknown {
  if (!EmbedError.is(error) || error.index === undefined) return error
  const index = indexOf(error.index)
  if (index === undefined || index === error.index) return error
  const { code, limit, actual, unit, model, option, allowed } = error
  const message = error.message.replace(new RegExp(`^text ${error.index}\\b`), `text ${index}`)
  return errorOfCode(code, message, { index, limit, actual, unit, model, option, allowed, cause: error })
}

/** The error of a code. An unknown code, which only a mismatched addon could send, is an `Internal` one that says so. */
export function errorOfCode(code: string, message: string, facts?: EmbedErrorFacts): EmbedError {
  if (!isEmbedErrorCode(code))
    return new InternalError(`unknown error code "${code}" from the addon: ${message}`, facts)
  return new CLASS_OF_CODE[code](message, facts)
}
