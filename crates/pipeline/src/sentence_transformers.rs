//! The files in which sentence-transformers describes a model, in the layouts of its versions 1 to 6.
//!
//! | file | what is read |
//! |---|---|
//! | `modules.json` | the modules in order; only the last part of a class path counts, because version 6 moved the classes |
//! | `<transformer>/sentence_bert_config.json` (and its older names) | `max_seq_length`, `do_lower_case` |
//! | `<transformer>/tokenizer_config.json` | `model_max_length`, `truncation_side`, and what [`crate::normalizer`] reads |
//! | `1_Pooling/config.json` | `pooling_mode` (version 6) or the `pooling_mode_*` booleans, `include_prompt` |
//! | `2_Dense/config.json`, `3_LayerNorm/config.json` … | widths, bias, activation |
//! | `config_sentence_transformers.json` | `prompts`, `model_type`, `truncate_dim` |
//! | `config.json` | `matryoshka_dimensions`; of a static model see [`crate::static_files`] |
//!
//! What changes a vector and is not supported is refused by name. `default_prompt_name` is ignored on purpose: a call
//! without a role never gets a prompt. An empty prompt says nothing: version 5 and later write it into every file.

use serde_json::Value;
use simile_encoder::Pooling;
use simile_hub::ModelFiles;

use crate::error::LoadError;
use crate::json::{Keys, show};
use crate::modules::{InputModule, MODULES, Modules};
use crate::normalizer::BertKeys;
use crate::options::Truncate;
use crate::static_files::StaticFiles;
use crate::vector_modules::VectorModuleConfig;

/// What the files say. Absent files say nothing.
#[derive(Debug)]
pub(crate) struct Files {
    /// Folder of the transformer, relative to the model's, with a trailing `/`; empty for the model's own.
    pub(crate) transformer: String,
    pub(crate) pooling: Option<PoolingFile>,
    /// What a static model's files say; `None` for a transformer.
    pub(crate) static_model: Option<StaticFiles>,
    /// Modules with weights of their own after the pooling, in order.
    pub(crate) vector_modules: Vec<VectorModuleConfig>,
    /// Whether vectors get unit length; `None` where no file says it.
    pub(crate) normalize: Option<bool>,
    /// Dimensions that vectors may be cut to.
    pub(crate) matryoshka: Vec<usize>,
    pub(crate) limit: Limit,
    /// Whether texts are lower-cased first.
    pub(crate) lowercase: bool,
    /// What `tokenizer_config.json` says about BERT's normalizer.
    pub(crate) bert_keys: BertKeys,
    pub(crate) truncation_side: Option<Truncate>,
    pub(crate) query_prompt: Option<String>,
    pub(crate) passage_prompt: Option<String>,
}

/// `1_Pooling/config.json`.
#[derive(Debug, PartialEq)]
pub(crate) struct PoolingFile {
    /// The file's name, for messages.
    pub(crate) file: String,
    /// Width that it is made for, where it says so.
    pub(crate) width: Option<usize>,
    pub(crate) modes: Vec<Pooling>,
    pub(crate) include_prompt: bool,
}

/// Limits in tokens that the files name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Limit {
    /// `max_seq_length`, or what stands for it in a layout that no longer has it.
    pub(crate) stated: Option<usize>,
    /// `model_max_length` of the tokenizer; `None` also for the huge number that means "no limit".
    pub(crate) tokenizer: Option<usize>,
}

/// Names of the transformer module's file, newest first.
const TRANSFORMER_CONFIGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// The booleans of older files, in the order in which they are concatenated.
const POOLING_FLAGS: [(&str, Pooling); 6] = [
    ("pooling_mode_cls_token", Pooling::Cls),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("pooling_mode_lasttoken", Pooling::LastToken),
];

const PROMPTS: &str = "config_sentence_transformers.json";

