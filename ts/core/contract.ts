/**
 * Whether vectors may be compared: see the guide on the contract id.
 */

import { InvalidInputError, WrongModelLoadedError } from './errors'
import { describe, excerpt } from './validation'

/** A contract id, or what has one: a result of a call, a stream, a loaded model or service. */
export type HasContract = string | WithContractId | WithContract

/** What carries the id of its vectors. */
export interface WithContractId {
  /** See {@link EmbeddingFacts.contractId}. */
  readonly contractId: string
}

/** What makes vectors of one contract. */
export interface WithContract {
  /** See {@link TextEmbedding.contract}. `undefined`, as of a service that has not loaded its model, is refused. */
  readonly contract: string | undefined
}

/**
 * Throws unless both were made the same way, so that their vectors may be compared. Costs nothing: call it
 * where vectors meet, for instance a query's and those of an index.
 *
 * ```ts
 * assertSameContract(stored.contract, model)
 * ```
 *
 * @throws {@link WrongModelLoadedError} with both ids for two vector spaces; {@link InvalidInputError} for
 *   what has no id. An empty id, as of a service that has none, equals no other: nothing is known of it.
 */
export function assertSameContract(a: HasContract, b: HasContract): void {
  const [first, second] = [contractOf(a, 'first'), contractOf(b, 'second')]
  if (first === second) return
  throw new WrongModelLoadedError(
    `vectors of the contracts ${excerpt(first)} and ${excerpt(second)} must not be compared: another model, or other ` +
      'options of it, made them; embed one side again',
  )
}

function contractOf(value: unknown, which: string): string {
  const holder = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>
  const { contractId, contract } = holder
  const id = typeof value === 'string' ? value : (contractId ?? contract)
  if (typeof id === 'string' && id !== '') return id
  const found =
    id === ''
      ? 'an empty one, which equals no other'
      : id === undefined && 'contract' in holder
        ? 'one that is not known yet: a service has it once ensureLoaded() is done, and until it is disposed of'
        : describe(id ?? value)
  throw new InvalidInputError(`the ${which} value must be or have a contract id, not ${found}`, { option: 'contract' })
}
