/** Finding models: the registry, folders, packages, the cache. */

import { cpSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test from 'ava'
import { DEFAULT_MODEL, describeModel, listModels, TextEmbedding } from 'simile'
import { run } from './helpers/child.ts'
import { MINILM, ROOT, real, tiny } from './helpers/models.ts'

const scratch = realpathSync(mkdtempSync(join(tmpdir(), 'simile-models-')))
test.after.always(() => rmSync(scratch, { recursive: true, force: true }))

test('every row of the registry is sound', (t) => {
  const models = listModels()
  t.is(models[0]?.id, DEFAULT_MODEL)
  t.is(new Set(models.map(({ id, kind }) => `${kind} ${id}`)).size, models.length)
  const unsound = models.filter(
    ({ id, kind, dimensions, maxLength, pooling, license }) =>
      !id.includes('/') ||
      dimensions === 0 ||
      maxLength === 0 ||
      !license ||
      pooling.length !== (kind === 'dense' ? 1 : 0),
  )
  t.deepEqual(unsound, [])
})

test('describeModel: prompts and all, in any letter case; nothing for a model outside', (t) => {
  t.like(describeModel('intfloat/multilingual-e5-small'), {
    dimensions: 384,
    maxLength: 512,
    queryTemplate: 'query: {text}',
    passageTemplate: 'passage: {text}',
    normalize: true,
    matryoshka: false,
  })
  t.is(describeModel('baai/BGE-small-en-v1.5')?.id, 'BAAI/bge-small-en-v1.5')
  t.is(describeModel('nobody/nothing'), undefined)
  for (const wrong of [null, undefined, 7, {}] as unknown as string[]) {
    t.throws(() => describeModel(wrong), { code: 'InvalidInput', message: /id must be a string/ })
  }
})

test('the package of an installed model is found from the application, and from nowhere else', async (t) => {
  // An application with simile and a model installed, as npm lays them out.
  const app = join(scratch, 'app')
  const modelPackage = join(app, 'node_modules/@simile-models/acme--tiny-model')
  mkdirSync(modelPackage, { recursive: true })
  cpSync(tiny('tiny-bert-cls'), join(modelPackage, 'model'), { recursive: true })
  writeFileSync(
    join(modelPackage, 'package.json'),
    JSON.stringify({
      name: '@simile-models/acme--tiny-model',
      version: '1.0.0',
      simile: { model: 'Acme/Tiny-Model', folder: 'model' },
    }),
  )
  const source = `const { TextEmbedding } = require(${JSON.stringify(ROOT)})
    TextEmbedding.load('Acme/Tiny-Model', { cacheDir: ${JSON.stringify(scratch)} }).then(
      (model) => console.log(model.dimensions, model.descriptor.id),
      (error) => console.log(error.code, error.message))`
  const found = await run(['-e', source], { cwd: app })
  t.is(found.stdout, '32 Acme/Tiny-Model\n', found.stderr)
  const elsewhere = await run(['-e', source], { cwd: scratch })
  t.regex(elsewhere.stdout, /^ModelInitialization/, elsewhere.stderr)
})

test('a folder by relative, absolute and home path', async (t) => {
  const source = (path: string) => `const { TextEmbedding } = require(${JSON.stringify(ROOT)})
    TextEmbedding.load(${JSON.stringify(path)}).then((model) => console.log(model.dimensions), (error) => console.log(error.message))`
  const parent = join(scratch, 'folders')
  cpSync(tiny('tiny-bert-cls'), join(parent, 'my model é'), { recursive: true })
  for (const path of ['./my model é', join(parent, 'my model é'), '~/my model é']) {
    const { stdout, stderr } = await run(['-e', source(path)], { cwd: parent, env: { HOME: parent } })
    t.is(stdout, '32\n', `${path}: ${stderr}`)
  }
})

test('a revision: branch, commit, and one that is not there', async (t) => {
  const { revision } = (await TextEmbedding.load(MINILM, real(MINILM))).descriptor
  t.is((await TextEmbedding.load(MINILM, { ...real(MINILM), revision: 'main' })).descriptor.revision, revision)
  t.is(
    (await TextEmbedding.load(MINILM, { ...real(MINILM), revision: revision as string })).descriptor.revision,
    revision,
  )
  await t.throwsAsync(TextEmbedding.load(MINILM, { ...real(MINILM), revision: 'v9' }), {
    code: 'ModelInitialization',
    message: /v9/,
  })
  for (const wrong of ['../main', 'a b', '-rf']) {
    await t.throwsAsync(TextEmbedding.load(MINILM, { ...real(MINILM), revision: wrong }), { code: 'InvalidInput' })
  }
})

test('dispose: calls in progress finish, later ones are refused, twice is once', async (t) => {
  const model = await TextEmbedding.load(tiny('tiny-bert-cls'))
  const pending = model.embed(Array(300).fill('a text'))
  const disposing = model.dispose()
  await t.throwsAsync(model.embed(['a']), { code: 'ModelNotLoaded' })
  await t.throwsAsync(model.tokenCount(['a']), { code: 'ModelNotLoaded' })
  t.is((await pending).length, 300)
  await disposing
  await model.dispose()
  await t.throwsAsync(model.queryEmbed(['a']), { code: 'ModelNotLoaded', message: /disposed; load it again/ })
  t.is(model.dimensions, 32, 'what was known stays known')
  t.true(Symbol.asyncDispose in model)
})
