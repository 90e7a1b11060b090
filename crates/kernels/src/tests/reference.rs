//! The operations as their definitions read, in f64.

/// The error function to about 1e-15: its series near 0, the continued fraction of its complement beyond.
pub fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 2.5 {
        let (mut term, mut sum, mut n) = (z, z, 0.0);
        while term > 1e-18 * sum {
            n += 1.0;
            term *= 2.0 * z * z / (2.0 * n + 1.0);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp() * sum
    } else if z < 27.0 {
        let fraction = (1..200).rev().fold(z, |below, n| z + f64::from(n) / 2.0 / below);
        1.0 - (-z * z).exp() / std::f64::consts::PI.sqrt() / fraction
    } else if z.is_nan() {
        z
    } else {
        1.0
    };
    value.copysign(x)
}

/// `1 - erf(x)` without cancellation, for x of 2.5 and more.
pub fn erfc_tail(x: f64) -> f64 {
    let fraction = (1..200).rev().fold(x, |below, n| x + f64::from(n) / 2.0 / below);
    (-x * x).exp() / std::f64::consts::PI.sqrt() / fraction
}

pub fn gelu(x: f64) -> f64 {
    let z = x / std::f64::consts::SQRT_2;
    // The negative tail is a tiny number, not a difference of ones.
    if z < -2.5 { x * 0.5 * erfc_tail(-z) } else { x * 0.5 * (1.0 + erf(z)) }
}

pub fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

pub fn softmax(values: &[f32]) -> Vec<f64> {
    let max = values.iter().fold(f64::NEG_INFINITY, |max, value| max.max(f64::from(*value)));
    let exponentials: Vec<f64> = values.iter().map(|value| (f64::from(*value) - max).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.iter().map(|value| value / sum).collect()
}

pub fn layer_norm(values: &[f64], gamma: &[f32], beta: Option<&[f32]>, eps: f64) -> Vec<f64> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    values
        .iter()
        .enumerate()
        .map(|(i, value)| {
            (value - mean) / (variance + eps).sqrt() * f64::from(gamma[i]) + beta.map_or(0.0, |b| f64::from(b[i]))
        })
        .collect()
}

pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Attention with the powers of 2 of `q k`: `[q_rows][head_dim]` from rows of `head_dim` values.
pub fn attention(q: &[f32], k: &[f32], v: &[f32], head_dim: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for q in q.chunks_exact(head_dim) {
        let scores: Vec<f64> = k.chunks_exact(head_dim).map(|k| dot(q, k)).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - max).exp2()).collect();
        let sum: f64 = powers.iter().sum();
        out.extend(
            (0..head_dim).map(|c| {
                powers.iter().zip(v.chunks_exact(head_dim)).map(|(p, v)| p * f64::from(v[c])).sum::<f64>() / sum
            }),
        );
    }
    out
}
