/** The registry: what is told of models before anything of them is here. */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import test from 'ava'
import { DEFAULT_MODEL, describeModel, listModels, type ModelFilter } from 'simile'
import { ROOT } from './helpers/models.ts'
import { registryTables } from './helpers/registry_table.ts'

test('models by kind and family, the default first', (t) => {
  const count = (filter?: ModelFilter) => listModels(filter).length
  t.is(listModels()[0]?.id, DEFAULT_MODEL)
  t.deepEqual([count({ kind: 'dense' }), count({ kind: 'sparse' })], [39, 6])
  t.deepEqual([count({ kind: 'multi-vector' }), count({ kind: 'rerank' }), count()], [4, 8, 57])
  t.deepEqual(
    listModels({ kind: 'rerank', family: 'qwen3' }).map(({ id }) => id),
    ['0.6B', '4B', '8B'].map((size) => `Qwen/Qwen3-Reranker-${size}`),
  )
  t.deepEqual(listModels({ kind: 'dense', family: 'bm25' }), [])
  t.is(listModels({}).length, count())
  listModels().length = 0
  t.is(count(), 57, 'a list that was given away is its owner’s')
})

test('all that is known of a model', (t) => {
  t.deepEqual(describeModel('Qwen/Qwen3-Embedding-0.6B'), {
    id: 'Qwen/Qwen3-Embedding-0.6B',
    kind: 'dense',
    family: 'qwen3',
    dimensions: 1024,
    maxLength: 8192,
    pooling: ['lasttoken'],
    queryTemplate: 'Instruct: {instruction}\nQuery:{text}',
    passageTemplate: null,
    defaultInstruction: 'Given a web search query, retrieve relevant passages that answer the query',
    normalize: true,
    layerNormBeforeCut: false,
    matryoshka: true,
    license: 'Apache-2.0',
    sizeBytes: 1_190_000_000,
    gated: false,
    revision: null,
    evidence: 'tiny checkpoint',
    notes: 'its authors cut vectors to 32 dimensions at least',
    unsupported: null,
  })
  t.like(describeModel('google/embeddinggemma-300m'), { gated: true, matryoshka: [128, 256, 512] })
  t.like(describeModel(DEFAULT_MODEL), { evidence: 'real weights', kind: 'dense' })
  t.like(describeModel('qdrant/bm25'), { dimensions: null, maxLength: null, sizeBytes: 0 })
  t.regex(describeModel('naver/splade-code-06B')?.unsupported ?? '', /Qwen3/)
})

test('a model of several kinds: the dense row, or that of the kind', (t) => {
  t.like(describeModel('BAAI/bge-m3'), { kind: 'dense', dimensions: 1024 })
  t.like(describeModel('BAAI/bge-m3', { kind: 'sparse' }), { kind: 'sparse', dimensions: 250_002 })
  t.is(describeModel('BAAI/bge-m3', { kind: 'rerank' }), undefined)
  t.like(describeModel('colbert-ir/colbertv2.0'), { kind: 'multi-vector', dimensions: 128 })
})

test('whether vectors have length one is said only of models where it is known', (t) => {
  const cases: [string, boolean | null][] = [
    ['sentence-transformers/all-mpnet-base-v2', true],
    ['sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2', false],
    ['sentence-transformers/paraphrase-multilingual-mpnet-base-v2', false],
    ['nomic-ai/nomic-embed-text-v1.5', null],
    ['jinaai/jina-embeddings-v2-base-code', null],
  ]
  for (const [id, normalize] of cases) t.is(describeModel(id)?.normalize, normalize, id)
})

test('the task of a reranker that takes one is that of its row', (t) => {
  for (const { id, family, defaultInstruction } of listModels({ kind: 'rerank' })) {
    t.is(defaultInstruction?.startsWith('Given a web search query') ?? false, family === 'qwen3', id)
  }
})

test('a filter that is none is an error that names the valid set', (t) => {
  const wrong: [unknown, RegExp][] = [
    [{ kind: 'colbert' }, /kind .*multi-vector/],
    [{ family: 'llama' }, /family .*modernbert/],
    [{ size: 1 }, /"size".*kind, family/],
    ['dense', /listModels|object/],
  ]
  for (const [filter, message] of wrong) {
    t.throws(() => listModels(filter as ModelFilter), { code: 'InvalidInput', message })
  }
  t.throws(() => describeModel(DEFAULT_MODEL, { family: 'bert' } as never), { code: 'InvalidInput', message: /family/ })
})

test('docs/registry.md has every row as it is', (t) => {
  const page = join(ROOT, 'docs/registry.md')
  const content = readFileSync(page, 'utf8')
  const [text] = content.split('## Dense', 1) as [string]
  const wanted = text + registryTables(listModels())
  if (process.env.UPDATE_DOCS) writeFileSync(page, wanted)
  else t.is(content, wanted, 'UPDATE_DOCS=1 npx ava __test__/registry.spec.ts writes the tables anew')
  t.true(text.length > 500)
})
