//! Multi-vector models: a vector of unit length for each token.
//!
//! | head | files | rules |
//! |---|---|---|
//! | `colbert` | `artifact.metadata` and a `linear.weight` beside the encoder's tensors; or `modules.json` with a Transformer and a Dense module (PyLate) | a marker behind the first token; queries filled up to their length with mask tokens, which are attended to or not as the files say; rows of punctuation left out of documents |
//! | `bge-m3` | `colbert_linear.pt` or `colbert_linear.safetensors` | a projection with a bias; the first token has no row |
//!
//! Which side a text is on decides how it is encoded: queries are [`Role::Query`], everything else is a document. Sources:
//! Khattab & Zaharia 2020, the tokenisation of colbert-ai, `ColBERT` of PyLate, `BGEM3FlagModel` of FlagEmbedding.

use serde::Serialize;
use simile_encoder::{Context, EncodeError, LoadError as EncoderError, Projection, Rows, Weights};
use simile_hub::ModelFiles;

use crate::error::{LoadError, PipelineError};
use crate::head_model::{Base, HeadDescriptor, HeadModel};
use crate::json::{Keys, show};
use crate::kind::ModelKind;
use crate::modules;
use crate::options::{LoadOptions, Truncate};
use crate::outputs::Outputs;
use crate::sentence_transformers::Task;
use crate::template::{Role, Templates};
use crate::tokenizer::{Input, Tokens};

/// How texts become tokens, and which tokens have rows.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "head", rename_all = "kebab-case")]
enum Rules {
    Colbert {
        query_marker: u32,
        document_marker: u32,
        query_length: usize,
        /// The token that queries are filled up with; `None`: they are not.
        filler: Option<u32>,
        /// Whether the fillers are attended to.
        attend: bool,
        /// Ids whose rows are left out of documents.
        skip: Vec<u32>,
    },
    BgeM3,
}

/// A loaded multi-vector model.
pub(crate) struct MultiVectorModel {
    base: Base,
    projection: Projection,
    rules: Rules,
    descriptor: HeadDescriptor,
    contract: String,
}

const METADATA: &str = "artifact.metadata";
const PROMPTS: &str = "config_sentence_transformers.json";
/// BGE-M3's head, the first that is there.
const M3: [&str; 2] = ["colbert_linear.safetensors", "colbert_linear.pt"];
/// What colbert-ai calls punctuation: Python's `string.punctuation`.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// colbert-ai's and PyLate's defaults.
const QUERY_LENGTH: usize = 32;
const DOCUMENT_LENGTH: usize = 180;

impl MultiVectorModel {
    /// Loads a multi-vector model of whichever rules its files have.
    pub(crate) fn load(files: &ModelFiles, options: &LoadOptions) -> Result<MultiVectorModel, LoadError> {
        if let Some(name) = M3.iter().find(|name| files.exists(name)) {
            return Self::bge_m3(files, options, name);
        }
        ModelKind::MultiVector.check(files)?;
        if options.truncate == Some(Truncate::Start) {
            return Err(LoadError::UnsupportedOption {
                option: "truncate",
                value: "start".to_owned(),
                kind: ModelKind::MultiVector,
                supported: "end, error",
            });
        }
        if files.exists(METADATA) {
            Self::colbert(files, options)
        } else if let Some(modules) = modules::list(files)? {
            Self::pylate(files, options, &modules)
        } else {
            let reason = format!(
                "it has neither {METADATA} (ColBERT), nor modules.json with a Dense module (PyLate), nor colbert_linear.pt (BGE-M3)"
            );
            Err(LoadError::NotOfKind { folder: files.folder.clone(), wanted: ModelKind::MultiVector, reason })
        }
    }

    fn colbert(files: &ModelFiles, options: &LoadOptions) -> Result<MultiVectorModel, LoadError> {
        let metadata = files.read_json(METADATA)?;
        let keys = Keys::new(METADATA, metadata.as_ref())?;
        keys.only("similarity", "cosine")?;
        let (base, checkpoint) = Base::load(files, options, "", &Task::EMBEDDING)?;
        let marker = |key, default: &str| -> Result<u32, LoadError> {
            let token = keys.text(key)?.unwrap_or(default);
            base.tokenizer.id_of(token).ok_or_else(|| keys.malformed(key, "a token of the tokenizer"))
        };
        let rules = Rules::Colbert {
            query_marker: marker("query_token_id", "[unused0]")?,
            document_marker: marker("doc_token_id", "[unused1]")?,
            query_length: keys.count("query_maxlen")?.unwrap_or(QUERY_LENGTH),
            filler: Some(mask(files, &base)?),
            attend: keys.flag("attend_to_mask_tokens")?.unwrap_or(false),
            skip: if keys.flag("mask_punctuation")?.unwrap_or(true) { punctuation(&base)? } else { Vec::new() },
        };
        let projection =
            Projection::load(options.isa, &checkpoint.weights, "linear.", false, base.encoder.hidden_size());
        let projection = projection.map_err(EncoderError::from)?;
        if let Some(dim) = keys.count("dim")?
            && dim != projection.dimensions()
        {
            let (expected, actual) = (projection.dimensions(), dim);
            return Err(LoadError::WidthMismatch { what: METADATA.to_owned(), expected, actual });
        }
        let length = keys.count("doc_maxlen")?.unwrap_or(DOCUMENT_LENGTH);
        Self::assemble(files, options, base, (projection, rules, Some(length)), &[METADATA])
    }

