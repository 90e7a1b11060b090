//! Calls under load: many at once, too many, too late, without end.

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use common::{Answer, DIMENSIONS, FakeModel, bulk, interactive, submit, submit_with, vector};
use simile_encoder::{EncodeError, Flow};
use simile_engine::{CancelToken, EmbedJob, Engine, ErrorKind, MaxWait, Priority, Statistics};

/// Submits a call that is counted in `statistics`.
fn submit_counted(engine: &Engine, model: &Arc<FakeModel>, job: EmbedJob, statistics: &Arc<Statistics>) -> Answer {
    let (sender, receiver) = channel();
    engine.embed(model.clone(), statistics.clone(), job, &[], move |result| {
        let _ = sender.send(result);
    });
    receiver
}

/// A model whose micro-batch with the text `busy` tells that it runs, and then goes from checkpoint to checkpoint until it
/// may end or is stopped; it tells how often it was asked to go on after that.
fn busy_model() -> (Arc<FakeModel>, Receiver<()>, Sender<()>) {
    let (entered, enter) = channel();
    let (end, ended) = channel();
    let ended = Mutex::new(ended);
    let model = FakeModel::with(move |texts, context| {
        if texts.iter().any(|text| text == "busy") {
            entered.send(()).unwrap();
            while ended.lock().unwrap().try_recv().is_err() {
                if (context.checkpoint)() == Flow::Stop {
                    return Err(EncodeError::Stopped);
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    });
    (model, enter, end)
}

#[test]
fn queries_without_end_do_not_starve_bulk() {
    /// The most queries, so that a failure ends.
    const MOST: usize = 20_000;

    fn flood(engine: &Weak<Engine>, model: &Arc<FakeModel>, left: usize) {
        let (Some(engine), Some(left)) = (engine.upgrade(), left.checked_sub(1)) else { return };
        let (again, of) = (Arc::downgrade(&engine), model.clone());
        // The next one is there before the dispatcher looks for its next step.
        engine.embed(model.clone(), Arc::default(), interactive(&["q"]), &[], move |_| flood(&again, &of, left));
    }

    let (model, gate) = FakeModel::gated();
    let engine = Arc::new(Engine::new(1));
    let first = submit(&engine, &model, interactive(&["gate"]));
    gate.reached();
    let texts: Vec<String> = (0..20).map(|number| format!("bulk {number}")).collect();
    let slow = submit(&engine, &model, EmbedJob { texts, batch_size: Some(1), ..EmbedJob::default() });
    flood(&Arc::downgrade(&engine), &model, MOST);
    gate.open();
    first.recv().unwrap().unwrap();
    slow.recv().unwrap().unwrap();
    let batches = model.batches();
    let last = batches.iter().rposition(|batch| batch[0].starts_with("bulk")).unwrap();
    let queries = batches[..last].iter().filter(|batch| batch[0] == "q").count();
    // The lengths of the texts are the work, and tokenising a byte is dearer than all: twenty times nine, and one for
    // each micro-batch of the call.
    assert!((100..300).contains(&queries), "{queries} queries before the end of the bulk call");
}

#[test]
fn a_lane_that_is_full_refuses_at_once_and_only_there() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::with_limit(1, 4096);
    let running = submit(&engine, &model, bulk(&["gate"]));
    gate.reached();
    let statistics = Arc::new(Statistics::default());
    let text = |word: &str| bulk(&[&word.repeat(1000)]);
    // A call is admitted to an empty lane, however large.
    let large = submit_counted(&engine, &model, text("large"), &statistics);
    let refused = submit_counted(&engine, &model, text("x"), &statistics).try_recv().expect("answered").unwrap_err();
    assert_eq!((refused.kind, refused.limit, refused.unit), (ErrorKind::Overloaded, Some(4096.0), Some("bytes")));
    assert!(refused.actual.is_some_and(|bytes| (6000.0..8192.0).contains(&bytes)), "{refused:?}");
    assert_eq!(engine.depth(), (0, 1));
    let query = submit_counted(&engine, &model, interactive(&["query"]), &statistics);
    let counted = statistics.snapshot();
    assert_eq!((counted.refused, counted.failed, counted.queued_calls, counted.queued_texts), (1, 1, 2, 2));
    gate.open();
    for answer in [running, large, query] {
        answer.recv().unwrap().unwrap();
    }
    assert!(!model.batches().concat().contains(&"x".repeat(1000)));
    // And there is room again.
    submit_counted(&engine, &model, text("x"), &statistics).recv().unwrap().unwrap();
    let counted = statistics.snapshot();
    assert_eq!((counted.refused, counted.queued_calls, counted.queued_texts), (1, 0, 0));
}

#[test]
fn a_call_that_is_not_begun_in_time_is_refused_at_a_checkpoint() {
    for busy in [Priority::Bulk, Priority::Interactive] {
        let (model, entered, end) = busy_model();
        let engine = Engine::new(1);
        let running = submit(&engine, &model, EmbedJob { priority: busy, ..bulk(&["busy"]) });
        entered.recv().unwrap();
        let wait = |ms| Some(MaxWait::new(Duration::from_millis(ms)));
        let patient = submit(&engine, &model, EmbedJob { max_wait: wait(3_600_000), ..bulk(&["patient"]) });
        let statistics = Arc::new(Statistics::default());
        let late = EmbedJob { max_wait: wait(1), priority: busy, ..bulk(&["late"]) };
        // An interactive call would be begun at the next checkpoint of a bulk one, so both are of one lane.
        let failure = submit_counted(&engine, &model, late, &statistics).recv().unwrap().unwrap_err();
        assert_eq!((failure.kind, failure.option), (ErrorKind::Overloaded, Some("maxWait")), "{busy:?}");
        assert_eq!((failure.limit, failure.unit), (Some(1.0), Some("ms")), "{busy:?}");
        assert!(failure.actual >= failure.limit, "{failure:?}");
        let counted = statistics.snapshot();
        assert_eq!((counted.refused, counted.queued_calls), (1, 0));
        end.send(()).unwrap();
        running.recv().unwrap().unwrap();
        patient.recv().unwrap().unwrap();
        assert_eq!(model.batches(), [["busy"], ["patient"]], "{busy:?}");
    }
}

#[test]
fn a_cancelled_call_stops_at_its_next_checkpoint_and_its_tokens_stand_still() {
    let (asked, ask) = channel();
    let (told, tell) = channel();
    let tell = Mutex::new(tell);
    let model = FakeModel::with(move |texts, context| {
        if texts.contains(&"held".to_owned()) {
            // Twelve layers.
            for layer in 0..12 {
                asked.send(layer).unwrap();
                tell.lock().unwrap().recv().unwrap();
                if (context.checkpoint)() == Flow::Stop {
                    return Err(EncodeError::Stopped);
                }
            }
        }
        Ok(())
    });
    for mate in [false, true] {
        let (engine, cancel, statistics) = (Engine::new(1), CancelToken::new(), Arc::new(Statistics::default()));
        let begin = submit(&engine, &model, bulk(&["held"]));
        assert_eq!(ask.recv().unwrap(), 0);
        let (sender, answer) = channel();
        // A call with more of its own texts would share with nobody.
        let texts: &[&str] = if mate { &["held"] } else { &["held", "held", "held"] };
        let job = EmbedJob { batch_size: Some(1), ..bulk(texts) };
        engine.embed(model.clone(), statistics.clone(), job, std::slice::from_ref(&cancel), move |result| {
            sender.send(result).unwrap();
        });
        // One that shares the call's micro-batches keeps them running.
        let mate = mate.then(|| submit(&engine, &model, bulk(&["mate"])));
        for layer in 1..12 {
            told.send(()).unwrap();
            assert_eq!(ask.recv().unwrap(), layer);
        }
        told.send(()).unwrap();
        begin.recv().unwrap().unwrap();
        // The call's micro-batch runs, in its fourth layer.
        assert_eq!(ask.recv().unwrap(), 0);
        for layer in 1..4 {
            told.send(()).unwrap();
            assert_eq!(ask.recv().unwrap(), layer);
        }
        cancel.cancel();
        assert_eq!(answer.try_recv().expect("answered").unwrap_err().kind, ErrorKind::TaskFailed);
        let before = statistics.snapshot().tokens;
        told.send(()).unwrap();
        if let Some(mate) = mate {
            for layer in 4..12 {
                assert_eq!(ask.recv().unwrap(), layer);
                told.send(()).unwrap();
            }
            assert_eq!(mate.recv().unwrap().unwrap().data, vector("mate", DIMENSIONS));
        }
        // Whatever comes next is another call: the cancelled one passed no further layer of its own.
        submit(&engine, &model, bulk(&["next"])).recv().unwrap().unwrap();
        assert!(ask.try_recv().is_err(), "no layer was begun after the checkpoint");
        let counted = statistics.snapshot();
        assert_eq!((counted.tokens, counted.texts, counted.queued_texts), (before, 0, 0));
    }
}

#[test]
fn hundreds_of_calls_at_once_each_get_their_own_rows() {
    for (threads, calls) in [(1, 512), (3, 512), (3, 20_000)] {
        let (engine, model) = (Engine::new(threads), FakeModel::new());
        let answers: Vec<_> = (0..calls)
            .map(|number| {
                let job = if number % 3 == 0 { interactive } else { bulk };
                submit(&engine, &model, job(&[&format!("{number}"), "x"]))
            })
            .collect();
        for (number, answer) in answers.into_iter().enumerate() {
            let output = answer.recv().unwrap().unwrap();
            let expected = [vector(&format!("{number}"), DIMENSIONS), vector("x", DIMENSIONS)].concat();
            assert_eq!(output.data, expected, "call {number} on {threads} threads");
        }
        assert_eq!(engine.depth(), (0, 0));
    }
}

#[test]
fn calls_of_a_lane_are_begun_in_the_order_in_which_they_came() {
    let (model, gate) = FakeModel::gated();
    let engine = Engine::new(2);
    let first = submit(&engine, &model, bulk(&["gate"]));
    gate.reached();
    let answers: Vec<_> = (0..1000)
        .map(|number| {
            submit(&engine, &model, EmbedJob { dimensions: Some(1 + number % 2), ..bulk(&[&number.to_string()]) })
        })
        .collect();
    gate.open();
    first.recv().unwrap().unwrap();
    answers.into_iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    for parity in [0, 1] {
        let of_calls: Vec<usize> = model.batches().concat().iter().filter_map(|text| text.parse().ok()).collect();
        let begun: Vec<usize> = of_calls.into_iter().filter(|number| number % 2 == parity).collect();
        assert!(begun.is_sorted() && begun.len() == 500, "{begun:?}");
    }
}

#[test]
fn a_hundred_thousand_texts_are_one_call_in_order() {
    let (engine, model) = (Engine::with_limit(3, 1 << 20), FakeModel::new());
    let texts: Vec<String> = (0..100_000).map(|number| format!("{number:05}")).collect();
    // Far over the limit, in an empty lane.
    let output =
        submit(&engine, &model, EmbedJob { texts: texts.clone(), ..EmbedJob::default() }).recv().unwrap().unwrap();
    for (text, row) in texts.iter().zip(output.data.chunks_exact(DIMENSIONS)) {
        assert_eq!(row, vector(text, DIMENSIONS), "{text}");
    }
    assert!(model.batches().iter().all(|batch| batch.len() <= 32));
}

#[test]
fn texts_over_the_window_of_bytes_keep_their_places() {
    let (engine, model) = (Engine::new(2), FakeModel::new());
    let long = "y".repeat(3 << 20);
    let texts = vec!["a".to_owned(), long.clone(), "b".to_owned(), long.clone(), "c".to_owned()];
    let output =
        submit(&engine, &model, EmbedJob { texts: texts.clone(), ..EmbedJob::default() }).recv().unwrap().unwrap();
    let expected: Vec<f32> = texts.iter().flat_map(|text| vector(text, DIMENSIONS)).collect();
    assert_eq!(output.data, expected);
}

#[test]
fn batch_mates_of_a_panic_on_any_thread_of_the_pool_succeed() {
    for rank in 0..3 {
        let (model, gate) = {
            let (entered, enter) = channel();
            let (open, opened) = channel::<()>();
            let opened = Mutex::new(opened);
            let model = FakeModel::with(move |texts, context| {
                if texts[0] == "gate" {
                    entered.send(()).unwrap();
                    opened.lock().unwrap().recv().unwrap();
                }
                let bad = texts.iter().any(|text| text == "bad");
                // The others wait at a barrier that the panicking rank never reaches.
                context.pool.run(&|team| {
                    assert!(!bad || team.rank() != rank, "rank {} told to", team.rank());
                    team.barrier();
                });
                Ok(())
            });
            (model, (enter, open))
        };
        let engine = Engine::new(3);
        let first = submit(&engine, &model, bulk(&["gate"]));
        gate.0.recv().unwrap();
        let cancel = CancelToken::new();
        let answers = ["a", "bad", "c"].map(|text| submit_with(&engine, &model, bulk(&[text]), &cancel));
        gate.1.send(()).unwrap();
        first.recv().unwrap().unwrap();
        let [a, bad, c] = answers.map(|answer| answer.recv().unwrap());
        assert_eq!(a.unwrap().data, vector("a", DIMENSIONS), "rank {rank}");
        let failure = bad.unwrap_err();
        assert_eq!(failure.kind, ErrorKind::TaskFailed);
        assert!(failure.message.contains(&format!("rank {rank} told to")), "{failure}");
        assert_eq!(c.unwrap().data, vector("c", DIMENSIONS), "rank {rank}");
        submit(&engine, &model, bulk(&["d"])).recv().unwrap().unwrap();
    }
}

#[test]
fn a_long_text_lets_queries_run_while_it_is_tokenised_and_is_given_up_with_its_call() {
    // So long that no machine gets to its end before the test does.
    let long = format!("slow{}", "z".repeat(50_000_000));
    for threads in [1, 3] {
        for texts in [vec![long.clone()], vec![long.clone(), "a".to_owned(), "b".to_owned()]] {
            let (engine, model, cancel) = (Engine::new(threads), FakeModel::new(), CancelToken::new());
            let count = texts.len();
            let slow = submit_with(&engine, &model, EmbedJob { texts, ..EmbedJob::default() }, &cancel);
            let query = submit(&engine, &model, interactive(&["query"]));
            assert_eq!(query.recv().unwrap().unwrap().data, vector("query", DIMENSIONS));
            assert!(slow.try_recv().is_err(), "{count} texts on {threads} threads: the long text is done");
            cancel.cancel();
            assert_eq!(slow.recv().unwrap().unwrap_err().kind, ErrorKind::TaskFailed);
            // The dispatcher is free.
            submit(&engine, &model, bulk(&["next"])).recv().unwrap().unwrap();
            assert_eq!(model.batches(), [["query"], ["next"]]);
        }
    }
}
