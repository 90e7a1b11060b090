//! Batches that do not fit the model are refused, and say where.

use simile_encoder::{EncodeError, Flow, Rows};
use simile_kernels::Isa;

use crate::models::Random;
use crate::run::{Batch, Machine, load};

#[test]
fn what_does_not_fit_is_named() {
    let model = Random { positions: 8, vocab: 50, layers: 1, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let batch = |ids: &[u32], types: &[u32], lengths: &[usize]| Batch {
        ids: ids.to_vec(),
        types: types.to_vec(),
        lengths: lengths.to_vec(),
        attended: vec![],
    };
    let attending = |attended: &[usize]| Batch { attended: attended.to_vec(), ..batch(&[1, 2, 3], &[], &[1, 2]) };
    let nine = [1u32; 9];
    let cases = [
        (batch(&nine, &[], &[9]), EncodeError::TooLong { sequence: 0, length: 9, limit: 8 }),
        (batch(&[1; 12], &[], &[3, 9]), EncodeError::TooLong { sequence: 1, length: 9, limit: 8 }),
        (
            batch(&[1, 2, 3, 50], &[], &[2, 2]),
            EncodeError::TokenOutOfRange { sequence: 1, position: 1, id: 50, vocab_size: 50 },
        ),
        (
            batch(&[u32::MAX], &[], &[1]),
            EncodeError::TokenOutOfRange { sequence: 0, position: 0, id: u32::MAX, vocab_size: 50 },
        ),
        (
            batch(&[1, 2, 3], &[0, 1, 2], &[1, 2]),
            EncodeError::TokenTypeOutOfRange { sequence: 1, position: 1, id: 2, type_vocab_size: 2 },
        ),
        (batch(&[1], &[], &[1, 0]), EncodeError::EmptySequence { sequence: 1 }),
        (batch(&[1, 2], &[], &[1]), EncodeError::Ragged { part: "input_ids", actual: 2, expected: 1 }),
        (batch(&[1], &[], &[1, 1]), EncodeError::Ragged { part: "input_ids", actual: 1, expected: 2 }),
        (batch(&[1, 2], &[0], &[2]), EncodeError::Ragged { part: "token_type_ids", actual: 1, expected: 2 }),
        (attending(&[1]), EncodeError::Ragged { part: "attended", actual: 1, expected: 2 }),
        (attending(&[1, 0]), EncodeError::Ragged { part: "attended tokens of a sequence", actual: 0, expected: 2 }),
        (attending(&[1, 3]), EncodeError::Ragged { part: "attended tokens of a sequence", actual: 3, expected: 2 }),
    ];
    let mut machine = Machine::new(2);
    for (batch, expected) in cases {
        let result = machine.try_run(&*encoder, &batch, Rows::All, &|| Flow::Continue);
        assert_eq!(result.err().as_ref(), Some(&expected));
    }
    let message = EncodeError::TooLong { sequence: 1, length: 9, limit: 8 }.to_string();
    assert!(message.contains('9') && message.contains('8'), "{message}");
}

#[test]
fn the_longest_sequence_and_the_largest_id_fit() {
    let model = Random { positions: 8, vocab: 50, layers: 1, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let batch = Batch::of(&[vec![49; 8]]);
    let states = Machine::new(1).run(&*encoder, &batch, Rows::All);
    assert_eq!(states[0].len(), 8);
    assert!(states[0].iter().flatten().all(|value| value.is_finite()));
}

/// ColBERT's masks behind a query: they read it, and it does not know of them.
#[test]
fn tokens_that_are_not_attended_to_change_no_other_row() {
    let model = Random { positions: 16, vocab: 50, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let (long, short) = (vec![3, 5, 7, 9, 9, 9], vec![3, 5, 7]);
    let mut alone = Machine::new(1).run(&*encoder, &Batch::of(&[short]), Rows::All).remove(0);
    let one_more =
        Machine::new(1).run(&*encoder, &Batch { attended: vec![3], ..Batch::of(&[vec![3, 5, 7, 9]]) }, Rows::All);
    alone.push(one_more[0][3].clone());
    for threads in [1, 2] {
        let batch = Batch { attended: vec![3, 2], ..Batch::of(&[long.clone(), vec![1, 2]]) };
        let rows = Machine::new(threads).run(&*encoder, &batch, Rows::All).remove(0);
        assert_eq!(rows[..4], alone, "{threads} threads");
        assert_ne!(rows[3], rows[4], "it has its own position");
    }
}

#[test]
fn an_empty_batch_gives_an_empty_result() {
    let model = Random { layers: 1, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    for threads in [1, 2] {
        let mut machine = Machine::new(threads);
        let hidden = machine.try_run(&*encoder, &Batch::default(), Rows::First, &|| Flow::Stop).unwrap();
        assert_eq!(hidden.sequences(), 0);
        hidden.pool(simile_encoder::Pooling::Cls, &mut []);
    }
}
