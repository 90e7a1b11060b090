//! What is known of a model, and where it was known from: options beat files, files beat the registry.

use simile_encoder::Pooling;

use crate::error::LoadError;
use crate::options::{LoadOptions, Truncate};
use crate::registry::RegistryEntry;
use crate::sentence_transformers::{Files, Limit};
use crate::template::{Role, Template, Templates};

/// Whether vectors may be cut to fewer dimensions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Matryoshka {
    /// No: the model was not trained for it.
    #[default]
    None,
    /// To any dimension from 1 to the native one.
    Any,
    /// To these dimensions.
    Dimensions(Vec<usize>),
}

impl Matryoshka {
    /// Whether a vector of `native` dimensions may be cut to `dimensions`. Uncut is always allowed.
    pub fn allows(&self, dimensions: usize, native: usize) -> bool {
        dimensions == native
            || (1..native).contains(&dimensions)
                && match self {
                    Matryoshka::None => false,
                    Matryoshka::Any => true,
                    Matryoshka::Dimensions(some) => some.contains(&dimensions),
                }
    }
}

/// Facts that a caller knows better than the model's files and the registry. `None` leaves a fact as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorOverrides {
    /// How hidden states become one vector; several are concatenated in this order.
    pub pooling: Option<Vec<Pooling>>,
    /// Template of queries; `Some(None)` removes it.
    pub query_template: Option<Option<String>>,
    /// Template of passages; `Some(None)` removes it.
    pub passage_template: Option<Option<String>>,
    /// What `{instruction}` in a template stands for when a call gives none.
    pub default_instruction: Option<String>,
    /// Whether vectors may be cut.
    pub matryoshka: Option<Matryoshka>,
}

/// Where a resolved value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An option of the load.
    Option,
    /// The model's own files.
    Files,
    /// The registry.
    Registry,
    /// Nobody said anything: what sentence-transformers does then.
    Default,
}

/// Where the values of a [`ModelDescriptor`] that change a vector come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origins {
    /// Of `pooling`. [`Origin::Default`] deserves a look: mean pooling was assumed.
    pub pooling: Origin,
    /// Of `normalize`.
    pub normalize: Origin,
    /// Of `max_length`, before it was capped at the model's positions.
    pub max_length: Origin,
    /// Of `truncate`.
    pub truncate: Origin,
    /// Of `query_template`.
    pub query_template: Origin,
    /// Of `passage_template`.
    pub passage_template: Origin,
}

/// A loaded model's facts as they are in force.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDescriptor {
    /// The model's id; for a folder, the folder as it was given.
    pub id: String,
    /// The commit of its files, where one is known.
    pub revision: Option<String>,
    /// `model_type` of `config.json`.
    pub model_type: String,
    /// How hidden states become one vector; several are concatenated in this order.
    pub pooling: Vec<Pooling>,
    /// Whether a prompt's tokens are pooled with the text's.
    pub include_prompt: bool,
    /// Template of queries, a pattern with `{text}` and perhaps `{instruction}`.
    pub query_template: Option<String>,
    /// Template of passages.
    pub passage_template: Option<String>,
    /// What `{instruction}` stands for when a call gives none.
    pub default_instruction: Option<String>,
    /// Limit in tokens, special tokens and template included.
    pub max_length: usize,
    /// What happens to longer texts.
    pub truncate: Truncate,
    /// Whether vectors get unit length.
    pub normalize: bool,
    /// Native output dimension.
    pub dimensions: usize,
    /// Whether vectors may be cut.
    pub matryoshka: Matryoshka,
    /// Whether texts are lower-cased before anything else (`do_lower_case` of the files).
    pub lowercase: bool,
    /// SPDX identifier of its licence, where the registry knows one.
    pub licence: Option<String>,
    /// Size of its weights on the hub in bytes, to two digits, where the registry knows it.
    pub size_bytes: Option<u64>,
    /// Whether its licence has to be accepted on the hub.
    pub gated: bool,
    /// Where these values come from.
    pub origins: Origins,
}

/// The values that options, files and registry agree on, before the model itself is loaded.
pub(crate) struct Resolved {
    pub(crate) pooling: Vec<Pooling>,
    pub(crate) include_prompt: bool,
    pub(crate) normalize: bool,
    pub(crate) max_length: usize,
    pub(crate) truncate: Truncate,
    pub(crate) templates: Templates,
    pub(crate) matryoshka: Matryoshka,
    pub(crate) origins: Origins,
}

