//! Finding rows: by id and kind, and for an id that is almost one.

use super::{RegistryEntry, dense, multi_vector, rerank, sparse, static_models};
use crate::error::LoadError;
use crate::kind::ModelKind;

/// All registered models, dense ones first; the default model comes first of all.
pub fn registry() -> impl Iterator<Item = &'static RegistryEntry> {
    let tables: [&[RegistryEntry]; 5] =
        [&dense::MODELS, &static_models::MODELS, &sparse::MODELS, &multi_vector::MODELS, &rerank::MODELS];
    tables.into_iter().flatten()
}

/// The row of a dense model. Upper and lower case are the same, as on the hub.
pub fn registered(id: &str) -> Option<&'static RegistryEntry> {
    registered_as(ModelKind::Dense, id)
}

/// The row of a model as that kind.
pub fn registered_as(kind: ModelKind, id: &str) -> Option<&'static RegistryEntry> {
    registry().find(|entry| entry.kind == kind && entry.id.eq_ignore_ascii_case(id))
}

/// Refuses what the registry knows to end in an error, before anything of it is downloaded.
///
/// # Errors
/// [`LoadError::RegisteredUnsupported`] and [`LoadError::RegisteredKind`].
pub fn check_registered(kind: ModelKind, id: &str) -> Result<(), LoadError> {
    if let Some(entry) = registered_as(kind, id) {
        return match entry.unsupported {
            Some(reason) => Err(LoadError::RegisteredUnsupported { id: entry.id, kind, reason }),
            None => Ok(()),
        };
    }
    let found: Vec<ModelKind> =
        registry().filter(|entry| entry.id.eq_ignore_ascii_case(id)).map(|entry| entry.kind).collect();
    match found.is_empty() {
        true => Ok(()),
        false => Err(LoadError::RegisteredKind { id: id.to_owned(), wanted: kind, found }),
    }
}

/// What the registry can say about a model that was not found: the id that may have been meant, terms that have to be
/// accepted. A sentence, or nothing.
pub fn hint(id: &str) -> Option<String> {
    let name = |id: &str| id.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let exact = registry().find(|entry| entry.id == id);
    if let Some(entry) = exact {
        return entry.gated.then(|| {
            format!(
                "It is gated: accept its terms at https://huggingface.co/{id} and set HF_TOKEN to a token of that account"
            )
        });
    }
    let wanted = name(id);
    let mut meant: Vec<&str> = registry().filter(|entry| name(entry.id) == wanted).map(|entry| entry.id).collect();
    meant.dedup();
    meant.sort_unstable();
    meant.dedup();
    (!meant.is_empty()).then(|| format!("Did you mean '{}'?", meant.join("' or '")))
}
