//! The same bytes whatever the batch-mates, their order, the threads, and the way of sharing out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use simile_encoder::{EncodeError, Flow, Rows, Teamwork};
use simile_kernels::Isa;

use crate::models::Random;
use crate::run::{Batch, Machine, load, sequences, states};

const THREADS: [usize; 5] = [1, 2, 3, 4, 7];

/// Numbers of threads, and whether they may work together.
fn ways() -> Vec<(usize, Teamwork)> {
    let together = THREADS.map(|threads| (threads, Teamwork::Always));
    together.into_iter().chain([(2, Teamwork::Never), (4, Teamwork::Adaptive)]).collect()
}

/// Two heads of one panel and three of two, by instruction set; a middle that is no multiple of a panel.
fn model() -> Random {
    Random { hidden: 96, heads: 3, intermediate: 200, ..Random::default() }
}

/// Lengths for every way of sharing out: alone on several threads a short one goes by columns, a long one by rows;
/// together they make groups on few threads, and a team on many.
const LENGTHS: [usize; 24] =
    [300, 1, 13, 12, 64, 2, 1, 100, 255, 31, 33, 7, 25, 140, 3, 19, 48, 90, 11, 1, 77, 200, 5, 60];

#[test]
fn a_sequence_has_the_same_bytes_in_any_company_on_any_number_of_threads() {
    let model = model();
    let dir = model.write();
    let ids = sequences(&LENGTHS, model.vocab);
    let mut failures = Vec::new();
    for isa in Isa::available() {
        let encoder = load(isa, dir.path());
        let mut one = Machine::new(1);
        let alone: Vec<_> = ids
            .iter()
            .map(|ids| one.run(&*encoder, &Batch::of(std::slice::from_ref(ids)), Rows::All).remove(0))
            .collect();
        for (threads, teamwork) in ways() {
            let mut machine = Machine::new(threads);
            machine.scratch.set_teamwork(teamwork);
            let mut orders: Vec<(&str, Vec<usize>)> = vec![
                ("in order", (0..ids.len()).collect()),
                ("reversed", (0..ids.len()).rev().collect()),
                ("three short and the longest", vec![1, 4, 0, 2]),
                ("short ones", vec![5, 6, 14]),
                ("one twice", vec![7, 7]),
            ];
            orders.extend((0..ids.len()).map(|i| ("alone", vec![i])));
            for (what, order) in orders {
                let batch: Vec<Vec<u32>> = order.iter().map(|&i| ids[i].clone()).collect();
                let result = machine.run(&*encoder, &Batch::of(&batch), Rows::All);
                for (&i, rows) in order.iter().zip(&result) {
                    if rows != &alone[i] {
                        let length = LENGTHS[i];
                        failures
                            .push(format!("{}, {threads} threads, team {teamwork:?}, {what}: {length}", isa.name()));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_last_layer_that_computes_one_row_has_the_bytes_of_that_row() {
    let model = model();
    let dir = model.write();
    let ids = sequences(&LENGTHS, model.vocab);
    let mut failures = Vec::new();
    for isa in Isa::available() {
        let encoder = load(isa, dir.path());
        let all = Machine::new(1).run(&*encoder, &Batch::of(&ids), Rows::All);
        for (threads, teamwork) in ways() {
            let mut machine = Machine::new(threads);
            machine.scratch.set_teamwork(teamwork);
            for (rows, pick) in [(Rows::First, 0), (Rows::Last, usize::MAX)] {
                let mut batches = vec![(0..ids.len()).collect::<Vec<_>>()];
                batches.extend((0..ids.len()).map(|i| vec![i]));
                for order in batches {
                    let batch: Vec<Vec<u32>> = order.iter().map(|&i| ids[i].clone()).collect();
                    let result = machine.run(&*encoder, &Batch::of(&batch), rows);
                    for (&i, row) in order.iter().zip(&result) {
                        let expected = &all[i][pick.min(all[i].len() - 1)];
                        if row.len() != 1 || &row[0] != expected {
                            let company = order.len();
                            let what = format!("team {teamwork:?}, {rows:?}: {i} of {company}");
                            failures.push(format!("{}, {threads} threads, {what}", isa.name()));
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn memory_that_held_something_else_changes_nothing() {
    let (large, small) = (model(), Random { hidden: 32, heads: 4, intermediate: 64, ..Random::default() });
    let (large_dir, small_dir) = (large.write(), small.write());
    for isa in Isa::available() {
        let (large, small) = (load(isa, large_dir.path()), load(isa, small_dir.path()));
        let batch = Batch::of(&sequences(&[40, 3, 21], 97));
        let fresh = Machine::new(2).run(&*small, &batch, Rows::All);
        let mut machine = Machine::new(2);
        machine.run(&*large, &Batch::of(&sequences(&LENGTHS, 97)), Rows::All);
        assert_eq!(machine.run(&*small, &batch, Rows::All), fresh, "{}", isa.name());
    }
}

#[test]
fn stop_is_obeyed_between_layers_and_leaves_everything_usable() {
    let model = model();
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let long = Batch::of(&sequences(&[300], model.vocab));
    let many = Batch::of(&sequences(&LENGTHS, model.vocab));
    for threads in THREADS {
        let mut machine = Machine::new(threads);
        machine.scratch.set_teamwork(Teamwork::Always);
        for batch in [&long, &many] {
            let whole = machine.run(&*encoder, batch, Rows::All);
            let total = AtomicUsize::new(0);
            let counting = || {
                total.fetch_add(1, Ordering::Relaxed);
                Flow::Continue
            };
            machine.try_run(&*encoder, batch, Rows::All, &counting).unwrap();
            let total = total.into_inner();
            assert!(total >= model.layers, "{threads} threads: {total} checkpoints in {} layers", model.layers);
            for stop_at in 0..total {
                let calls = AtomicUsize::new(0);
                let checkpoint = || match calls.fetch_add(1, Ordering::Relaxed) {
                    call if call == stop_at => Flow::Stop,
                    _ => Flow::Continue,
                };
                let result = machine.try_run(&*encoder, batch, Rows::All, &checkpoint);
                assert_eq!(result.err(), Some(EncodeError::Stopped), "{threads} threads, stop at {stop_at} of {total}");
                // Where one thread asks for all, nobody asks again.
                if threads == 1 || batch.lengths.len() == 1 {
                    assert_eq!(calls.into_inner(), stop_at + 1, "{threads} threads, stop at {stop_at} of {total}");
                }
            }
            assert_eq!(machine.run(&*encoder, batch, Rows::All), whole, "{threads} threads, after stops");
        }
    }
}

/// Nobody is asked after a stop, so only time shows that the other layers are left out. The best of several, because
/// the machine may be busy; a whole pass is 12 layers, a stopped one none.
#[test]
fn a_stopped_pass_ends_early() {
    let model = Random { layers: 12, ..model() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    for lengths in [&LENGTHS[..], &[300]] {
        let batch = Batch::of(&sequences(lengths, model.vocab));
        for threads in [1, 2] {
            let mut machine = Machine::new(threads);
            machine.scratch.set_teamwork(Teamwork::Always);
            let mut best = |flow: Flow| {
                let pass = |_| {
                    let start = Instant::now();
                    let _ = machine.try_run(&*encoder, &batch, Rows::All, &|| flow);
                    start.elapsed()
                };
                (0..8).map(pass).min().unwrap()
            };
            let (whole, stopped) = (best(Flow::Continue), best(Flow::Stop));
            assert!(stopped < whole / 2, "{threads} threads: {stopped:?} of {whole:?}");
        }
    }
}

#[test]
fn another_batch_can_run_inside_a_checkpoint() {
    let model = model();
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let batch = Batch::of(&sequences(&LENGTHS, model.vocab));
    let query = Batch::of(&sequences(&[12], model.vocab));
    for threads in [1, 2] {
        let mut machine = Machine::new(threads);
        let (expected, answer) = (machine.run(&*encoder, &batch, Rows::All), machine.run(&*encoder, &query, Rows::All));
        let inner = Mutex::new(Machine::new(1));
        let checkpoint = || {
            let got = inner.lock().unwrap().run(&*encoder, &query, Rows::All);
            if got == answer { Flow::Continue } else { Flow::Stop }
        };
        let hidden = machine.try_run(&*encoder, &batch, Rows::All, &checkpoint).expect("every answer was right");
        assert_eq!(states(&hidden), expected, "{threads} threads");
    }
}

#[test]
fn a_panic_in_a_checkpoint_reaches_the_caller_and_leaves_everything_usable() {
    let model = model();
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    for threads in [1, 2, 3] {
        for lengths in [&LENGTHS[..], &[300]] {
            let batch = Batch::of(&sequences(lengths, model.vocab));
            let mut machine = Machine::new(threads);
            machine.scratch.set_teamwork(Teamwork::Always);
            let expected = machine.run(&*encoder, &batch, Rows::All);
            let calls = AtomicUsize::new(0);
            let checkpoint = || {
                assert!(calls.fetch_add(1, Ordering::Relaxed) != 1, "on purpose");
                Flow::Continue
            };
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                machine.try_run(&*encoder, &batch, Rows::All, &checkpoint).map(drop)
            }));
            assert!(caught.is_err(), "{threads} threads: the panic was swallowed");
            assert_eq!(machine.run(&*encoder, &batch, Rows::All), expected, "{threads} threads");
        }
    }
}

#[test]
fn memory_of_an_unusually_long_text_is_given_back() {
    let model = Random { hidden: 512, heads: 8, intermediate: 64, layers: 1, positions: 4200, ..Random::default() };
    let dir = model.write();
    let encoder = load(Isa::best(), dir.path());
    let mut machine = Machine::new(1);
    let short = Batch::of(&sequences(&[20; 10], model.vocab));
    machine.run(&*encoder, &short, Rows::All);
    let usual = machine.scratch.bytes();
    assert!(usual > 0, "memory is kept between passes");
    machine.run(&*encoder, &Batch::of(&sequences(&[4200], model.vocab)), Rows::All);
    let after = machine.scratch.bytes();
    assert!(after <= 128 << 20, "{after} bytes kept");
    // 4,200 tokens x 512 x 4 bytes x (hidden state, query, key, value, context) is over 40 MB.
    assert!(after < 4200 * 512 * 4 * 5, "{after} bytes kept");
}
