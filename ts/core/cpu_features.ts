/**
 * What was chosen for this processor, for bug reports.
 */

import { native, settled } from './native'

/** What computes on this machine. */
export interface CpuFeatures {
  /** The instruction set that models loaded from now on use: `'avx512'`, `'avx2'` or `'portable'`. `SIMILE_ISA` forces one. */
  readonly isa: string
  /** Every instruction set that this processor has, the fastest first. */
  readonly available: readonly string[]
  /** Threads that compute. `SIMILE_THREADS` and the option `threads` set their number. */
  readonly threads: number
  /** Processors that this process may use: affinity and container quota. */
  readonly parallelism: number
  /** What the addon was built for, for example `'x86_64'`. */
  readonly architecture: string
}

/**
 * What was chosen for this processor. Loads the addon, no model.
 *
 * @throws {@link InvalidInputError} for a value of `SIMILE_ISA`, `SIMILE_THREADS` or `SIMILE_QUEUE_MB` that is
 *   not allowed.
 */
export function cpuFeatures(): CpuFeatures {
  return settled(native().cpuFeatures())
}
