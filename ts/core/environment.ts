/**
 * What this package reads from the environment, in one place. The addon reads more of it at a model's first
 * use: where models are and how to reach the hub (`HF_HUB_CACHE`, `HF_TOKEN`, ..., from a copy of `process.env`),
 * `SIMILE_THREADS`, `SIMILE_QUEUE_MB` and `SIMILE_ISA`; the guide lists all of it.
 */

import { InvalidInputError } from './errors'
import { describe } from './validation'

/** Output dimensions for `NativeEmbeddingService.fromEnv`. */
export const EMBED_DIM_VARIABLE = 'SIMILE_EMBED_DIM'

/**
 * The dimensions that the environment asks for; `undefined`, which means the model's own, where the
 * variable is absent or blank. Anything but a whole number of at least 1 is an `InvalidInputError`.
 */
export function dimensionsFromEnv(env: Readonly<Record<string, string | undefined>>): number | undefined {
  if (typeof env !== 'object' || env === null) {
    throw new InvalidInputError(`env must be an object of strings, such as process.env, not ${describe(env)}`, {
      option: 'env',
    })
  }
  const found: unknown = env[EMBED_DIM_VARIABLE]
  if (found !== undefined && typeof found !== 'string') {
    throw new InvalidInputError(`${EMBED_DIM_VARIABLE} must be a string, not ${describe(found)}`, {
      option: EMBED_DIM_VARIABLE,
    })
  }
  const value = found?.trim() ?? ''
  if (value === '') return undefined
  const dimensions = Number(value)
  if (/^\d+$/.test(value) && Number.isSafeInteger(dimensions) && dimensions >= 1) return dimensions
  throw new InvalidInputError(
    `${EMBED_DIM_VARIABLE} must be a whole number of at least 1, or blank for the model's own dimensions, not ${describe(value)}`,
    { option: EMBED_DIM_VARIABLE },
  )
}
