use super::reference;
use super::support::{Cases, Guarded, Random};
use crate::{ATTENTION_MAX_ERROR, Attention, AttentionScratch, Isa, Mask, attention_head};

/// One head, its rows padded to panels and laid out with gaps.
struct Case {
    isa: Isa,
    keys: usize,
    head_dim: usize,
    padded: usize,
    q: Guarded,
    k: Guarded,
    v: Guarded,
    ld: usize,
    expected: Vec<f64>,
    largest_value: f64,
}

impl Case {
    fn new(isa: Isa, q_rows: usize, keys: usize, head_dim: usize) -> Case {
        let mut random = Random((keys * 131 + head_dim) as u64);
        // Scores of a few bits either way, as trained models have.
        let scale = 6.0 / (head_dim as f32).sqrt();
        let q: Vec<f32> = random.units(q_rows * head_dim).iter().map(|value| value * scale).collect();
        let (k, v) = (random.units(keys * head_dim), random.units(keys * head_dim));
        let expected = reference::attention(&q, &k, &v, head_dim);
        let largest_value = v.iter().fold(0.0f64, |max, value| max.max(f64::from(value.abs())));

        let width = isa.panel_width();
        let padded = head_dim.next_multiple_of(width);
        let ld = padded + 3;
        let rows = |values: &[f32]| {
            let mut rows = vec![0.0; (values.len() / head_dim).saturating_sub(1) * ld + padded];
            for (i, row) in values.chunks_exact(head_dim).enumerate() {
                rows[i * ld..][..head_dim].copy_from_slice(row);
            }
            Guarded::new(&rows)
        };
        let mut panels = vec![0.0; padded * keys];
        for (i, row) in v.chunks_exact(head_dim).enumerate() {
            for (c, value) in row.iter().enumerate() {
                panels[c / width * keys * width + i * width + c % width] = *value;
            }
        }
        Case {
            isa,
            keys,
            head_dim,
            padded,
            q: rows(&q),
            k: rows(&k),
            v: Guarded::new(&panels),
            ld,
            expected,
            largest_value,
        }
    }

    fn describe(&self) -> String {
        format!("{} {} keys of {}", self.isa.name(), self.keys, self.head_dim)
    }

    /// Rows `first .. first + rows` of the result, `[rows][head_dim]`.
    fn compute(&self, first: usize, rows: usize, scratch: &mut AttentionScratch) -> Vec<f32> {
        let out_ld = self.padded + 1;
        let mut out = Guarded::filled(f32::NAN, (rows - 1) * out_ld + self.padded);
        let args = Attention {
            q: self.q.as_ptr().wrapping_add(first * self.ld),
            q_ld: self.ld,
            q_rows: rows,
            k: self.k.as_ptr(),
            k_ld: self.ld,
            v: self.v.as_ptr(),
            v_panel_stride: self.keys * self.isa.panel_width(),
            keys: self.keys,
            first: 0,
            mask: Mask::NONE,
            bias: None,
            head_dim: self.padded,
            out: out.as_mut_ptr(),
            out_ld,
        };
        // SAFETY: the buffers have these shapes.
        unsafe { attention_head(self.isa, &args, scratch) };
        (0..rows).flat_map(|r| out[r * out_ld..][..self.head_dim].to_vec()).collect()
    }
}

#[test]
fn attention_is_accurate_for_every_head_size_and_length() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let mut scratch = AttentionScratch::default();
        for head_dim in [8, 16, 24, 32, 48, 64, 80, 96, 128] {
            for keys in (1..=70).chain([127, 128, 129, 511, 512, 513, 700]) {
                // Every height of the last tile comes up below 26 rows.
                let q_rows = keys.min(25);
                let case = Case::new(isa, q_rows, keys, head_dim);
                let tolerance = ATTENTION_MAX_ERROR * case.largest_value;
                let actual = case.compute(0, q_rows, &mut scratch);
                cases.close(&actual, &case.expected, tolerance, || case.describe());
            }
        }
    }
}

