/** Contracts: which vectors may be compared. */

import test from 'ava'
import { assertSameContract, EmbedError, type HasContract, NativeEmbeddingService, TextEmbedding } from 'simile'
import { tiny } from './helpers/models.ts'

const FOLDER = tiny('tiny-bert-cls')
const model = await TextEmbedding.load(FOLDER)
const other = await TextEmbedding.load(tiny('tiny-bert-max'))

test('whatever has a contract id is compared by it', async (t) => {
  const rows = await new NativeEmbeddingService({ model: FOLDER }).embedQuery(['a'])
  const flat = await model.passageEmbed(['a'], { output: 'flat' })
  const SAME: HasContract[] = [model, rows, flat, model.contract, model.embedStream([]), { contractId: model.contract }]
  for (const a of SAME) for (const b of SAME) t.notThrows(() => assertSameContract(a, b))
  const error = t.throws(() => assertSameContract(rows, other), { code: 'WrongModelLoaded' })
  for (const id of [rows.contractId, other.contract]) t.true(error?.message.includes(id), error?.message)
})

test('a service has the contract of its vectors while its model is loaded', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.is(service.contract, undefined)
  t.throws(() => assertSameContract(model, service), { code: 'InvalidInput', message: /ensureLoaded/ })
  await service.ensureLoaded()
  t.is(service.contract, model.contract)
  t.notThrows(() => assertSameContract(model, service))
  await service.dispose()
  t.is(service.contract, undefined)

  const shorter = new NativeEmbeddingService({ model: FOLDER, dimensions: 8, descriptor: { matryoshka: true } })
  const rows = await shorter.embed(['a'])
  t.is(shorter.contract, rows.contractId, 'at the dimensions of the service')
  t.not(shorter.contract, model.contract)
})

test('what has no id is refused, and an empty one equals no other', (t) => {
  const NONE = ['', { contractId: '' }, { contract: '' }, {}, null, undefined, 7, [], { contractId: 7 }]
  for (const none of NONE as HasContract[]) {
    for (const pair of [
      [none, model],
      [model, none],
      [none, none],
    ] as const) {
      const error = t.throws(() => assertSameContract(pair[0] as HasContract, pair[1] as HasContract))
      t.true(EmbedError.is(error, 'InvalidInput'), String(error))
    }
  }
})