/// Reads them all.
///
/// # Errors
/// [`LoadError::UnsupportedModule`], [`LoadError::UnsupportedValue`], [`LoadError::Malformed`], [`LoadError::Hub`].
pub(crate) fn read(files: &ModelFiles) -> Result<Files, LoadError> {
    let modules = Modules::read(files)?;
    let Prompts { query, passage, truncate_dim } = prompts(files, "SentenceTransformer")?;
    let (transformer, static_model, pooling, normalize);
    match modules.input {
        InputModule::Transformer => {
            transformer = self::transformer(files, &modules.folder, &Task::EMBEDDING)?;
            static_model = None;
            pooling = modules.pooling.map(|folder| self::pooling(files, &folder)).transpose()?;
            normalize = modules.normalize;
        }
        InputModule::StaticEmbedding => {
            let read = StaticFiles::read(files, &modules.folder)?;
            transformer = Transformer::of_static(&read);
            normalize = modules.normalize.or(read.normalize);
            static_model = Some(read);
            pooling = Some(PoolingFile {
                file: MODULES.to_owned(),
                width: None,
                modes: vec![Pooling::Mean],
                include_prompt: true,
            });
        }
    }
    let Transformer { limit, lowercase, bert_keys, truncation_side, matryoshka } = transformer;
    Ok(Files {
        pooling,
        static_model,
        vector_modules: modules
            .vector_modules
            .iter()
            .map(|(kind, folder)| VectorModuleConfig::read(files, *kind, folder))
            .collect::<Result<_, _>>()?,
        transformer: modules.folder,
        normalize,
        matryoshka: matryoshka.into_iter().chain(truncate_dim).collect(),
        limit,
        lowercase,
        bert_keys,
        truncation_side,
        query_prompt: query,
        passage_prompt: passage,
    })
}

/// What a transformer module is made for (`sentence_bert_config.json`, since version 6).
pub(crate) struct Task {
    /// `transformer_task`.
    pub(crate) name: &'static str,
    /// `module_output_name`.
    pub(crate) output: &'static str,
}

impl Task {
    pub(crate) const EMBEDDING: Task = Task { name: "feature-extraction", output: "token_embeddings" };
}

/// What the transformer module's files say.
pub(crate) struct Transformer {
    pub(crate) limit: Limit,
    pub(crate) lowercase: bool,
    pub(crate) bert_keys: BertKeys,
    pub(crate) truncation_side: Option<Truncate>,
    pub(crate) matryoshka: Vec<usize>,
}

impl Transformer {
    /// What stands for it in a static model, whose tokenizer comes from `tokenizer.json` alone.
    fn of_static(read: &StaticFiles) -> Transformer {
        Transformer {
            limit: Limit { stated: Some(read.max_length), tokenizer: None },
            lowercase: false,
            bert_keys: BertKeys::default(),
            truncation_side: None,
            matryoshka: Vec::new(),
        }
    }
}

/// Reads the files of the transformer module.
pub(crate) fn transformer(files: &ModelFiles, folder: &str, task: &Task) -> Result<Transformer, LoadError> {
    let tokenizer_file = format!("{folder}tokenizer_config.json");
    let tokenizer = files.read_json(&tokenizer_file)?;
    let tokenizer = Keys::new(&tokenizer_file, tokenizer.as_ref())?;
    // "No limit" is written as 1000000000000000019884624838656.
    let model_max_length =
        tokenizer.number("model_max_length")?.filter(|length| *length < 1e9).map(|length| length as usize);
    let truncation_side = match tokenizer.text("truncation_side")? {
        None => None,
        Some("right") => Some(Truncate::End),
        Some("left") => Some(Truncate::Start),
        Some(_) => return Err(tokenizer.unsupported("truncation_side", "left, right")),
    };

    let config_file = format!("{folder}config.json");
    let config = files.read_json(&config_file)?;
    let config = Keys::new(&config_file, config.as_ref())?;
    let bert_keys = BertKeys::read(&tokenizer, &config)?;
    // Some repositories say it there (jina-embeddings-v3).
    let matryoshka = config.counts("matryoshka_dimensions")?;

    let mut limit = Limit { stated: None, tokenizer: model_max_length };
    let mut lowercase = false;
    for name in TRANSFORMER_CONFIGS {
        let file = format!("{folder}{name}");
        let Some(json) = files.read_json(&file)? else {
            continue;
        };
        let keys = Keys::new(&file, Some(&json))?;
        keys.only("transformer_task", task.name)?;
        keys.only("module_output_name", task.output)?;
        arguments(&keys)?;
        lowercase = keys.flag("do_lower_case")?.unwrap_or(false);
        // Since version 6 the file has no limit any more: it is written to the tokenizer's.
        limit.stated = keys.count("max_seq_length")?.or(model_max_length);
        break;
    }
    Ok(Transformer { limit, lowercase, bert_keys, truncation_side, matryoshka })
}

