//! Against the plain f64 encoder: sizes that fit no tile, every activation, every stored type, token types.

use safetensors::Dtype;
use simile_encoder::Rows;
use simile_kernels::Isa;

use crate::models::Random;
use crate::reference::{Reference, difference};
use crate::run::{Batch, Machine, load, sequences};

/// Of a row's largest component. f32 rounding through three layers is about 1e-6.
const TOLERANCE: f64 = 1e-5;

/// Largest difference of any row to the reference.
fn off(ours: &[Vec<Vec<f32>>], reference: &Reference, ids: &[Vec<u32>], types: &[Vec<u32>]) -> f64 {
    let mut worst = 0f64;
    for (i, ids) in ids.iter().enumerate() {
        let theirs = reference.forward(ids, types.get(i).map_or(&[], Vec::as_slice));
        assert_eq!(ours[i].len(), theirs.len());
        for (ours, theirs) in ours[i].iter().zip(&theirs) {
            worst = worst.max(difference(ours, theirs));
        }
    }
    worst
}

fn check(model: &Random, what: &str, failures: &mut Vec<String>) {
    let dir = model.write();
    let reference = Reference::open(dir.path());
    let ids = sequences(&[1, 2, 13, 33, 70], model.vocab);
    for isa in Isa::available() {
        let encoder = load(isa, dir.path());
        for threads in [1, 3] {
            let ours = Machine::new(threads).run(&*encoder, &Batch::of(&ids), Rows::All);
            let off = off(&ours, &reference, &ids, &[]);
            if off > TOLERANCE {
                failures.push(format!("{what}, {}, {threads} threads: off by {off:e}", isa.name()));
            }
        }
    }
}

#[test]
fn sizes_that_fit_no_tile_give_the_reference_s_numbers() {
    // hidden, heads, intermediate: head widths 8, 26, 12, 64, 40, 32, 1 and 33.
    let sizes =
        [(32, 4, 64), (52, 2, 100), (36, 3, 50), (128, 2, 96), (80, 2, 200), (512, 16, 512), (7, 7, 5), (33, 1, 65)];
    let mut failures = Vec::new();
    for (hidden, heads, intermediate) in sizes {
        let model = Random { hidden, heads, intermediate, ..Random::default() };
        check(&model, &format!("hidden {hidden}, {heads} heads, intermediate {intermediate}"), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_activation_gives_the_reference_s_numbers() {
    let mut failures = Vec::new();
    for activation in
        ["gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"]
    {
        check(&Random { activation, ..Random::default() }, activation, &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sixteen_bit_and_sharded_weights_give_the_reference_s_numbers() {
    let mut failures = Vec::new();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for shards in [1, 3] {
            check(
                &Random { dtype, shards, ..Random::default() },
                &format!("{dtype:?} in {shards} files"),
                &mut failures,
            );
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The usual 1e-12 and 1e-5 move a result by less than the tolerance, so that only a large one shows that it is used.
#[test]
fn epsilon_is_used() {
    let mut failures = Vec::new();
    for epsilon in [1e-12, 1e-5, 0.25] {
        check(&Random { epsilon, ..Random::default() }, &format!("epsilon {epsilon}"), &mut failures);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The format does not promise that tensors are aligned, only its usual writers pad the header.
#[test]
fn tables_at_odd_addresses_give_the_reference_s_numbers() {
    let model = Random::default();
    let dir = model.write();
    let ids = sequences(&[9, 30], model.vocab);
    let aligned = Machine::new(1).run(&*load(Isa::best(), dir.path()), &Batch::of(&ids), Rows::All);
    let path = dir.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for spaces in 1..=4 {
        let mut shifted = ((header + spaces) as u64).to_le_bytes().to_vec();
        shifted.extend(&bytes[8..8 + header]);
        shifted.extend(vec![b' '; spaces]);
        shifted.extend(&bytes[8 + header..]);
        std::fs::write(&path, shifted).unwrap();
        let ours = Machine::new(1).run(&*load(Isa::best(), dir.path()), &Batch::of(&ids), Rows::All);
        assert_eq!(ours, aligned, "{spaces} spaces behind the header");
    }
}

#[test]
fn token_types_are_read() {
    let model = Random::default();
    let dir = model.write();
    let reference = Reference::open(dir.path());
    let ids = sequences(&[9, 4, 30], model.vocab);
    let types: Vec<Vec<u32>> = ids.iter().map(|ids| (0..ids.len()).map(|i| u32::from(i % 3 == 1)).collect()).collect();
    let batch = Batch { types: types.concat(), ..Batch::of(&ids) };
    for isa in Isa::available() {
        let encoder = load(isa, dir.path());
        let mut machine = Machine::new(1);
        let ours = machine.run(&*encoder, &batch, Rows::All);
        let off = off(&ours, &reference, &ids, &types);
        assert!(off <= TOLERANCE, "{}: off by {off:e}", isa.name());
        assert_ne!(ours, machine.run(&*encoder, &Batch::of(&ids), Rows::All), "types change the result");
    }
}

#[test]
fn sizes_are_reported() {
    let model = Random { positions: 77, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    assert_eq!(encoder.hidden_size(), 64);
    assert_eq!(encoder.max_position_embeddings(), 77);
    assert_eq!(encoder.vocab_size(), 97);
    // 3 layers of 4 x 64 x 64 + 2 x 64 x 128 weights, twice a token; scores and values 4 x length² x 64.
    assert_eq!(encoder.flops(10), 3 * (10 * 2 * (4 * 64 * 64 + 2 * 64 * 128) + 4 * 10 * 10 * 64));
    let weights = 3 * (4 * 64 * 64 + 2 * 64 * 128) * 4;
    let bytes = encoder.memory_bytes();
    assert!((weights..2 * weights).contains(&bytes), "{bytes} bytes for {weights} bytes of weights");
}
