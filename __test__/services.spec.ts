/** Services: the one that computes here, and one of your own. */

import test from 'ava'
import {
  BaseEmbeddingService,
  createEmbeddings,
  DEFAULT_MODEL,
  type EmbeddingService,
  type Embeddings,
  NativeEmbeddingService,
  type ServiceEmbedOptions,
} from 'simile'
import { runModule } from './helpers/child.ts'
import { real, tiny } from './helpers/models.ts'
import { bytes } from './helpers/vectors.ts'

const FOLDER = tiny('tiny-bert-mean-pooler')

test('the shortest use: default model, three lines', async (t) => {
  const service = new NativeEmbeddingService(real(DEFAULT_MODEL))
  const [query] = await service.embedQuery(['what is a vector database?'])
  t.is(query?.length, 384)
  t.deepEqual(service.modelConfig(), { model: DEFAULT_MODEL, dimensions: 384 })
  t.is(service.name, 'native')
})

test('making a service loads nothing; ensureLoaded loads; then it is loaded', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.is(service.descriptor, undefined)
  t.is(service.stats().calls, 0)
  t.is(service.modelConfig().dimensions, null, 'not known before it is loaded')
  await service.ensureLoaded()
  t.is(service.descriptor?.dimensions, 32)
  t.is(service.modelConfig().dimensions, 32)
  await service.embed(['a', 'b'])
  t.like(service.stats(), { calls: 1, failed: 0, texts: 2, truncated: 0 })
})

test('concurrent first requests share one load', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const all = await Promise.all(Array.from({ length: 50 }, (_, i) => service.embed([`text ${i}`])))
  t.is(all.length, 50)
  t.is(service.stats().calls, 50)
})

test('one service, one model', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.true(service.supportsModel(FOLDER))
  t.false(service.supportsModel(DEFAULT_MODEL))
  t.is((await service.embed(['a'], { model: FOLDER })).length, 1)
  await t.throwsAsync(service.embedQuery(['a'], { model: DEFAULT_MODEL }), {
    code: 'InvalidInput',
    message: new RegExp(`${FOLDER}, not with ${DEFAULT_MODEL}`),
  })
})

test('a failed load is remembered by its service, and by no other', async (t) => {
  const service = new NativeEmbeddingService({ model: './no/such/folder' })
  const first = await t.throwsAsync(service.ensureLoaded(), {
    code: 'ModelInitialization',
    message: /no\/such\/folder/,
  })
  const second = await t.throwsAsync(service.embed(['a']), { code: 'ModelInitialization' })
  t.is(second?.message, first?.message)
  t.is((await new NativeEmbeddingService({ model: FOLDER }).embed(['a'])).length, 1)
})

test('an aborted wait does not stop the load', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const controller = new AbortController()
  const waiting = service.ensureLoaded({ signal: controller.signal })
  controller.abort(new Error('enough'))
  await t.throwsAsync(waiting, { message: 'enough' })
  await service.ensureLoaded()
  t.is(service.descriptor?.dimensions, 32)
})

test('dispose lets requests in progress finish and refuses later ones', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const pending = service.embed(Array(500).fill('a text that takes a moment'))
  const disposed = service.dispose()
  await t.throwsAsync(service.embed(['a']), { code: 'ModelNotLoaded', message: /disposed/ })
  t.is((await pending).length, 500)
  await disposed
  await service.dispose()
  await t.throwsAsync(service.ensureLoaded(), { code: 'ModelNotLoaded' })
  t.is(service.descriptor, undefined)
})

test('two services of one model do not share a disposal', async (t) => {
  const [one, other] = [new NativeEmbeddingService({ model: FOLDER }), new NativeEmbeddingService({ model: FOLDER })]
  await Promise.all([one.ensureLoaded(), other.ensureLoaded()])
  await one.dispose()
  t.is((await other.embed(['a'])).length, 1)
})

test('the model-local cache is empty for models that keep none', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  t.is(service.cacheSize(), 0)
  t.is(await service.saveCache(), 0)
})

/** A service as somebody else would write it. */
class LengthService extends BaseEmbeddingService {
  readonly name: string = 'length'
  readonly seen: (readonly [readonly string[], ServiceEmbedOptions | undefined])[] = []

  async embed(texts: readonly string[], options?: ServiceEmbedOptions): Promise<Embeddings> {
    this.seen.push([texts, options])
    return createEmbeddings(texts.map((text) => Float32Array.of(text.length)))
  }

  supportsModel(): boolean {
    return true
  }
}

