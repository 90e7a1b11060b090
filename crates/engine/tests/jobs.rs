//! Calls through the engine: results, order, cancellation, panics.

mod common;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use common::{DIMENSIONS, FakeModel, bulk, interactive, submit, submit_with, vector};
use simile_encoder::{EncodeError, Flow};
use simile_engine::{
    CancelToken, Chunk, ChunkJob, CountJob, EmbedJob, Engine, ErrorKind, Failure, Priority, Statistics,
};

#[test]
fn rows_come_in_the_order_of_the_request() {
    let (engine, model) = (Engine::new(2), FakeModel::new());
    let texts = ["b", "a longer text", "", "cc", "b"];
    for batch_size in [None, Some(1), Some(2), Some(64)] {
        for priority in [Priority::Bulk, Priority::Interactive] {
            let job = EmbedJob { batch_size, priority, dimensions: Some(3), ..bulk(&texts) };
            let output = submit(&engine, &model, job).recv().unwrap().unwrap();
            let expected: Vec<f32> = texts.iter().flat_map(|text| vector(text, 3)).collect();
            assert_eq!(output.data, expected, "{batch_size:?} {priority:?}");
            assert_eq!((output.dimensions, &output.contract_id[..]), (3, "fake-3"));
            assert_eq!(output.tokens.total, [2, 14, 1, 3, 2]);
            assert_eq!(output.tokens.embedded, [1, 13, 0, 2, 1]);
        }
    }
}

#[test]
fn a_batch_size_bounds_the_micro_batches_of_a_call() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    for priority in [Priority::Bulk, Priority::Interactive] {
        let job = EmbedJob { batch_size: Some(2), priority, ..bulk(&["a", "b", "c", "d", "e"]) };
        submit(&engine, &model, job).recv().unwrap().unwrap();
        let sizes: Vec<usize> = model.batches.lock().unwrap().drain(..).map(|batch| batch.len()).collect();
        assert_eq!(sizes, [2, 2, 1], "{priority:?}");
    }
}

#[test]
fn a_call_without_texts_ends_at_once() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    let output = submit(&engine, &model, bulk(&[])).try_recv().expect("answered before submit returned").unwrap();
    assert_eq!((output.data.len(), output.dimensions), (0, DIMENSIONS));
    assert!(model.batches().is_empty());
}

#[test]
fn requests_that_cannot_be_met_are_refused_at_once() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    let instruction = Some("find".to_owned());
    for (job, word) in [
        (EmbedJob { instruction: instruction.clone(), ..bulk(&["a"]) }, "instruction"),
        (EmbedJob { dimensions: Some(0), ..bulk(&["a"]) }, "dimensions"),
        (EmbedJob { dimensions: Some(5), ..bulk(&["a"]) }, "dimensions"),
        (EmbedJob { batch_size: Some(0), ..bulk(&["a"]) }, "batchSize"),
    ] {
        let failure = submit(&engine, &model, job).try_recv().expect("answered").unwrap_err();
        assert_eq!((failure.kind, failure.option, failure.index), (ErrorKind::InvalidInput, Some(word), None));
        assert!(failure.message.contains(word), "{}", failure.message);
    }
    let (sender, receiver) = channel();
    let job = CountJob { texts: vec!["a".to_owned()], instruction, ..CountJob::default() };
    engine.count(model, Arc::default(), job, &[], move |result| sender.send(result).unwrap());
    let failure = receiver.try_recv().expect("answered").unwrap_err();
    assert_eq!((failure.kind, failure.option, failure.index), (ErrorKind::InvalidInput, Some("instruction"), None));
}

#[test]
fn counting_does_not_wait_for_all_bulk_work() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(1);
    let first = submit(&engine, &model, bulk(&["gate"]));
    gate.reached();
    let job = EmbedJob { batch_size: Some(1), ..bulk(&["gate"; 3]) };
    let waiting = submit(&engine, &model, job);
    let (sender, receiver) = channel();
    let job = CountJob { texts: vec!["abc".to_owned()], ..CountJob::default() };
    engine.count(model.clone(), Arc::default(), job, &[], move |result| sender.send(result).unwrap());
    gate.open();
    // The next micro-batch stands at the gate, and texts were counted before it.
    gate.reached();
    assert_eq!(receiver.try_recv().expect("answered").unwrap().total, [4]);
    for _ in 0..2 {
        gate.open();
        gate.reached();
    }
    gate.open();
    first.recv().unwrap().unwrap();
    waiting.recv().unwrap().unwrap();
}

