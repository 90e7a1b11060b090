//! Any spec in f64: loops, no blocking, no padding. Slow and obvious. Of the library it shares the spec and the table of
//! names; every formula is written anew from its source.

use std::collections::HashMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use simile_encoder::families::{LayerNames, LinearNames, TensorNames};
use simile_encoder::spec::{
    AttentionPosition, AttentionSpec, EncoderSpec, LayerSpec, MlpKind, Norm, NormPlacement, Positions, QkNorm, Rope,
    RopeScaling,
};
use simile_encoder::{Architecture, parse_config};
use simile_kernels::Activation;

use crate::models::read_json;

/// Row-major values of a tensor.
type Values = Vec<f64>;
/// One row for each token.
pub type Rows = Vec<Values>;

/// A checkpoint, read without the library.
pub struct Reference {
    pub spec: EncoderSpec,
    names: TensorNames,
    tensors: HashMap<String, Values>,
}

impl Reference {
    /// The checkpoint in `dir`, whose family the library parses.
    pub fn open(dir: &Path) -> Reference {
        Self::new(parse_config(&read_json(&dir.join("config.json")), &|_| false).unwrap(), dir)
    }

    pub fn new(architecture: Architecture, dir: &Path) -> Reference {
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
        Reference { spec: architecture.spec, names: architecture.names, tensors }
    }

