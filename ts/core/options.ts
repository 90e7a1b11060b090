/**
 * Options from outside: known by name, right by value.
 *
 * Contract: an option that this package does not know is refused by name with the list of those it
 * knows (a mistyped option that is ignored would be a wrong result); `undefined` is the same as absent;
 * the object that comes back is a copy, so a caller may change theirs at once.
 */

import { isAbortSignal } from './abort'
import { InvalidInputError } from './errors'
import { describe, excerpt } from './validation'

/** Checks one value and gives it back, or throws; `name` is the option's. */
type Check<T> = (value: unknown, name: string) => T

/** One check per known option. */
export type OptionChecks<T> = { readonly [K in keyof T]-?: Check<NonNullable<T[K]> | null> }

/** Options after the checks: what is absent is absent. */
export type Checked<T> = { [K in keyof T]: Exclude<T[K], undefined> }

/** A copy of `options` that holds known options only, each checked. `what` names the call in messages. */
export function checkOptions<T extends object>(what: string, options: unknown, checks: OptionChecks<T>): Checked<T> {
  const known = Object.keys(checks)
  const checked: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(optionsObject(options as object | undefined))) {
    const check = Object.hasOwn(checks, name) ? checks[name as keyof T] : undefined
    if (check === undefined) {
      throw new InvalidInputError(`unknown option "${excerpt(name)}" of ${what}; it knows ${known.join(', ')}`, {
        option: name,
        allowed: known,
      })
    }
    if (value !== undefined) checked[name] = (check as Check<unknown>)(value, name)
  }
  return checked as Checked<T>
}

/** A copy of options that are checked later, so that a caller may change theirs meanwhile. */
export function snapshotOptions<T>(options: T): T {
  return isPlain(options) ? { ...options } : options
}

/**
 * An object that holds options: made by `{}` in this realm or another, or without a prototype. Others (an
 * AbortSignal instead of `{ signal }`, a Map, an instance of a class) have no options of their own to read.
 */
function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

/** The signal of options that are not checked yet, if it may still abort. */
export function pendingSignal(options: unknown): AbortSignal | undefined {
  const { signal } = (options ?? {}) as { signal?: unknown }
  return isAbortSignal(signal) && !signal.aborted ? signal : undefined
}

/** The options as an object; `undefined` is no options, and anything that is no object is refused. */
export function optionsObject<T extends object>(options: T | undefined): Partial<T> {
  if (options === undefined) return {}
  if (isPlain(options)) return options
  throw new InvalidInputError(`options must be a plain object, not ${describe(options)}`)
}

/** A whole number from `least` to `most`, which is by default the largest that crosses into the addon. */
export function wholeNumber(least: number, most = 0xffff_ffff): Check<number> {
  return (value, name) => {
    if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value
    const tooLarge = typeof value === 'number' && value > most
    const bound = tooLarge ? `at most ${most}` : `at least ${least}`
    throw new InvalidInputError(`${name} must be a whole number of ${bound}, not ${describe(value)}`, {
      option: name,
      limit: tooLarge ? most : least,
      ...(typeof value === 'number' && { actual: value }),
    })
  }
}

/** One string of a closed set. */
export function oneOf<const S extends readonly string[]>(allowed: S): Check<S[number]> {
  return (value, name) => {
    if (typeof value === 'string' && allowed.includes(value)) return value
    throw new InvalidInputError(`${name} must be one of ${allowed.join(', ')}, not ${describe(value)}`, {
      option: name,
      allowed,
    })
  }
}

/** Longest name of a model, a revision or a folder, in UTF-16 units: no system has longer paths. */
const MAX_NAME_UNITS = 32_767

/** A string, not blank, no longer than a path can be. */
export const text: Check<string> = (value, name) => {
  if (typeof value === 'string' && value.length > MAX_NAME_UNITS) {
    throw new InvalidInputError(`${name} must have at most ${MAX_NAME_UNITS} units, not ${value.length}`, {
      option: name,
      limit: MAX_NAME_UNITS,
      actual: value.length,
    })
  }
  if (typeof value === 'string' && value.trim() !== '') return value
  throw new InvalidInputError(`${name} must be a string that is not blank, not ${describe(value)}`, { option: name })
}

/** A string, the empty one included. */
export const anyText: Check<string> = (value, name) => {
  if (typeof value === 'string') return value.toWellFormed()
  throw new InvalidInputError(`${name} must be a string, not ${describe(value)}`, { option: name })
}

/** `true` or `false`. */
export const flag: Check<boolean> = (value, name) => {
  if (typeof value === 'boolean') return value
  throw new InvalidInputError(`${name} must be true or false, not ${describe(value)}`, { option: name })
}

/** A function. What it takes is between it and who calls it. */
export function callback<T extends (...values: never[]) => void>(value: unknown, name: string): T {
  if (typeof value === 'function') return value as T
  throw new InvalidInputError(`${name} must be a function, not ${describe(value)}`, { option: name })
}

/** An AbortSignal, of any realm. */
export const signal: Check<AbortSignal> = (value, name) => {
  if (isAbortSignal(value)) return value
  throw new InvalidInputError(`${name} must be an AbortSignal, not ${describe(value)}`, { option: name })
}
