/** Where the tests' models and reference vectors are. A test that needs one that is not there fails and says how to get it. */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readTensors } from './safetensors.ts'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const FIXTURES = join(ROOT, '__test__', 'fixtures')

/** A Hugging Face cache with the real models. */
export const HUB = process.env.SIMILE_TEST_MODELS ?? join(ROOT, '.models', 'hub')

export const MINILM = 'sentence-transformers/all-MiniLM-L6-v2'
export const MINILM_L3 = 'sentence-transformers/paraphrase-MiniLM-L3-v2'

/** The options that find a real model; throws where it is not there. */
export function real(id: string): { cacheDir: string } {
  if (!existsSync(join(HUB, `models--${id.replace('/', '--')}`, 'refs', 'main'))) {
    throw new Error(`${id} is not in ${HUB}: run "npm run models" once`)
  }
  return { cacheDir: HUB }
}

/** Folder of a committed toy checkpoint. */
export function tiny(name: string): string {
  const folder = join(FIXTURES, 'tiny', name)
  if (!existsSync(join(folder, 'config.json')))
    throw new Error(`${folder} is not there; it is committed with the tests`)
  return folder
}

export interface TinyGolden {
  kind: string
  /** Not of a static model. */
  max_seq_length?: number
  texts: string[]
  ids: number[][]
  /** Not of a static model. */
  raw?: number[][]
  vectors: number[][]
}

/** Names of the toy checkpoints that hold a model for `TextEmbedding`: encoders and static models. */
export function tinyNames(): string[] {
  const names = readdirSync(join(FIXTURES, 'tiny')).filter((name) => {
    if (!existsSync(join(FIXTURES, 'tiny', name, 'golden.json'))) return false
    return ['dense', 'static'].includes(tinyGolden(name).kind)
  })
  if (names.length !== 26) throw new Error(`${names.length} checkpoints in ${FIXTURES}/tiny`)
  return names.sort()
}

export function tinyGolden(name: string): TinyGolden {
  const golden = JSON.parse(readFileSync(join(tiny(name), 'golden.json'), 'utf8'))
  // Its own reference rounds every mean to 16 bits.
  if (name === 'tiny-static-f16') golden.vectors = otherReference('tiny-static').f32
  return golden
}

/** Reference vectors of toy checkpoints in other settings. */
function otherReference(name: string): { f32: number[][] } {
  return JSON.parse(readFileSync(join(FIXTURES, 'reference', `${name}.json`), 'utf8'))
}

export interface Reference {
  max_seq_length: number
  dim: number
  items: { text: string; ids: number[]; tokens_before_truncation: number }[]
  /** What sentence-transformers gives, row after row. */
  final: Float32Array
}

/** Reference vectors of a real model. */
export function reference(id: string): Reference {
  const path = join(FIXTURES, 'reference', id.replace('/', '--'))
  const table = JSON.parse(readFileSync(`${path}.json`, 'utf8'))
  return { ...table, final: f32(`${path}.safetensors`, 'final') }
}

/** One f32 tensor of a safetensors file. */
function f32(path: string, name: string): Float32Array {
  const tensor = readTensors(path).get(name)
  if (tensor?.dtype !== 'F32') throw new Error(`${path}: ${name} is ${tensor?.dtype ?? 'not there'}`)
  const { buffer, byteOffset, byteLength } = tensor.bytes
  return new Float32Array(buffer, byteOffset, byteLength / 4)
}
