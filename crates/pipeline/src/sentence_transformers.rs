//! The files in which sentence-transformers describes a model, in the layouts of its versions 1 to 6.
//!
//! | file | what is read |
//! |---|---|
//! | `modules.json` | the modules in order; only the last part of a class path counts, because version 6 moved the classes |
//! | `<transformer>/sentence_bert_config.json` (and its older names) | `max_seq_length`, `do_lower_case` |
//! | `<transformer>/tokenizer_config.json` | `model_max_length`, `truncation_side`, and what [`crate::normalizer`] reads |
//! | `1_Pooling/config.json` | `pooling_mode` (version 6) or the `pooling_mode_*` booleans, `include_prompt` |
//! | `2_Dense/config.json` … | widths, bias, activation |
//! | `config_sentence_transformers.json` | `prompts`, `model_type` |
//!
//! What changes a vector and is not supported is refused by name. `default_prompt_name` is ignored on purpose: a call
//! without a role never gets a prompt. An empty prompt says nothing: version 5 and later write it into every file.

use serde_json::Value;
use simile_encoder::Pooling;
use simile_hub::{ModelFiles, check_relative_name};

use crate::dense::DenseConfig;
use crate::error::LoadError;
use crate::json::{Keys, show};
use crate::normalizer::BertKeys;
use crate::options::Truncate;

