/** The public API. Entry points name each of these again, so that nothing leaks by accident. */

export { type CacheStats, DEFAULT_CACHE_CAPACITY } from './cache'
export { CachedEmbeddingService, type CachedEmbeddingServiceOptions } from './cached_service'
export { assertSameContract, type HasContract, type WithContract, type WithContractId } from './contract'
export { type CpuFeatures, cpuFeatures } from './cpu_features'
export type { EmbeddingStream, StreamProgress } from './embed_stream'
export {
  createEmbeddings,
  type EmbeddingFacts,
  type Embeddings,
  type FlatEmbeddings,
  type TokenCount,
} from './embeddings'
export {
  DimensionMismatchError,
  EMBED_ERROR_CODES,
  EmbedError,
  type EmbedErrorCode,
  type EmbedErrorFacts,
  type EmbedErrorOf,
  InferenceFailedError,
  InternalError,
  InvalidInputError,
  ModelInitializationError,
  ModelNotLoadedError,
  OverloadedError,
  TaskFailedError,
  TextTooLongError,
  TierMismatchError,
  UnsupportedModelError,
  WrongModelLoadedError,
} from './errors'
export type { HeadEmbedding } from './head_embedding'
export type { HeadCallOptions, HeadLoadOptions, HeadModelDescriptor } from './head_models'
export type {
  DescriptorOverrides,
  Device,
  DownloadProgress,
  ModelOptions,
  Pooling,
  Precision,
  Truncate,
} from './model_options'
export {
  DEFAULT_MODEL,
  describeModel,
  type Evidence,
  listModels,
  type ModelConfig,
  type ModelDescriptor,
  type ModelFacts,
  type ModelFamily,
  type ModelFilter,
  type ModelKind,
  type Origin,
  type RegistryEntry,
} from './models'
export {
  type MultiVectorEmbeddings,
  MultiVectorTextEmbedding,
  maxSim,
  type TokenVectors,
} from './multi_vector_text_embedding'
export { NativeEmbeddingService, type NativeEmbeddingServiceOptions } from './native_service'
export {
  EMBEDDING_ROLES,
  type EmbeddingRole,
  INTERACTIVE_TEXTS,
  type Priority,
  type Prompt,
  type PromptTemplate,
} from './roles'
export {
  BaseEmbeddingService,
  type EmbeddingService,
  type EnsureLoadedOptions,
  type ServiceEmbedOptions,
} from './services'
export {
  type SparseArrays,
  type SparseEmbeddings,
  SparseTextEmbedding,
  type SparseVector,
} from './sparse_text_embedding'
export type { ModelStats } from './stats'
export {
  type RankedDocument,
  type RankedDocuments,
  type RankOptions,
  type Scores,
  TextCrossEncoder,
} from './text_cross_encoder'
export {
  type Chunk,
  type ChunkOptions,
  type EmbedOptions,
  type FlatOptions,
  type Output,
  type RowOptions,
  type StreamOptions,
  TextEmbedding,
  type TextEmbeddingLoadOptions,
} from './text_embedding'
export type { TokenCountOptions } from './token_count'
export { DEFAULT_MAX_BATCH_SIZE, MAX_TEXT_BYTES } from './validation'
