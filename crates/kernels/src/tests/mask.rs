use super::reference;
use super::support::{Cases, Guarded, Random};
use crate::{ATTENTION_MAX_ERROR, Attention, AttentionScratch, Isa, Mask, attention_head, attention_weights};

const MASKS: [Mask; 12] = [
    Mask { causal: false, window: None },
    Mask { causal: true, window: None },
    Mask { causal: false, window: Some(0) },
    Mask { causal: false, window: Some(1) },
    Mask { causal: false, window: Some(17) },
    Mask { causal: false, window: Some(64) },
    Mask { causal: true, window: Some(1) },
    Mask { causal: true, window: Some(20) },
    Mask { causal: false, window: Some(1000) },
    // Twice this is 0 in a u64, and so is twice the next but for 2: no window is too wide.
    Mask { causal: false, window: Some(1 << (usize::BITS - 1)) },
    Mask { causal: true, window: Some(usize::MAX) },
    Mask { causal: false, window: Some(usize::MAX) },
];

/// What the rule says of one pair.
fn sees(mask: Mask, query: usize, key: usize) -> bool {
    (!mask.causal || key <= query) && mask.window.is_none_or(|window| query.abs_diff(key) <= window)
}

#[test]
fn a_query_sees_what_the_rule_says() {
    let mut cases = Cases::default();
    for mask in MASKS {
        for keys in [1, 2, 13, 40, 100] {
            let mut pairs = 0;
            for query in 0..keys {
                let expected: Vec<usize> = (0..keys).filter(|&key| sees(mask, query, key)).collect();
                let actual: Vec<usize> = mask.seen(query, keys).collect();
                cases.check(actual == expected, || format!("{mask:?}, {query} of {keys}: {actual:?}"));
                let counted = mask.pairs(query, keys);
                cases.check(counted == pairs, || format!("{mask:?}, {query} queries, {keys} keys: {counted} pairs"));
                pairs += expected.len() as u64;
            }
            let behind = mask.seen(keys + 2000, keys);
            cases.check(!behind.is_empty(), || format!("{mask:?}: a query far behind {keys} keys sees none"));
        }
    }
}

/// A head with its operands in memory that ends where they end.
struct Head {
    isa: Isa,
    mask: Mask,
    keys: usize,
    head_dim: usize,
    padded: usize,
    q: Guarded,
    k: Guarded,
    v: Guarded,
    /// By distance, from `1 - queries` on.
    bias: Option<Guarded>,
    queries: usize,
}

impl Head {
    fn new(isa: Isa, mask: Mask, (queries, keys): (usize, usize), head_dim: usize, biased: bool) -> Head {
        let mut random = Random((keys * 7 + queries) as u64);
        let padded = head_dim.next_multiple_of(isa.panel_width());
        let mut rows = |count: usize, scale: f32| {
            let mut rows = vec![0.0; count * padded];
            for row in rows.chunks_exact_mut(padded) {
                row[..head_dim].copy_from_slice(&random.units(head_dim));
                row.iter_mut().for_each(|value| *value *= scale);
            }
            rows
        };
        let (q, k, v) = (rows(queries, 6.0 / (head_dim as f32).sqrt()), rows(keys, 1.0), rows(keys, 1.0));
        let width = isa.panel_width();
        let mut panels = vec![0.0; padded * keys];
        for (i, row) in v.chunks_exact(padded).enumerate() {
            for (c, value) in row.iter().enumerate() {
                panels[c / width * keys * width + i * width + c % width] = *value;
            }
        }
        let distances = queries + keys - 1;
        let bias = biased.then(|| Guarded::new(&random.units(distances).iter().map(|b| b * 4.0).collect::<Vec<_>>()));
        let (q, k, v) = (Guarded::new(&q), Guarded::new(&k), Guarded::new(&panels));
        Head { isa, mask, keys, head_dim, padded, q, k, v, bias, queries }
    }

    fn describe(&self) -> String {
        let Head { isa, mask, keys, head_dim, queries, .. } = self;
        let bias = self.bias.is_some();
        format!("{} {queries} queries, {keys} keys of {head_dim}, {mask:?}, bias {bias}", isa.name())
    }

    fn args(&self, first: usize, rows: usize, out: *mut f32) -> Attention {
        Attention {
            q: self.q.as_ptr().wrapping_add(first * self.padded),
            q_ld: self.padded,
            q_rows: rows,
            k: self.k.as_ptr(),
            k_ld: self.padded,
            v: self.v.as_ptr(),
            v_panel_stride: self.keys * self.isa.panel_width(),
            keys: self.keys,
            first,
            mask: self.mask,
            bias: self.bias.as_ref().map(|bias| bias.as_ptr().wrapping_add(self.queries - 1)),
            head_dim: self.padded,
            out,
            out_ld: self.padded,
        }
    }

