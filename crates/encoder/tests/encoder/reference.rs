//! A plain BERT in f64: loops, no blocking, no padding, nothing shared with the library but the file format. Slow and
//! obvious.

use std::collections::HashMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// Row-major values of a tensor.
type Values = Vec<f64>;
/// One row for each token.
pub type Rows = Vec<Values>;

/// A checkpoint, read without the library.
pub struct Reference {
    config: Value,
    tensors: HashMap<String, Values>,
}

impl Reference {
    pub fn open(dir: &Path) -> Reference {
        let config = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        let mut tensors = HashMap::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "safetensors") {
                let bytes = std::fs::read(path).unwrap();
                for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                    if let Some(values) = values(tensor.dtype(), tensor.data()) {
                        let name = name.strip_prefix("bert.").unwrap_or(&name).to_owned();
                        tensors.insert(name.replace("gamma", "weight").replace("beta", "bias"), values);
                    }
                }
            }
        }
        Reference { config, tensors }
    }

    fn size(&self, key: &str) -> usize {
        self.config[key].as_u64().unwrap_or_else(|| panic!("config.json has no {key}")) as usize
    }

    fn tensor(&self, name: &str) -> &[f64] {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Hidden states of the last layer; `types` empty means all 0.
    pub fn forward(&self, ids: &[u32], types: &[u32]) -> Rows {
        let width = self.size("hidden_size");
        let table = |name: &str, row: usize| &self.tensor(name)[row * width..(row + 1) * width];
        let mut x: Rows = ids
            .iter()
            .enumerate()
            .map(|(position, &id)| {
                let word = table("embeddings.word_embeddings.weight", id as usize);
                let kind = types.get(position).copied().unwrap_or(0) as usize;
                let kind = table("embeddings.token_type_embeddings.weight", kind);
                let position = table("embeddings.position_embeddings.weight", position);
                let sum: Values = (0..width).map(|i| word[i] + kind[i] + position[i]).collect();
                self.norm("embeddings.LayerNorm", &sum)
            })
            .collect();
        for layer in 0..self.size("num_hidden_layers") {
            x = self.layer(&format!("encoder.layer.{layer}"), &x);
        }
        x
    }

    fn layer(&self, layer: &str, x: &Rows) -> Rows {
        let project = |name: &str| -> Rows {
            x.iter().map(|row| self.linear(&format!("{layer}.attention.self.{name}"), row)).collect()
        };
        let (query, key, value) = (project("query"), project("key"), project("value"));
        let heads = self.size("num_attention_heads");
        let head = self.size("hidden_size") / heads;
        let context = |i: usize| -> Values {
            let mut out = vec![0.0; heads * head];
            for columns in (0..heads).map(|h| h * head..(h + 1) * head) {
                let scores: Values = key
                    .iter()
                    .map(|key| {
                        let dot: f64 = columns.clone().map(|c| query[i][c] * key[c]).sum();
                        dot / (head as f64).sqrt()
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Values = scores.iter().map(|score| (score - largest).exp()).collect();
                let total: f64 = weights.iter().sum();
                for c in columns {
                    out[c] = value.iter().zip(&weights).map(|(value, weight)| value[c] * weight).sum::<f64>() / total;
                }
            }
            out
        };
        x.iter()
            .enumerate()
            .map(|(i, row)| {
                let attended = self.linear(&format!("{layer}.attention.output.dense"), &context(i));
                let row = self.norm(&format!("{layer}.attention.output.LayerNorm"), &add(row, &attended));
                let mut middle = self.linear(&format!("{layer}.intermediate.dense"), &row);
                middle.iter_mut().for_each(|value| *value = self.activation(*value));
                let out = self.linear(&format!("{layer}.output.dense"), &middle);
                self.norm(&format!("{layer}.output.LayerNorm"), &add(&row, &out))
            })
            .collect()
    }

    fn linear(&self, name: &str, x: &[f64]) -> Values {
        let weight = self.tensor(&format!("{name}.weight"));
        let bias = self.tensor(&format!("{name}.bias"));
        let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        weight.chunks(x.len()).zip(bias).map(|(row, bias)| dot(row) + bias).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Values {
        let epsilon = self.config["layer_norm_eps"].as_f64().unwrap_or(1e-12);
        let (gamma, beta) = (self.tensor(&format!("{name}.weight")), self.tensor(&format!("{name}.bias")));
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (variance + epsilon).sqrt();
        (0..x.len()).map(|i| (x[i] - mean) * scale * gamma[i] + beta[i]).collect()
    }

    fn activation(&self, x: f64) -> f64 {
        match self.config["hidden_act"].as_str().unwrap_or("gelu") {
            "gelu" | "gelu_python" => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            "relu" => x.max(0.0),
            "silu" | "swish" => x / (1.0 + (-x).exp()),
            "tanh" => x.tanh(),
            other => panic!("the reference has no {other}"),
        }
    }
}

/// sentence-transformers' formulas, without a mask because there is no padding.
pub fn pool(mode: &str, rows: &Rows) -> Values {
    let n = rows.len() as f64;
    let column = |c: usize| rows.iter().map(move |row| row[c]);
    (0..rows[0].len())
        .map(|c| match mode {
            "cls" => rows[0][c],
            "lasttoken" => rows[rows.len() - 1][c],
            "mean" => column(c).sum::<f64>() / n,
            "max" => column(c).fold(f64::NEG_INFINITY, f64::max),
            "mean_sqrt_len_tokens" => column(c).sum::<f64>() / n.sqrt(),
            "weightedmean" => {
                let weighted: f64 = column(c).enumerate().map(|(i, x)| (i + 1) as f64 * x).sum();
                weighted / (n * (n + 1.0) / 2.0)
            }
            other => panic!("the reference has no pooling {other}"),
        })
        .collect()
}

/// Largest difference of two equally long rows, as a part of the second's largest component; infinite when there is a
/// NaN.
pub fn difference(ours: &[f32], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(0f64, |largest, x| largest.max(x.abs()));
    let differences = ours.iter().zip(theirs).map(|(a, b)| (f64::from(*a) - b).abs() / largest);
    differences.fold(0f64, |worst, off| if off.is_nan() { f64::INFINITY } else { worst.max(off) })
}

fn add(a: &[f64], b: &[f64]) -> Values {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// The series of erf without cancellation: 2/sqrt(pi) exp(-x²) sum of 2^n x^(2n+1) / (1 * 3 * … (2n+1)).
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1.. {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
        if term.abs() <= 1e-17 * sum.abs() {
            break;
        }
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

/// Float tensors in f64; others are of no use to an encoder.
fn values(dtype: Dtype, bytes: &[u8]) -> Option<Values> {
    let halves = || bytes.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    match dtype {
        Dtype::F32 => Some(bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()),
        Dtype::BF16 => Some(halves().map(|half| f64::from(f32::from_bits(u32::from(half) << 16))).collect()),
        Dtype::F16 => Some(halves().map(half).collect()),
        _ => None,
    }
}

/// A binary16 by definition; infinities and NaN do not occur in the tests' weights.
fn half(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let mantissa = f64::from(half & 0x3ff) / 1024.0;
    match i32::from(half >> 10 & 0x1f) {
        0 => sign * mantissa * 2f64.powi(-14),
        exponent => sign * (1.0 + mantissa) * 2f64.powi(exponent - 15),
    }
}

#[test]
fn erf_is_right_at_known_values() {
    // Abramowitz and Stegun, table 7.1.
    for (x, expected) in [(0.0, 0.0), (0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
        assert!((erf(x) - expected).abs() < 1e-10, "erf({x}) = {}", erf(x));
        assert!((erf(-x) + expected).abs() < 1e-10, "erf(-{x}) = {}", erf(-x));
    }
}