#[test]
fn interactive_calls_overtake_bulk_calls_in_the_queue() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(1);
    let first = submit(&engine, &model, interactive(&["gate"]));
    gate.reached();
    let slow = submit(&engine, &model, bulk(&["bulk"]));
    let quick = submit(&engine, &model, interactive(&["query"]));
    assert_eq!(engine.depth(), (1, 1));
    gate.open();
    for answer in [first, slow, quick] {
        answer.recv().unwrap().unwrap();
    }
    assert_eq!(model.batches(), [["gate"], ["query"], ["bulk"]]);
}

#[test]
fn an_interactive_call_runs_between_the_layers_of_a_bulk_micro_batch() {
    let (asked, ask) = channel();
    let (told, tell) = channel();
    let tell = Mutex::new(tell);
    let model = FakeModel::with(move |texts, context| {
        if texts[0] == "bulk" {
            asked.send(()).unwrap();
            tell.lock().unwrap().recv().unwrap();
            // A checkpoint between two layers.
            assert_eq!((context.checkpoint)(), Flow::Continue);
            asked.send(()).unwrap();
            tell.lock().unwrap().recv().unwrap();
        }
        Ok(())
    });
    let engine = Engine::new(2);
    let slow = submit(&engine, &model, bulk(&["bulk"]));
    ask.recv().unwrap();
    let quick = submit(&engine, &model, interactive(&["query"]));
    told.send(()).unwrap();
    ask.recv().unwrap();
    // The bulk micro-batch still stands at its second stop.
    assert_eq!(quick.try_recv().expect("answered within the checkpoint").unwrap().data, vector("query", DIMENSIONS));
    assert!(slow.try_recv().is_err());
    told.send(()).unwrap();
    assert_eq!(slow.recv().unwrap().unwrap().data, vector("bulk", DIMENSIONS));
}

#[test]
fn small_calls_that_wait_share_a_micro_batch() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(1);
    let first = submit(&engine, &model, interactive(&["gate"]));
    gate.reached();
    let other_dimensions = EmbedJob { dimensions: Some(2), ..interactive(&["other"]) };
    let jobs = [interactive(&["a", "b"]), other_dimensions, interactive(&["c"])];
    let answers: Vec<_> = jobs.into_iter().map(|job| submit(&engine, &model, job)).collect();
    gate.open();
    first.recv().unwrap().unwrap();
    for (answer, expected) in
        answers.into_iter().zip([[vector("a", 4), vector("b", 4)].concat(), vector("other", 2), vector("c", 4)])
    {
        assert_eq!(answer.recv().unwrap().unwrap().data, expected);
    }
    assert_eq!(model.batches(), [vec!["gate"], vec!["a", "b", "c"], vec!["other"]]);
}

#[test]
fn a_call_that_is_cancelled_already_never_starts() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    let cancel = CancelToken::new();
    cancel.cancel();
    let failure = submit_with(&engine, &model, bulk(&["a"]), &cancel).try_recv().expect("answered").unwrap_err();
    assert_eq!(failure, Failure::cancelled());
    submit(&engine, &model, bulk(&["b"])).recv().unwrap().unwrap();
    assert_eq!(model.batches(), [["b"]]);
}

#[test]
fn a_call_that_is_cancelled_in_the_queue_leaves_it_at_once() {
    let (model, gate) = FakeModel::gated();
    let (engine, cancel) = (Engine::new(1), CancelToken::new());
    let first = submit(&engine, &model, bulk(&["gate"]));
    gate.reached();
    let second = submit_with(&engine, &model, bulk(&["second"]), &cancel);
    let third = submit(&engine, &model, bulk(&["third"]));
    let before = engine.depth().1;
    cancel.cancel_with(Failure::disposed());
    // Answered by the cancelling thread, although the dispatcher stands at the gate.
    assert_eq!(second.try_recv().expect("answered").unwrap_err().kind, ErrorKind::ModelNotLoaded);
    assert_eq!(engine.depth().1, before - 1);
    gate.open();
    first.recv().unwrap().unwrap();
    third.recv().unwrap().unwrap();
    assert_eq!(model.batches(), [["gate"], ["third"]]);
}