/// What the files say. Absent files say nothing.
#[derive(Debug)]
pub(crate) struct Files {
    /// Folder of the transformer, relative to the model's, with a trailing `/`; empty for the model's own.
    pub(crate) transformer: String,
    /// Whether `modules.json` is there, so that the absence of a module means something.
    pub(crate) modules_listed: bool,
    pub(crate) pooling: Option<PoolingFile>,
    /// Dense modules after the pooling, in order.
    pub(crate) dense: Vec<DenseConfig>,
    /// Whether a Normalize module comes last.
    pub(crate) normalize: bool,
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

const MODULES: &str = "modules.json";
const PROMPTS: &str = "config_sentence_transformers.json";

/// Reads them all.
///
/// # Errors
/// [`LoadError::UnsupportedModule`], [`LoadError::UnsupportedValue`], [`LoadError::Malformed`], [`LoadError::Hub`].
pub(crate) fn read(files: &ModelFiles) -> Result<Files, LoadError> {
    let modules = Modules::read(files)?;
    let Transformer { limit, lowercase, bert_keys, truncation_side } =
        transformer(files, &modules.transformer, &Task::EMBEDDING)?;
    let (query_prompt, passage_prompt) = prompts(files, "SentenceTransformer")?;
    Ok(Files {
        pooling: modules.pooling.map(|folder| pooling(files, &folder)).transpose()?,
        dense: modules.dense.iter().map(|folder| DenseConfig::read(files, folder)).collect::<Result<_, _>>()?,
        transformer: modules.transformer,
        modules_listed: modules.listed,
        normalize: modules.normalize,
        limit,
        lowercase,
        bert_keys,
        truncation_side,
        query_prompt,
        passage_prompt,
    })
}

/// `modules.json`: folders with a trailing `/`, the transformer's empty when it is the model's own.
struct Modules {
    listed: bool,
    transformer: String,
    pooling: Option<String>,
    dense: Vec<String>,
    normalize: bool,
}

impl Modules {
    fn read(files: &ModelFiles) -> Result<Modules, LoadError> {
        let Some(json) = files.read_json(MODULES)? else {
            // Some repositories have the pooling's folder and nothing that names it.
            let pooling = files.exists("1_Pooling/config.json").then(|| "1_Pooling/".to_owned());
            return Ok(Modules {
                listed: false,
                transformer: String::new(),
                pooling,
                dense: Vec::new(),
                normalize: false,
            });
        };
        let malformed = |key: String, value: &Value, expected| LoadError::Malformed {
            file: MODULES.to_owned(),
            key,
            value: show(Some(value)),
            expected,
        };
        let list = json.as_array().ok_or_else(|| malformed("the file".to_owned(), &json, "a list of modules"))?;
        let mut modules =
            Modules { listed: true, transformer: String::new(), pooling: None, dense: Vec::new(), normalize: false };
        for (position, module) in list.iter().enumerate() {
            let text = |key: &str| {
                let value = &module[key];
                value.as_str().ok_or_else(|| malformed(format!("{key} of module {position}"), value, "a text"))
            };
            let class = text("type")?;
            let folder = folder(text("path")?)?;
            let refuse = |supported| {
                Err(LoadError::UnsupportedModule {
                    file: MODULES.to_owned(),
                    module: class.to_owned(),
                    position,
                    supported,
                })
            };
            // A class outside the package is code of the repository, whatever it is called.
            let known = class.strip_prefix("sentence_transformers.").and_then(|path| path.rsplit('.').next());
            match (position, known) {
                (0, Some("Transformer")) => modules.transformer = folder,
                (0, _) => return refuse("Transformer"),
                (1, Some("Pooling")) => modules.pooling = Some(folder),
                (1, _) => return refuse("Pooling"),
                (_, Some("Dense")) if !modules.normalize => modules.dense.push(folder),
                (_, Some("Normalize")) if position + 1 == list.len() => {
                    modules.normalize = true;
                    acts_on_the_vector(files, &folder)?;
                }
                // Dropout does nothing outside training.
                (_, Some("Dropout")) => {}
                _ => return refuse("Dense, Dropout, and Normalize at the end"),
            }
        }
        match (list.len(), &modules.pooling) {
            (2.., Some(_)) => Ok(modules),
            _ => Err(malformed("the list".to_owned(), &json, "at least Transformer and Pooling")),
        }
    }
}

/// A module of `modules.json`.
pub(crate) struct Module {
    /// Its class path, as the file has it.
    pub(crate) path: String,
    /// The last part of it; `None` for a class outside the packages whose classes are known.
    pub(crate) class: Option<String>,
    /// Its folder, with a trailing `/`; empty for the model's own.
    pub(crate) folder: String,
}

/// `modules.json` as it is, for models that are not dense. `None` when it is not there.
///
/// # Errors
/// [`LoadError::Malformed`], [`LoadError::Hub`].
pub(crate) fn modules(files: &ModelFiles) -> Result<Option<Vec<Module>>, LoadError> {
    let Some(json) = files.read_json(MODULES)? else { return Ok(None) };
    let malformed = |key: String, value: &Value, expected| LoadError::Malformed {
        file: MODULES.to_owned(),
        key,
        value: show(Some(value)),
        expected,
    };
    let list = json.as_array().ok_or_else(|| malformed("the file".to_owned(), &json, "a list of modules"))?;
    let module = |(position, module): (usize, &Value)| {
        let text = |key: &str| {
            let value = &module[key];
            value.as_str().ok_or_else(|| malformed(format!("{key} of module {position}"), value, "a text"))
        };
        let path = text("type")?;
        let known = ["sentence_transformers.", "pylate."].into_iter().any(|package| path.starts_with(package));
        let class = known.then(|| path.rsplit('.').next().unwrap_or_default().to_owned());
        Ok(Module { path: path.to_owned(), class, folder: folder(text("path")?)? })
    };
    list.iter().enumerate().map(module).collect::<Result<_, _>>().map(Some)
}

/// Refuses a Normalize module (of version 6) that works on something else than the sentence's vector.
fn acts_on_the_vector(files: &ModelFiles, folder: &str) -> Result<(), LoadError> {
    let file = format!("{folder}config.json");
    // With an empty path the file is the transformer's own.
    let json = if folder.is_empty() { None } else { files.read_json(&file)? };
    let keys = Keys::new(&file, json.as_ref())?;
    keys.only("module_input_name", "sentence_embedding")?;
    keys.only("module_output_name", "sentence_embedding")
}

/// A module's folder as a prefix of file names.
fn folder(path: &str) -> Result<String, LoadError> {
    let path = path.trim_end_matches('/');
    if path.is_empty() || path == "." {
        return Ok(String::new());
    }
    check_relative_name(path)?;
    Ok(format!("{path}/"))
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
    let bert_keys = BertKeys::read(&tokenizer, &Keys::new(&config_file, config.as_ref())?)?;

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
    Ok(Transformer { limit, lowercase, bert_keys, truncation_side })
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

/// Prompts of queries and passages.
pub(crate) fn prompts(files: &ModelFiles, model_type: &str) -> Result<(Option<String>, Option<String>), LoadError> {
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
    Ok((prompt(&["query"])?, prompt(&["document", "passage", "corpus"])?))
}

#[cfg(test)]
mod tests;
