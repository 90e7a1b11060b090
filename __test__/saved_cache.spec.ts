/** The vectors that a Qwen3 model keeps: saved, restored, and never used when they are not its own. */

import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import test from 'ava'
import { CachedEmbeddingService, NativeEmbeddingService } from 'simile'
import { type Outcome, runModule } from './helpers/child.ts'
import { ROOT, tiny } from './helpers/models.ts'
import { readTensors, type Tensor, writeTensors } from './helpers/safetensors.ts'

const QWEN = tiny('tiny-qwen3-embedding')
const TEXTS = ['food', 'a story about food', 'the stock market']

/** Runs a program in a process whose home is `home`: the service of `options`, the texts, and `report`. */
async function inHome(home: string, body: string, env: Record<string, string | undefined> = {}): Promise<Outcome> {
  const source = `import { CachedEmbeddingService, NativeEmbeddingService, TextEmbedding } from 'simile'
    const TEXTS = ${JSON.stringify(TEXTS)}
    const QWEN = ${JSON.stringify(QWEN)}
    const warnings = []
    process.on('warning', ({ name, code, message }) => warnings.push({ name, code, message }))
    const bytes = (rows) => rows.map((row) => Buffer.from(row.buffer).toString('hex'))
    const report = (value) => new Promise((resolve) => setImmediate(() => resolve(console.log(JSON.stringify(value)))))
    ${body}`
  return runModule(source, {
    cwd: ROOT,
    env: { HOME: home, USERPROFILE: home, SIMILE_QWEN_MODEL_DIR: undefined, HF_HUB_OFFLINE: '1', ...env },
  })
}