    fn compute(&self, first: usize, rows: usize) -> Vec<f32> {
        let mut out = Guarded::filled(f32::NAN, rows * self.padded);
        let args = self.args(first, rows, out.as_mut_ptr());
        // SAFETY: the buffers have these shapes.
        unsafe { attention_head(self.isa, &args, &mut AttentionScratch::default()) };
        out.chunks_exact(self.padded).flat_map(|row| row[..self.head_dim].to_vec()).collect()
    }

    /// Weights of a query by definition.
    fn weights(&self, query: usize) -> Vec<f64> {
        let scores: Vec<f64> = (0..self.keys)
            .map(|key| {
                let row = |matrix: &Guarded, i: usize| matrix[i * self.padded..][..self.padded].to_vec();
                let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[self.queries - 1 + key - query]));
                let score = reference::dot(&row(&self.q, query), &row(&self.k, key)) + bias;
                if sees(self.mask, query, key) { score } else { f64::NEG_INFINITY }
            })
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - max).exp2()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    }

    fn expected(&self, query: usize) -> Vec<f64> {
        let (weights, width) = (self.weights(query), self.isa.panel_width());
        let value = |key: usize, c: usize| f64::from(self.v[c / width * self.keys * width + key * width + c % width]);
        (0..self.head_dim)
            .map(|c| weights.iter().enumerate().map(|(key, weight)| weight * value(key, c)).sum())
            .collect()
    }
}

#[test]
fn masks_and_biases_are_accurate_for_every_length() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for mask in MASKS {
            for (queries, keys) in [(1, 1), (2, 2), (12, 12), (13, 13), (33, 33), (70, 70), (150, 150), (40, 31)] {
                for biased in [false, true] {
                    let head = Head::new(isa, mask, (queries, keys), 12, biased);
                    let out = head.compute(0, queries);
                    for (query, row) in out.chunks_exact(head.head_dim).enumerate() {
                        // Of queries behind the last key only those that see one are defined.
                        if (0..keys).any(|key| sees(mask, query, key)) {
                            let describe = || format!("{} query {query}", head.describe());
                            cases.close(row, &head.expected(query), ATTENTION_MAX_ERROR, describe);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn bytes_do_not_depend_on_where_queries_are_cut() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for mask in MASKS {
            let head = Head::new(isa, mask, (90, 90), 32, true);
            let whole = head.compute(0, 90);
            for (first, rows) in [(0, 1), (89, 1), (5, 13), (12, 24), (7, 80), (36, 54), (41, 2)] {
                let part = head.compute(first, rows);
                let expected = &whole[first * 32..][..rows * 32];
                cases.same(&part, expected, || format!("{} rows {first}+{rows}", head.describe()));
            }
        }
    }
}

/// A query never learns of what it does not see, be it NaN.
#[test]
fn nan_keys_reach_only_the_queries_that_see_them() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for mask in MASKS {
            for at in [0, 11, 30, 49] {
                let mut head = Head::new(isa, mask, (50, 50), 32, false);
                head.k[at * head.padded + 3] = f32::NAN;
                for (query, row) in head.compute(0, 50).chunks_exact(32).enumerate() {
                    let right = row.iter().all(|value| value.is_nan() == sees(mask, query, at));
                    cases.check(right, || format!("{} key {at}, query {query}", head.describe()));
                }
            }
        }
    }
}

#[test]
fn weights_are_those_of_the_softmax() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for mask in MASKS {
            for query in [0, 1, 13, 59] {
                let head = Head::new(isa, mask, (60, 60), 24, query % 2 == 1);
                let mut out = Guarded::filled(1.0, 60);
                let args = head.args(query, 1, std::ptr::null_mut());
                // SAFETY: the buffers have these shapes.
                unsafe { attention_weights(isa, &args, &mut AttentionScratch::default(), 0.25, &mut out) };
                let expected: Vec<f64> = head.weights(query).iter().map(|weight| 1.0 + 0.25 * weight).collect();
                cases.close(&out, &expected, 2e-7, || format!("{} query {query}", head.describe()));
            }
        }
    }
}

/// What a window does not show costs no memory.
#[test]
fn scratch_is_bounded_by_what_is_seen() {
    for isa in Isa::available() {
        let bytes = |mask: Mask, first: usize, rows: usize| {
            let head = Head::new(isa, mask, (2000, 2000), 32, false);
            let mut out = vec![0.0; rows * head.padded];
            let mut scratch = AttentionScratch::default();
            // SAFETY: the buffers have these shapes.
            unsafe { attention_head(isa, &head.args(first, rows, out.as_mut_ptr()), &mut scratch) };
            scratch.bytes()
        };
        let window = Mask { causal: false, window: Some(64) };
        let (whole, one) = (bytes(Mask::NONE, 0, 2000), bytes(window, 1999, 1));
        assert!(one * 8 < whole, "{}: {one} bytes for a window, {whole} for everything", isa.name());
        let row = bytes(window, 0, 2000);
        assert!(row * 10 < whole * 9, "{}: {row} bytes for all windows, {whole} for everything", isa.name());
    }
}