/// Length that is assumed for a model whose files set none, before it is capped at the model's positions.
const DEFAULT_LENGTH: usize = 512;

/// Decides every value. `positions` is the number of usable positions of the encoder.
///
/// # Errors
/// [`LoadError::Template`], [`LoadError::InvalidOverride`].
pub(crate) fn resolve(
    options: &LoadOptions,
    files: &Files,
    entry: Option<&RegistryEntry>,
    positions: usize,
) -> Result<Resolved, LoadError> {
    let overrides = options.descriptor.clone().unwrap_or_default();
    let (pooling, pooling_origin) = first([
        (overrides.pooling, Origin::Option),
        (files.pooling.as_ref().map(|pooling| pooling.modes.clone()), Origin::Files),
        (entry.and_then(|entry| entry.pooling).map(|pooling| vec![pooling]), Origin::Registry),
        (Some(vec![Pooling::Mean]), Origin::Default),
    ]);
    if pooling.is_empty() {
        let allowed = "a list of at least one pooling";
        return Err(LoadError::InvalidOverride { key: "pooling", value: "[]".to_owned(), allowed });
    }
    let (normalize, normalize_origin) = first([
        (options.normalize, Origin::Option),
        (files.normalize, Origin::Files),
        (entry.and_then(|entry| entry.normalize), Origin::Registry),
        // A registered model whose files were to say so, in a folder without `modules.json`: search is by cosine.
        (Some(entry.is_some()), Origin::Default),
    ]);
    let (origin, max_length) =
        limit(options.max_length, &files.limit, entry.and_then(|entry| entry.max_length), positions);
    let (truncate, truncate_origin) = first([
        (options.truncate, Origin::Option),
        (files.truncation_side, Origin::Files),
        (Some(Truncate::End), Origin::Default),
    ]);

    let default_instruction =
        overrides.default_instruction.or_else(|| entry.and_then(|entry| entry.default_instruction).map(str::to_owned));
    let side = |role, overriding: Option<Option<String>>, file: Option<&str>, registered: Option<&'static str>| {
        template(role, overriding, file, registered, default_instruction.as_deref())
    };
    let (query, query_origin) = side(
        Role::Query,
        overrides.query_template,
        files.query_prompt.as_deref(),
        entry.and_then(|entry| entry.query_template),
    )?;
    let (passage, passage_origin) = side(
        Role::Passage,
        overrides.passage_template,
        files.passage_prompt.as_deref(),
        entry.and_then(|entry| entry.passage_template),
    )?;

    // A pooling that is asked for is a new one, as the reference's default is.
    let from_files = files.pooling.as_ref().filter(|_| pooling_origin == Origin::Files);
    let include_prompt = from_files.is_none_or(|pooling| pooling.include_prompt);
    let matryoshka = overrides.matryoshka.unwrap_or_else(|| match entry {
        _ if !files.matryoshka.is_empty() => Matryoshka::Dimensions(files.matryoshka.clone()),
        Some(entry) => entry.matryoshka.into(),
        None => Matryoshka::None,
    });
    Ok(Resolved {
        pooling,
        include_prompt,
        normalize,
        max_length,
        truncate,
        templates: Templates { query, passage, default_instruction },
        matryoshka,
        origins: Origins {
            pooling: pooling_origin,
            normalize: normalize_origin,
            max_length: origin,
            truncate: truncate_origin,
            query_template: query_origin,
            passage_template: passage_origin,
        },
    })
}

/// The first value that is there. The last one must be.
fn first<T, const N: usize>(values: [(Option<T>, Origin); N]) -> (T, Origin) {
    let mut values = values.into_iter();
    values.find_map(|(value, origin)| value.map(|value| (value, origin))).expect("the last value is always given")
}

/// The limit in force: option, else the files' word, else the registry, else the smallest of the tokenizer's limit, the
/// positions and 512; always capped at the positions.
pub(crate) fn limit(
    option: Option<usize>,
    files: &Limit,
    registered: Option<usize>,
    positions: usize,
) -> (Origin, usize) {
    let assumed = files.tokenizer.unwrap_or(usize::MAX).min(DEFAULT_LENGTH);
    let (value, origin) = first([
        (option, Origin::Option),
        (files.stated, Origin::Files),
        (registered, Origin::Registry),
        (Some(assumed), Origin::Default),
    ]);
    (origin, value.min(positions))
}

