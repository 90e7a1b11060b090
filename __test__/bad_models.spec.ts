/** Models that are not there, broken or foreign: each a typed error that says what and what to do. */

import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type ExecutionContext } from 'ava'
import { EmbedError, type EmbedErrorCode, TextEmbedding } from 'simile'
import { ROOT, tiny } from './helpers/models.ts'
import { readTensors, type Tensor, writeTensors } from './helpers/safetensors.ts'

const scratch = mkdtempSync(join(tmpdir(), 'simile-bad-models-'))
test.after.always(() => rmSync(scratch, { recursive: true, force: true }))

/** A copy of a good model to be spoilt. */
function copy(name: string, model = 'tiny-bert-mean-pooler'): string {
  const folder = join(scratch, name.replace(/\W+/g, '-'))
  cpSync(tiny(model), folder, { recursive: true })
  return folder
}

const LFS_POINTER = `version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 90868376\n`
const edit = (path: string, change: (json: Record<string, unknown>) => void) => {
  const json = JSON.parse(readFileSync(path, 'utf8'))
  change(json)
  writeFileSync(path, JSON.stringify(json))
}

/** Rewrites model.safetensors with other tensors. */
function rewrite(folder: string, change: (tensors: Map<string, Tensor>) => void): void {
  const path = join(folder, WEIGHTS)
  const tensors = readTensors(path)
  change(tensors)
  writeTensors(path, tensors)
}

const WEIGHTS = 'model.safetensors'
const CASES: [string, (folder: string) => void, EmbedErrorCode, RegExp][] = [
  ['no config.json', (f) => rmSync(join(f, 'config.json')), 'ModelInitialization', /config\.json/],
  [
    'config.json is not JSON',
    (f) => writeFileSync(join(f, 'config.json'), '{"model_type": '),
    'ModelInitialization',
    /config\.json/,
  ],
  [
    'config.json is a git-lfs pointer',
    (f) => writeFileSync(join(f, 'config.json'), LFS_POINTER),
    'ModelInitialization',
    /git.lfs/i,
  ],
  [
    'an unknown architecture',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        c.model_type = 'mamba'
      }),
    'UnsupportedModel',
    /mamba.*bert/s,
  ],
  [
    'no architecture',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        delete c.model_type
      }),
    'UnsupportedModel',
    /model_type/,
  ],
  [
    'an unknown activation',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        c.hidden_act = 'snake'
      }),
    'UnsupportedModel',
    /hidden_act.*snake.*gelu/s,
  ],
  [
    'unknown positions',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        c.position_embedding_type = 'relative_key'
      }),
    'UnsupportedModel',
    /position_embedding_type.*relative_key/s,
  ],
  [
    'heads that do not divide the hidden size',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        c.num_attention_heads = 5
      }),
    'ModelInitialization',
    /num_attention_heads|heads/,
  ],
  ['no weights', (f) => rmSync(join(f, WEIGHTS)), 'ModelInitialization', /model\.safetensors/],
  [
    'weights in a format that is not read',
    (f) => {
      rmSync(join(f, WEIGHTS))
      writeFileSync(join(f, 'tf_model.h5'), 'HDF')
    },
    'UnsupportedModel',
    /tf_model\.h5.*safetensors/s,
  ],
  [
    'a pickle that would run a command',
    (f) => {
      rmSync(join(f, WEIGHTS))
      copyFileSync(join(ROOT, '__test__', 'fixtures', 'torch', 'runs.pt'), join(f, 'pytorch_model.bin'))
    },
    'UnsupportedModel',
    /pytorch_model\.bin names posix\.system.*nothing of it was run/s,
  ],
  [
    'weights are a git-lfs pointer',
    (f) => writeFileSync(join(f, WEIGHTS), LFS_POINTER),
    'ModelInitialization',
    /model\.safetensors.*git.lfs|git.lfs.*model\.safetensors/is,
  ],
  ['weights are empty', (f) => truncateSync(join(f, WEIGHTS), 0), 'ModelInitialization', /model\.safetensors/],
  [
    'weights are cut in the header',
    (f) => truncateSync(join(f, WEIGHTS), 100),
    'ModelInitialization',
    /model\.safetensors/,
  ],
  [
    'weights are cut in the data',
    (f) => truncateSync(join(f, WEIGHTS), readFileSync(join(f, WEIGHTS)).length - 4),
    'ModelInitialization',
    /model\.safetensors/,
  ],
  [
    'weights are a web page',
    (f) => writeFileSync(join(f, WEIGHTS), '<!DOCTYPE html><html>Sign in to the network</html>'.repeat(9)),
    'ModelInitialization',
    /model\.safetensors/,
  ],
  [
    'a header that claims to be huge',
    (f) => writeFileSync(join(f, WEIGHTS), Buffer.alloc(64, 0xff)),
    'ModelInitialization',
    /model\.safetensors/,
  ],
  [
    'a tensor is missing',
    (f) =>
      rewrite(f, (x) => {
        x.delete('encoder.layer.1.output.dense.weight')
      }),
    'ModelInitialization',
    /encoder\.layer\.1\.output\.dense\.weight/,
  ],
  [
    'a tensor has another shape',
    (f) =>
      rewrite(f, (x) => {
        const e = x.get('encoder.layer.0.output.dense.bias') as Tensor
        x.set('encoder.layer.0.output.dense.bias', { ...e, shape: [16], bytes: e.bytes.subarray(0, 64) })
      }),
    'ModelInitialization',
    /encoder\.layer\.0\.output\.dense\.bias.*16.*32|encoder\.layer\.0\.output\.dense\.bias.*32.*16/s,
  ],
  [
    'weights of another model',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        c.vocab_size = 30522
      }),
    'ModelInitialization',
    /word_embeddings\.weight.*30522/s,
  ],
  [
    'a weight is NaN',
    (f) =>
      rewrite(f, (x) => {
        x.get('encoder.layer.0.output.dense.weight')?.bytes.writeFloatLE(Number.NaN, 40)
      }),
    'ModelInitialization',
    /encoder\.layer\.0\.output\.dense\.weight/,
  ],
  [
    'a weight is infinite',
    (f) =>
      rewrite(f, (x) => {
        x.get('embeddings.word_embeddings.weight')?.bytes.writeFloatLE(Number.POSITIVE_INFINITY, 0)
      }),
    'ModelInitialization',
    /embeddings\.word_embeddings\.weight/,
  ],
  ['no tokenizer.json', (f) => rmSync(join(f, 'tokenizer.json')), 'ModelInitialization', /tokenizer\.json/],
  [
    'tokenizer.json is a git-lfs pointer',
    (f) => writeFileSync(join(f, 'tokenizer.json'), LFS_POINTER),
    'ModelInitialization',
    /tokenizer\.json/,
  ],
  [
    'a tokenizer with more words than the model',
    (f) =>
      edit(join(f, 'tokenizer.json'), (c) => {
        const { vocab } = c.model as { vocab: Record<string, number> }
        for (let i = 0; i < 10; i++) vocab[`extra${i}`] = 219 + i
      }),
    'ModelInitialization',
    /tokenizer\.json has token ids up to 228, but the model's word table has 219 rows/,
  ],
  [
    'tokenizer.json is something else',
    (f) => writeFileSync(join(f, 'tokenizer.json'), '{"a": 1}'),
    'ModelInitialization',
    /tokenizer\.json/,
  ],
  [
    'an unknown pooling',
    (f) =>
      edit(join(f, '1_Pooling/config.json'), (c) => {
        for (const k of Object.keys(c)) if (k.startsWith('pooling_mode')) delete c[k]
        c.pooling_mode = 'attention'
      }),
    'UnsupportedModel',
    /attention.*mean/s,
  ],
  [
    'an unknown module',
    (f) =>
      writeFileSync(
        join(f, 'modules.json'),
        JSON.stringify([
          { idx: 0, name: '0', path: '', type: 'sentence_transformers.models.Transformer' },
          { idx: 1, name: '1', path: '1_WordWeights', type: 'sentence_transformers.models.WordWeights' },
        ]),
      ),
    'UnsupportedModel',
    /WordWeights/,
  ],
]

