/** Errors as a program meets them: class, code, facts. */

import vm from 'node:vm'
import test from 'ava'
import * as simile from 'simile'
import { EMBED_ERROR_CODES, EmbedError, InternalError, InvalidInputError, TextTooLongError } from 'simile'

test('every code has a class of its own that says so', (t) => {
  const wrong: string[] = []
  for (const code of EMBED_ERROR_CODES) {
    const Class = (simile as unknown as Record<string, new (message: string) => EmbedError>)[`${code}Error`]
    if (Class === undefined) {
      wrong.push(`${code}: no class`)
      continue
    }
    const error = new Class('why')
    if (error.code !== code) wrong.push(`${code}: code ${error.code}`)
    if (error.name !== `${code}Error`) wrong.push(`${code}: name ${error.name}`)
    if (!(error instanceof EmbedError) || !(error instanceof Error)) wrong.push(`${code}: not an EmbedError`)
    if (String(error) !== `${code}Error: why`) wrong.push(`${code}: prints as ${error}`)
    if (!error.stack?.startsWith(`${code}Error: why`)) wrong.push(`${code}: stack begins ${error.stack?.slice(0, 40)}`)
  }
  t.deepEqual(wrong, [])
  t.is(EMBED_ERROR_CODES.length, 12)
})

test('facts are fields, and only those that are there', (t) => {
  const cause = new Error('underneath')
  const error = new TextTooLongError('text 3 is too long', { index: 3, limit: 10, actual: 11, unit: 'bytes', cause })
  t.like(error, { index: 3, limit: 10, actual: 11, unit: 'bytes', cause, code: 'TextTooLong' })
  t.false('model' in error)
  t.deepEqual(Object.keys(error).sort(), ['actual', 'code', 'index', 'limit', 'unit'])
  t.false('cause' in new InternalError('bare'))
})

test('EmbedError.is goes by code, so it holds across realms and copies of the package', (t) => {
  const error = new InvalidInputError('wrong')
  t.true(EmbedError.is(error))
  t.true(EmbedError.is(error, 'InvalidInput'))
  t.false(EmbedError.is(error, 'Internal'))

  const foreign: unknown = vm.runInNewContext(
    `Object.assign(new Error('wrong'), { name: 'InvalidInputError', code: 'InvalidInput', index: 2 })`,
  )
  t.false(foreign instanceof EmbedError)
  t.true(EmbedError.is(foreign, 'InvalidInput'))

  for (const other of [
    null,
    undefined,
    'InvalidInput',
    new Error('x'),
    { code: 'InvalidInput' },
    { code: 'ENOENT', name: 'Error' },
  ]) {
    t.false(EmbedError.is(other), String(other))
  }
})