/// One side's template. A prompt of the files that says the same as the registry's template with its default
/// instruction leaves the registry's in place, because that one can also take another instruction.
fn template(
    role: Role,
    overriding: Option<Option<String>>,
    file: Option<&str>,
    registered: Option<&'static str>,
    default_instruction: Option<&str>,
) -> Result<(Option<Template>, Origin), LoadError> {
    let parse = |pattern: &str| {
        Template::parse(pattern).ok_or_else(|| LoadError::Template { role, pattern: pattern.to_owned() })
    };
    if let Some(pattern) = overriding {
        return Ok((pattern.as_deref().map(parse).transpose()?, Origin::Option));
    }
    let registered = registered.map(parse).transpose()?;
    match (file, registered) {
        (Some(prompt), Some(template))
            if template.render("", default_instruction.unwrap_or_default()).whole == prompt =>
        {
            Ok((Some(template), Origin::Registry))
        }
        (Some(prompt), _) => Ok((Some(Template::prefix(prompt)), Origin::Files)),
        (None, Some(template)) => Ok((Some(template), Origin::Registry)),
        (None, None) => Ok((None, Origin::Default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions() {
        let some = Matryoshka::Dimensions(vec![64, 128]);
        let cases = [
            (&Matryoshka::None, 384, true),
            (&Matryoshka::None, 383, false),
            (&Matryoshka::Any, 1, true),
            (&Matryoshka::Any, 383, true),
            (&Matryoshka::Any, 0, false),
            (&Matryoshka::Any, 385, false),
            (&some, 64, true),
            (&some, 65, false),
            (&some, 384, true),
        ];
        let wrong: Vec<_> =
            cases.iter().filter(|(kind, dimensions, good)| kind.allows(*dimensions, 384) != *good).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn the_limit_in_force() {
        // (option, stated by the files, the tokenizer's, registry, positions) -> (origin, limit)
        let cases = [
            ((Some(300), Some(256), Some(512), Some(128), 512), (Origin::Option, 300)),
            ((Some(9999), Some(256), Some(512), Some(128), 512), (Origin::Option, 512)),
            ((None, Some(256), Some(512), Some(128), 512), (Origin::Files, 256)),
            ((None, Some(8192), None, None, 512), (Origin::Files, 512)),
            ((None, Some(8192), None, None, 8192), (Origin::Files, 8192)),
            ((None, None, Some(512), Some(128), 512), (Origin::Registry, 128)),
            ((None, None, Some(64), None, 512), (Origin::Default, 64)),
            ((None, None, Some(8192), None, 8192), (Origin::Default, 512)),
            ((None, None, None, None, 8192), (Origin::Default, 512)),
            ((None, None, None, None, 40), (Origin::Default, 40)),
        ];
        let wrong: Vec<_> = cases
            .into_iter()
            .filter(|((option, stated, tokenizer, registered, positions), want)| {
                let files = Limit { stated: *stated, tokenizer: *tokenizer };
                limit(*option, &files, *registered, *positions) != *want
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn templates() {
        let of = |overriding: Option<Option<&str>>, file, registered| {
            template(
                Role::Query,
                overriding.map(|pattern| pattern.map(str::to_owned)),
                file,
                registered,
                Some("find it"),
            )
            .map(|(template, origin)| (template.map(|template| template.pattern().to_owned()), origin))
        };
        let pattern = |text: &str| Some(text.to_owned());
        assert_eq!(of(None, None, None).unwrap(), (None, Origin::Default));
        assert_eq!(of(None, None, Some("q {text}")).unwrap(), (pattern("q {text}"), Origin::Registry));
        assert_eq!(of(None, Some("f "), Some("q {text}")).unwrap(), (pattern("f {text}"), Origin::Files));
        assert_eq!(of(Some(None), Some("f "), Some("q {text}")).unwrap(), (None, Origin::Option));
        assert_eq!(of(Some(Some("o {text}")), Some("f "), None).unwrap(), (pattern("o {text}"), Origin::Option));
        // The files spell out the registry's default.
        let instructed = Some("do {instruction}: {text}");
        assert_eq!(
            of(None, Some("do find it: "), instructed).unwrap(),
            (pattern("do {instruction}: {text}"), Origin::Registry)
        );
        assert!(matches!(of(Some(Some("no place")), None, None), Err(LoadError::Template { role: Role::Query, .. })));
    }
}