/** As {@link CASES}, with a static model. */
const STATIC_CASES: typeof CASES = [
  [
    'a static model without its table',
    (f) =>
      rewrite(f, (x) => {
        x.delete('embeddings')
      }),
    'ModelInitialization',
    /no tensor (embeddings or )?embedding\.weight/,
  ],
  [
    'a static model whose rows are out of range',
    (f) =>
      rewrite(f, (x) => {
        x.get('mapping')?.bytes.writeBigInt64LE(100n, 16)
      }),
    'ModelInitialization',
    /tensor mapping has 100 at element 2, but there are 100 rows/,
  ],
  [
    'a static model with too few weights',
    (f) =>
      rewrite(f, (x) => {
        const e = x.get('weights') as Tensor
        x.set('weights', { ...e, shape: [10], bytes: e.bytes.subarray(0, 40) })
      }),
    'ModelInitialization',
    /tensor weights has shape \[10\]/,
  ],
  [
    'a static model with a table of bytes without sign',
    (f) =>
      rewrite(f, (x) => {
        const e = x.get('embeddings') as Tensor
        x.set('embeddings', { ...e, dtype: 'U8' })
      }),
    'UnsupportedModel',
    /tensor embeddings is U8; supported: F32, F16, BF16, I8/,
  ],
  [
    'a static model with a mapping of floats',
    (f) =>
      rewrite(f, (x) => {
        const e = x.get('mapping') as Tensor
        x.set('mapping', { ...e, dtype: 'F64' })
      }),
    'UnsupportedModel',
    /tensor mapping is F64; supported: I64, I32/,
  ],
  [
    'a static model with a limit that is none',
    (f) =>
      edit(join(f, 'config.json'), (c) => {
        c.max_length = 0
      }),
    'ModelInitialization',
    /config\.json: max_length is 0, expected is a whole number of at least 1/,
  ],
  [
    'a static model with a pooling',
    (f) =>
      writeFileSync(
        join(f, 'modules.json'),
        JSON.stringify([
          { path: '.', type: 'sentence_transformers.models.StaticEmbedding' },
          { path: '1_Pooling', type: 'sentence_transformers.models.Pooling' },
        ]),
      ),
    'UnsupportedModel',
    /models\.Pooling.*Dense, LayerNorm, Dropout, and Normalize/s,
  ],
]