test('a service of your own has the limits, the prompts and the helpers', async (t) => {
  const service = new LengthService()
  const through: EmbeddingService = service
  const model = 'intfloat/multilingual-e5-small'
  t.deepEqual((await through.embedQuery(['ab'], { model })).toArrays(), [['query: ab'.length]])
  t.deepEqual((await through.embedPassage(['ab'], { model })).toArrays(), [['passage: ab'.length]])
  t.deepEqual((await through.embedQuery(['ab'])).toArrays(), [[2]], 'the default model has no prompt')
  t.deepEqual(Array.from(await through.embedOne('abc')), [3])
  t.deepEqual(
    service.seen.map(([texts, options]) => [texts[0], options?.priority]),
    [
      ['query: ab', 'interactive'],
      ['passage: ab', 'bulk'],
      ['ab', 'interactive'],
      ['abc', 'interactive'],
    ],
  )
  await t.throwsAsync(through.embedQuery([]), { code: 'InvalidInput' })
  await t.throwsAsync(through.embedPassage(['x'.repeat(32769)]), { code: 'TextTooLong' })
  await t.notThrowsAsync(through.embedQuery(['x'.repeat(32768)], { model }))
  await t.notThrowsAsync(through.ensureLoaded())
  t.deepEqual(through.modelConfig(model), { model, dimensions: 384 })
})

test('embedOne is interactive unless a priority is named', async (t) => {
  const service = new LengthService()
  await service.embedOne('a', { priority: undefined })
  await service.embedOne('a', { priority: 'bulk' })
  t.deepEqual(
    service.seen.map(([, options]) => options?.priority),
    ['interactive', 'bulk'],
  )
})

test('a service of your own on a platform without the addon', async (t) => {
  const { status, stdout, stderr } = await runModule(
    `import { BaseEmbeddingService, createEmbeddings, NativeEmbeddingService } from 'simile'
     class Plain extends BaseEmbeddingService {
       name = 'plain'
       supportsModel() { return true }
       async embed(texts) { return createEmbeddings(texts.map((text) => Float32Array.of(text.length))) }
     }
     class Whole extends Plain {
       modelConfig(model = 'mine') { return { model, dimensions: 1 } }
       prompt(role) { return { template: role === 'query' ? 'q: {text}' : null, defaultInstruction: null } }
     }
     const said = (error) => [error.code, /plain/.test(error.message), /overrides prompt and modelConfig/.test(error.message)].join()
     const attempt = async (work) => { try { return JSON.stringify(await work()) } catch (error) { return said(error) } }
     const plain = new Plain()
     const whole = new Whole()
     for (const work of [
       () => plain.embed(['ab']),
       () => plain.embedWithRole(['ab'], 'generic'),
       () => plain.embedQuery(['ab']),
       () => plain.modelConfig(),
       () => whole.embedQuery(['ab']),
       () => whole.embedPassage(['ab']),
       () => whole.modelConfig(),
       () => new NativeEmbeddingService() && 'made',
       () => new NativeEmbeddingService({ dimensions: 384 }),
     ]) console.log(await attempt(work))`,
    { env: { NAPI_RS_NATIVE_LIBRARY_PATH: '/no/addon/here.node' } },
  )
  t.is(stderr, '')
  t.is(status, 0)
  const asks = 'ModelInitialization,true,true'
  t.deepEqual(stdout.trim().split('\n'), [
    '[[2]]',
    '[[2]]',
    asks,
    asks,
    '[[5]]',
    '[[2]]',
    '{"model":"mine","dimensions":1}',
    '"made"',
    'ModelInitialization,false,false',
  ])
})

test('embedOne of a service that breaks its word is an internal error, not an invented vector', async (t) => {
  class Broken extends LengthService {
    override async embed(texts: readonly string[]): Promise<Embeddings> {
      return createEmbeddings([...texts, ...texts].slice(1, texts.length).map(() => Float32Array.of(0)))
    }
  }
  await t.throwsAsync(new Broken().embedOne('a'), { code: 'Internal', message: /0 vectors for one text/ })
})

test('the order of calls is the order of results', async (t) => {
  const service = new NativeEmbeddingService({ model: FOLDER })
  const texts = Array.from({ length: 300 }, (_, i) => 'ab '.repeat((i * 37) % 60))
  const together = (await service.embed(texts)).map(bytes)
  const alone = await Promise.all(texts.map(async (text) => bytes(await service.embedOne(text))))
  t.deepEqual(together, alone)
})
