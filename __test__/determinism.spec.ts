/** A text's vector is the same bytes whatever is computed with it, and by how many threads. */

import test from 'ava'
import { TextEmbedding } from 'simile'
import { runModule } from './helpers/child.ts'
import { MINILM, real, reference } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const texts = reference(MINILM).items.map(({ text }) => text)
const model = await TextEmbedding.load(MINILM, real(MINILM))
const expected = (await model.embed(texts)).map(bytes)

/** Positions at which rows are not the expected ones. */
const different = (rows: Float32Array[], positions = texts.map((_, i) => i)) =>
  positions.filter((position, i) => bytes(rows[i] as Float32Array) !== expected[position])

test('alone', async (t) => {
  const wrong: number[] = []
  for (const [i, text] of texts.entries()) wrong.push(...different(await model.embed([text]), [i]))
  t.deepEqual(wrong, [])
})

test('in any order and with any batch-mates', async (t) => {
  let seed = 12345
  const random = () => {
    seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff
    return seed / 0x80000000
  }
  for (let round = 0; round < 5; round++) {
    const positions = texts.map((_, i) => i).sort(() => random() - 0.5)
    const some = positions.slice(0, 1 + Math.floor(random() * positions.length))
    t.deepEqual(different(await model.embed(some.map((i) => texts[i] as string)), some), [], `round ${round}`)
  }
})

test('in batches of 1 to 64', async (t) => {
  // Short texts keep this quick; the long ones have the other tests.
  const short = texts.map((text, i) => ({ text, i })).filter(({ text }) => text.length < 400)
  const list = short.map(({ text }) => text)
  const positions = short.map(({ i }) => i)
  for (let batchSize = 1; batchSize <= 64; batchSize++) {
    t.deepEqual(different(await model.embed(list, { batchSize }), positions), [], `batchSize ${batchSize}`)
  }
})

test('at any priority, while other calls run', async (t) => {
  const all = await Promise.all([
    model.embed(texts, { priority: 'bulk' }),
    model.embed(texts, { priority: 'interactive', batchSize: 3 }),
    ...texts.slice(0, 10).map((text) => model.embed([text], { priority: 'interactive' })),
  ])
  t.deepEqual(different(all[0]), [])
  t.deepEqual(different(all[1]), [])
  for (let i = 0; i < 10; i++) t.deepEqual(different(all[i + 2] as Float32Array[], [i]), [])
})

test('with 1, 2, 3, 4 and 7 threads', async (t) => {
  const source = `import { createHash } from 'node:crypto'
    import { readFileSync } from 'node:fs'
    import { cpuFeatures, TextEmbedding } from 'simile'
    const texts = JSON.parse(readFileSync(process.env.TEXTS, 'utf8')).items.map(({ text }) => text)
    const model = await TextEmbedding.load()
    const hash = createHash('sha256')
    hash.update(new Uint8Array((await model.embed(texts, { output: 'flat' })).data.buffer))
    for (const text of texts.slice(0, 12).concat(texts.at(-1))) hash.update((await model.embed([text]))[0])
    console.log(cpuFeatures().threads, hash.digest('hex'))`
  const TEXTS = new URL(`fixtures/reference/${MINILM.replace('/', '--')}.json`, import.meta.url).pathname
  const digests = new Map<string, string>()
  for (const threads of ['1', '2', '3', '4', '7']) {
    const { stdout, stderr } = await runModule(source, { env: { SIMILE_THREADS: threads, TEXTS } })
    const [used, digest] = stdout.trim().split(' ')
    t.is(used, threads, stderr)
    digests.set(threads, digest as string)
  }
  t.is(new Set(digests.values()).size, 1, JSON.stringify([...digests]))
})