/// Arguments that sentence-transformers would hand on to transformers: only those that change no vector are let through.
fn arguments(keys: &Keys<'_>) -> Result<(), LoadError> {
    const GROUPS: [&str; 7] = [
        "model_args",
        "model_kwargs",
        "tokenizer_args",
        "processor_kwargs",
        "config_args",
        "config_kwargs",
        "processing_kwargs",
    ];
    const HARMLESS: [&str; 4] = ["trust_remote_code", "torch_dtype", "dtype", "attn_implementation"];
    for group in GROUPS {
        let arguments = keys.object(group)?;
        if let Some(name) = arguments.names().find(|name| !HARMLESS.contains(name)) {
            return Err(arguments.unsupported(name, &HARMLESS.join(", ")));
        }
    }
    for key in ["tokenizer_name_or_path", "query_length", "document_length"] {
        if keys.get(key).is_some() {
            return Err(keys.unsupported(key, "nothing"));
        }
    }
    Ok(())
}

/// Pooling modes of a module that is listed.
fn pooling(files: &ModelFiles, folder: &str) -> Result<PoolingFile, LoadError> {
    let file = format!("{folder}config.json");
    let Some(json) = files.read_json(&file)? else {
        let advice = "modules.json lists a Pooling module there; download the model again";
        return Err(LoadError::MissingFile { folder: files.folder.clone(), name: file, advice });
    };
    let keys = Keys::new(&file, Some(&json))?;
    let mode = |key: &str, name: &Value| {
        name.as_str().and_then(Pooling::from_name).ok_or_else(|| {
            let supported = Pooling::ALL.map(Pooling::name).join(", ");
            LoadError::UnsupportedValue { file: file.clone(), key: key.to_owned(), value: show(Some(name)), supported }
        })
    };
    let modes = match keys.get("pooling_mode") {
        Some(Value::Array(names)) if !names.is_empty() => {
            names.iter().map(|name| mode("pooling_mode", name)).collect::<Result<_, _>>()?
        }
        Some(name) => vec![mode("pooling_mode", name)?],
        None => flags(&keys)?,
    };
    let width = match keys.count("embedding_dimension")? {
        None => keys.count("word_embedding_dimension")?,
        width => width,
    };
    let include_prompt = keys.flag("include_prompt")?.unwrap_or(true);
    Ok(PoolingFile { file, width, modes, include_prompt })
}

/// The older booleans. All false means mean, as there; none at all is a layout that we do not know.
fn flags(keys: &Keys<'_>) -> Result<Vec<Pooling>, LoadError> {
    let mut modes = Vec::new();
    let mut known = false;
    for (key, mode) in POOLING_FLAGS {
        if let Some(on) = keys.flag(key)? {
            known = true;
            modes.extend(on.then_some(mode));
        }
    }
    for key in
        keys.names().filter(|key| key.starts_with("pooling_mode_") && POOLING_FLAGS.iter().all(|(flag, _)| flag != key))
    {
        if keys.flag(key)? == Some(true) {
            return Err(keys.unsupported(key, &POOLING_FLAGS.map(|(flag, _)| flag).join(", ")));
        }
    }
    match (known, modes.is_empty()) {
        (false, _) => Err(keys.malformed("pooling_mode", "the name of a pooling, or the pooling_mode_* flags")),
        (true, true) => Ok(vec![Pooling::Mean]),
        (true, false) => Ok(modes),
    }
}

/// What `config_sentence_transformers.json` says.
pub(crate) struct Prompts {
    pub(crate) query: Option<String>,
    pub(crate) passage: Option<String>,
    /// A dimension that the model was saved to be cut to: an allowed one, because the reference does not cut by itself.
    pub(crate) truncate_dim: Option<usize>,
}

/// Reads it; its `model_type`, where there is one, must be the one that is given.
///
/// # Errors
/// [`LoadError::UnsupportedValue`], [`LoadError::Malformed`], [`LoadError::Hub`].
pub(crate) fn prompts(files: &ModelFiles, model_type: &str) -> Result<Prompts, LoadError> {
    let json = files.read_json(PROMPTS)?;
    let keys = Keys::new(PROMPTS, json.as_ref())?;
    keys.only("model_type", model_type)?;
    let prompts = keys.object("prompts")?;
    let prompt = |names: &[&str]| {
        for name in names {
            if let Some(prompt) = prompts.text(name)?.filter(|prompt| !prompt.is_empty()) {
                return Ok::<_, LoadError>(Some(prompt.to_owned()));
            }
        }
        Ok(None)
    };
    Ok(Prompts {
        query: prompt(&["query"])?,
        passage: prompt(&["document", "passage", "corpus"])?,
        truncate_dim: keys.count("truncate_dim")?,
    })
}

#[cfg(test)]
mod tests;