#[test]
fn a_call_ends_with_the_parent_of_its_token_even_when_only_the_call_has_it() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(1);
    let first = submit(&engine, &model, bulk(&["gate"]));
    gate.reached();
    let scope = CancelToken::new();
    let second = submit_with(&engine, &model, bulk(&["second"]), &scope.child());
    scope.cancel();
    assert_eq!(second.try_recv().expect("answered").unwrap_err(), Failure::cancelled());
    gate.open();
    first.recv().unwrap().unwrap();
}

#[test]
fn a_running_micro_batch_stops_at_its_next_checkpoint_when_nobody_needs_it() {
    let (asked, ask) = channel();
    let (told, tell) = channel();
    let tell = Mutex::new(tell);
    let model = FakeModel::with(move |texts, context| {
        if texts.contains(&"held".to_owned()) {
            asked.send(None).unwrap();
            tell.lock().unwrap().recv().unwrap();
            let flow = (context.checkpoint)();
            asked.send(Some(flow)).unwrap();
            if flow == Flow::Stop {
                return Err(EncodeError::Stopped);
            }
        }
        Ok(())
    });
    let engine = Engine::new(1);
    for batch_mate in [false, true] {
        // Two calls in one micro-batch need a turn of the queue in which both wait: behind a held one.
        let held = CancelToken::new();
        let answer = submit_with(&engine, &model, interactive(&["held"]), &held);
        assert_eq!(ask.recv().unwrap(), None);
        let (second, third) = (CancelToken::new(), CancelToken::new());
        let cancelled = submit_with(&engine, &model, interactive(&["held"]), &second);
        let mate = batch_mate.then(|| submit_with(&engine, &model, interactive(&["mate"]), &third));
        told.send(()).unwrap();
        assert_eq!(ask.recv().unwrap(), Some(Flow::Continue));
        answer.recv().unwrap().unwrap();

        assert_eq!(ask.recv().unwrap(), None);
        second.cancel();
        assert_eq!(cancelled.try_recv().expect("answered").unwrap_err(), Failure::cancelled());
        told.send(()).unwrap();
        let expected = if batch_mate { Flow::Continue } else { Flow::Stop };
        assert_eq!(ask.recv().unwrap(), Some(expected), "with a batch-mate: {batch_mate}");
        if let Some(mate) = mate {
            assert_eq!(mate.recv().unwrap().unwrap().data, vector("mate", DIMENSIONS));
        }
    }
}

#[test]
fn cancelling_while_a_call_ends_answers_once() {
    let (engine, model) = (Engine::new(2), FakeModel::new());
    for _ in 0..300 {
        let cancel = CancelToken::new();
        let answer = submit_with(&engine, &model, interactive(&["a"]), &cancel);
        cancel.cancel();
        match answer.recv().unwrap() {
            Ok(output) => assert_eq!(output.data, vector("a", DIMENSIONS)),
            Err(failure) => assert_eq!(failure, Failure::cancelled()),
        }
        assert!(answer.recv().is_err(), "answered twice");
    }
}

#[test]
fn a_panic_in_the_tokenizer_is_the_failure_of_its_call_and_names_the_text() {
    for threads in [1, 3] {
        let (engine, model) = (Engine::new(threads), FakeModel::new());
        let bad = submit(&engine, &model, bulk(&["a", "b", "panic-tokenizer", "c", "panic-tokenizer"]));
        let good = submit(&engine, &model, bulk(&["d"]));
        let failure = bad.recv().unwrap().unwrap_err();
        assert_eq!((failure.kind, failure.index), (ErrorKind::TaskFailed, Some(2)), "{threads} threads");
        assert!(failure.message.contains("told to"), "{}", failure.message);
        good.recv().unwrap().unwrap();
    }
}