    fn tensor(&self, name: &str) -> &[f64] {
        self.tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Hidden states of the last layer; `types` empty means all 0.
    pub fn forward(&self, ids: &[u32], types: &[u32]) -> Rows {
        let mut x = self.embed(ids, types);
        for (i, layer) in self.spec.layers.iter().enumerate() {
            x = self.layer(i, layer, &x);
        }
        match self.spec.final_norm {
            Some(norm) => x.iter().map(|row| self.norm(norm, self.names.final_norm.unwrap(), 0, row)).collect(),
            None => x,
        }
    }

    /// Attention of the first token in the last layer, mean over its heads.
    pub fn first_token_attention(&self, ids: &[u32]) -> Values {
        let mut x = self.embed(ids, &[]);
        let last = self.spec.layers.len() - 1;
        for (i, layer) in self.spec.layers[..last].iter().enumerate() {
            x = self.layer(i, layer, &x);
        }
        let layer = &self.spec.layers[last];
        let input = self.attention_input(last, layer, &x);
        let heads = layer.attention.heads;
        let of_heads: Vec<Values> = self.weights(last, layer, &input).iter().map(|rows| rows[0].clone()).collect();
        (0..ids.len()).map(|j| of_heads.iter().map(|weights| weights[j]).sum::<f64>() / heads as f64).collect()
    }

    fn embed(&self, ids: &[u32], types: &[u32]) -> Rows {
        let (spec, names, width) = (&self.spec.embeddings, &self.names, self.spec.hidden_size);
        let row = |name: &str, row: usize| self.tensor(name)[row * width..(row + 1) * width].to_vec();
        let mut seen = 0;
        let embed = |(i, &id): (usize, &u32)| {
            let word = row(names.word_embeddings, id as usize);
            let mut sum: Values = word.iter().map(|value| value * f64::from(spec.scale)).collect();
            if spec.token_types.is_some() {
                let kind = types.get(i).copied().unwrap_or(0) as usize;
                sum = add(&sum, &row(names.token_type_embeddings.unwrap(), kind));
            }
            let position = match spec.positions {
                Positions::None => None,
                Positions::Absolute { .. } => Some(i),
                Positions::NonPad { pad, .. } => {
                    // transformers: cumsum(mask) * mask + padding_idx.
                    let mask = usize::from(id != pad);
                    seen += mask;
                    Some(seen * mask + pad as usize)
                }
            };
            if let Some(position) = position {
                sum = add(&sum, &row(names.position_embeddings.unwrap(), position));
            }
            match spec.norm {
                Some(norm) => self.norm(norm, names.embeddings_norm.unwrap(), 0, &sum),
                None => sum,
            }
        };
        ids.iter().enumerate().map(embed).collect()
    }

    fn layer(&self, i: usize, layer: &LayerSpec, x: &Rows) -> Rows {
        let names = &self.names.layer;
        let norm = |name: &str, x: &Values| self.norm(layer.norm, name, i, x);
        let attended = self.attention(i, layer, &self.attention_input(i, layer, x));
        let mlp = |x: &Values| self.mlp(i, layer, x);
        x.iter()
            .zip(&attended)
            .map(|(x, attended)| match layer.placement {
                NormPlacement::Post { twice } => {
                    let mut sum = add(x, attended);
                    if twice {
                        sum = add(x, &norm(names.attention_output_norm.unwrap(), &sum));
                    }
                    let x = norm(names.attention_norm, &sum);
                    norm(names.mlp_norm, &add(&x, &mlp(&x)))
                }
                NormPlacement::Pre { .. } => {
                    let x = add(x, attended);
                    add(&x, &mlp(&norm(names.mlp_norm, &x)))
                }
                NormPlacement::Sandwich => {
                    let x = add(x, &norm(names.attention_output_norm.unwrap(), attended));
                    add(&x, &norm(names.mlp_output_norm.unwrap(), &mlp(&norm(names.mlp_norm, &x))))
                }
            })
            .collect()
    }

    fn attention_input(&self, i: usize, layer: &LayerSpec, x: &Rows) -> Rows {
        let normed = match layer.placement {
            NormPlacement::Post { .. } => false,
            NormPlacement::Pre { attention_norm } => attention_norm,
            NormPlacement::Sandwich => true,
        };
        let norm = |x: &Values| self.norm(layer.norm, self.names.layer.attention_norm, i, x);
        if normed { x.iter().map(norm).collect() } else { x.clone() }
    }

    fn attention(&self, i: usize, layer: &LayerSpec, x: &Rows) -> Rows {
        let AttentionSpec { heads, kv_heads, head_dim, .. } = layer.attention;
        let names = &self.names.layer;
        let value: Rows = x.iter().map(|x| self.linear(names.value, i, kv_heads * head_dim, x)).collect();
        let weights = self.weights(i, layer, x);
        let context = |token: usize| -> Values {
            let component = |head: usize, c: usize| -> f64 {
                let column = head / (heads / kv_heads) * head_dim + c;
                value.iter().zip(&weights[head][token]).map(|(value, weight)| value[column] * weight).sum()
            };
            (0..heads).flat_map(|head| (0..head_dim).map(move |c| (head, c))).map(|(h, c)| component(h, c)).collect()
        };
        let output = |token| self.linear(names.attention_output, i, self.spec.hidden_size, &context(token));
        (0..x.len()).map(output).collect()
    }

    /// Softmax of each head and query: `[head][query][key]`.
    fn weights(&self, i: usize, layer: &LayerSpec, x: &Rows) -> Vec<Rows> {
        let spec = layer.attention;
        let names = &self.names.layer;
        let length = x.len();
        let project = |names: LinearNames, norm: Option<&str>, heads: usize| -> Vec<Rows> {
            x.iter()
                .enumerate()
                .map(|(position, x)| {
                    let mut all = self.linear(names, i, heads * spec.head_dim, x);
                    if let Some(QkNorm::AllHeads(kind)) = spec.qk_norm {
                        all = self.norm(kind, norm.unwrap(), i, &all);
                    }
                    all.chunks(spec.head_dim)
                        .map(|head| {
                            let head = match spec.qk_norm {
                                Some(QkNorm::PerHead(kind)) => self.norm(kind, norm.unwrap(), i, head),
                                Some(QkNorm::AllHeads(_)) | None => head.to_vec(),
                            };
                            match spec.position {
                                AttentionPosition::Rope(rope) => rotate(rope, &head, position, length),
                                _ => head,
                            }
                        })
                        .collect()
                })
                .collect()
        };
        let (query, key) =
            (project(names.query, names.query_norm, spec.heads), project(names.key, names.key_norm, spec.kv_heads));
        let bias = |head: usize, from: usize, to: usize| match spec.position {
            AttentionPosition::None | AttentionPosition::Rope(_) => 0.0,
            AttentionPosition::Alibi => -slopes(spec.heads)[head] * from.abs_diff(to) as f64,
            AttentionPosition::RelativeBias { buckets, max_distance } => {
                let bucket = bucket(to as i64 - from as i64, buckets as i64, max_distance as f64);
                self.tensor(self.names.relative_bias.unwrap())[bucket * spec.heads + head]
            }
        };
        let sees = |from: usize, to: usize| {
            (!spec.causal || to <= from) && spec.window.is_none_or(|window| from.abs_diff(to) <= window)
        };
        let row = |head: usize, from: usize| -> Values {
            let shared = head / (spec.heads / spec.kv_heads);
            let score = |to: usize| {
                let dot: f64 = query[from][head].iter().zip(&key[to][shared]).map(|(q, k)| q * k).sum();
                if sees(from, to) { dot * spec.scale + bias(head, from, to) } else { f64::NEG_INFINITY }
            };
            let scores: Values = (0..x.len()).map(score).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Values = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = powers.iter().sum();
            powers.iter().map(|power| power / total).collect()
        };
        (0..spec.heads).map(|head| (0..x.len()).map(|from| row(head, from)).collect()).collect()
    }

    fn mlp(&self, i: usize, layer: &LayerSpec, x: &Values) -> Values {
        let (names, width) = (&self.names.layer, layer.mlp.intermediate_size);
        let activate = |x: Values| -> Values { x.into_iter().map(|x| activation(layer.mlp.activation, x)).collect() };
        let up = self.linear(names.up, i, width, x);
        let middle = match layer.mlp.kind {
            MlpKind::Plain => activate(up),
            MlpKind::Gated => {
                let gate = activate(self.linear(names.gate.unwrap(), i, width, x));
                up.iter().zip(&gate).map(|(up, gate)| up * gate).collect()
            }
        };
        self.linear(names.down, i, self.spec.hidden_size, &middle)
    }

    fn linear(&self, names: LinearNames, layer: usize, outputs: usize, x: &[f64]) -> Values {
        let entry = LayerNames::of(names.entry, layer);
        let first = names.part.map_or(0, |part| part.first);
        let weight = self.tensor(&format!("{entry}.weight"));
        let dot = |row: &[f64]| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
        let mut out: Values = weight.chunks(x.len()).skip(first).take(outputs).map(dot).collect();
        if names.bias {
            out = add(&out, &self.tensor(&format!("{entry}.bias"))[first..first + outputs]);
        }
        out
    }

    fn norm(&self, norm: Norm, entry: &str, layer: usize, x: &[f64]) -> Values {
        let entry = LayerNames::of(entry, layer);
        let gamma = self.tensor(&format!("{entry}.weight"));
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / x.len() as f64;
        match norm {
            Norm::LayerNorm { epsilon, bias } => {
                let centre = mean(&mut x.iter().copied());
                let variance = mean(&mut x.iter().map(|x| (x - centre).powi(2)));
                let scale = 1.0 / (variance + f64::from(epsilon)).sqrt();
                let out: Values = x.iter().zip(gamma).map(|(x, gamma)| (x - centre) * scale * gamma).collect();
                if bias { add(&out, self.tensor(&format!("{entry}.bias"))) } else { out }
            }
            Norm::RmsNorm { epsilon, offset } => {
                let scale = 1.0 / (mean(&mut x.iter().map(|x| x * x)) + f64::from(epsilon)).sqrt();
                x.iter().zip(gamma).map(|(x, gamma)| x * scale * (f64::from(offset) + gamma)).collect()
            }
        }
    }
}

fn activation(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::Relu => x.max(0.0),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
    }
}

