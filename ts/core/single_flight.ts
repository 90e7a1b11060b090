/**
 * Requests that miss the same text at the same time wait for one call.
 *
 * Contract: a flight is one call of the inner service for some texts. Whoever needs one of them while it is
 * under way joins; who leaves early leaves alone, and the call is aborted when the last one has left. Its
 * failure is the failure of all who wait, except that one which names a text is theirs who asked for that
 * text: the others' texts are not at fault. What failed is not kept.
 */

import { onAbort } from './abort'
import type { Entry } from './cache'
import { atIndex, EmbedError } from './errors'

/** Entries by key, in the order of the texts that were asked for. */
export type Entries = ReadonlyMap<string, Entry>

/** Gets the entries of some keys. An error's `index` is a position in `keys`. */
export type Fetch = (keys: readonly string[], signal: AbortSignal | undefined) => Promise<Entries>

interface Flight {
  readonly keys: readonly string[]
  readonly entries: Promise<Entries>
  readonly controller: AbortController
  waiting: number
}

/** The calls that are under way. */
export class SingleFlight {
  readonly #flights = new Map<string, Flight>()

  /**
   * The entries of `keys`: of calls under way where there are any, else of `fetch`. `lane` tells apart calls
   * that wait differently: nobody joins one that may come later than their own would.
   */
  async entries(
    keys: readonly string[],
    lane: string,
    fetch: Fetch,
    signal: AbortSignal | undefined,
  ): Promise<Entries> {
    const flights = new Set<Flight>()
    const fresh: string[] = []
    for (const key of keys) {
      const flight = this.#flights.get(lane + key)
      if (flight === undefined) fresh.push(key)
      else flights.add(flight)
    }
    if (fresh.length > 0) flights.add(this.#start(fresh, lane, fetch))
    for (const flight of flights) flight.waiting++
    let waits = true
    const leave = () => {
      if (!waits) return
      waits = false
      for (const flight of flights) {
        flight.waiting--
        if (flight.waiting > 0) continue
        this.#land(flight, lane)
        // Nothing happens to a call that has ended.
        flight.controller.abort(signal?.reason)
      }
    }
    const release = signal && onAbort(signal, leave)
    try {
      const all = await Promise.all(Array.from(flights, (flight) => this.#wait(flight, keys, fetch, signal)))
      return new Map(all.flatMap((entries) => [...entries]))
    } finally {
      release?.()
      leave()
    }
  }

  /** From now on nobody joins what is under way. */
  clear(): void {
    this.#flights.clear()
  }

  #start(keys: readonly string[], lane: string, fetch: Fetch): Flight {
    const controller = new AbortController()
    const entries = fetch(keys, controller.signal)
    const flight: Flight = { keys, entries, controller, waiting: 0 }
    for (const key of keys) this.#flights.set(lane + key, flight)
    const land = () => this.#land(flight, lane)
    entries.then(land, land)
    return flight
  }

  #land(flight: Flight, lane: string): void {
    for (const key of flight.keys) {
      if (this.#flights.get(lane + key) === flight) this.#flights.delete(lane + key)
    }
  }

  /** A flight's entries as one of its passengers sees them: an error's `index` is a position in `keys`, all of the request's. */
  async #wait(
    flight: Flight,
    keys: readonly string[],
    fetch: Fetch,
    signal: AbortSignal | undefined,
  ): Promise<Entries> {
    const asked = new Set(keys)
    try {
      return await flight.entries
    } catch (error) {
      const at = EmbedError.is(error) && error.index !== undefined ? flight.keys[error.index] : undefined
      if (at === undefined) throw error
      if (asked.has(at)) throw atIndex(error, () => keys.indexOf(at))
    }
    const mine = flight.keys.filter((key) => asked.has(key))
    try {
      return await fetch(mine, signal)
    } catch (error) {
      throw atIndex(error, (index) => keys.indexOf(mine[index] as string))
    }
  }
}
