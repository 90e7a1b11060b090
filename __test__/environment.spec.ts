/** What the environment decides. */

import test from 'ava'
import { NativeEmbeddingService } from 'simile'
import { runModule } from './helpers/child.ts'
import { HUB, MINILM, real, tiny } from './helpers/models.ts'

const FOLDER = tiny('tiny-bert-cls')
const options = { model: FOLDER, descriptor: { matryoshka: true } }

test('SIMILE_EMBED_DIM: absent or blank is the dimension of the model', async (t) => {
  for (const env of [{}, { SIMILE_EMBED_DIM: '' }, { SIMILE_EMBED_DIM: ' \t' }]) {
    const service = NativeEmbeddingService.fromEnv(options, env)
    t.is((await service.embed(['a'])).dimensions, 32)
  }
})

test('SIMILE_EMBED_DIM: a number is the dimension of the vectors', async (t) => {
  const service = NativeEmbeddingService.fromEnv(options, { SIMILE_EMBED_DIM: ' 8 ' })
  t.deepEqual(service.modelConfig(), { model: FOLDER, dimensions: 8 })
  const rows = await service.embed(['a'])
  t.is(rows.dimensions, 8)
  t.is(rows[0]?.length, 8)
})

test('SIMILE_EMBED_DIM: anything else is refused', (t) => {
  for (const value of ['many', '0', '-8', '1.5', '1e2', '0x10', '8 dimensions', 'NaN', '99999999999999999999']) {
    t.throws(() => NativeEmbeddingService.fromEnv(options, { SIMILE_EMBED_DIM: value }), {
      code: 'InvalidInput',
      message: /^SIMILE_EMBED_DIM must be a whole number of at least 1/,
    })
  }
})

test('fromEnv takes an environment of strings', (t) => {
  for (const env of [null, 7, 'SIMILE_EMBED_DIM=8'] as unknown as Record<string, string>[]) {
    t.throws(() => NativeEmbeddingService.fromEnv(options, env), { code: 'InvalidInput', message: /^env must be/ })
  }
  t.throws(() => NativeEmbeddingService.fromEnv(options, { SIMILE_EMBED_DIM: 8 as unknown as string }), {
    code: 'InvalidInput',
    message: /SIMILE_EMBED_DIM must be a string, not 8/,
  })
})

test('only fromEnv reads SIMILE_EMBED_DIM', async (t) => {
  const { status, stdout, stderr } = await runModule(
    `import { NativeEmbeddingService } from 'simile'
     const options = ${JSON.stringify(options)}
     const of = async (service) => (await service.embed(['a'])).dimensions
     console.log(await of(new NativeEmbeddingService(options)), await of(NativeEmbeddingService.fromEnv(options)))`,
    { env: { SIMILE_EMBED_DIM: '16' } },
  )
  t.is(stderr, '')
  t.is(stdout, '32 16\n')
  t.is(status, 0)
})

test('fromEnv refuses dimensions from elsewhere', (t) => {
  t.throws(() => NativeEmbeddingService.fromEnv({ model: FOLDER, dimensions: 8 } as object), { code: 'InvalidInput' })
})

test('the variables of the Hugging Face cache find a model', async (t) => {
  real(MINILM)
  const source = `import { TextEmbedding } from 'simile'
    try { console.log((await TextEmbedding.load()).dimensions) } catch (error) { console.log(error.code, error.message) }`
  const nowhere = {
    HF_HUB_CACHE: undefined,
    HUGGINGFACE_HUB_CACHE: undefined,
    HF_HOME: undefined,
    XDG_CACHE_HOME: undefined,
  }
  const found = await runModule(source, { env: { ...nowhere, HF_HUB_CACHE: HUB } })
  t.is(found.stdout, '384\n', found.stderr)
  const missing = await runModule(source, { env: { ...nowhere, HF_HUB_CACHE: `${HUB}/not-there` } })
  t.regex(missing.stdout, /^ModelInitialization .*not-there/s, missing.stderr)
})

test('SIMILE_THREADS and SIMILE_ISA: what is not allowed is said so', async (t) => {
  const source = `import { TextEmbedding } from 'simile'
    try { await TextEmbedding.load(${JSON.stringify(FOLDER)}); console.log('loaded') } catch (error) { console.log(error.code, error.message) }`
  const bad = await Promise.all([
    runModule(source, { env: { SIMILE_THREADS: 'several' } }),
    runModule(source, { env: { SIMILE_ISA: 'quantum' } }),
  ])
  t.regex(bad[0].stdout, /^InvalidInput .*SIMILE_THREADS.*several/s)
  t.regex(bad[1].stdout, /^InvalidInput .*quantum.*portable/s)
  const good = await runModule(source, { env: { SIMILE_THREADS: '3', SIMILE_ISA: 'portable' } })
  t.is(good.stdout, 'loaded\n')
})
