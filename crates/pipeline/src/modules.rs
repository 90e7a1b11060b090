//! `modules.json`: which modules a model is made of, in which order.
//!
//! Only the last part of a class path counts, because sentence-transformers moved its classes between versions 5 and 6. A
//! class outside that package is code of the repository, whatever it is called, and is refused.
//!
//! ```text
//! Transformer, Pooling, {Dense | LayerNorm}*, Normalize?
//! StaticEmbedding, {Dense | LayerNorm}*, Normalize?
//! ```
//! Dropout may stand anywhere behind the vector: outside training it does nothing.

use serde_json::Value;
use simile_hub::{ModelFiles, check_relative_name};

use crate::error::LoadError;
use crate::json::{Keys, show};
use crate::vector_modules::Kind;

pub(crate) const MODULES: &str = "modules.json";

/// A module of the list.
pub(crate) struct Module {
    /// Its class path, as the file has it.
    pub(crate) path: String,
    /// The last part of it; `None` for a class outside the packages whose classes are known.
    pub(crate) class: Option<String>,
    /// Its folder, with a trailing `/`; empty for the model's own.
    pub(crate) folder: String,
}

/// The list as it is; `None` when it is not there.
///
/// # Errors
/// [`LoadError::Malformed`], [`LoadError::Hub`].
pub(crate) fn list(files: &ModelFiles) -> Result<Option<Vec<Module>>, LoadError> {
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

/// Refuses a list that is anything but a transformer, where there is a list.
///
/// # Errors
/// [`LoadError::UnsupportedModule`], [`LoadError::Malformed`], [`LoadError::Hub`].
pub(crate) fn only_a_transformer(files: &ModelFiles) -> Result<(), LoadError> {
    let Some(list) = list(files)? else { return Ok(()) };
    let count = list.len();
    for (position, Module { path, class, folder }) in list.into_iter().enumerate() {
        if (position, class.as_deref(), folder.as_str()) != (0, Some("Transformer"), "") {
            let supported = "one Transformer, in the model's own folder";
            return Err(LoadError::UnsupportedModule { file: MODULES.to_owned(), module: path, position, supported });
        }
    }
    match count {
        1 => Ok(()),
        _ => Err(LoadError::Malformed {
            file: MODULES.to_owned(),
            key: "the list".to_owned(),
            value: format!("{count} modules"),
            expected: "one Transformer",
        }),
    }
}

/// What makes the vector, or the token vectors, of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputModule {
    Transformer,
    StaticEmbedding,
}

/// Folders of the modules, with a trailing `/`; empty for the model's own.
#[derive(Debug)]
pub(crate) struct Modules {
    pub(crate) input: InputModule,
    /// The input module's folder.
    pub(crate) folder: String,
    pub(crate) pooling: Option<String>,
    /// Modules with weights of their own that work on the vector, in order.
    pub(crate) vector_modules: Vec<(Kind, String)>,
    /// Whether a Normalize module comes last; `None` without a `modules.json`.
    pub(crate) normalize: Option<bool>,
}

impl Modules {
    /// Reads the list. Without one, the model is a transformer with the pooling of `1_Pooling`, if that is there, unless
    /// `config.json` says that it is model2vec's.
    ///
    /// # Errors
    /// [`LoadError::UnsupportedModule`], [`LoadError::Malformed`], [`LoadError::Hub`].
    pub(crate) fn read(files: &ModelFiles) -> Result<Modules, LoadError> {
        match list(files)? {
            Some(list) => Modules::listed(files, list),
            None => Modules::unlisted(files),
        }
    }

    fn unlisted(files: &ModelFiles) -> Result<Modules, LoadError> {
        let config = files.read_json("config.json")?;
        let model_type = Keys::new("config.json", config.as_ref())?.get("model_type").and_then(Value::as_str);
        let input = match model_type {
            Some("model2vec") => InputModule::StaticEmbedding,
            _ => InputModule::Transformer,
        };
        let pooling = files.exists("1_Pooling/config.json").then(|| "1_Pooling/".to_owned());
        Ok(Modules { input, folder: String::new(), pooling, vector_modules: Vec::new(), normalize: None })
    }

    fn listed(files: &ModelFiles, list: Vec<Module>) -> Result<Modules, LoadError> {
        let mut modules = Modules {
            input: InputModule::Transformer,
            folder: String::new(),
            pooling: None,
            vector_modules: Vec::new(),
            normalize: Some(false),
        };
        let count = list.len();
        for (position, Module { path, class, folder }) in list.into_iter().enumerate() {
            let refuse = |supported| {
                Err(LoadError::UnsupportedModule {
                    file: MODULES.to_owned(),
                    module: path.clone(),
                    position,
                    supported,
                })
            };
            let pooled = modules.pooling.is_some() || modules.input == InputModule::StaticEmbedding;
            match (position, class.as_deref()) {
                (0, Some("Transformer")) => modules.folder = folder,
                (0, Some("StaticEmbedding")) => {
                    modules.input = InputModule::StaticEmbedding;
                    modules.folder = folder;
                }
                (0, Some("Router" | "Asym")) => {
                    return refuse(
                        "Transformer or StaticEmbedding; a router with a model for queries and another for documents is \
                         two models: load the folder of each route",
                    );
                }
                (0, _) => return refuse("Transformer or StaticEmbedding"),
                (1, Some("Pooling")) if !pooled => modules.pooling = Some(folder),
                (1, _) if !pooled => return refuse("Pooling"),
                (_, Some("Dense")) if modules.normalize == Some(false) => {
                    modules.vector_modules.push((Kind::Dense, folder));
                }
                (_, Some("LayerNorm")) if modules.normalize == Some(false) => {
                    modules.vector_modules.push((Kind::LayerNorm, folder));
                }
                (_, Some("Normalize")) if position + 1 == count => {
                    modules.normalize = Some(true);
                    acts_on_the_vector(files, &folder)?;
                }
                (_, Some("Dropout")) => {}
                _ => return refuse("Dense, LayerNorm, Dropout, and Normalize at the end"),
            }
        }
        match (count, modules.input, &modules.pooling) {
            (1.., InputModule::StaticEmbedding, None) | (2.., InputModule::Transformer, Some(_)) => Ok(modules),
            _ => Err(LoadError::Malformed {
                file: MODULES.to_owned(),
                key: "the list".to_owned(),
                value: format!("{count} modules"),
                expected: "at least Transformer and Pooling, or StaticEmbedding",
            }),
        }
    }
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
