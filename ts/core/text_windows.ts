/**
 * Texts of an iterable, a window at a time.
 *
 * Contract: no more is read than the window that is asked for; a window ends when it is full, at the end of
 * the source, at its failure, and, so that a source which waits for our answer gets it, when the source lets
 * us wait and there is nothing else to do. What goes wrong comes with the texts that were read before it, so
 * that none of them is lost. The source's `return` is called once by `close` unless the source has ended.
 *
 * Invariant: while a window of a synchronous source is read the event loop gets its turns.
 */

import { setImmediate } from 'node:timers'
import { onAbort, throwIfAborted } from './abort'
import { InvalidInputError } from './errors'
import { Turns } from './turns'
import { checkText, describe } from './validation'

/** Texts of a window: 16 micro-batches of the default size, so that sorting by length pays. */
export const WINDOW_TEXTS = 512
/** UTF-16 units after which a window is full. */
export const WINDOW_UNITS = 1024 * 1024

/** Texts in the order of the source. */
export interface TextWindow {
  readonly texts: string[]
  /** Position in the source of the first of them. */
  readonly first: number
  /** Nothing comes after these. */
  readonly last: boolean
  /** What went wrong after these texts; it is in a list of one, because anything can be thrown. */
  readonly failure: readonly [unknown] | undefined
}

type Step = IteratorResult<unknown>

/** What a step is when the source lets us wait. */
const LATER = Symbol('later')

/** The iterator of a source; a bare string is refused, it would be taken for a list of characters. */
function open(source: unknown): { iterator: AsyncIterator<unknown> | Iterator<unknown>; synchronous: boolean } {
  if (typeof source === 'object' && source !== null) {
    const { [Symbol.asyncIterator]: waits, [Symbol.iterator]: has } = source as AsyncIterable<unknown> &
      Iterable<unknown>
    if (typeof waits === 'function') return { iterator: waits.call(source), synchronous: false }
    if (typeof has === 'function') return { iterator: has.call(source), synchronous: true }
  }
  throw new InvalidInputError(`texts must be an iterable or async iterable of strings, not ${describe(source)}`, {
    option: 'texts',
  })
}

export class TextWindows {
  readonly #iterator: AsyncIterator<unknown> | Iterator<unknown>
  readonly #synchronous: boolean
  readonly #signal: AbortSignal
  #read = 0
  #ended = false
  #failed = false
  #pending: Promise<Step> | undefined
  #idle = true
  #whenIdle: (() => void) | undefined

  constructor(source: unknown, signal: AbortSignal) {
    const { iterator, synchronous } = open(source)
    this.#iterator = iterator
    this.#synchronous = synchronous
    this.#signal = signal
  }

  /** Tells whether there is nothing to do but to wait for the source. */
  set idle(idle: boolean) {
    this.#idle = idle
    if (idle) this.#whenIdle?.()
  }

  /** The next window; one after the other. Rejects when the signal aborts. */
  async next(): Promise<TextWindow> {
    const texts: string[] = []
    const window = (failure?: readonly [unknown]): TextWindow => {
      const first = this.#read
      this.#read += texts.length
      this.#failed ||= failure !== undefined
      return { texts, first, last: this.#ended || this.#failed, failure }
    }
    const turns = new Turns(this.#signal)
    let units = 0
    while (!this.#ended && !this.#failed && texts.length < WINDOW_TEXTS && units < WINDOW_UNITS) {
      throwIfAborted(this.#signal)
      let step: Step | typeof LATER
      try {
        step = this.#synchronous ? (this.#iterator as Iterator<unknown>).next() : await this.#step(texts.length > 0)
        if (step === LATER) break
        if (typeof step !== 'object' || step === null)
          throw new TypeError(`the iterator gave ${describe(step)} as its result`)
        if (step.done) {
          this.#ended = true
          break
        }
      } catch (error) {
        throwIfAborted(this.#signal)
        this.#ended = true
        return window([error])
      }
      try {
        const text = checkText(step.value, this.#read + texts.length)
        texts.push(text)
        units += text.length
      } catch (error) {
        return window([error])
      }
      if (turns.due()) await turns.take()
    }
    return window()
  }

  /** Ends the source, unless it has ended. Waits for that, unless the source is busy with a text that we asked for. */
  async close(): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    const ending = Promise.resolve(this.#iterator.return?.())
    if (this.#pending === undefined) await ending
    // A source that never answers would never end either; what it says later has nobody to go to.
    else ending.catch(() => {})
  }

  /** The source's next step; {@link LATER} when it lets us wait although there is nothing else to do. */
  #step(mayBreak: boolean): Promise<Step | typeof LATER> {
    this.#pending ??= Promise.resolve((this.#iterator as AsyncIterator<unknown>).next())
    const pending = this.#pending
    return new Promise((resolve, reject) => {
      // One turn of the event loop is time enough for what is there already.
      const wait = () => setImmediate(() => settle(() => resolve(LATER)))
      const settle = (how: () => void) => {
        release()
        if (this.#whenIdle === wait) this.#whenIdle = undefined
        how()
      }
      const release = onAbort(this.#signal, () => settle(() => reject(this.#signal.reason)))
      const arrived = (how: () => void) => {
        if (this.#pending === pending) this.#pending = undefined
        settle(how)
      }
      pending.then(
        (step) => arrived(() => resolve(step)),
        (error) => arrived(() => reject(error)),
      )
      if (!mayBreak) return
      this.#whenIdle = wait
      if (this.#idle) wait()
    })
  }
}
