//! The formulas by which position enters against tables of other implementations (`tools/make_position_tables.py`).

use std::path::Path;

use serde_json::Value;
use simile_encoder::positions::{alibi_slopes, relative_bucket};
use simile_encoder::spec::{Rope, RopeScaling};

use crate::models::read_json;

fn tables(kind: &str) -> Vec<Value> {
    let file = "../../__test__/fixtures/reference/positions.json";
    let tables = read_json(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let tables = tables[kind].as_array().unwrap().clone();
    assert!(tables.len() >= 3, "{kind}");
    tables
}

fn numbers(table: &Value) -> Vec<f64> {
    table["of"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn size(table: &Value, key: &str) -> usize {
    table[key].as_u64().unwrap() as usize
}

#[test]
fn relative_buckets_are_those_of_transformers() {
    for table in tables("buckets") {
        let (buckets, max_distance) = (size(&table, "buckets"), size(&table, "max_distance"));
        for (distance, theirs) in (-200..=200).zip(numbers(&table)) {
            // Theirs is of memory position less context position, as ours is of key less query.
            let ours = relative_bucket(distance, buckets, max_distance);
            assert_eq!(ours as f64, theirs, "{buckets} buckets, distance {distance}");
        }
    }
}

#[test]
fn slopes_are_those_of_press_et_al() {
    for table in tables("slopes") {
        let (heads, theirs) = (size(&table, "heads"), numbers(&table));
        let ours = alibi_slopes(heads);
        assert_eq!(ours.len(), theirs.len(), "{heads} heads");
        for (head, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert!((f64::from(*ours) / theirs - 1.0).abs() < 1e-6, "head {head} of {heads}: {ours}, theirs {theirs}");
        }
    }
}

#[test]
fn frequencies_are_those_of_transformers_and_of_the_papers() {
    for table in tables("frequencies") {
        let factor = table["factor"].as_f64();
        let scaling = match (factor, table["trained"].as_u64()) {
            (None, _) => RopeScaling::None,
            (Some(factor), None) => RopeScaling::Ntk { factor },
            (Some(factor), Some(trained)) => RopeScaling::DynamicNtk { factor, trained: trained as usize },
        };
        let rope = Rope { theta: table["theta"].as_f64().unwrap(), scaling };
        let length = table["length"].as_u64().unwrap_or(9) as usize;
        let (ours, theirs) = (rope.frequencies(size(&table, "dim"), length), numbers(&table));
        assert_eq!(ours.len(), theirs.len(), "{rope:?}");
        for (i, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            // Their powers are taken in f32: 2e-7 for each of base and exponent.
            let off = (f64::from(*ours) / theirs - 1.0).abs();
            assert!(off < 2e-6, "{rope:?}, {length} tokens, frequency {i}: {ours}, theirs {theirs}");
        }
    }
}
