//! Static models: a vector for each token of the vocabulary, and their mean. No model runs, so no length is too long.
//! They are dense models.

use super::{APACHE, Evidence, MB, MIT, ModelFamily, ModelKind, RegistryEntry, Sizes, row};
use simile_encoder::Pooling;

const fn fixed(
    id: &'static str,
    dimensions: usize,
    licence: &'static str,
    size_bytes: u64,
    checkpoint: &'static str,
) -> RegistryEntry {
    RegistryEntry {
        dimensions: Some(dimensions),
        max_length: None,
        pooling: Some(Pooling::Mean),
        normalize: Some(true),
        ..row(ModelKind::Dense, id, ModelFamily::Static, licence, size_bytes, Evidence::TinyCheckpoint(checkpoint))
    }
}

pub(super) static MODELS: [RegistryEntry; 3] = [
    fixed("minishlab/potion-base-8M", 256, MIT, 30 * MB, "tiny-static"),
    fixed("minishlab/potion-retrieval-32M", 512, MIT, 130 * MB, "tiny-static"),
    RegistryEntry {
        normalize: Some(false),
        matryoshka: Sizes::These(&[32, 64, 128, 256, 512]),
        ..fixed("sentence-transformers/static-retrieval-mrl-en-v1", 1024, APACHE, 130 * MB, "tiny-static-plain")
    },
];
