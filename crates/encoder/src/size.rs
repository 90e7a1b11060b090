//! What a spec costs: parameters and floating point operations.

use crate::spec::{EncoderSpec, LayerSpec, MlpKind};

impl EncoderSpec {
    /// Values of the word, position and type tables and of the linear layers, biases and norms left out: within a percent
    /// of all.
    pub fn parameters(&self) -> u64 {
        let rows = self.vocab_size + self.other_table_rows();
        (rows * self.hidden_size) as u64 + self.linear_parameters()
    }

    /// As [`parameters`](Self::parameters) without the word table, for an executor that leaves it in the file.
    pub fn parameters_without_words(&self) -> u64 {
        (self.other_table_rows() * self.hidden_size) as u64 + self.linear_parameters()
    }

    /// Estimated work of one sequence of `length` tokens: 2 operations for each parameter of a linear layer and token, 4 for
    /// each pair of tokens that see each other and value of the heads.
    pub fn flops(&self, length: usize) -> u64 {
        let linear = 2 * self.linear_parameters() * length as u64;
        let scores = |layer: &LayerSpec| {
            let attention = &layer.attention;
            let seen = attention.window.map_or(length, |window| length.min(2 * window.min(length) + 1));
            4 * (length * seen * attention.heads * attention.head_dim) as u64
        };
        linear + self.layers.iter().map(scores).sum::<u64>()
    }

    fn other_table_rows(&self) -> usize {
        self.embeddings.positions.table().unwrap_or(0) + self.embeddings.token_types.unwrap_or(0)
    }

    fn linear_parameters(&self) -> u64 {
        let of_layer = |layer: &LayerSpec| {
            let heads = 2 * (layer.attention.heads + layer.attention.kv_heads) * layer.attention.head_dim;
            let matrices = match layer.mlp.kind {
                MlpKind::Plain => 2,
                MlpKind::Gated => 3,
            };
            (self.hidden_size * (heads + matrices * layer.mlp.intermediate_size)) as u64
        };
        self.layers.iter().map(of_layer).sum()
    }
}