#[test]
fn bytes_do_not_depend_on_the_other_queries_or_the_scratch() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let mut scratch = AttentionScratch::default();
        for keys in [1, 20, 37, 130] {
            let case = Case::new(isa, 37, keys, 32);
            let whole = case.compute(0, 37, &mut scratch);
            for (first, rows) in [(0, 1), (36, 1), (5, 13), (12, 25), (20, 7)] {
                let part = case.compute(first, rows, &mut AttentionScratch::default());
                let expected = &whole[first * 32..][..rows * 32];
                cases.same(&part, expected, || format!("{} rows {first}+{rows}", case.describe()));
            }
        }
    }
}

#[test]
fn the_result_may_replace_the_queries() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let mut case = Case::new(isa, 30, 30, isa.panel_width());
        let mut scratch = AttentionScratch::default();
        let expected = case.compute(0, 30, &mut scratch);
        let q = case.q.as_mut_ptr();
        let args = Attention {
            q,
            q_ld: case.ld,
            q_rows: 30,
            k: case.k.as_ptr(),
            k_ld: case.ld,
            v: case.v.as_ptr(),
            v_panel_stride: 0,
            keys: 30,
            first: 0,
            mask: Mask::NONE,
            bias: None,
            head_dim: case.padded,
            out: q,
            out_ld: case.ld,
        };
        // SAFETY: the buffers have these shapes; the result is where the queries are, with the same stride.
        unsafe { attention_head(isa, &args, &mut scratch) };
        let actual: Vec<f32> = (0..30).flat_map(|r| case.q[r * case.ld..][..case.head_dim].to_vec()).collect();
        cases.same(&actual, &expected, || case.describe());
    }
}

/// A NaN must never be lost in the search for the greatest score, wherever it stands.
#[test]
fn a_nan_key_makes_every_row_nan_and_a_nan_query_its_own() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let mut scratch = AttentionScratch::default();
        for keys in [1, 5, 17, 40] {
            for at in 0..keys {
                let mut case = Case::new(isa, 3, keys, 32);
                // With a payload, as arithmetic on other NaNs may leave it.
                case.k[at * case.ld] = f32::from_bits(0x7fc0_01ff);
                let out = case.compute(0, 3, &mut scratch);
                cases.check(out.iter().all(|value| value.is_nan()), || format!("{} key {at}", case.describe()));
            }
            let mut case = Case::new(isa, 3, keys, 32);
            case.q[case.ld + 7] = f32::NAN;
            let out = case.compute(0, 3, &mut scratch);
            for (r, row) in out.chunks_exact(32).enumerate() {
                let nans = row.iter().filter(|value| value.is_nan()).count();
                let expected = if r == 1 { 32 } else { 0 };
                cases.check(nans == expected, || format!("{} query 1, row {r}: {nans} NaN", case.describe()));
            }
        }
    }
}

/// Scores far apart: the greatest takes all, nothing overflows.
#[test]
fn large_scores_do_not_overflow() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let mut case = Case::new(isa, 2, 20, 32);
        case.q.iter_mut().for_each(|value| *value *= 1e18);
        let out = case.compute(0, 2, &mut AttentionScratch::default());
        let largest = case.largest_value as f32;
        cases.check(out.iter().all(|value| value.abs() <= largest), || format!("{} {out:?}", case.describe()));
    }
}

/// Scores that are all far below zero: it is their differences that count.
#[test]
fn scores_far_below_zero_do_not_vanish() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for keys in [1, 3, 16, 33] {
            let mut case = Case::new(isa, 2, keys, 32);
            case.q.fill(-100.0);
            case.k.fill(1.0);
            let out = case.compute(0, 2, &mut AttentionScratch::default());
            let width = isa.panel_width();
            let mean = |c: usize| {
                let panel = &case.v[c / width * keys * width..][..keys * width];
                panel.iter().skip(c % width).step_by(width).map(|v| f64::from(*v)).sum::<f64>() / keys as f64
            };
            let expected: Vec<f64> = (0..2).flat_map(|_| (0..32).map(mean)).collect();
            cases.close(&out, &expected, ATTENTION_MAX_ERROR, || case.describe());
        }
    }
}

#[test]
#[should_panic(expected = "not padded to a multiple of")]
fn a_head_size_that_is_not_padded_is_refused() {
    let isa = Isa::best();
    let mut case = Case::new(isa, 1, 1, 8);
    case.padded = isa.panel_width() - 1;
    case.compute(0, 1, &mut AttentionScratch::default());
}
