/** Do an engine's vectors say the same as sentence-transformers'? Asked before anything is timed. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { corpusCounts } from './corpora.mjs'
import { REFERENCE } from './paths.mjs'

/** A vector's length may differ from 1 by this much. */
const UNIT = 1e-5

/**
 * Lets an engine embed a whole corpus, which also warms it up.
 *
 * @param {import('./engine_process.mjs').EngineProcess} process
 * @param {string} corpus
 * @returns {Promise<{ min: number, mean: number, maxDifference: number }>} cosine with the reference over all texts, and
 *   the largest difference of a component
 * @throws when a text's cosine is below the engine's `minimumCosine`, or the result has another shape
 */
export async function checkAgreement(process, corpus) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'simile-bench-'))
  try {
    const file = path.join(folder, 'vectors.f32')
    await process.request('embed', { corpus, file })
    const agreement = compare(
      readVectors(file),
      readVectors(path.join(REFERENCE, `${corpus}.f32`)),
      corpusCounts(corpus).texts,
    )
    const { minimumCosine } = process.engine
    if (!(agreement.min >= minimumCosine)) {
      throw new Error(
        `a text has cosine ${agreement.min} with sentence-transformers, at least ${minimumCosine} is expected`,
      )
    }
    return agreement
  } catch (error) {
    throw new Error(`${process.engine.name}, corpus ${corpus}: ${error.message}`, { cause: error })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/**
 * @param {Float32Array} vectors  @param {Float32Array} reference both row after row
 * @param {number} rows
 */
export function compare(vectors, reference, rows) {
  if (vectors.length !== reference.length)
    throw new Error(`${vectors.length} numbers for ${rows} texts, expected ${reference.length}`)
  const width = reference.length / rows
  let min = 1
  let sum = 0
  let maxDifference = 0
  for (let row = 0; row < rows; row++) {
    let dot = 0
    let squares = 0
    let referenceSquares = 0
    for (let i = row * width; i < (row + 1) * width; i++) {
      dot += vectors[i] * reference[i]
      squares += vectors[i] ** 2
      referenceSquares += reference[i] ** 2
      maxDifference = Math.max(maxDifference, Math.abs(vectors[i] - reference[i]))
    }
    if (!(Math.abs(Math.sqrt(squares) - 1) < UNIT))
      throw new Error(`vector ${row} has length ${Math.sqrt(squares)}, expected 1`)
    const cosine = dot / Math.sqrt(squares * referenceSquares)
    min = Math.min(min, cosine)
    sum += cosine
  }
  return { min, mean: sum / rows, maxDifference }
}

function readVectors(file) {
  const { buffer, byteOffset, byteLength } = readFileSync(file)
  return new Float32Array(buffer.slice(byteOffset, byteOffset + byteLength))
}