function home(t: { teardown(done: () => void): void }): string {
  const folder = mkdtempSync(join(tmpdir(), 'simile-home-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const fileOf = (home: string, dimensions = 32, model = 'tiny-qwen3-embedding') =>
  join(home, '.simile/cache', `embed_${model}_${dimensions}d.bin`)

/** A Qwen3 of as many dimensions as Qwen3-Embedding-0.6B has, with made-up weights, 4 MB. */
function wideQwen(folder: string): string {
  const [narrow, width] = [32, 1024]
  cpSync(QWEN, folder, { recursive: true })
  for (const [file, key] of [
    ['config.json', 'hidden_size'],
    ['1_Pooling/config.json', 'word_embedding_dimension'],
  ] as const) {
    const values = JSON.parse(readFileSync(join(QWEN, file), 'utf8'))
    writeFileSync(join(folder, file), JSON.stringify({ ...values, [key]: width }))
  }
  const tensors = new Map<string, Tensor>()
  for (const [name, { dtype, shape }] of readTensors(join(QWEN, 'model.safetensors'))) {
    // Keys and values have 32 rows of their own: 2 heads of 16.
    const heads = /[kv]_proj/.test(name) ? 1 : 0
    const wide = shape.map((size, axis) => (size === narrow && axis >= heads ? width : size))
    const length = wide.reduce((product, size) => product * size)
    const values = Float32Array.from({ length }, (_, i) => Math.sin(i * 0.7) / 8)
    tensors.set(name, { dtype, shape: wide, bytes: Buffer.from(values.buffer) })
  }
  writeTensors(join(folder, 'model.safetensors'), tensors)
  return folder
}

function parsed<T>(outcome: Outcome): T {
  try {
    return JSON.parse(outcome.stdout) as T
  } catch {
    throw new Error(`no report: ${outcome.stdout}${outcome.stderr}`)
  }
}

const EMBED_AND_SAVE = `const service = new NativeEmbeddingService({ model: QWEN })
  const before = [service.cacheSize(), await service.saveCache()]
  await service.ensureLoaded()
  const loaded = service.cacheSize()
  const rows = bytes(await service.embed(TEXTS))
  const size = service.cacheSize()
  const saved = await service.saveCache()
  const tokens = service.stats().tokens
  await service.dispose()
  await report({ before, loaded, rows, size, saved, tokens, after: [service.cacheSize(), await service.saveCache()], warnings })`

interface Report {
  before: number[]
  loaded: number
  rows: string[]
  size: number
  saved: number
  after: number[]
  warnings: { name: string; code: string; message: string }[]
}

test('saved by one process, restored by the next, the same bytes', async (t) => {
  const place = home(t)
  const first = parsed<Report>(await inHome(place, EMBED_AND_SAVE))
  t.like(first, { before: [0, 0], loaded: 0, size: 3, saved: 3, after: [0, 0], warnings: [] })
  t.is(statSync(fileOf(place)).mode & 0o777, process.platform === 'win32' ? 0o666 : 0o600)
  t.deepEqual(readdirSync(dirname(fileOf(place))), ['embed_tiny-qwen3-embedding_32d.bin'])
  const second = parsed<Report>(await inHome(place, EMBED_AND_SAVE))
  t.like(second, { before: [0, 0], loaded: 3, size: 3, saved: 3, warnings: [] })
  t.deepEqual(second.rows, first.rows)

  // The vectors of the file are those that are given: one that was changed, with the checksum, shows.
  const content = readFileSync(fileOf(place)).subarray(0, -32)
  content.writeFloatLE(7, content.length - 4)
  writeFileSync(fileOf(place), Buffer.concat([content, createHash('sha256').update(content).digest()]))
  const third = parsed<Report>(await inHome(place, EMBED_AND_SAVE))
  t.is(third.rows.filter((row, i) => row !== first.rows[i] && row.endsWith('0000e040')).length, 1)
})

test('a vector that is found equals one that is computed, in any company', async (t) => {
  const place = home(t)
  const outcome = await inHome(
    place,
    `const service = new NativeEmbeddingService({ model: QWEN })
    const more = [...TEXTS, ...Array.from({ length: 40 }, (_, i) => 'story '.repeat(i + 1))]
    const once = bytes(await service.embed(TEXTS))
    const mixed = bytes(await service.embed(more, { batchSize: 7 }))
    const again = bytes(await service.embed(more.toReversed())).toReversed()
    const passage = bytes(await service.embedPassage(TEXTS))
    await service.dispose()
    const fresh = await TextEmbedding.load(QWEN)
    await report({ once, mixed, again, passage, fresh: bytes(await fresh.embed(more)) })`,
  )
  const { once, mixed, again, passage, fresh } = parsed<Record<string, string[]>>(outcome)
  t.deepEqual(mixed, fresh)
  t.deepEqual(again, fresh)
  t.deepEqual(once, fresh?.slice(0, 3))
  t.deepEqual(passage, fresh?.slice(0, 3))
})

test('roles and instructions have entries of their own', async (t) => {
  const outcome = await inHome(
    home(t),
    `const descriptor = { queryTemplate: 'Instruct: {instruction}\\nQuery:{text}', defaultInstruction: 'find' }
    const service = new NativeEmbeddingService({ model: QWEN, descriptor })
    const rows = [await service.embedOne('food'), ...(await service.embedQuery(['food'])),
      ...(await service.embedQuery(['food'], { instruction: 'sort' }))]
    await report({ rows: bytes(rows), size: service.cacheSize() })`,
  )
  const { rows, size } = parsed<{ rows: string[]; size: number }>(outcome)
  t.is(new Set(rows).size, 3)
  t.is(size, 3)
})

test('dimensions have files of their own, and are checked first', async (t) => {
  const place = home(t)
  const outcome = await inHome(
    place,
    `const descriptor = { matryoshka: true }
    const saved = []
    for (const dimensions of [undefined, 16, 8]) {
      const service = new NativeEmbeddingService({ model: QWEN, descriptor, dimensions })
      const [row] = await service.embed(['food'])
      saved.push([row.length, service.cacheSize(), await service.saveCache()])
    }
    const wrong = new NativeEmbeddingService({ model: QWEN, descriptor, dimensions: 33 })
    const error = await wrong.ensureLoaded().catch((error) => error.code)
    let registered
    try { new NativeEmbeddingService({ model: 'Qwen/Qwen3-Embedding-0.6B', dimensions: 1025 }) } catch (error) { registered = error.code }
    await report({ saved, error, registered, size: wrong.cacheSize(), none: await wrong.saveCache() })`,
  )
  t.deepEqual(parsed(outcome), {
    saved: [
      [32, 1, 1],
      [16, 1, 1],
      [8, 1, 1],
    ],
    error: 'InvalidInput',
    registered: 'InvalidInput',
    size: 0,
    none: 0,
  })
  t.is(readdirSync(dirname(fileOf(place))).length, 3)
})

test('a file that is damaged or of another model is warned of once and not used', async (t) => {
  const place = home(t)
  const good = parsed<Report>(await inHome(place, EMBED_AND_SAVE))
  const file = fileOf(place)
  const whole = readFileSync(file)
  const flipped = Buffer.from(whole)
  flipped[whole.length - 40] = (flipped[whole.length - 40] as number) ^ 1
  const cases: [string, Buffer][] = [
    ['empty', Buffer.alloc(0)],
    ['cut', whole.subarray(0, whole.length - 100)],
    ['longer', Buffer.concat([whole, Buffer.alloc(4)])],
    ['a bit', flipped],
    ['another file', Buffer.from('{}')],
  ]
  for (const [name, content] of cases) {
    writeFileSync(file, content)
    const found = parsed<Report>(await inHome(place, EMBED_AND_SAVE))
    t.like(found, { loaded: 0, size: 3, saved: 3 }, name)
    t.deepEqual(found.rows, good.rows, name)
    t.is(found.warnings.length, 1, name)
    t.like(found.warnings[0], { name: 'SimileWarning', code: 'SIMILE_SAVED_CACHE' }, name)
    t.true(found.warnings[0]?.message.includes(file), name)
    t.deepEqual(readFileSync(file), whole, `${name}: saved anew`)
  }
  // Another normalisation is another model, as the contract has it.
  const other = EMBED_AND_SAVE.replace('model: QWEN', 'model: QWEN, normalize: false')
  const foreign = parsed<Report>(await inHome(place, other))
  t.is(foreign.loaded, 0)
  t.regex(foreign.warnings[0]?.message ?? '', /another model/)
  t.notDeepEqual(foreign.rows, good.rows)
})

test('a file that cannot be written is an error of saveCache, and only of it', async (t) => {
  const place = home(t)
  writeFileSync(join(place, '.simile'), 'in the way')
  const outcome = await inHome(
    place,
    `const service = new NativeEmbeddingService({ model: QWEN })
    await service.embed(TEXTS)
    const error = await service.saveCache().catch((error) => error)
    await report({ code: error.code, named: error.message.includes('embed_tiny'), size: service.cacheSize() })`,
  )
  t.deepEqual(parsed(outcome), { code: 'TaskFailed', named: true, size: 3 })
})

test('services that save at once, beside each other and in two processes', async (t) => {
  const place = home(t)
  const body = `const services = [1, 2, 3].map(() => new NativeEmbeddingService({ model: QWEN }))
    await Promise.all(services.map((service) => service.embed(TEXTS)))
    const saved = await Promise.all(Array.from({ length: 12 }, (_, i) => services[i % 3].saveCache()))
    await report({ saved, warnings })`
  for (const outcome of await Promise.all([inHome(place, body), inHome(place, body)])) {
    t.deepEqual(parsed(outcome), { saved: Array(12).fill(3), warnings: [] })
  }
  t.is(readdirSync(dirname(fileOf(place))).length, 1, 'nothing is left beside it')
})

test('other models keep none, and a cache around a service hands on', async (t) => {
  const bert = new NativeEmbeddingService({ model: tiny('tiny-bert-cls') })
  await bert.embed(TEXTS)
  t.deepEqual([bert.cacheSize(), await bert.saveCache()], [0, 0])
  const outcome = await inHome(
    home(t),
    `const service = new CachedEmbeddingService(new NativeEmbeddingService({ model: QWEN }))
    await service.embed(TEXTS)
    await report([service.cacheSize(), await service.saveCache()])`,
  )
  t.deepEqual(parsed(outcome), [3, 3])
  t.is(await new CachedEmbeddingService(bert).saveCache(), 0)
})

test('a Qwen3-Embedding by id: the folder of the variable, the folder in the home, else what to get', async (t) => {
  const place = home(t)
  const ID = 'Qwen/Qwen3-Embedding-0.6B'
  const body = `const service = new NativeEmbeddingService({ model: '${ID}', cacheDir: ${JSON.stringify(join(place, 'hub'))} })
    const error = await service.embed(TEXTS).then(() => undefined, ({ code, message }) => ({ code, message }))
    await report({ ...error, template: service.descriptor?.queryTemplate, saved: error ? 0 : await service.saveCache() })`
  type Found = { code?: string; message?: string; template?: string; saved: number }
  const wide = wideQwen(join(place, 'wide'))
  const nowhere = parsed<Found>(await inHome(place, body))
  t.is(nowhere.code, 'ModelInitialization')
  for (const word of [
    'SIMILE_QWEN_MODEL_DIR',
    join(place, '.simile/models/qwen3-embedding-0.6b'),
    `huggingface.co/${ID}`,
  ]) {
    t.true(nowhere.message?.includes(word), nowhere.message)
  }
  const named = parsed<Found>(await inHome(place, body, { SIMILE_QWEN_MODEL_DIR: wide }))
  t.deepEqual(named, { template: 'Instruct: {instruction}\nQuery:{text}', saved: 3 })
  t.true(statSync(fileOf(place, 1024, 'qwen3-embedding-0.6b')).isFile())

  const below = join(place, '.simile/models/qwen3-embedding-0.6b')
  mkdirSync(dirname(below), { recursive: true })
  cpSync(wide, below, { recursive: true })
  t.is(parsed<Found>(await inHome(place, body)).saved, 3)
  rmSync(join(below, 'tokenizer.json'))
  const partial = parsed<Found>(await inHome(place, body))
  t.is(partial.code, 'ModelInitialization')
  t.regex(partial.message ?? '', /has no tokenizer\.json/)
  const absent = parsed<Found>(await inHome(place, body, { SIMILE_QWEN_MODEL_DIR: join(place, 'absent') }))
  t.regex(absent.message ?? '', /absent.*SIMILE_QWEN_MODEL_DIR.*is not there/)
})

test('a folder that holds another model than the Qwen3-Embedding asked for is refused', async (t) => {
  const place = home(t)
  const wide = wideQwen(join(place, 'wide'))
  const minilm = tiny('tiny-bert-cls')
  const cases: [id: string, folder: string, found: RegExp][] = [
    ['Qwen/Qwen3-Embedding-0.6B', QWEN, /have 32 dimensions, those of Qwen\/Qwen3-Embedding-0\.6B have 1024/],
    ['Qwen/Qwen3-Embedding-8B', wide, /have 1024 dimensions, those of Qwen\/Qwen3-Embedding-8B have 4096/],
    ['Qwen/Qwen3-Embedding-0.6B', minilm, /model_type is 'bert', that of Qwen\/Qwen3-Embedding-0\.6B is 'qwen3'/],
  ]
  for (const [id, folder, found] of cases) {
    const body = `const service = new NativeEmbeddingService({ model: '${id}' })
      const error = await service.embed(TEXTS).then(() => undefined, ({ code, message }) => ({ code, message }))
      await report({ ...error, saved: await service.saveCache() })`
    const named = await inHome(place, body, { SIMILE_QWEN_MODEL_DIR: folder })
    const refused = parsed<{ code?: string; message?: string; saved: number }>(named)
    t.deepEqual([refused.code, refused.saved], ['ModelInitialization', 0], `${id} of ${folder}: ${refused.message}`)
    t.regex(refused.message ?? '', found)
    for (const word of [folder, 'SIMILE_QWEN_MODEL_DIR', `huggingface.co/${id}`]) {
      t.true(refused.message?.includes(word), `${word}: ${refused.message}`)
    }
  }
})
