/** Comparing vectors. */

import { createHash } from 'node:crypto'

/** The largest difference of two vectors, relative to the largest component where that is above 1. */
export function difference(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  if (actual.length !== expected.length) return Number.POSITIVE_INFINITY
  let worst = 0
  let scale = 1
  for (let i = 0; i < actual.length; i++) {
    const delta = Math.abs((actual[i] as number) - (expected[i] as number))
    if (Number.isNaN(delta)) return Number.POSITIVE_INFINITY
    worst = Math.max(worst, delta)
    scale = Math.max(scale, Math.abs(expected[i] as number))
  }
  return worst / scale
}

/** Bytes of a vector, for comparisons that allow no difference at all. */
export function bytes(row: Float32Array): string {
  return Buffer.from(row.buffer, row.byteOffset, row.byteLength).toString('base64')
}

/** One digest over many rows. */
export function digest(rows: Iterable<Float32Array>): string {
  const hash = createHash('sha256')
  for (const row of rows) hash.update(new Uint8Array(row.buffer, row.byteOffset, row.byteLength))
  return hash.digest('hex')
}

export function norm(row: Float32Array): number {
  return Math.sqrt(row.reduce((sum, x) => sum + x * x, 0))
}
