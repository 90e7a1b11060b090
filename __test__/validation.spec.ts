/** What a service takes and what it refuses, at the exact limits. */

import test from 'ava'
import {
  DEFAULT_MAX_BATCH_SIZE,
  EmbedError,
  type EmbedErrorFacts,
  MAX_TEXT_BYTES,
  NativeEmbeddingService,
  type ServiceEmbedOptions,
} from 'simile'
import { tiny } from './helpers/models.ts'

const service = new NativeEmbeddingService({ model: tiny('tiny-bert-cls') })
const aborted = AbortSignal.abort(new Error('aborted before the call'))

/** The error of a request: its code and facts, or what it is instead. */
async function refusal(texts: unknown, options?: unknown): Promise<Record<string, unknown>> {
  try {
    await service.embed(texts as string[], options as ServiceEmbedOptions)
    return { code: 'none: it was accepted' }
  } catch (error) {
    if (!EmbedError.is(error)) return { code: `not an EmbedError: ${error}` }
    const { code, index, limit, actual, unit, option } = error
    return Object.fromEntries(
      Object.entries({ code, index, limit, actual, unit, option }).filter(([, v]) => v !== undefined),
    )
  }
}

const long = (bytes: number) => 'x'.repeat(bytes)
const euros = (count: number) => '€'.repeat(count) // 3 bytes each

const REFUSED: [string, unknown, unknown, EmbedErrorFacts & { code: string }][] = [
  ['a string', 'text', undefined, { code: 'InvalidInput', option: 'texts' }],
  ['nothing', undefined, undefined, { code: 'InvalidInput', option: 'texts' }],
  ['null', null, undefined, { code: 'InvalidInput', option: 'texts' }],
  ['an object like an array', { length: 1, 0: 'a' }, undefined, { code: 'InvalidInput', option: 'texts' }],
  ['a set', new Set(['a']), undefined, { code: 'InvalidInput', option: 'texts' }],
  ['no text', [], undefined, { code: 'InvalidInput', limit: 1, actual: 0, unit: 'texts' }],
  ['1,001 texts', Array(1001).fill('a'), undefined, { code: 'InvalidInput', limit: 1000, actual: 1001, unit: 'texts' }],
  ['a number among texts', ['a', 1], undefined, { code: 'InvalidInput', index: 1, option: 'texts' }],
  ['a hole', Array(1), undefined, { code: 'InvalidInput', index: 0, option: 'texts' }],
  ['a String object', [Object('a')], undefined, { code: 'InvalidInput', index: 0, option: 'texts' }],
  [
    '32,769 bytes',
    ['a', long(32769)],
    undefined,
    { code: 'TextTooLong', index: 1, limit: 32768, actual: 32769, unit: 'bytes' },
  ],
  [
    'fewer characters than the limit, but more bytes',
    [euros(10923)],
    undefined,
    { code: 'TextTooLong', index: 0, limit: 32768, actual: 32769, unit: 'bytes' },
  ],
  [
    'surrogate pairs',
    ['😀'.repeat(8193)],
    undefined,
    { code: 'TextTooLong', index: 0, limit: 32768, actual: 32772, unit: 'bytes' },
  ],
  [
    'lone surrogates, which count as U+FFFD',
    ['\ud800'.repeat(10923)],
    undefined,
    { code: 'TextTooLong', index: 0, limit: 32768, actual: 32769, unit: 'bytes' },
  ],
  ['an unknown option', ['a'], { batchsize: 2 }, { code: 'InvalidInput', option: 'batchsize' }],
  ['an option of another class', ['a'], { output: 'flat' }, { code: 'InvalidInput', option: 'output' }],
  ['a name of Object.prototype as an option', ['a'], { toString: 1 }, { code: 'InvalidInput', option: 'toString' }],
  ['options that are no object', ['a'], 'fast', { code: 'InvalidInput' }],
  ['options null', ['a'], null, { code: 'InvalidInput' }],
  ['batch size 0', ['a'], { batchSize: 0 }, { code: 'InvalidInput', option: 'batchSize', limit: 1, actual: 0 }],
  ['batch size 1.5', ['a'], { batchSize: 1.5 }, { code: 'InvalidInput', option: 'batchSize', limit: 1, actual: 1.5 }],
  ['batch size as text', ['a'], { batchSize: '8' }, { code: 'InvalidInput', option: 'batchSize', limit: 1 }],
  ['an unknown priority', ['a'], { priority: 'high' }, { code: 'InvalidInput', option: 'priority' }],
  ['a signal that is none', ['a'], { signal: {} }, { code: 'InvalidInput', option: 'signal' }],
  ['an instruction that is no text', ['a'], { instruction: 1 }, { code: 'InvalidInput', option: 'instruction' }],
  ['another model', ['a'], { model: 'someone/else' }, { code: 'InvalidInput', option: 'model' }],
]

for (const [what, texts, options, expected] of REFUSED) {
  test(`refused: ${what}`, async (t) => {
    t.deepEqual(await refusal(texts, options), expected)
  })
}

