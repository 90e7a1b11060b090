/**
 * More texts than fit in memory, one after the other.
 *
 * Contract: rows come in the order of the texts, whatever else goes on; the source is read no further than two
 * windows ahead of what was delivered, so memory is that of three windows; a window is read while the one
 * before it is computed and the one before that is delivered. What goes wrong rejects after the rows of all
 * texts before it, a failure of the model with `index` as a position in the whole stream. An abort rejects at
 * once with the signal's reason. However the stream ends, the source's `return` is called unless the source has
 * ended, and what was begun stops.
 *
 * Nothing happens before the first row is asked for.
 */

import { onAbort, throwIfAborted } from './abort'
import type { Embeddings } from './embeddings'
import { atIndex, InvalidInputError } from './errors'
import { TextWindows } from './text_windows'
import { describe } from './validation'

/** How far a stream is. */
export interface StreamProgress {
  /** Texts that were embedded. */
  readonly texts: number
  /** Their tokens that the model saw. */
  readonly tokens: number
  /** How many of the texts were cut. */
  readonly truncated: number
}

/** Rows one after the other, with what is known of all of them. It can be gone through once. */
export interface EmbeddingStream extends AsyncIterable<Float32Array>, StreamProgress {
  /** Length of every row. */
  readonly dimensions: number
  /** Identity of the vector space: see {@link EmbeddingFacts.contractId}. */
  readonly contractId: string
  /** The rows. `break` ends the source and what was begun. */
  [Symbol.asyncIterator](): AsyncGenerator<Float32Array, void, undefined>
}

/** Checks a function that is told of progress. */
export function progressCallback(value: unknown, name: string): (progress: StreamProgress) => void {
  if (typeof value === 'function') return value as (progress: StreamProgress) => void
  throw new InvalidInputError(`${name} must be a function, not ${describe(value)}`, { option: name })
}

interface Window {
  readonly rows: Embeddings | undefined
  readonly last: boolean
  readonly failure: readonly [unknown] | undefined
}

/** What a stream is made of. */
export interface StreamParts {
  /** What the caller gave for texts. */
  readonly source: unknown
  readonly dimensions: number
  readonly contractId: string
  /** Embeds the texts of one window. */
  readonly embed: (texts: readonly string[], signal: AbortSignal) => Promise<Embeddings>
  readonly signal: AbortSignal | undefined
  readonly onProgress: ((progress: StreamProgress) => void) | undefined
}

/** Windows that are read or computed while another is delivered: one of each. */
const WINDOWS_AHEAD = 2

/** The stream of {@link TextEmbedding.embedStream}. */
export class WindowedStream implements EmbeddingStream {
  readonly dimensions: number
  readonly contractId: string
  readonly #parts: StreamParts
  readonly #windows: TextWindows
  readonly #controller = new AbortController()
  #reading: Promise<unknown> = Promise.resolve()
  #computing = 0
  #rows: AsyncGenerator<Float32Array, void, undefined> | undefined
  #progress: StreamProgress = { texts: 0, tokens: 0, truncated: 0 }

  constructor(parts: StreamParts) {
    this.dimensions = parts.dimensions
    this.contractId = parts.contractId
    this.#parts = parts
    this.#windows = new TextWindows(parts.source, this.#controller.signal)
  }

  get texts(): number {
    return this.#progress.texts
  }

  get tokens(): number {
    return this.#progress.tokens
  }

  get truncated(): number {
    return this.#progress.truncated
  }

  [Symbol.asyncIterator](): AsyncGenerator<Float32Array, void, undefined> {
    this.#rows ??= this.#deliver()
    return this.#rows
  }

  async *#deliver(): AsyncGenerator<Float32Array, void, undefined> {
    const { signal, onProgress } = this.#parts
    const { signal: ended } = this.#controller
    let release: (() => void) | undefined
    try {
      throwIfAborted(signal)
      release = signal && onAbort(signal, () => this.#controller.abort(signal.reason))
      const ahead = Array.from({ length: WINDOWS_AHEAD }, () => this.#begin())
      for (;;) {
        const { rows, last, failure } = await (ahead.shift() as Promise<Window>)
        if (!last) ahead.push(this.#begin())
        if (rows !== undefined) {
          this.#count(rows)
          onProgress?.(this.#progress)
          for (const row of rows) {
            throwIfAborted(ended)
            yield row
          }
        }
        if (failure !== undefined) throw failure[0]
        if (last) return
      }
    } catch (error) {
      this.#controller.abort(error)
      // As in `for await`, the error that came first is the one that is told.
      this.#windows.close().catch(() => {})
      throw error
    } finally {
      release?.()
      this.#controller.abort()
      await this.#windows.close()
    }
  }

  /** Reads the window after the last that was begun, and embeds it. */
  #begin(): Promise<Window> {
    const read = this.#reading.then(() => this.#windows.next())
    const window = read.then(async ({ texts, first, last, failure }) => ({
      rows: texts.length === 0 ? undefined : await this.#embed(texts, first),
      last,
      failure,
    }))
    this.#reading = read.catch(() => {})
    // Told when its turn comes, or never, when the stream ends before.
    window.catch(() => {})
    return window
  }

  async #embed(texts: readonly string[], first: number): Promise<Embeddings> {
    this.#computing++
    this.#windows.idle = false
    try {
      return await this.#parts.embed(texts, this.#controller.signal)
    } catch (error) {
      throw atIndex(error, (index) => first + index)
    } finally {
      this.#computing--
      if (this.#computing === 0) this.#windows.idle = true
    }
  }

  #count(rows: Embeddings): void {
    const { texts, tokens, truncated } = this.#progress
    this.#progress = Object.freeze({
      texts: texts + rows.length,
      tokens: rows.tokens.reduce((sum, { embedded }) => sum + embedded, tokens),
      truncated: truncated + rows.truncated,
    })
  }
}