#[test]
fn a_panic_in_the_model_is_the_failure_of_its_call_and_its_batch_mates_are_tried_again() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(2);
    let first = submit(&engine, &model, interactive(&["gate"]));
    gate.reached();
    let jobs = [interactive(&["a"]), interactive(&["b", "panic-model"]), interactive(&["c"])];
    let answers: Vec<_> = jobs.into_iter().map(|job| submit(&engine, &model, job)).collect();
    gate.open();
    first.recv().unwrap().unwrap();
    let results: Vec<_> = answers.into_iter().map(|answer| answer.recv().unwrap()).collect();
    assert_eq!(results[0].as_ref().unwrap().data, vector("a", DIMENSIONS));
    let failure = results[1].as_ref().unwrap_err();
    assert_eq!(failure.kind, ErrorKind::TaskFailed);
    assert!(failure.message.contains("told to"), "{}", failure.message);
    assert_eq!(results[2].as_ref().unwrap().data, vector("c", DIMENSIONS));
    assert_eq!(model.batches().len(), 1 + 1 + 3);
    // And the engine lives.
    submit(&engine, &model, interactive(&["d"])).recv().unwrap().unwrap();
}

#[test]
fn a_panic_on_a_thread_of_the_pool_is_caught_too() {
    let model = FakeModel::with(|texts, context| {
        let bad = texts.iter().any(|text| text == "bad");
        context.pool.run(&|team| assert!(!bad || team.rank() == 0, "rank {} told to", team.rank()));
        Ok(())
    });
    let engine = Engine::new(3);
    let failure = submit(&engine, &model, bulk(&["bad"])).recv().unwrap().unwrap_err();
    assert_eq!(failure.kind, ErrorKind::TaskFailed);
    submit(&engine, &model, bulk(&["good"])).recv().unwrap().unwrap();
}

#[test]
fn an_answer_that_panics_does_not_end_the_dispatcher() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    engine.embed(model.clone(), Arc::default(), bulk(&["a"]), &[], |_| panic!("told to"));
    submit(&engine, &model, bulk(&["b"])).recv().unwrap().unwrap();
}

#[test]
fn a_vector_that_is_not_finite_fails_its_call_with_its_index() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(1);
    let first = submit(&engine, &model, interactive(&["gate"]));
    gate.reached();
    let bad = submit(&engine, &model, interactive(&["a", "nan b", "nan longer", "c"]));
    let good = submit(&engine, &model, interactive(&["d"]));
    gate.open();
    first.recv().unwrap().unwrap();
    let failure = bad.recv().unwrap().unwrap_err();
    assert_eq!((failure.kind, failure.index), (ErrorKind::InferenceFailed, Some(1)));
    assert_eq!(good.recv().unwrap().unwrap().data, vector("d", DIMENSIONS));
}

#[test]
fn a_text_that_is_too_long_is_named() {
    for threads in [1, 3] {
        let engine = Engine::new(threads);
        let texts = ["a", "b", "long text", "c", "long as well"];
        let failure = submit(&engine, &FakeModel::new(), bulk(&texts)).recv().unwrap().unwrap_err();
        assert_eq!((failure.kind, failure.index), (ErrorKind::TextTooLong, Some(2)));
        assert!(failure.message.starts_with("text 2 has 9 tokens"), "{failure}");
        assert_eq!((failure.limit, failure.actual, failure.unit), (Some(8.0), Some(9.0), Some("tokens")));
    }
}

#[test]
fn calls_larger_than_the_window_are_whole() {
    let (engine, model) = (Engine::new(2), FakeModel::new());
    let texts: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
    let job = EmbedJob { texts: texts.clone(), ..EmbedJob::default() };
    let output = submit(&engine, &model, job).recv().unwrap().unwrap();
    for (text, row) in texts.iter().zip(output.data.chunks_exact(DIMENSIONS)) {
        assert_eq!(row, vector(text, DIMENSIONS), "{text}");
    }
    assert_eq!(output.tokens.total.len(), texts.len());
}

#[test]
fn the_pool_has_the_threads_that_were_asked_for_last() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    let model = FakeModel::with(move |_, context| {
        seen.lock().unwrap().push(context.pool.threads());
        Ok(())
    });
    let engine = Engine::new(0);
    assert_eq!(engine.threads(), 1);
    for threads in [1, 2, 3, 4, 7, 1] {
        engine.set_threads(threads);
        assert_eq!(engine.threads(), threads);
        submit(&engine, &model, bulk(&["a", "b"])).recv().unwrap().unwrap();
    }
    assert_eq!(*sizes.lock().unwrap(), [1, 2, 3, 4, 7, 1]);
}

