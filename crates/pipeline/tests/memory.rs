//! Memory comes back when models are let go, while others live: in a process of its own, because it is the process that
//! is measured.
#![cfg(target_os = "linux")]

mod common;

use std::thread;

use common::{Machine, real};
use simile_kernels::Isa;
use simile_pipeline::{LoadOptions, Role, TextModel};

/// Anonymous memory of this process in MB: without files that are only cached.
fn anonymous() -> f64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("smaps_rollup has it");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
}

/// A model loaded by a thread that ends afterwards, as the engine does: its small allocations come from an arena of that
/// thread.
fn load(max_length: usize) -> TextModel {
    let loader = thread::spawn(move || {
        let options = LoadOptions { max_length: Some(max_length), ..LoadOptions::new(Isa::best()) };
        TextModel::load(&real("sentence-transformers/all-MiniLM-L6-v2"), &options).unwrap()
    });
    loader.join().unwrap()
}

fn use_once(machine: &mut Machine, model: &TextModel) {
    let vectors = machine.embed(model, Role::Generic, &["a text of a few words"; 8], 8, u64::MAX);
    assert_eq!(vectors.len(), 8);
}

#[test]
fn models_that_are_let_go_leave_nothing_while_another_lives() {
    let mut machine = Machine::new(1);
    let stays = load(16);
    use_once(&mut machine, &stays);
    let before = anonymous();
    for round in 0..3 {
        let models: Vec<TextModel> = (0..3).map(|i| load(32 + i)).collect();
        models.iter().for_each(|model| use_once(&mut machine, model));
        let held = anonymous() - before;
        assert!(held > 120.0, "three models hold {held:.1} MB");
        drop(models);
        let left = anonymous() - before;
        // Packed matrices go back; 16 to 18 MB of vocabularies stay in the arenas of the threads that loaded them, for the
        // next models, however often they come and go.
        assert!(left < 25.0, "round {round}: {left:.1} MB of {held:.1} MB are left");
    }
    use_once(&mut machine, &stays);
}
