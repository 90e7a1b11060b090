//! What makes a text's pooled vector from its ids: an encoder and its poolings, or a static model's table.
//!
//! Everything before it (template, tokenizer, truncation) and behind it (Dense, cut, normalisation) is the same for both.

use simile_encoder::{Context, EncodeError, Encoder, EncoderInput, Hidden, Pooling, Rows, StaticEmbedding};

use crate::tokenizer::Tokens;

/// The part of a model that its `modules.json` lists first, with the pooling.
pub(crate) enum Backbone {
    /// Hidden states are pooled; several poolings stand one after the other.
    Transformer {
        encoder: Box<dyn Encoder>,
        poolings: Vec<Pooling>,
        /// Rows of the last layer that the poolings read.
        rows: Rows,
        /// Whether a prompt's tokens are pooled with the text's.
        include_prompt: bool,
    },
    /// The mean of the tokens' vectors.
    Static(StaticEmbedding),
}

impl Backbone {
    pub(crate) fn transformer(encoder: Box<dyn Encoder>, poolings: &[Pooling], include_prompt: bool) -> Backbone {
        // What is first or last depends on the prompt then.
        let rows = if include_prompt { rows(poolings) } else { Rows::All };
        Backbone::Transformer { encoder, poolings: poolings.to_vec(), rows, include_prompt }
    }

    /// Whether a prompt's tokens are pooled with the text's.
    pub(crate) fn includes_prompt(&self) -> bool {
        match self {
            Backbone::Transformer { include_prompt, .. } => *include_prompt,
            Backbone::Static(_) => true,
        }
    }

    /// Number of tokens that it knows: every id must be smaller.
    pub(crate) fn vocab_size(&self) -> usize {
        match self {
            Backbone::Transformer { encoder, .. } => encoder.vocab_size(),
            Backbone::Static(table) => table.tokens(),
        }
    }

    /// Whether a text may have no tokens; its vector is then zero.
    pub(crate) fn takes_no_tokens(&self) -> bool {
        matches!(self, Backbone::Static(_))
    }

    /// Estimated work of a text of `length` tokens in floating-point operations.
    pub(crate) fn flops(&self, length: usize) -> u64 {
        match self {
            Backbone::Transformer { encoder, .. } => encoder.flops(length),
            Backbone::Static(table) => table.flops(length),
        }
    }

    /// Bytes of memory that the weights hold.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Backbone::Transformer { encoder, .. } => encoder.memory_bytes(),
            Backbone::Static(table) => table.memory_bytes(),
        }
    }

    /// The pooled vectors of a batch, one after the other.
    ///
    /// # Errors
    /// [`EncodeError`], of the whole batch.
    pub(crate) fn pooled(&self, batch: &[&Tokens], ctx: &mut Context<'_>) -> Result<Vec<f32>, EncodeError> {
        let ids: Vec<&[u32]> = batch.iter().map(|tokens| &tokens.ids[..]).collect();
        match self {
            Backbone::Transformer { encoder, poolings, rows, .. } => {
                let lengths: Vec<usize> = ids.iter().map(|ids| ids.len()).collect();
                let input =
                    EncoderInput { input_ids: &ids.concat(), token_type_ids: &[], lengths: &lengths, attended: &[] };
                let hidden = encoder.forward(&input, *rows, ctx)?;
                let prompts: Vec<usize> = batch.iter().map(|tokens| tokens.prompt).collect();
                let vectors = pool(&hidden, poolings, &prompts);
                hidden.recycle(ctx.scratch);
                Ok(vectors)
            }
            Backbone::Static(table) => table.mean(&ids, ctx),
        }
    }
}

/// Rows of the last layer that are read: those that all poolings agree on, else all.
fn rows(poolings: &[Pooling]) -> Rows {
    let first = poolings[0].rows();
    if poolings.iter().all(|pooling| pooling.rows() == first) { first } else { Rows::All }
}

/// Pools each sequence; several poolings stand one after the other in its row.
fn pool(hidden: &Hidden, poolings: &[Pooling], prompts: &[usize]) -> Vec<f32> {
    let (count, width) = (hidden.sequences(), hidden.hidden_size());
    let mut one = vec![0.0; count * width];
    if let [pooling] = poolings {
        hidden.pool_behind(*pooling, prompts, &mut one);
        return one;
    }
    let mut all = vec![0.0; count * width * poolings.len()];
    for (place, pooling) in poolings.iter().enumerate() {
        hidden.pool_behind(*pooling, prompts, &mut one);
        for (row, pooled) in all.chunks_exact_mut(width * poolings.len()).zip(one.chunks_exact(width)) {
            row[place * width..][..width].copy_from_slice(pooled);
        }
    }
    all
}