    fn pylate(
        files: &ModelFiles,
        options: &LoadOptions,
        modules: &[modules::Module],
    ) -> Result<MultiVectorModel, LoadError> {
        let known: Vec<Option<&str>> = modules.iter().map(|module| module.class.as_deref()).collect();
        let [transformer, dense] = modules else {
            return Err(LoadError::Malformed {
                file: "modules.json".to_owned(),
                key: "the list".to_owned(),
                value: format!("{} modules", modules.len()),
                expected: "Transformer and Dense",
            });
        };
        if let Some(position) = (0..2).find(|&at| known[at] != Some(["Transformer", "Dense"][at])) {
            return Err(LoadError::UnsupportedModule {
                file: "modules.json".to_owned(),
                module: modules[position].path.clone(),
                position,
                supported: "Transformer, then Dense",
            });
        }
        let (base, _) = Base::load(files, options, &transformer.folder, &Task::EMBEDDING)?;
        let file = format!("{}config.json", dense.folder);
        let json = files.read_json(&file)?;
        let of_dense = Keys::new(&file, json.as_ref())?;
        if of_dense.text("activation_function")?.is_some_and(|path| !path.ends_with(".Identity")) {
            return Err(of_dense.unsupported("activation_function", "torch.nn.….Identity"));
        }
        let bias = of_dense.flag("bias")?.unwrap_or(true);
        let weights = format!("{}model.safetensors", dense.folder);
        let opened = Weights::open_file(&files.path(&weights)?).map_err(EncoderError::from)?;
        let projection = Projection::load(options.isa, &opened, "linear.", bias, base.encoder.hidden_size());
        let projection = projection.map_err(EncoderError::from)?;

        let json = files.read_json(PROMPTS)?;
        let keys = Keys::new(PROMPTS, json.as_ref())?;
        keys.only("similarity_fn_name", "MaxSim")?;
        let marker = |key, default: &str| -> Result<u32, LoadError> {
            let token = keys.text(key)?.unwrap_or(default);
            base.tokenizer.id_of(token).ok_or_else(|| keys.malformed(key, "a token of the tokenizer"))
        };
        let skip = match keys.get("skiplist_words") {
            None => punctuation(&base)?,
            Some(list) => list
                .as_array()
                .and_then(|words| words.iter().map(|word| word.as_str()).collect::<Option<Vec<_>>>())
                .ok_or_else(|| keys.malformed("skiplist_words", "a list of words"))?
                .into_iter()
                .filter_map(|word| base.tokenizer.id_of(word))
                .collect(),
        };
        let expand = keys.flag("do_query_expansion")?.unwrap_or(true);
        let rules = Rules::Colbert {
            query_marker: marker("query_prefix", "[Q] ")?,
            document_marker: marker("document_prefix", "[D] ")?,
            query_length: keys.count("query_length")?.unwrap_or(QUERY_LENGTH),
            filler: if expand { Some(mask(files, &base)?) } else { None },
            attend: keys.flag("attend_to_expansion_tokens")?.unwrap_or(false),
            skip,
        };
        let length = keys.count("document_length")?.unwrap_or(DOCUMENT_LENGTH);
        Self::assemble(files, options, base, (projection, rules, Some(length)), &[PROMPTS, &file, &weights])
    }

    fn bge_m3(files: &ModelFiles, options: &LoadOptions, name: &str) -> Result<MultiVectorModel, LoadError> {
        let (base, _) = Base::load(files, options, "", &Task::EMBEDDING)?;
        let weights = Weights::open_file(&files.path(name)?).map_err(EncoderError::from)?;
        let projection = Projection::load(options.isa, &weights, "", true, base.encoder.hidden_size());
        let projection = projection.map_err(EncoderError::from)?;
        Self::assemble(files, options, base, (projection, Rules::BgeM3, None), &[name])
    }

