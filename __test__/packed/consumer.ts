// A program that somebody would write. It is compiled, never run: the types must hold under each module setting.

import {
  assertSameContract,
  BaseEmbeddingService,
  CachedEmbeddingService,
  type CacheStats,
  type Chunk,
  createEmbeddings,
  type EmbeddingRole,
  type EmbeddingService,
  type Embeddings,
  EmbedError,
  type EmbedErrorCode,
  type FlatEmbeddings,
  type ModelConfig,
  type ModelDescriptor,
  type MultiVectorEmbeddings,
  MultiVectorTextEmbedding,
  maxSim,
  NativeEmbeddingService,
  type RankedDocuments,
  type Scores,
  type ServiceEmbedOptions,
  type SparseEmbeddings,
  SparseTextEmbedding,
  TextCrossEncoder,
  TextEmbedding,
  TextTooLongError,
  type TokenCount,
} from 'simile'

export async function search(question: string, passages: string[], signal?: AbortSignal): Promise<number[]> {
  const service: EmbeddingService = new NativeEmbeddingService({ truncate: 'error', threads: 2 })
  await service.ensureLoaded({ signal })
  const [query] = await service.embedQuery([question], { signal, priority: 'interactive' })
  const rows: Embeddings = await service.embedPassage(passages)
  if (query === undefined) throw new Error('no row')
  return rows.map((row: Float32Array) => row.reduce((sum, x, i) => sum + x * (query[i] ?? 0), 0))
}

export async function facts(): Promise<void> {
  await using model = await TextEmbedding.load('org/name', {
    normalize: false,
    descriptor: { pooling: ['cls', 'mean'] },
  })
  const descriptor: ModelDescriptor = model.descriptor
  const rows = await model.embed(['a'] as const, { batchSize: 4 })
  const tokens: readonly TokenCount[] = rows.tokens
  const plain: number[][] = rows.toArrays()
  const flat: FlatEmbeddings = await model.passageEmbed(['a'], { output: 'flat' })
  const block: Float32Array = flat.data
  const total: number = tokens.reduce((sum, count) => sum + count.total, descriptor.maxLength)
  // An option decided at run time gives either.
  const either: Embeddings | FlatEmbeddings = await model.embed(['a'], { output: total > 3 ? 'flat' : 'rows' })
  console.log(plain, block, total, either, rows.truncated, rows.contractId)
}

export async function bulk(lines: AsyncIterable<string>): Promise<number> {
  await using model = await TextEmbedding.load()
  const chunks: Chunk[] = await model.chunkText('a long text', { maxTokens: 64, overlap: 8, role: 'passage' })
  const stream = model.embedStream(lines, { role: 'passage', onProgress: ({ texts }) => console.log(texts) })
  for await (const row of stream) console.log(row.length)
  await using service = new CachedEmbeddingService(new NativeEmbeddingService(), { capacity: 100, singleFlight: true })
  assertSameContract(await service.embedPassage(chunks.map(({ text }) => text)), stream)
  const { hits, misses }: CacheStats = service.cacheStats()
  return hits / (hits + misses) + stream.truncated
}

export async function otherKinds(texts: readonly string[]): Promise<number[]> {
  await using sparse = await SparseTextEmbedding.load('Qdrant/bm25', { truncate: 'end' })
  const words: SparseEmbeddings = await sparse.passageEmbed(texts, { batchSize: 8 })
  const indices: Uint32Array | undefined = words[0]?.indices
  await using colbert = await MultiVectorTextEmbedding.load('org/name')
  const [query]: MultiVectorEmbeddings = await colbert.queryEmbed(['q'], { priority: 'interactive' })
  const scores = (await colbert.passageEmbed(texts)).map((row) => (query ? maxSim(query, row) : 0))
  await using reranker = await TextCrossEncoder.load('org/name')
  const ranked: RankedDocuments = await reranker.rank('q', texts, { topK: 3, returnDocuments: true })
  const more: Scores = await reranker.predict([['q', 'a']])
  const document: string | undefined = ranked[0]?.document
  console.log(indices, document, more.truncated, colbert.descriptor.queryLength)
  return [...scores, ...more]
}

export function reason(error: unknown): string {
  if (error instanceof TextTooLongError) return `text ${error.index} has ${error.actual} ${error.unit}`
  if (EmbedError.is(error, 'Overloaded')) {
    const code: 'Overloaded' = error.code
    return code
  }
  if (EmbedError.is(error)) {
    const code: EmbedErrorCode = error.code
    return code
  }
  return String(error)
}

export class Fixed extends BaseEmbeddingService {
  readonly name = 'fixed'
  async embed(texts: readonly string[], _options?: ServiceEmbedOptions): Promise<Embeddings> {
    return createEmbeddings(texts.map(() => Float32Array.of(1)))
  }
  supportsModel(_model: string): boolean {
    return true
  }
}

const role: EmbeddingRole = 'query'
const config: ModelConfig = new Fixed().modelConfig()
console.log(role, config.dimensions)

// @ts-expect-error: a bare string is no list of texts
new Fixed().embed('a')
// @ts-expect-error: sparse vectors have no length to be normalised to
SparseTextEmbedding.load('org/name', { normalize: true })
// @ts-expect-error: made by load
new TextCrossEncoder()
// @ts-expect-error: an option that is not known
new NativeEmbeddingService({ dimension: 3 })
// @ts-expect-error: a role that is not known
new Fixed().embedWithRole(['a'], 'document')
