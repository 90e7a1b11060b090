//! RoBERTa and XLM-RoBERTa (`model_type: "roberta"`, `"xlm-roberta"`): BERT's layers behind positions that count tokens
//! which are not padding, from `pad_token_id + 1` on.
//!
//! Source: `models/roberta/modeling_roberta.py` of transformers, `create_position_ids_from_input_ids`; Liu et al. 2019,
//! Conneau et al. 2020.

use super::{Architecture, Config, ConfigError, TensorNames, bert};
use crate::spec::Positions;

/// Names in the checkpoints of `RobertaModel` (no prefix) and of models around it.
const NAMES: TensorNames = TensorNames { prefixes: &["", "roberta."], ..bert::NAMES };

pub(super) fn parse(config: &Config<'_>) -> Result<Architecture, ConfigError> {
    let (positions, max_positions) = positions(config)?;
    Ok(Architecture { spec: bert::spec(config, positions, max_positions)?, names: NAMES })
}

/// The table of positions, and how many of its rows tokens can use.
pub(super) fn positions(config: &Config<'_>) -> Result<(Positions, usize), ConfigError> {
    let table = config.count("max_position_embeddings")?;
    let (pad, usable) = padded(config, table)?;
    Ok((Positions::NonPad { table, pad }, usable))
}

/// The padding token's id (default of the models' classes: 1), and what is left of `rows` behind it.
pub(super) fn padded(config: &Config<'_>, rows: usize) -> Result<(u32, usize), ConfigError> {
    let pad = config.optional_index("pad_token_id")?.unwrap_or(1);
    match rows.checked_sub(pad as usize + 1) {
        Some(usable) if usable > 0 => Ok((pad, usable)),
        _ => Err(super::config::invalid(
            "max_position_embeddings",
            &rows.into(),
            format!("more than pad_token_id + 1 = {}", u64::from(pad) + 1),
        )),
    }
}
