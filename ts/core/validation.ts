/**
 * The limits of a request to a service.
 *
 * Contract: the caller's array is copied before anything else, in the turn of the call, so what is checked
 * is what is embedded, even where the caller empties the array while the call waits. Checks come in a fixed
 * order, so a request with several faults always gets the same error: an array, not empty, not too many,
 * then each text in turn (a string, not too long). Options, model and signal are checked after the texts,
 * by the caller of this file.
 *
 * The limits are about what the caller passes: a prompt that the service adds is not counted. A lone
 * surrogate counts as the three bytes of U+FFFD, which it becomes when it is encoded.
 *
 * Cost: a UTF-16 unit has one to three bytes, so the length alone settles most texts, in nanoseconds each.
 * Texts of 10,923 to 32,768 units are measured (about 30 us for the longest), with turns of the event loop
 * in between.
 */

import { InvalidInputError, TextTooLongError } from './errors'
import { Turns } from './turns'

/** The most texts that one request to a service may hold. */
export const DEFAULT_MAX_BATCH_SIZE = 1000

/** The most UTF-8 bytes that one text of a request to a service may have. */
export const MAX_TEXT_BYTES = 32_768

/** Most bytes of a UTF-16 unit in UTF-8. A surrogate pair has two units and four bytes. */
const MAX_UNIT_BYTES = 3

/** Longest text in UTF-16 units whose bytes are counted for an error message: about 1 ms. */
const MAX_COUNTED_UNITS = 1024 * 1024

/** Only this file has it, so only this file makes a proof. */
const PROOF = Symbol('validated')

/**
 * Proof that texts have passed the limits of a service. Services of this package take it from one
 * another, so that a text is checked once however many services it goes through.
 */
export class ValidatedTexts {
  /** The texts as the caller gave them. */
  readonly texts: readonly string[]

  /** @internal */
  constructor(proof: typeof PROOF, texts: readonly string[]) {
    if (proof !== PROOF) throw new TypeError('ValidatedTexts is made by validateTexts only')
    this.texts = texts
  }

  /** The texts at these positions, each once, in this order: what was proven of all holds for some. */
  subset(indices: readonly number[]): ValidatedTexts {
    const some = new Set(indices)
    if (some.size !== indices.length) throw new TypeError('a position was given twice')
    return new ValidatedTexts(
      PROOF,
      indices.map((index) => checkText(this.texts[index], index)),
    )
  }
}

/** A proof that came from another service; what only looks like one is refused. */
export function proven(valid: ValidatedTexts): ValidatedTexts {
  if (valid instanceof ValidatedTexts) return valid
  throw new InvalidInputError(`checked texts are made by this package only, not ${describe(valid)}`, {
    option: 'texts',
  })
}

/** What a call names its texts. */
export type Label = 'text' | 'document'

/** A copy of the caller's array. A bare string is refused: it would be taken for a list of characters. */
export function snapshot(texts: unknown, label: Label = 'text'): unknown[] {
  if (Array.isArray(texts)) return Array.from(texts)
  throw new InvalidInputError(`${label}s must be an array of strings, not ${describe(texts)}`, { option: `${label}s` })
}

/** The text at one position. */
export function checkText(text: unknown, index: number, label: Label = 'text'): string {
  if (typeof text === 'string') return text
  throw new InvalidInputError(`${label} ${index} must be a string, not ${describe(text)}`, {
    index,
    option: `${label}s`,
  })
}

/**
 * Checks the texts of a request to a service. The array is copied before the first wait. A signal that
 * aborts while texts are measured ends that at the next turn, with its reason.
 */
export async function validateTexts(texts: unknown, signal?: AbortSignal): Promise<ValidatedTexts> {
  // Before the copy: an array of 1e8 holes takes seconds to copy and is refused all the same.
  const count = Array.isArray(texts) ? texts.length : undefined
  if (count === 0) {
    throw new InvalidInputError('texts must hold at least one text', { limit: 1, actual: 0, unit: 'texts' })
  }
  if (count !== undefined && count > DEFAULT_MAX_BATCH_SIZE) {
    throw new InvalidInputError(
      `texts must hold at most ${DEFAULT_MAX_BATCH_SIZE} texts, not ${count}; split the list or use TextEmbedding, which has no such limit`,
      { limit: DEFAULT_MAX_BATCH_SIZE, actual: count, unit: 'texts' },
    )
  }
  const copy = snapshot(texts)
  const turns = new Turns(signal)
  for (let index = 0; index < copy.length; index++) {
    const text = checkText(copy[index], index)
    if (text.length * MAX_UNIT_BYTES <= MAX_TEXT_BYTES) continue
    if (text.length > MAX_TEXT_BYTES || Buffer.byteLength(text, 'utf8') > MAX_TEXT_BYTES) throw tooLong(text, index)
    if (turns.due()) await turns.take()
  }
  return new ValidatedTexts(PROOF, copy as string[])
}

/** The bytes of a text of many megabytes are not counted for the message: its length is bytes enough. */
function tooLong(text: string, index: number): TextTooLongError {
  const counted = text.length <= MAX_COUNTED_UNITS
  const bytes = counted ? Buffer.byteLength(text, 'utf8') : text.length
  return new TextTooLongError(
    `text ${index} has ${counted ? '' : 'at least '}${bytes} UTF-8 bytes; a service takes at most ${MAX_TEXT_BYTES} per text; split it, for instance with chunkText of TextEmbedding`,
    { index, limit: MAX_TEXT_BYTES, actual: bytes, unit: 'bytes' },
  )
}

/** Units of a text that is shown whole in a message: most paths are shorter. */
const SHOWN_UNITS = 300

/** A text for an error message: whole, or its beginning and its length where it is long. */
export function excerpt(text: string, shown = SHOWN_UNITS): string {
  if (text.length <= shown) return text
  return `${text.slice(0, shown).toWellFormed()}… (${text.length} units)`
}

/** A value for an error message: its type, and the value where that is short. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'string') return value.length <= 40 ? JSON.stringify(value) : `a string of ${value.length} units`
  if (typeof value === 'bigint') return excerpt(String(value), 40)
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'object') {
    const name: unknown = value.constructor?.name
    return `an object (${typeof name === 'string' ? excerpt(name) : 'no class'})`
  }
  return `a ${typeof value}`
}
