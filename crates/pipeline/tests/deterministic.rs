//! A text's vector is the same bytes whatever its batch-mates, their order, the batch size, the budget, the thread count,
//! and what the memory held before.

mod common;

use std::fs;
use std::process::Command;

use common::{Machine, Random, STATIC, TINY, bits, golden, load, real, tiny};
use simile_kernels::Isa;
use simile_pipeline::{LoadOptions, Role, TextModel};

/// Random batches of `texts` against each text alone.
fn same_bytes(model: &TextModel, texts: &[&str], rounds: usize, largest: usize) {
    let wrong = differing(model, texts, rounds, largest);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where random batches differ from each text alone, a line for each.
fn differing(model: &TextModel, texts: &[&str], rounds: usize, largest: usize) -> Vec<String> {
    let mut single = Machine::new(1);
    let ids: Vec<Vec<u32>> = texts.iter().map(|text| model.tokenize(Role::Generic, None, text).unwrap().ids).collect();
    let alone: Vec<_> = ids.iter().map(|ids| bits(&single.encode(model, &[ids], model.dimensions())[0])).collect();
    let mut machines: Vec<(usize, Machine)> =
        [1, 2, 3, 4, 7].into_iter().map(|threads| (threads, Machine::new(threads))).collect();
    let mut random = Random(11);
    let mut wrong = Vec::new();
    for round in 0..rounds {
        let chosen: Vec<usize> = (0..1 + random.below(largest)).map(|_| random.below(texts.len())).collect();
        let batch: Vec<&[u32]> = chosen.iter().map(|&index| ids[index].as_slice()).collect();
        let count = machines.len();
        let (threads, machine) = &mut machines[round % count];
        let together = machine.encode(model, &batch, model.dimensions());
        for (index, vector) in chosen.iter().zip(&together) {
            if bits(vector) != alone[*index] {
                wrong.push(format!(
                    "round {round}, {threads} threads, {} texts: text {index} of {} tokens",
                    chosen.len(),
                    ids[*index].len()
                ));
            }
        }
    }
    // The whole way, with plans of every size.
    let (_, machine) = &mut machines[2];
    for (batch_size, budget) in [(1, u64::MAX), (3, u64::MAX), (64, model.cost(20)), (64, 0), (64, u64::MAX)] {
        let vectors = machine.embed(model, Role::Generic, texts, batch_size, budget);
        let different: Vec<usize> = (0..texts.len()).filter(|&index| bits(&vectors[index]) != alone[index]).collect();
        if !different.is_empty() {
            wrong.push(format!("batch size {batch_size}, budget {budget}: {different:?}"));
        }
    }
    wrong
}

#[test]
fn tiny_models_on_every_instruction_set() {
    let mut wrong = Vec::new();
    for name in TINY.into_iter().chain(STATIC) {
        let golden = golden(&tiny(name));
        let texts: Vec<&str> = golden.texts.iter().map(String::as_str).collect();
        for isa in Isa::available() {
            let model = load(&tiny(name), isa);
            wrong.extend(
                differing(&model, &texts, 20, 40).into_iter().map(|line| format!("{name} {}: {line}", isa.name())),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_real_model() {
    let model =
        TextModel::load(&real("sentence-transformers/all-MiniLM-L6-v2"), &LoadOptions::new(Isa::best())).unwrap();
    let words = "the heron waits by a cold lake while seven red boats pass under the old bridge and nobody counts them";
    let words: Vec<&str> = words.split(' ').collect();
    let mut random = Random(5);
    // Every length up to a few tiles of rows, then some long ones up to the limit.
    let lengths = (0..24).chain([31, 48, 63, 100, 127, 200, 254, 255, 400]);
    let texts: Vec<String> = lengths
        .map(|length| (0..length).map(|_| words[random.below(words.len())]).collect::<Vec<_>>().join(" "))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    same_bytes(&model, &texts, 10, 16);
}

/// Where a child process writes its vectors, and with how many threads it computes.
const CHILD: &str = "SIMILE_TEST_CHILD";

#[test]
fn another_process_with_other_threads_gives_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let vectors: Vec<Vec<u8>> = [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let out = dir.path().join(threads.to_string());
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "vectors_of_a_child_process"])
                .env(CHILD, format!("{threads} {}", out.display()))
                .output()
                .unwrap();
            assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
            fs::read(out).unwrap()
        })
        .collect();
    assert!(vectors[0].len() > 1000);
    assert!(vectors.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
#[ignore = "run in a process of its own by the test above"]
fn vectors_of_a_child_process() {
    let task = std::env::var(CHILD).expect("set by the test above");
    let (threads, out) = task.split_once(' ').unwrap();
    let threads: usize = threads.parse().unwrap();
    let golden = golden(&tiny("tiny-bert-mean-pooler"));
    let mut texts: Vec<&str> = golden.texts.iter().map(String::as_str).collect();
    // Another order and other batches in each process.
    texts.rotate_left(threads);
    let model = load(&tiny("tiny-bert-mean-pooler"), Isa::best());
    let mut vectors = Machine::new(threads).embed(&model, Role::Generic, &texts, threads + 2, u64::MAX);
    vectors.rotate_right(threads);
    let bytes: Vec<u8> = vectors.concat().iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(out, bytes).unwrap();
}