const ACCEPTED: [string, string[]][] = [
  ['one text', ['a']],
  ['an empty text', ['']],
  ['1,000 texts', Array(1000).fill('a')],
  ['32,768 bytes', [long(32768)]],
  ['32,768 bytes in 10,923 characters', [`${euros(10922)}ab`]],
  ['32,768 bytes in surrogate pairs', ['😀'.repeat(8192)]],
]
for (const [what, texts] of ACCEPTED) {
  test(`accepted: ${what}`, async (t) => {
    t.is((await service.embed(texts)).length, texts.length)
  })
}

test('the limits are published', (t) => {
  t.is(DEFAULT_MAX_BATCH_SIZE, 1000)
  t.is(MAX_TEXT_BYTES, 32768)
})

test('checks come in a fixed order: texts, options, model, signal', async (t) => {
  const everythingWrong = { nonsense: 1, model: 'someone/else', signal: aborted }
  t.like(await refusal([], everythingWrong), { limit: 1 })
  t.like(await refusal(Array(1001).fill(long(32769)), everythingWrong), { limit: 1000 })
  t.like(await refusal([long(32769), 1], everythingWrong), { code: 'TextTooLong', index: 0 })
  t.like(await refusal([1, long(32769)], everythingWrong), { code: 'InvalidInput', index: 0 })
  t.like(await refusal(['a'], everythingWrong), { option: 'nonsense' })
  t.like(await refusal(['a'], { model: 'someone/else', signal: aborted }), { option: 'model' })
  const reason = await t.throwsAsync(service.embed(['a'], { signal: aborted }))
  t.is(reason?.message, 'aborted before the call')
})

test('every method of a service has the same limits', async (t) => {
  const tooMany = Array(1001).fill('a')
  for (const call of [
    service.embed(tooMany),
    service.embedQuery(tooMany),
    service.embedPassage(tooMany),
    service.embedWithRole(tooMany, 'generic'),
  ]) {
    await t.throwsAsync(call, { code: 'InvalidInput', message: /at most 1000 texts, not 1001/ })
  }
  await t.throwsAsync(service.embedOne(long(32769)), { code: 'TextTooLong' })
  await t.throwsAsync(service.embedOne(['a'] as unknown as string), {
    code: 'InvalidInput',
    message: /text 0 must be a string/,
  })
  await t.throwsAsync(service.embedWithRole(['a'], 'document' as 'query'), {
    code: 'InvalidInput',
    message: /generic, query, passage, not "document"/,
  })
})

test('the array is copied before the first wait', async (t) => {
  const texts = ['one text', 'another text']
  const expected = await service.embed([...texts])
  const pending = service.embed(texts)
  texts.length = 0
  const rows = await pending
  t.deepEqual(rows.toArrays(), expected.toArrays())
})

test('a text far over the limit is refused without counting its bytes', async (t) => {
  t.deepEqual(await refusal(['é'.repeat(2 ** 20 + 1)]), {
    code: 'TextTooLong',
    index: 0,
    limit: 32768,
    actual: 2 ** 20 + 1,
    unit: 'bytes',
  })
  await t.throwsAsync(service.embed(['é'.repeat(2 ** 20 + 1)]), { message: /at least 1048577 UTF-8 bytes/ })
  t.like(await refusal(['é'.repeat(2 ** 20)]), { actual: 2 ** 21 })
})

/** 1,000 texts that have to be measured, which takes turns of the event loop. The last one is too long. */
const measured = () => [...Array.from({ length: 999 }, (_, i) => `${i}${'é'.repeat(16_000)}`), euros(10923)]

test('texts that have to be measured are checked in turns, in the same order', async (t) => {
  let turns = 0
  let going = true
  const count = () => {
    turns++
    if (going) setImmediate(count)
  }
  setImmediate(count)
  t.like(await refusal(measured(), { nonsense: 1 }), { code: 'TextTooLong', index: 999, actual: 32769 })
  going = false
  t.true(turns > 1, `${turns} turns`)
  t.like(await refusal([...measured().slice(0, 500), 1]), { code: 'InvalidInput', index: 500 })
})

test('texts and options are copied before the first wait, and an abort ends the checks', async (t) => {
  const texts = measured()
  const controller = new AbortController()
  const options: Record<string, unknown> = { signal: controller.signal }
  const pending = service.embed(texts, options)
  texts.length = 0
  options.nonsense = 1
  options.signal = undefined
  queueMicrotask(() => controller.abort(new Error('changed my mind')))
  await t.throwsAsync(pending, { message: 'changed my mind' })
})

test('a request whose texts are being checked is in progress: a disposal waits for it', async (t) => {
  const disposable = new NativeEmbeddingService({ model: tiny('tiny-bert-cls') })
  const pending = disposable.embed(measured().slice(0, 400))
  const disposed = disposable.dispose()
  await t.throwsAsync(disposable.embed(['a']), { code: 'ModelNotLoaded' })
  t.is((await pending).length, 400)
  await disposed
})

test('a prompt is not counted against the limit of a text', async (t) => {
  const prompted = new NativeEmbeddingService({
    model: tiny('tiny-bert-cls'),
    descriptor: { queryTemplate: 'a long prompt in front of the text: {text}' },
  })
  t.is((await prompted.embedQuery([long(MAX_TEXT_BYTES)])).length, 1)
})
