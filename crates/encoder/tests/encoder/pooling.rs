//! The six poolings, against the formulas in f64.

use simile_encoder::{Flow, Pooling, Rows};
use simile_kernels::Isa;

use crate::models::Random;
use crate::reference;
use crate::run::{Batch, Machine, load, sequences, states};

#[test]
fn every_pooling_follows_its_formula() {
    let model = Random { hidden: 52, heads: 2, layers: 1, ..Random::default() };
    let dir = model.write();
    let batch = Batch::of(&sequences(&[1, 2, 17, 200], model.vocab));
    let mut failures = Vec::new();
    for isa in Isa::available() {
        let encoder = load(isa, dir.path());
        let mut machine = Machine::new(1);
        let hidden = machine.try_run(&*encoder, &batch, Rows::All, &|| Flow::Continue).unwrap();
        let rows = states(&hidden);
        for pooling in Pooling::ALL {
            let mut pooled = vec![f32::NAN; 4 * 52];
            hidden.pool(pooling, &mut pooled);
            for (rows, ours) in rows.iter().zip(pooled.chunks(52)) {
                let wide = rows.iter().map(|row| row.iter().map(|&x| f64::from(x)).collect()).collect();
                let theirs = reference::pool(pooling.name(), &wide);
                if reference::difference(ours, &theirs) > 1e-6 {
                    failures.push(format!("{}, {}, {} rows", isa.name(), pooling.name(), rows.len()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_pooling_needs_its_rows() {
    let model = Random { layers: 1, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let batch = Batch::of(&sequences(&[3, 5], model.vocab));
    let mut machine = Machine::new(1);
    for computed in [Rows::All, Rows::First, Rows::Last] {
        let hidden = machine.try_run(&*encoder, &batch, computed, &|| Flow::Continue).unwrap();
        for pooling in Pooling::ALL {
            let allowed = computed == Rows::All || computed == pooling.rows();
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hidden.pool(pooling, &mut [0.0; 128])));
            assert_eq!(result.is_ok(), allowed, "{} from {computed:?}", pooling.name());
        }
    }
}

#[test]
fn names_are_those_of_sentence_transformers() {
    let names = Pooling::ALL.map(Pooling::name);
    assert_eq!(names, ["cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]);
    for pooling in Pooling::ALL {
        assert_eq!(Pooling::from_name(pooling.name()), Some(pooling));
    }
    assert_eq!(Pooling::from_name("average"), None);
}
