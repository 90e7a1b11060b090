/** What is known to fail before a download fails before it: nothing but the configuration is fetched. */

import { existsSync } from 'node:fs'
import test from 'ava'
import { TextCrossEncoder, TextEmbedding } from 'simile'
import { place, snapshot } from './helpers/download.ts'
import { ID } from './helpers/hub.ts'

test('an architecture that is not supported, before its weights', async (t) => {
  const cases: [string, object, RegExp][] = [
    ['another architecture', { model_type: 'llama' }, /llama.*bert/s],
    ['an option of a known one', { hidden_act: 'swish7' }, /hidden_act.*swish7/s],
  ]
  for (const [name, change, message] of cases) {
    const { hub, cacheDir, options } = await place(t)
    const config = { ...JSON.parse(hub.files.get('config.json')?.toString() ?? ''), ...change }
    hub.files.set('config.json', Buffer.from(JSON.stringify(config)))
    const error = await t.throwsAsync(TextEmbedding.load(ID, options), { message }, name)
    t.is((error as { code?: string }).code, 'UnsupportedModel', `${name}: ${error?.message}`)
    t.deepEqual(hub.fetched, ['config.json'], name)
    t.false(existsSync(snapshot(cacheDir)), name)
  }
})

test('a model without a type may be a static one: its tensors tell once they are here', async (t) => {
  const { hub, options } = await place(t)
  const config = { ...JSON.parse(hub.files.get('config.json')?.toString() ?? ''), model_type: undefined }
  hub.files.set('config.json', Buffer.from(JSON.stringify(config)))
  await t.throwsAsync(TextEmbedding.load(ID, options), { code: 'UnsupportedModel', message: /model_type/ })
  t.true(hub.fetched.includes('model.safetensors'), hub.fetched.join())
})

test('a model that loads is asked for its configuration once', async (t) => {
  const { hub, options } = await place(t)
  t.is((await TextEmbedding.load(ID, options)).dimensions, 32)
  t.is(hub.fetched.filter((file) => file === 'config.json').length, 1)
  t.is(hub.fetched[0], 'config.json')
})

test('a row of the registry that cannot be loaded opens no connection', async (t) => {
  const { hub, options } = await place(t)
  const cases: [Promise<unknown>, RegExp][] = [
    [TextEmbedding.load('colbert-ir/colbertv2.0', options), /multi-vector.*MultiVectorTextEmbedding/],
    [TextEmbedding.load('qdrant/bm25', options), /sparse.*SparseTextEmbedding/],
    [TextEmbedding.load('naver/splade-code-06B', options), /sparse/],
    [TextCrossEncoder.load('jinaai/jina-reranker-v1-tiny-en', options), /slopes.*jina-reranker-v2/],
    [TextCrossEncoder.load('BAAI/bge-m3', options), /dense or sparse or multi-vector/],
  ]
  for (const [load, message] of cases) await t.throwsAsync(load, { code: 'UnsupportedModel', message })
  t.is(hub.connections, 0)
})

test('a model that is not found: the id that was meant, the terms of a gated one', async (t) => {
  const { options } = await place(t)
  const cases: [string, RegExp][] = [
    ['all-MiniLM-L6-v2', /Did you mean 'sentence-transformers\/all-MiniLM-L6-v2'\?/],
    ['baai/bge-small-en-v1.5', /Did you mean 'BAAI\/bge-small-en-v1.5'\?/],
    ['google/embeddinggemma-300m', /gated.*https:\/\/huggingface\.co\/google\/embeddinggemma-300m.*HF_TOKEN/],
    ['nobody/nothing', /nobody\/nothing/],
  ]
  for (const [id, message] of cases) {
    for (const offline of [true, false]) {
      const error = await t.throwsAsync(TextEmbedding.load(id, { ...options, offline }), {
        code: 'ModelInitialization',
        message,
      })
      if (id.startsWith('nobody')) t.notRegex(error?.message ?? '', /Did you mean|gated/)
    }
  }
})
