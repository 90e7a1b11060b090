//! The formulas by which position enters, against tables of other implementations (`tools/make_tiny_families.py`).

use serde_json::Value;
use simile_encoder::positions::{alibi_slopes, relative_bucket};
use simile_encoder::spec::{Rope, RopeScaling};

use crate::models::{odd, read_json};

fn tables(of: &str) -> Value {
    read_json(&odd("positions.json"))[of].take()
}

fn size(value: &Value, key: &str) -> usize {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}")) as usize
}

/// Eight units in the last place of an f32: the tables were computed in it, step by step.
const RELATIVE: f64 = 1e-6;

fn compare(what: &str, ours: &[f32], theirs: &Value, failures: &mut Vec<String>) {
    let theirs: Vec<f64> = serde_json::from_value(theirs.clone()).unwrap();
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (i, (&ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let off = (f64::from(ours) - theirs).abs() / theirs;
        // A NaN is no less than anything.
        if !matches!(off.partial_cmp(&RELATIVE), Some(std::cmp::Ordering::Less)) {
            failures.push(format!("{what}, {i}: {ours} instead of {theirs}"));
        }
    }
}

#[test]
fn relative_buckets_are_those_of_mpnet() {
    let mut failures = Vec::new();
    let tables = tables("buckets");
    assert_eq!(tables.as_array().unwrap().len(), 2);
    for table in tables.as_array().unwrap() {
        let (buckets, furthest) = (size(table, "buckets"), size(table, "max_distance"));
        let expected: Vec<usize> = serde_json::from_value(table["of"].clone()).unwrap();
        assert_eq!(expected.len(), 401, "one from each side of the greatest distance to the other's");
        let first = table["first_distance"].as_i64().unwrap() as isize;
        for (distance, expected) in (first..).zip(expected) {
            let ours = relative_bucket(distance, buckets, furthest);
            if ours != expected {
                failures.push(format!("{buckets} buckets, distance {distance}: {ours} instead of {expected}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn rotary_frequencies_are_those_of_their_models() {
    let mut failures = Vec::new();
    let tables = tables("ropes");
    assert_eq!(tables.as_array().unwrap().len(), 14);
    for table in tables.as_array().unwrap() {
        let number = |value: &Value| value.as_f64().unwrap();
        let (ntk, dynamic) = (&table["ntk"], &table["dynamic"]);
        let (scaling, length) = match (ntk.is_null(), dynamic.is_null()) {
            (true, true) => (RopeScaling::None, 1),
            (false, true) => (RopeScaling::Ntk { factor: number(&ntk["factor"]) }, 1),
            _ => {
                let factor = number(&dynamic["factor"]);
                (RopeScaling::DynamicNtk { factor, trained: size(dynamic, "trained") }, size(table, "length"))
            }
        };
        let (rope, dim) = (Rope { theta: number(&table["theta"]), scaling }, size(table, "head_dim"));
        let what = format!("{rope:?}, heads of {dim}, {length} tokens");
        compare(&what, &rope.frequencies(dim, length), &table["frequencies"], &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn alibi_slopes_are_those_of_bloom() {
    let mut failures = Vec::new();
    let tables = tables("slopes");
    for heads in [5, 6, 8, 12] {
        let expected = &tables[heads.to_string()];
        compare(&format!("{heads} heads"), &alibi_slopes(heads), expected, &mut failures);
    }
    // What no spec can be made to say: one geometric series, for a number of heads that is no power of two.
    let naive: Vec<f32> = (1..=5).map(|i| 2f32.powf(-8.0 * i as f32 / 5.0)).collect();
    let mut seen = Vec::new();
    compare("naive", &naive, &tables["5"], &mut seen);
    assert_eq!(seen.len(), 5, "the table would tell: {}", seen.join("\n"));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
