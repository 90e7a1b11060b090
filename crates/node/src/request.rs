//! What JavaScript asks for, in the engine's types.
//!
//! Numbers and words were checked by TypeScript. A word that is none of its set is still a failure that names the set.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use napi::bindgen_prelude::{Either, Null};
use napi_derive::napi;
use simile_engine::{
    ChunkJob, ChunkRequest, DescriptorOverrides, Device, EmbedJob, ErrorKind, Failure, HubOptions, HubSettings,
    LoadRequest, Matryoshka, MaxWait, ModelKind, ModelRequest, Pooling, Precision, Priority, Role, Service, Truncate,
    cache_dir,
};

/// Which model, and how. Absent fields are the defaults.
#[napi(object, object_to_js = false)]
pub struct NativeLoadRequest {
    /// Model id or folder.
    pub model: String,
    /// Branch, tag or commit in the cache.
    pub revision: Option<String>,
    /// Root of the Hugging Face cache.
    pub cache_dir: Option<String>,
    /// Whether to stay offline.
    pub offline: Option<bool>,
    /// Access token of the hub.
    pub token: Option<String>,
    /// Base URL of the hub.
    pub endpoint: Option<String>,
    /// The environment as JavaScript sees it: a worker has its own, and the system's must not be read by our threads while
    /// JavaScript's may change it.
    pub environment: HashMap<String, String>,
    /// Folders of installed model packages.
    pub packages: Vec<String>,
    /// Limit in tokens, special tokens counted.
    pub max_length: Option<u32>,
    /// Whether vectors get unit length.
    pub normalize: Option<bool>,
    /// `'end'`, `'start'` or `'error'`.
    pub truncate: Option<String>,
    /// `'dense'`, `'sparse'`, `'multi-vector'` or `'rerank'`; absent: dense.
    pub kind: Option<String>,
    /// `'cpu'`, `'cuda'`, `'cuda:1'`, `'metal'`.
    pub device: Option<String>,
    /// `'f32'`, `'f16'`, `'bf16'`.
    pub precision: Option<String>,
    /// Threads of the process-wide pool.
    pub threads: Option<u32>,
    /// What the caller knows better than files and registry.
    pub descriptor: Option<NativeDescriptorOverrides>,
    /// What a service asks for besides; absent for all others.
    pub service: Option<NativeServiceOptions>,
}

/// What a service asks for besides: the folder rule of Qwen3-Embedding and saved vectors.
#[napi(object, object_to_js = false)]
pub struct NativeServiceOptions {
    /// Length of its vectors.
    pub dimensions: Option<u32>,
}

/// What a caller says about a model instead of its files and the registry.
#[napi(object, object_to_js = false)]
pub struct NativeDescriptorOverrides {
    /// Names of sentence-transformers, concatenated in this order.
    pub pooling: Option<Vec<String>>,
    /// `null`: no template.
    #[napi(ts_type = "string | null")]
    pub query_template: Option<Either<String, Null>>,
    /// `null`: no template.
    #[napi(ts_type = "string | null")]
    pub passage_template: Option<Either<String, Null>>,
    /// What `{instruction}` stands for when a call gives none.
    pub default_instruction: Option<String>,
    /// Whether vectors may be cut: not, to any length, or to these.
    pub matryoshka: Option<Either<bool, Vec<u32>>>,
}

impl TryFrom<NativeLoadRequest> for LoadRequest {
    type Error = Failure;

    fn try_from(request: NativeLoadRequest) -> Result<LoadRequest, Failure> {
        let kinds = ModelKind::ALL.map(|kind| (kind.name(), kind));
        let kind = request.kind.map(|name| word("kind", &name, &kinds)).transpose()?.unwrap_or_default();
        let lookup = |name: &str| request.environment.get(name).cloned();
        let home = std::env::home_dir();
        let options = HubOptions { endpoint: request.endpoint, token: request.token, offline: request.offline };
        // Without any cache the load says so, if it comes to need one.
        let cache_dir = request.cache_dir.map(PathBuf::from);
        let cache_dir = cache_dir.or_else(|| cache_dir::from_environment(&lookup, home.as_deref()).ok());
        Ok(LoadRequest {
            hub: HubSettings::new(options, &lookup, home.as_deref()),
            model: ModelRequest {
                id_or_folder: request.model,
                revision: request.revision,
                cache_dir,
                packages: request.packages.into_iter().map(PathBuf::from).collect(),
            },
            max_length: request.max_length.map(|tokens| tokens as usize),
            normalize: request.normalize,
            truncate: request.truncate.map(|name| parse::<Truncate>(&name)).transpose()?,
            descriptor: request.descriptor.map(TryInto::try_into).transpose()?,
            device: request.device.map(|name| parse::<Device>(&name)).transpose()?.unwrap_or_default(),
            precision: request.precision.map(|name| parse::<Precision>(&name)).transpose()?.unwrap_or_default(),
            service: request.service.map(|NativeServiceOptions { dimensions }| {
                Service::from_environment(dimensions.map(|dimensions| dimensions as usize), &lookup)
            }),
            kind,
            threads: request.threads.map(|threads| threads as usize),
        })
    }
}