    fn assemble(
        files: &ModelFiles,
        options: &LoadOptions,
        mut base: Base,
        (projection, rules, length): (Projection, Rules, Option<usize>),
        own: &[&str],
    ) -> Result<MultiVectorModel, LoadError> {
        let positions = base.encoder.max_position_embeddings();
        let (head, query_length) = match &rules {
            Rules::Colbert { query_length, .. } => ("colbert", Some((*query_length).min(positions))),
            Rules::BgeM3 => ("bge-m3", None),
        };
        if let Some(length) = length {
            base.limit.stated = Some(length);
            if base.truncate == Truncate::Start {
                base.truncate = Truncate::End;
            }
        }
        // A marker besides.
        let special = base.tokenizer.special_tokens() + usize::from(query_length.is_some());
        let max_length = base.max_length(options, special)?;
        if let Some(length) = query_length {
            base.check(length, special)?;
        }
        let descriptor = HeadDescriptor {
            id: files.id.clone(),
            revision: files.revision.clone(),
            model_type: base.config["model_type"].as_str().unwrap_or_default().to_owned(),
            kind: ModelKind::MultiVector,
            head,
            dimensions: projection.dimensions(),
            max_length,
            query_length,
            truncate: base.truncate,
            activation: None,
            query_template: None,
            passage_template: None,
            default_instruction: None,
        };
        let contract = base.contract(files, own, &descriptor, &Templates::default(), &rules, options.precision)?;
        Ok(MultiVectorModel { base, projection, rules, descriptor, contract })
    }
}

impl HeadModel for MultiVectorModel {
    fn descriptor(&self) -> &HeadDescriptor {
        &self.descriptor
    }

    fn contract(&self) -> &str {
        &self.contract
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        Templates::default().choose(role, instruction).map(|_| ())
    }

    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        let (templates, limit) = (Templates::default(), self.descriptor.max_length);
        let Rules::Colbert { query_marker, document_marker, filler, .. } = &self.rules else {
            return self.base.tokenize(&templates, input, limit, go_on);
        };
        let query = input.role == Role::Query;
        let (marker, limit) = match self.descriptor.query_length {
            Some(length) if query => (*query_marker, length),
            _ => (*document_marker, limit),
        };
        let tokens = match self.base.tokenize(&templates, input, limit - 1, go_on) {
            // The marker counts too.
            Err(PipelineError::TextTooLong { actual, .. }) => {
                return Err(PipelineError::TextTooLong { limit, actual: actual + 1 });
            }
            tokens => tokens?,
        };
        Ok(tokens.map(|mut tokens| {
            tokens.ids.insert(1.min(tokens.ids.len()), marker);
            tokens.total += 1;
            if let (true, Some(filler)) = (query, filler) {
                tokens.padding = limit - tokens.ids.len();
                tokens.ids.resize(limit, *filler);
            }
            tokens
        }))
    }

    fn cost(&self, length: usize) -> u64 {
        let projection = 2 * length * self.base.encoder.hidden_size() * self.projection.dimensions();
        self.base.encoder.flops(length) + projection as u64
    }

    fn memory_bytes(&self) -> usize {
        self.base.encoder.memory_bytes() + self.projection.bytes()
    }

    fn encode(&self, batch: &[&Tokens], out: &mut Outputs, ctx: &mut Context<'_>) -> Result<(), EncodeError> {
        let apart =
            matches!(self.rules, Rules::Colbert { attend: false, .. }) && batch.iter().any(|tokens| tokens.padding > 0);
        let hidden = self.base.forward(batch, Rows::All, apart, ctx)?;
        let dimensions = self.projection.dimensions();
        let mut row = Vec::new();
        for (i, tokens) in batch.iter().enumerate() {
            let vectors = self.projection.apply(hidden.rows(i));
            row.clear();
            for (at, (vector, id)) in vectors.chunks_exact(dimensions).zip(&tokens.ids).enumerate() {
                let kept = match &self.rules {
                    Rules::Colbert { skip, .. } => tokens.role == Role::Query || !skip.contains(id),
                    Rules::BgeM3 => at > 0,
                };
                if kept {
                    row.extend_from_slice(vector);
                }
            }
            out.push(&row);
        }
        hidden.recycle(ctx.scratch);
        Ok(())
    }
}

/// The token that queries are filled up with.
fn mask(files: &ModelFiles, base: &Base) -> Result<u32, LoadError> {
    let known = ["[MASK]", "<mask>"].into_iter().find_map(|token| base.tokenizer.id_of(token));
    known.ok_or_else(|| LoadError::Tokenizer {
        folder: files.folder.clone(),
        message: "it has neither [MASK] nor <mask>, which queries are filled up with".to_owned(),
    })
}

/// The first token of each punctuation character, as colbert-ai has it, unless that is the unknown one.
fn punctuation(base: &Base) -> Result<Vec<u32>, LoadError> {
    let unknown: Vec<u32> = ["[UNK]", "<unk>"].into_iter().filter_map(|token| base.tokenizer.id_of(token)).collect();
    let mut skip = Vec::new();
    for symbol in PUNCTUATION.chars() {
        let ids = base.tokenizer.bare(&symbol.to_string(), &|| true).map_err(|error| LoadError::Malformed {
            file: "tokenizer.json".to_owned(),
            key: "the model".to_owned(),
            value: show(Some(&error.to_string().into())),
            expected: "a tokenizer that reads punctuation",
        })?;
        skip.extend(ids.unwrap_or_default().first().filter(|id| !unknown.contains(id)));
    }
    Ok(skip)
}
