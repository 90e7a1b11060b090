/** Long texts in chunks that are embedded whole. */

import test from 'ava'
import { type ChunkOptions, EMBEDDING_ROLES, TextEmbedding } from 'simile'
import { MINILM, real, tiny } from './helpers/models.ts'

const minilm = await TextEmbedding.load(MINILM, real(MINILM))
const prompted = await TextEmbedding.load(tiny('tiny-bert-mean-pooler'), {
  descriptor: {
    queryTemplate: 'query: {text}',
    passageTemplate: '{instruction} {text} end',
    defaultInstruction: 'a b',
  },
})

const TEXTS: [string, string][] = [
  ['prose', 'The quick brown fox jumps over the lazy dog, and nobody is amused. '.repeat(40)],
  ['one line', 'short'],
  ['emoji', '👩‍👩‍👧‍👦 👍🏽 🇩🇪 '.repeat(60)],
  ['emoji without a blank', '🙂'.repeat(700)],
  ['CJK', '検索エンジンは文書のベクトルを比べる。'.repeat(40)],
  ['combining marks', 'Zu\u0308rich a\u0323\u0308 '.repeat(80)],
  ['NUL and controls', 'a\0b \u0001\u0007 c '.repeat(90)],
  ['lone surrogates', 'x\ud800y \udc00 \ud83d\ud83d🙂 '.repeat(80)],
  ['a word of 5,000 letters', `before ${'x'.repeat(5000)} after`],
  ['a word of many tokens', 'pneumonoultramicroscopicsilicovolcanoconiosis'.repeat(2)],
  ['CRLF', 'first line\r\nsecond line\r\n\r\n'.repeat(60)],
  ['odd white space', 'a\u00a0b\u3000c\u2028d\ufeffe '.repeat(80)],
  ['code', 'if (a[i]!==b){return{c:"d\\n"}}//'.repeat(40)],
  ['special tokens in words', '[SEP] [CLS] plain '.repeat(80)],
]

for (const [what, source] of TEXTS) {
  test(`every chunk fits, nothing is lost: ${what}`, async (t) => {
    const wrong: string[] = []
    for (const [model, maxTokens] of [
      [minilm, undefined],
      [minilm, 16],
      [minilm, 4],
      [prompted, undefined],
      [prompted, 13],
    ] as const) {
      for (const role of EMBEDDING_ROLES) {
        for (const overlap of [0, 1, 3]) {
          if (maxTokens === 4 && overlap > 1) continue
          const options: ChunkOptions = { role, overlap, maxTokens }
          const chunks = await model.chunkText(source, options)
          const say = (message: string) => wrong.push(`${JSON.stringify(options)}: ${message}`)
          const parts = chunks.map(({ text }) => text)
          const [embed, count] = {
            generic: [model.embed, model.tokenCount] as const,
            query: [model.queryEmbed, model.queryTokenCount] as const,
            passage: [model.passageEmbed, model.passageTokenCount] as const,
          }[role]
          const counts = await count.call(model, parts)
          // Embedding all of them with the real model takes most of a minute, and says no more.
          if (model === prompted || (maxTokens === undefined && overlap === 0 && role === 'generic')) {
            const { truncated } = await embed.call(model, parts)
            if (truncated > 0) say(`${truncated} chunks were cut`)
          }
          let end = 0
          let start = -1
          chunks.forEach((chunk, i) => {
            if (chunk.text !== source.slice(chunk.start, chunk.end)) say(`chunk ${i} is another text`)
            if (counts[i] !== chunk.tokens) say(`chunk ${i}: ${counts[i]} tokens, not ${chunk.tokens}`)
            if (chunk.tokens > (maxTokens ?? model.maxLength)) say(`chunk ${i} has ${chunk.tokens} tokens`)
            if (chunk.start <= start || chunk.end <= end) say(`chunk ${i} does not get on`)
            if (source.slice(end, chunk.start).trim() !== '') say(`lost before chunk ${i}`)
            if (overlap === 0 && chunk.start < end) say(`chunk ${i} overlaps`)
            if (chunk.text.trim() !== chunk.text) say(`chunk ${i} has white space around it`)
            for (const at of [chunk.start, chunk.end]) {
              if (/^[\ud800-\udbff][\udc00-\udfff]$/.test(source.slice(at - 1, at + 1))) say(`chunk ${i} splits a pair`)
            }
            ;({ start, end } = chunk)
          })
          if (source.slice(end).trim() !== '') say('the end is lost')
        }
      }
    }
    t.deepEqual(wrong.slice(0, 10), [])
  })
}

