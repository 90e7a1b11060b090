/** Prompts: put in front of a text once, by role. */

import test from 'ava'
import { type EmbeddingRole, NativeEmbeddingService, TextEmbedding } from 'simile'
import { tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const FOLDER = tiny('tiny-bert-mean-pooler')
const prompted = {
  queryTemplate: 'query: {text}',
  passageTemplate: 'passage: {text} end',
}
const plain = await TextEmbedding.load(FOLDER)
const model = await TextEmbedding.load(FOLDER, { descriptor: prompted })
const only = async (rows: Promise<Float32Array[]>) => bytes((await rows)[0] as Float32Array)

test('each role embeds the text in its own prompt, and embed in none', async (t) => {
  const text = 'the quick brown fox'
  t.is(await only(model.embed([text])), await only(plain.embed([text])))
  t.is(await only(model.queryEmbed([text])), await only(plain.embed([`query: ${text}`])))
  t.is(await only(model.passageEmbed([text])), await only(plain.embed([`passage: ${text} end`])))
  t.deepEqual(await model.queryTokenCount([text]), await plain.tokenCount([`query: ${text}`]))
  t.deepEqual(await model.passageTokenCount([text]), await plain.tokenCount([`passage: ${text} end`]))
})

test('a model without prompts embeds the same in every role', async (t) => {
  const none = await TextEmbedding.load(FOLDER, { descriptor: { queryTemplate: null, passageTemplate: null } })
  const text = 'the quick brown fox'
  const [generic, query, passage] = await Promise.all([
    only(none.embed([text])),
    only(none.queryEmbed([text])),
    only(none.passageEmbed([text])),
  ])
  t.is(query, generic)
  t.is(passage, generic)
})

test('a prompt that the model files give is used', async (t) => {
  const cls = await TextEmbedding.load(tiny('tiny-bert-cls'))
  const { queryTemplate, origins } = cls.descriptor
  t.is(origins.queryTemplate, 'files')
  t.truthy(queryTemplate)
  const text = 'the quick brown fox'
  const written = (queryTemplate as string).replace('{text}', text)
  t.is(await only(cls.queryEmbed([text])), await only(cls.embed([written])))
  t.not(await only(cls.queryEmbed([text])), await only(cls.embed([text])))
})

test('braces of a text are text', async (t) => {
  const text = 'use {text} and {instruction} here'
  t.is(await only(model.queryEmbed([text])), await only(plain.embed([`query: ${text}`])))
})

test('an instruction goes into its place; without a place it is refused', async (t) => {
  const instructed = await TextEmbedding.load(FOLDER, {
    descriptor: { queryTemplate: '{instruction}: {text}', defaultInstruction: 'find' },
  })
  t.is(
    await only(instructed.queryEmbed(['fox'], { instruction: 'name it' })),
    await only(plain.embed(['name it: fox'])),
  )
  t.is(await only(instructed.queryEmbed(['fox'])), await only(plain.embed(['find: fox'])))
  await t.throwsAsync(model.queryEmbed(['fox'], { instruction: 'find' }), {
    code: 'InvalidInput',
    message: /instruction/,
  })
  await t.throwsAsync(model.embed(['fox'], { instruction: 'find' }), { code: 'InvalidInput', message: /instruction/ })
})

test('a template must hold the text once', async (t) => {
  for (const queryTemplate of ['query: ', '{text}{text}', '']) {
    await t.throwsAsync(TextEmbedding.load(FOLDER, { descriptor: { queryTemplate } }), {
      instanceOf: Error,
      message: /\{text\}/,
    })
  }
})

test('the roles of a service are the same ones', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER, descriptor: prompted })
  const texts = ['the dog', 'the quick brown fox']
  const same: [EmbeddingRole, Promise<Float32Array[]>, Promise<Float32Array[]>][] = [
    ['generic', service.embed(texts), model.embed(texts)],
    ['query', service.embedQuery(texts), model.queryEmbed(texts)],
    ['passage', service.embedPassage(texts), model.passageEmbed(texts)],
  ]
  for (const [role, byName, expected] of same) {
    const rows = (await expected).map(bytes)
    t.deepEqual((await byName).map(bytes), rows, role)
    t.deepEqual((await service.embedWithRole(texts, role)).map(bytes), rows, role)
  }
  t.is(bytes(await service.embedOne('the dog')), await only(model.embed(['the dog'])))
})