/// The head of the token at `position` of a text of `length` tokens, turned: `x cos + rotate_half(x) sin`, with the angle
/// in f32, as in transformers.
fn rotate(rope: Rope, x: &[f64], position: usize, length: usize) -> Values {
    let (d, n) = (x.len() as f64, length as f64);
    let (base, divisor) = match rope.scaling {
        RopeScaling::None => (rope.theta, 1.0),
        RopeScaling::Ntk { factor } => (rope.theta * factor, factor.powf(2.0 / d)),
        RopeScaling::DynamicNtk { factor, trained } => {
            let (n, trained) = (n.max(trained as f64), trained as f64);
            (rope.theta * (factor * n / trained - (factor - 1.0)).powf(d / (d - 2.0)), 1.0)
        }
    };
    let half = x.len() / 2;
    (0..x.len())
        .map(|c| {
            let frequency = 1.0 / base.powf(2.0 * (c % half) as f64 / d) / divisor;
            let angle = f64::from(position as f32 * frequency as f32);
            let other = if c < half { -x[c + half] } else { x[c - half] };
            x[c] * angle.cos() + other * angle.sin()
        })
        .collect()
}

/// ALiBi's slopes, as the reference implementation recurs.
fn slopes(heads: usize) -> Values {
    if heads.is_power_of_two() {
        let start = 2f64.powf(-8.0 / heads as f64);
        return (1..=heads).map(|i| start.powi(i as i32)).collect();
    }
    let lower = 1 << heads.ilog2();
    let mut all = slopes(lower);
    all.extend(slopes(2 * lower).into_iter().step_by(2).take(heads - lower));
    all
}

/// T5's bucket of a bidirectional distance, line by line.
fn bucket(relative: i64, buckets: i64, max_distance: f64) -> usize {
    let (mut bucket, n, buckets) = (0, -relative, buckets / 2);
    if n < 0 {
        bucket += buckets;
    }
    let (n, exact) = (n.abs(), buckets / 2);
    bucket += if n < exact {
        n
    } else {
        let ratio = (n as f64 / exact as f64).ln() / (max_distance / exact as f64).ln();
        (exact + (ratio * (buckets - exact) as f64) as i64).min(buckets - 1)
    };
    bucket as usize
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