test('words stay whole, and chunks are as large as they may be', async (t) => {
  const source = 'the quick brown fox jumps over the lazy dog again and again and again'
  const chunks = await minilm.chunkText(source, { maxTokens: 7 })
  t.deepEqual(
    chunks.map(({ text }) => text),
    ['the quick brown fox jumps', 'over the lazy dog again', 'and again and again'],
  )
  t.deepEqual(chunks[1], { text: 'over the lazy dog again', start: 26, end: 49, tokens: 7 })
})

test('overlap: neighbours share so many tokens', async (t) => {
  const source = 'one two three four five six seven eight'
  const text = async (options: ChunkOptions) => (await minilm.chunkText(source, options)).map(({ text }) => text)
  t.deepEqual(await text({ maxTokens: 6, overlap: 1 }), ['one two three four', 'four five six seven', 'seven eight'])
  t.deepEqual(await text({ maxTokens: 6, overlap: 3 }), [
    'one two three four',
    'two three four five',
    'three four five six',
    'four five six seven',
    'five six seven eight',
  ])
})

test('a blank text has no chunks', async (t) => {
  for (const blank of ['', ' ', '\r\n\t', '\ufeff'])
    t.deepEqual(await minilm.chunkText(blank), [], JSON.stringify(blank))
})

test('what is refused', async (t) => {
  for (const [text, options, expected] of [
    [7, {}, { code: 'InvalidInput', option: 'text' }],
    [['a'], {}, { code: 'InvalidInput', option: 'text' }],
    ['a', { maxTokens: 2 }, { code: 'InvalidInput', option: 'maxTokens', limit: 3, actual: 2, unit: 'tokens' }],
    ['', { maxTokens: 2 }, { code: 'InvalidInput', option: 'maxTokens' }],
    ['a', { maxTokens: 257 }, { code: 'InvalidInput', option: 'maxTokens', limit: 256, actual: 257 }],
    [
      'a',
      { maxTokens: 10, overlap: 8 },
      { code: 'InvalidInput', option: 'overlap', limit: 7, actual: 8, unit: 'tokens' },
    ],
    ['a', { overlap: -1 }, { code: 'InvalidInput', option: 'overlap' }],
    ['a', { instruction: 'find' }, { code: 'InvalidInput', option: 'instruction' }],
    ['a', { role: 'document' }, { code: 'InvalidInput', option: 'role' }],
    ['a', { size: 3 }, { code: 'InvalidInput', option: 'size' }],
    ['a', { signal: AbortSignal.abort(new Error('no')) }, { message: 'no' }],
  ] as const) {
    const error = await t.throwsAsync(minilm.chunkText(text as string, options as ChunkOptions))
    t.like(error, expected, JSON.stringify(options))
  }
  const gone = await TextEmbedding.load(tiny('tiny-bert-cls'))
  await gone.dispose()
  await t.throwsAsync(gone.chunkText('a'), { code: 'ModelNotLoaded' })
})

test('an abort stops at once, and a query does not wait for a long text', async (t) => {
  const book = 'It was a dark and stormy night, and the rain fell in torrents. '.repeat(40_000)
  const controller = new AbortController()
  const pending = minilm.chunkText(book, { signal: controller.signal })
  const first = await Promise.race([pending.then(() => 'book'), minilm.queryEmbed(['who waits?']).then(() => 'query')])
  t.is(first, 'query')
  controller.abort(new Error('enough'))
  await t.throwsAsync(pending, { message: 'enough' })
  t.is((await minilm.chunkText('fine')).length, 1)
})