impl TryFrom<NativeDescriptorOverrides> for DescriptorOverrides {
    type Error = Failure;

    fn try_from(overrides: NativeDescriptorOverrides) -> Result<DescriptorOverrides, Failure> {
        let pooling = |name: &String| word("pooling", name, &Pooling::ALL.map(|pooling| (pooling.name(), pooling)));
        let template = |template| match template {
            Either::A(pattern) => Some(pattern),
            Either::B(Null) => None,
        };
        Ok(DescriptorOverrides {
            pooling: overrides.pooling.map(|names| names.iter().map(pooling).collect()).transpose()?,
            query_template: overrides.query_template.map(template),
            passage_template: overrides.passage_template.map(template),
            default_instruction: overrides.default_instruction,
            matryoshka: overrides.matryoshka.map(|matryoshka| match matryoshka {
                Either::A(false) => Matryoshka::None,
                Either::A(true) => Matryoshka::Any,
                Either::B(some) => Matryoshka::Dimensions(some.into_iter().map(|one| one as usize).collect()),
            }),
        })
    }
}

/// How to embed the texts of a call.
#[napi(object, object_to_js = false)]
pub struct NativeEmbedOptions {
    /// `'generic'`, `'query'` or `'passage'`.
    pub role: String,
    /// The instruction for the template.
    pub instruction: Option<String>,
    /// Output dimensions.
    pub dimensions: Option<u32>,
    /// The most texts of this call in one micro-batch.
    pub batch_size: Option<u32>,
    /// `'interactive'` or `'bulk'`.
    pub priority: String,
    /// Milliseconds from now in which the call must be begun.
    pub max_wait: Option<u32>,
}

impl NativeEmbedOptions {
    pub(crate) fn into_job(self, texts: Vec<String>) -> Result<EmbedJob, Failure> {
        Ok(EmbedJob {
            texts,
            queries: Vec::new(),
            role: role(&self.role)?,
            instruction: self.instruction,
            dimensions: self.dimensions.map(|dimensions| dimensions as usize),
            batch_size: self.batch_size.map(|size| size as usize),
            priority: priority(&self.priority)?,
            max_wait: self.max_wait.map(|ms| MaxWait::new(Duration::from_millis(ms.into()))),
        })
    }
}

/// How to cut a text.
#[napi(object, object_to_js = false)]
pub struct NativeChunkOptions {
    /// `'generic'`, `'query'` or `'passage'`.
    pub role: String,
    /// The instruction for the template.
    pub instruction: Option<String>,
    /// The most tokens of a chunk, template and special tokens counted.
    pub max_tokens: Option<u32>,
    /// The most tokens that neighbours share.
    pub overlap: Option<u32>,
}

impl NativeChunkOptions {
    pub(crate) fn into_job(self, text: String) -> Result<ChunkJob, Failure> {
        let request = ChunkRequest {
            max_tokens: self.max_tokens.map(|tokens| tokens as usize),
            overlap: self.overlap.unwrap_or_default() as usize,
        };
        Ok(ChunkJob { text, role: role(&self.role)?, instruction: self.instruction, request })
    }
}

pub(crate) fn role(name: &str) -> Result<Role, Failure> {
    word("role", name, &[("generic", Role::Generic), ("query", Role::Query), ("passage", Role::Passage)])
}

pub(crate) fn priority(name: &str) -> Result<Priority, Failure> {
    word("priority", name, &[("interactive", Priority::Interactive), ("bulk", Priority::Bulk)])
}

fn parse<T: FromStr<Err: ToString>>(name: &str) -> Result<T, Failure> {
    name.parse().map_err(|error: T::Err| Failure::new(ErrorKind::InvalidInput, error.to_string()))
}

fn word<T: Copy>(what: &str, name: &str, set: &[(&str, T)]) -> Result<T, Failure> {
    set.iter().find(|(word, _)| *word == name).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = set.iter().map(|(word, _)| *word).collect();
        let message = format!("{what} '{name}' is not supported. Supported: {}", words.join(", "));
        Failure::new(ErrorKind::InvalidInput, message)
    })
}