// The sizes fit each type, so that nothing but the type is wrong.
for (const [dtype, bytes] of [
  ['I32', 4],
  ['F64', 8],
  ['I8', 1],
] as const) {
  CASES.push([
    `a tensor of type ${dtype}`,
    (f) =>
      rewrite(f, (x) => {
        const e = x.get('encoder.layer.0.output.dense.bias') as Tensor
        x.set('encoder.layer.0.output.dense.bias', { ...e, dtype, bytes: Buffer.alloc(32 * bytes) })
      }),
    'UnsupportedModel',
    new RegExp(`encoder\\.layer\\.0\\.output\\.dense\\.bias is ${dtype}; supported: F32, F16, BF16`),
  ])
}

// A JSON file that is there says something: one that holds no object is broken, never "no settings".
const NO_OBJECTS: [file: string, content: string][] = [
  ['config.json', '[]'],
  ['config_sentence_transformers.json', '["x"]'],
  ['sentence_bert_config.json', '"foo"'],
  ['tokenizer_config.json', '[]'],
  ['1_Pooling/config.json', '3'],
]
for (const [file, content] of NO_OBJECTS) {
  CASES.push([
    `${file} is ${content}`,
    (f) => writeFileSync(join(f, file), content),
    'ModelInitialization',
    new RegExp(file.replaceAll('.', '\\.')),
  ])
}

async function refused(t: ExecutionContext, folder: string, code: EmbedErrorCode, message: RegExp): Promise<void> {
  const error = await TextEmbedding.load(folder).then(
    () => 'it loaded',
    (error) => error,
  )
  t.true(EmbedError.is(error), String(error))
  t.is(error.code, code, error.message)
  t.regex(error.message, message)
  t.is(error.model, folder)
}

for (const [model, cases] of [
  ['tiny-bert-mean-pooler', CASES],
  ['tiny-static-quant', STATIC_CASES],
] as const) {
  for (const [what, spoil, code, message] of cases) {
    test(what, async (t) => {
      const folder = copy(what, model)
      spoil(folder)
      await refused(t, folder, code, message)
    })
  }
}

test('a static model has one pooling', async (t) => {
  const loading = TextEmbedding.load(tiny('tiny-static'), { descriptor: { pooling: ['cls'] } })
  const error = await loading.catch((error) => error)
  t.is(error.code, 'InvalidInput', String(error))
  t.regex(error.message, /pooling is \["cls"\], allowed is mean/)
})

test('a Dense module without weights', async (t) => {
  const folder = copy('dense without weights', 'tiny-bert-dense')
  rmSync(join(folder, '3_Dense', WEIGHTS))
  await refused(t, folder, 'ModelInitialization', /no weights in .*3_Dense: expected .*model\.safetensors/)
})

test('a Dense module with weights in a format that is not read', async (t) => {
  const folder = copy('dense with TensorFlow weights', 'tiny-bert-dense')
  rmSync(join(folder, '2_Dense', WEIGHTS))
  writeFileSync(join(folder, '2_Dense', 'tf_model.h5'), 'HDF')
  await refused(t, folder, 'UnsupportedModel', /2_Dense has no weights in a format that is read, only tf_model\.h5/)
})

test('a model that is nowhere: every place that was searched, and what to do', async (t) => {
  const cacheDir = join(scratch, 'empty-cache')
  mkdirSync(cacheDir)
  const error = await TextEmbedding.load('nobody/nothing', { cacheDir }).catch((error) => error)
  t.is(error.code, 'ModelInitialization')
  t.true(error.message.includes(cacheDir), error.message)
  t.is(error.model, 'nobody/nothing')
})

test('names that are no model', async (t) => {
  for (const id of [
    '../../etc/passwd',
    './not/here',
    '/not/here',
    'a/b/c',
    'a b',
    'a\0b',
    'https://example.org/model',
  ]) {
    const error = await TextEmbedding.load(id, { cacheDir: scratch }).catch((error) => error)
    t.true(EmbedError.is(error), `${id}: ${error}`)
    t.true(['ModelInitialization', 'InvalidInput'].includes(error.code), `${id}: ${error}`)
  }
})

test('vectors that are not finite are an error of their text, and of no other call', async (t) => {
  // Weights that are finite one by one and overflow together.
  const folder = copy('overflow')
  rewrite(folder, (tensors) => {
    for (const name of ['encoder.layer.1.output.dense.weight', 'encoder.layer.1.output.dense.bias']) {
      const { bytes } = tensors.get(name) as Tensor
      for (let i = 0; i < bytes.length; i += 4) bytes.writeFloatLE(3e38, i)
    }
  })
  const model = await TextEmbedding.load(folder)
  const error = await model.embed(['the dog']).catch((error) => error)
  t.is(error.code, 'InferenceFailed', String(error))
  t.is(error.index, 0)
  t.is(error.model, folder)
})
