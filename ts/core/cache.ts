/**
 * Vectors of texts that were embedded before.
 *
 * Contract: a row is copied on its way in and on its way out, so nobody can change what is kept. All
 * entries of one model at one length are of one contract: when a model's contract changes, what was kept
 * of the old one goes. The least recently used entry goes first, by number of entries and by bytes.
 *
 * Cost: a lookup hashes its text (sha256, about 3 us, and 1.5 us more for each 1,000 UTF-16 units), which
 * {@link digestsOf} does in turns of the event loop; an entry takes the bytes of its row and about
 * {@link ENTRY_BYTES} more.
 */

import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { TokenCount } from './embeddings'
import type { ModelConfig } from './models'
import type { EmbeddingRole } from './roles'
import { Turns } from './turns'

/** Entries of a cache that is told no capacity: 15 MB of vectors of 384 dimensions, and 10 MB around them. */
export const DEFAULT_CACHE_CAPACITY = 10_000

/** The largest capacity: 300 MB of tables before the first entry. */
export const MAX_CACHE_CAPACITY = 10_000_000

/** Bytes of an entry besides its row: 730 on V8's heap (key, objects, tables), the rest the allocator's. Measured on Node 20. */
export const ENTRY_BYTES = 1000

/** Counters of a cache. */
export interface CacheStats {
  /** Texts that were found, since the cache was made. */
  readonly hits: number
  /** Texts that were not. Hits and misses together are the texts that were asked for, duplicates counted. */
  readonly misses: number
  /** Vectors that are kept now. */
  readonly entries: number
  /** Memory that they take, as far as it can be told. */
  readonly bytes: number
  /** The most entries. */
  readonly capacity: number
  /** Entries that had to go for others, since the cache was made. */
  readonly evictions: number
}

/** What is kept of one text. */
export interface Entry {
  /** Nobody else's memory. */
  readonly row: Float32Array
  /** Absent for a service that counts no tokens. */
  readonly tokens: TokenCount | undefined
  /** Whether the text was cut. */
  readonly cut: boolean
  /** Empty for a service that has none. */
  readonly contractId: string
}

/** Everything that decides what the vectors of a request are, besides its texts. */
export interface Space {
  readonly config: ModelConfig
  readonly role: EmbeddingRole
  readonly instruction: string | undefined
}

/** Whether rows of two entries may be compared, as far as they tell. */
export function sameContract(a: Entry, b: Entry): boolean {
  return a.contractId === b.contractId && a.row.length === b.row.length
}

/** A digest of each text, in turns of the event loop. */
export async function digestsOf(texts: readonly string[], signal: AbortSignal | undefined): Promise<string[]> {
  const turns = new Turns(signal)
  const digests: string[] = []
  for (const text of texts) {
    digests.push(digest(text))
    if (turns.due()) await turns.take()
  }
  return digests
}

/** What stands in front of a text's digest in its key. */
export function keyPrefix({ config: { model, dimensions }, role, instruction }: Space): string {
  return digest(JSON.stringify([model, dimensions, role, instruction ?? null]))
}

/** UTF-16, because that tells apart all texts that JavaScript does, lone surrogates too; 32 characters of a byte each. */
function digest(text: string): string {
  return createHash('sha256').update(text, 'utf16le').digest('binary')
}

interface Kept extends Entry {
  readonly model: string
}

/** A cache with a limit of entries and one of bytes. */
export class EmbeddingCache {
  readonly capacity: number
  readonly #kept: LRUCache<string, Kept> | undefined
  /** One entry of each model that has any: its contract is that of all of them. */
  readonly #contracts = new Map<string, Entry>()
  #hits = 0
  #misses = 0
  #evictions = 0
  #generation = 0
  #closed = false

  constructor(capacity: number, maxBytes: number | undefined) {
    this.capacity = capacity
    if (capacity === 0) return
    this.#kept = new LRUCache({
      max: capacity,
      maxSize: maxBytes ?? Number.MAX_SAFE_INTEGER,
      sizeCalculation: ({ row }) => row.byteLength + ENTRY_BYTES,
      dispose: (_entry, _key, reason) => {
        if (reason === 'evict') this.#evictions++
      },
    })
  }

  /** Whether anything is kept at all. */
  get enabled(): boolean {
    return this.#kept !== undefined && !this.#closed
  }

  /** Changes when the cache is cleared: what was asked for before is not kept. */
  get generation(): number {
    return this.#generation
  }

  /** What is kept under a key, and counts the hit or the miss. */
  get(key: string): Entry | undefined {
    const entry = this.#kept?.get(key)
    if (entry === undefined) this.#misses++
    else this.#hits++
    return entry
  }

  /** Keeps entries of one model that were asked for in a generation, and drops those of another contract of that model. */
  set({ model, dimensions }: ModelConfig, entries: ReadonlyMap<string, Entry>, generation: number): void {
    if (!this.enabled || generation !== this.#generation) return
    const name = JSON.stringify([model, dimensions])
    for (const [key, entry] of entries) {
      const known = this.#contracts.get(name)
      if (known !== undefined && !sameContract(known, entry)) this.#drop(name)
      this.#contracts.set(name, entry)
      this.#kept?.set(key, { ...entry, model: name })
    }
  }

  /** Lets go of all entries. The counters go on. */
  clear(): void {
    this.#generation++
    this.#contracts.clear()
    this.#kept?.clear()
  }

  /** Lets go of all entries and keeps no others. */
  close(): void {
    this.clear()
    this.#closed = true
  }

  stats(): CacheStats {
    return {
      hits: this.#hits,
      misses: this.#misses,
      entries: this.#kept?.size ?? 0,
      bytes: this.#kept?.calculatedSize ?? 0,
      capacity: this.capacity,
      evictions: this.#evictions,
    }
  }

  #drop(model: string): void {
    for (const [key, entry] of [...(this.#kept?.entries() ?? [])]) if (entry.model === model) this.#kept?.delete(key)
  }
}
