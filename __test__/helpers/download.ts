/** What tests of downloads share: a hub and an empty cache, and looking into it. */

import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { ExecutionContext } from 'ava'
import { type Asked, COMMIT, etag, type Fault, Hub, type HubOptions, WEIGHTS } from './hub.ts'

/** The files of the toy that a load needs. */
export const MODEL_FILES = [
  '1_Pooling/config.json',
  'config.json',
  'config_sentence_transformers.json',
  'model.safetensors',
  'modules.json',
  'sentence_bert_config.json',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer_config.json',
]

export interface Place {
  hub: Hub
  cacheDir: string
  options: { cacheDir: string; endpoint: string; offline: boolean }
}

/** A hub and an empty cache of one test. */
export async function place(t: ExecutionContext, fault?: Fault, tls?: HubOptions['tls']): Promise<Place> {
  const hub = await Hub.start({ ...(fault && { fault }), ...(tls && { tls }) })
  t.teardown(() => hub.stop())
  const cacheDir = mkdtempSync(join(tmpdir(), 'simile-download-'))
  t.teardown(() => rmSync(cacheDir, { recursive: true, force: true }))
  return { hub, cacheDir, options: { cacheDir, endpoint: hub.url, offline: false } }
}

/** Where the cache has the model. */
export function root(cacheDir: string): string {
  return join(cacheDir, 'models--acme--tiny')
}

/** Where it has the files of the commit. */
export function snapshot(cacheDir: string): string {
  return join(root(cacheDir), 'snapshots', COMMIT)
}

/** Names of what was not received whole. */
export function partialOf(cacheDir: string): string[] {
  const blobs = join(root(cacheDir), 'blobs')
  return existsSync(blobs) ? readdirSync(blobs).filter((name) => name.endsWith('.incomplete')) : []
}

/** Where what was received of the weights is. */
export function partialWeights({ hub, cacheDir }: Place): string {
  return join(root(cacheDir), 'blobs', `${etag(WEIGHTS, hub.files.get(WEIGHTS) as Buffer)}.incomplete`)
}

/** Resolves when so many bytes of the weights are there. Another thread writes them, of which nothing tells. */
export async function received(place: Place, bytes: number): Promise<void> {
  const path = partialWeights(place)
  while (!existsSync(path) || statSync(path).size < bytes) await pause(5)
}

/** A fault of the weights only, so many times. */
export function weights(act: (asked: Asked) => unknown, times = Number.POSITIVE_INFINITY): Fault {
  let left = times
  return (asked) => (asked.file === WEIGHTS && left-- > 0 ? act(asked) : false)
}

/** A fault of everything but files, so many times. */
export function listing(act: (asked: Asked) => unknown, times = Number.POSITIVE_INFINITY): Fault {
  let left = times
  return (asked) => (asked.file === undefined && left-- > 0 ? act(asked) : false)
}
