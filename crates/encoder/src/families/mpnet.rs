//! MPNet (`model_type: "mpnet"`): BERT's layers with RoBERTa's positions, no token types, and a learned bias of the scores by
//! relative position, one table for all layers.
//!
//! Source: Song et al. 2020, `models/mpnet/modeling_mpnet.py` of transformers (`compute_position_bias`, whose greatest
//! distance is fixed at 128; `relative_attention_num_buckets` is 32 by default).

use serde_json::json;

use super::config::unsupported;
use super::{Architecture, Config, ConfigError, LayerNames, LinearNames, TensorNames, bert, roberta};
use crate::spec::AttentionPosition;

const NAMES: TensorNames = TensorNames {
    prefixes: &["", "mpnet."],
    token_type_embeddings: None,
    relative_bias: Some("encoder.relative_attention_bias.weight"),
    layer: LayerNames {
        query: LinearNames::biased("encoder.layer.{}.attention.attn.q"),
        key: LinearNames::biased("encoder.layer.{}.attention.attn.k"),
        value: LinearNames::biased("encoder.layer.{}.attention.attn.v"),
        attention_output: LinearNames::biased("encoder.layer.{}.attention.attn.o"),
        attention_norm: "encoder.layer.{}.attention.LayerNorm",
        ..bert::NAMES.layer
    },
    ..bert::NAMES
};

const DEFAULT_BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    let (positions, max_positions) = roberta::positions(config)?;
    let buckets = config.optional_count("relative_attention_num_buckets")?.unwrap_or(DEFAULT_BUCKETS);
    // Half of them for each side, half of those exact: below 4 nothing is left, above 2 x 128 they reach past the
    // greatest distance.
    if !(4..=2 * MAX_DISTANCE).contains(&buckets) || !buckets.is_multiple_of(4) {
        return Err(unsupported("relative_attention_num_buckets", &json!(buckets), "multiples of 4 from 4 to 256"));
    }
    let mut spec = bert::spec(config, positions, max_positions)?;
    spec.embeddings.token_types = None;
    for layer in &mut spec.layers {
        layer.attention.position = AttentionPosition::RelativeBias { buckets, max_distance: MAX_DISTANCE };
    }
    Ok(Architecture { spec, names: NAMES })
}