#[test]
fn counting_tokens_runs_no_model_and_no_text_is_too_long() {
    let (engine, model) = (Engine::new(2), FakeModel::new());
    let (sender, receiver) = channel();
    let texts = vec!["abc".to_owned(), String::new(), "long text".to_owned()];
    let job = CountJob { texts, ..CountJob::default() };
    engine.count(model.clone(), Arc::default(), job, &[], move |result| sender.send(result).unwrap());
    let counts = receiver.recv().unwrap().unwrap();
    assert_eq!((counts.total, counts.embedded), (vec![4, 1, 10], vec![3, 0, 9]));
    assert!(model.batches().is_empty());
}

#[test]
fn statistics_count_what_was_done() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    let statistics = Arc::new(Statistics::default());
    let run = |job: EmbedJob| {
        let (sender, receiver) = channel();
        engine.embed(model.clone(), statistics.clone(), job, &[], move |result| sender.send(result.is_ok()).unwrap());
        receiver.recv().unwrap()
    };
    assert!(run(bulk(&["a", "four", ""])));
    assert!(!run(bulk(&["nan"])));
    let counted = statistics.snapshot();
    assert_eq!((counted.calls, counted.failed, counted.batches), (1, 1, 2));
    // The fake tokenizer drops the last token of each text, so all were truncated.
    assert_eq!((counted.texts, counted.truncated, counted.tokens, counted.padded_tokens), (3, 3, 5, 12));
    assert!(counted.compute_time > std::time::Duration::ZERO);
    assert!(counted.longest_layer_time <= counted.compute_time);
}

#[test]
fn an_engine_that_is_dropped_answers_all() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(2);
    let running = submit(&engine, &model, bulk(&["gate"]));
    gate.reached();
    let waiting = submit(&engine, &model, bulk(&["waiting"]));
    let dropping = std::thread::spawn(move || drop(engine));
    assert_eq!(waiting.recv().unwrap().unwrap_err().kind, ErrorKind::TaskFailed);
    gate.open();
    // What runs is finished.
    running.recv().unwrap().unwrap();
    dropping.join().unwrap();
}

#[test]
fn a_text_is_cut_by_the_engine_and_its_failures_are_its_own() {
    let (engine, model) = (Engine::new(1), FakeModel::new());
    let cut = |text: &str, cancel: &CancelToken| {
        let (sender, receiver) = channel();
        let job = ChunkJob { text: text.to_owned(), ..ChunkJob::default() };
        let done = move |result| sender.send(result).unwrap();
        engine.chunk(model.clone(), Arc::default(), job, std::slice::from_ref(cancel), done);
        receiver
    };
    let chunks = cut("abc", &CancelToken::new()).recv().unwrap().unwrap();
    assert_eq!(chunks.iter().map(|chunk| (chunk.start, chunk.end)).collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 3)]);
    let failure = cut("panic-tokenizer", &CancelToken::new()).recv().unwrap().unwrap_err();
    assert_eq!((failure.kind, failure.index), (ErrorKind::TaskFailed, None));
    assert!(!failure.message.contains("text 0"), "there is only one: {failure}");
    let cancelled = CancelToken::new();
    cancelled.cancel();
    assert_eq!(cut("abc", &cancelled).recv().unwrap().unwrap_err(), Failure::cancelled());
    assert_eq!(engine.depth(), (0, 0));
}

#[test]
fn a_text_that_is_being_cut_lets_queries_in_and_stops_when_it_is_cancelled() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(1);
    let cancel = CancelToken::new();
    let (sender, receiver) = channel();
    let job = ChunkJob { text: "endless".to_owned(), ..ChunkJob::default() };
    let done = move |result: Result<Vec<Chunk>, Failure>| sender.send(result.map(|_| ())).unwrap();
    engine.chunk(model.clone(), Arc::default(), job, std::slice::from_ref(&cancel), done);
    let query = submit(&engine, &model, interactive(&["gate"]));
    // It runs although the text is not done.
    gate.reached();
    assert!(receiver.try_recv().is_err());
    cancel.cancel();
    assert_eq!(receiver.recv().unwrap(), Err(Failure::cancelled()));
    gate.open();
    query.recv().unwrap().unwrap();
    submit(&engine, &model, bulk(&["after"])).recv().unwrap().unwrap();
}
