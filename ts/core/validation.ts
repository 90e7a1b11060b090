/**
 * The limits of a request to a service.
 *
 * Contract: the caller's array is copied before anything else, so what is checked is what is embedded,
 * even where the caller empties the array while the call waits. Checks come in a fixed order, so a
 * request with several faults always gets the same error: an array, not empty, not too many, then each
 * text in turn (a string, not too long). Options, model and signal are checked after the texts, by the
 * caller of this file.
 *
 * The limits are about what the caller passes: a prompt that the service adds is not counted.
 */

import { InvalidInputError, TextTooLongError } from './errors'

/** The most texts that one request to a service may hold. */
export const DEFAULT_MAX_BATCH_SIZE = 1000

/** The most UTF-8 bytes that one text of a request to a service may have. */
export const MAX_TEXT_BYTES = 32_768

/** Only this file has it, so only this file makes a proof. */
const PROOF = Symbol('validated')

/**
 * Proof that texts have passed the limits of a service. Services of this package take it from one
 * another, so that a text is checked once however many services it goes through.
 */
export class ValidatedTexts {
  /** The texts as the caller gave them, lone surrogates replaced by U+FFFD. */
  readonly texts: readonly string[]

  /** @internal */
  constructor(proof: typeof PROOF, texts: readonly string[]) {
    if (proof !== PROOF) throw new TypeError('ValidatedTexts is made by validateTexts only')
    this.texts = texts
  }
}

/** A copy of the caller's array. A bare string is refused: it would be taken for a list of characters. */
export function snapshot(texts: unknown): unknown[] {
  if (Array.isArray(texts)) return Array.from(texts)
  throw new InvalidInputError(`texts must be an array of strings, not ${describe(texts)}`, { option: 'texts' })
}

/** The text at one position, well-formed: a lone surrogate is U+FFFD. */
export function checkText(text: unknown, index: number): string {
  if (typeof text === 'string') return text.toWellFormed()
  throw new InvalidInputError(`text ${index} must be a string, not ${describe(text)}`, { index, option: 'texts' })
}

/** Checks the texts of a request to a service. */
export function validateTexts(texts: unknown): ValidatedTexts {
  const copy = snapshot(texts)
  if (copy.length === 0) {
    throw new InvalidInputError('texts must hold at least one text', { limit: 1, actual: 0, unit: 'texts' })
  }
  if (copy.length > DEFAULT_MAX_BATCH_SIZE) {
    throw new InvalidInputError(
      `texts must hold at most ${DEFAULT_MAX_BATCH_SIZE} texts, not ${copy.length}; split the list or use TextEmbedding, which has no such limit`,
      { limit: DEFAULT_MAX_BATCH_SIZE, actual: copy.length, unit: 'texts' },
    )
  }
  for (let index = 0; index < copy.length; index++) {
    const text = checkText(copy[index], index)
    // A UTF-16 unit needs at most three bytes, so most texts are short enough without a count.
    if (text.length * 3 > MAX_TEXT_BYTES) checkBytes(text, index)
    copy[index] = text
  }
  return new ValidatedTexts(PROOF, copy as string[])
}

function checkBytes(text: string, index: number): void {
  const bytes = Buffer.byteLength(text, 'utf8')
  if (bytes <= MAX_TEXT_BYTES) return
  throw new TextTooLongError(
    `text ${index} has ${bytes} UTF-8 bytes; a service takes at most ${MAX_TEXT_BYTES} per text; split it into shorter ones`,
    { index, limit: MAX_TEXT_BYTES, actual: bytes, unit: 'bytes' },
  )
}

/** A value for an error message: its type, and the value where that is short. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'string') return value.length <= 40 ? JSON.stringify(value) : `a string of ${value.length} units`
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') return String(value)
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'object') return `an object (${value.constructor?.name ?? 'no class'})`
  return `a ${typeof value}`
}
