//! MPNet (`model_type: "mpnet"`): BERT's layers with RoBERTa's positions, no token types, and a learned bias of the scores by
//! relative position, one table for all layers.
//!
//! Source: Song et al. 2020, `models/mpnet/modeling_mpnet.py` of transformers (`compute_position_bias`, whose greatest
//! distance is fixed at 128, and whose buckets are 32 whatever `relative_attention_num_buckets` says: `MPNetEncoder.forward`
//! does not pass it on; positions count from the padding token 1, whatever `pad_token_id` says: `MPNetEmbeddings`).

use serde_json::json;

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

const BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    config.only("pad_token_id", &[json!(1)], "absent or 1")?;
    let (positions, max_positions) = roberta::positions(config)?;
    config.only("relative_attention_num_buckets", &[json!(BUCKETS)], "absent or 32")?;
    let mut spec = bert::spec(config, positions, max_positions)?;
    spec.embeddings.token_types = None;
    for layer in &mut spec.layers {
        layer.attention.position = AttentionPosition::RelativeBias { buckets: BUCKETS, max_distance: MAX_DISTANCE };
    }
    Ok(Architecture { spec, names: NAMES })
}
