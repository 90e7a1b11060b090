use std::sync::Weak;
use std::time::Duration;

use simile_pipeline::Role;

use super::*;
use crate::failure::{ErrorKind, Failure};
use crate::job::{MaxWait, Order};
use crate::model::Model;
use crate::model::fake::Named;

const BUDGET: u64 = 100;

/// Texts of each call.
const TEXTS: usize = 8;

fn queue() -> Queue {
    Queue::new(usize::MAX)
}

fn job(model: &Arc<dyn Model>, priority: Priority, batch_size: usize) -> Arc<Job> {
    job_of(Kind::Embed { width: Some(8) }, model, priority, batch_size)
}

fn job_of(kind: Kind, model: &Arc<dyn Model>, priority: Priority, batch_size: usize) -> Arc<Job> {
    new_job(Order { kind, batch_size, ..order(priority) }, model)
}

fn order(priority: Priority) -> Order {
    Order {
        texts: vec![String::new(); TEXTS],
        queries: vec![],
        role: Role::Generic,
        instruction: None,
        kind: Kind::Embed { width: Some(8) },
        batch_size: usize::MAX,
        priority,
        max_wait: None,
    }
}

fn new_job(order: Order, model: &Arc<dyn Model>) -> Arc<Job> {
    Job::new(model.clone(), Arc::default(), order, &[], Weak::new(), Box::new(|_| {}))
}

/// Pieces of one text each, with that work.
fn pieces(work: &[u64]) -> Vec<Piece> {
    let row = |index| TokenRow { index, tokens: Tokens::default() };
    work.iter().enumerate().map(|(index, &work)| Piece { rows: vec![row(index)], work }).collect()
}

/// Pushes a job that is tokenised already.
fn ready(queue: &mut Queue, job: &Arc<Job>, work: &[u64]) {
    queue.push(job.clone()).unwrap();
    queue.tokenised(job, pieces(work), false);
}

/// The next step as text: `tokenise 3`, or `encode` with the pieces' work of each job.
fn next(queue: &mut Queue, jobs: &[Arc<Job>]) -> String {
    let name = |job: &Arc<Job>| jobs.iter().position(|one| Arc::ptr_eq(one, job)).unwrap();
    match queue.next(|_| BUDGET) {
        None => "nothing".to_owned(),
        Some(Step::Tokenise(job)) => format!("tokenise {}", name(&job)),
        Some(Step::Encode(batch)) => {
            let shares = batch.shares.iter();
            let shares =
                shares.map(|share| format!(" {}:{}/{}", name(&share.job), share.piece.rows.len(), share.piece.work));
            format!("encode{}", shares.collect::<String>())
        }
    }
}

#[test]
fn the_policy() {
    use Priority::{Bulk, Interactive};
    let (a, b): (Arc<dyn Model>, Arc<dyn Model>) = (Arc::new(Named::default()), Arc::new(Named::default()));
    // (what it shows, jobs as (model, lane, batch size, work of each text or none yet), steps)
    type Case<'a> = (&'a str, Vec<(&'a Arc<dyn Model>, Priority, usize, Option<&'a [u64]>)>, &'a [&'a str]);
    let cases: Vec<Case> = vec![
        ("an empty queue has nothing to do", vec![], &["nothing"]),
        (
            "interactive goes before bulk",
            vec![(&a, Bulk, 9, Some(&[1])), (&a, Interactive, 9, Some(&[1]))],
            &["encode 1:1/1", "encode 0:1/1", "nothing"],
        ),
        (
            "a call's own pieces go together, up to the budget",
            vec![(&a, Bulk, 9, Some(&[60, 40, 1]))],
            &["encode 0:2/100", "encode 0:1/1", "nothing"],
        ),
        (
            "and up to its batch size",
            vec![(&a, Bulk, 2, Some(&[10, 10, 10]))],
            &["encode 0:2/20", "encode 0:1/10", "nothing"],
        ),
        (
            "a piece over the budget goes alone",
            vec![(&a, Bulk, 9, Some(&[500, 1]))],
            &["encode 0:1/500", "encode 0:1/1", "nothing"],
        ),
        (
            "calls of one model are filled up in their order, others wait",
            vec![(&a, Bulk, 9, Some(&[50])), (&b, Bulk, 9, Some(&[1])), (&a, Bulk, 9, Some(&[40, 40]))],
            &["encode 0:1/50 2:1/40", "encode 1:1/1", "encode 2:1/40", "nothing"],
        ),
        (
            "nobody overtakes a call that does not fit",
            vec![(&a, Bulk, 9, Some(&[50])), (&a, Bulk, 9, Some(&[60])), (&a, Bulk, 9, Some(&[1]))],
            &["encode 0:1/50", "encode 1:1/60 2:1/1", "nothing"],
        ),
        (
            "a call that may fit is tokenised first, and by one only",
            vec![(&a, Bulk, 9, Some(&[50])), (&a, Bulk, 9, None)],
            &["tokenise 1", "encode 0:1/50", "nothing"],
        ),
        (
            "a call behind a full micro-batch is not",
            vec![(&a, Bulk, 9, Some(&[100])), (&a, Bulk, 9, None)],
            &["encode 0:1/100", "tokenise 1", "nothing"],
        ),
        (
            "bulk that waits goes after one interactive micro-batch, then after nine times what it got",
            vec![
                (&a, Bulk, 1, Some(&[10, 10, 10])),
                (&a, Interactive, 1, Some(&[20, 30, 40, 50, 60, 70, 80, 90])),
                (&b, Interactive, 1, Some(&[1])),
            ],
            &[
                "encode 1:1/20",
                "encode 0:1/10", // 70 to go
                "encode 1:1/30",
                "encode 1:1/40",
                "encode 1:1/50",
                "encode 0:1/10", // 40 to go
                "encode 1:1/60",
                "encode 0:1/10", // 70 to go, and nobody waits
                "encode 1:1/70",
                "encode 1:1/80",
                "encode 1:1/90",
                "encode 2:1/1",
                "nothing",
            ],
        ),
    ];
    let mut wrong = Vec::new();
    for (shows, entries, steps) in cases {
        let mut queue = queue();
        let jobs: Vec<Arc<Job>> = entries.iter().map(|(model, lane, size, _)| job(model, *lane, *size)).collect();
        for (job, (.., work)) in jobs.iter().zip(&entries) {
            match work {
                Some(work) => ready(&mut queue, job, work),
                None => queue.push(job.clone()).unwrap(),
            }
        }
        let taken: Vec<String> = steps.iter().map(|_| next(&mut queue, &jobs)).collect();
        if taken != *steps {
            wrong.push(format!("{shows}: {taken:?} and not {steps:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn counting_waits_for_one_micro_batch_of_its_lane_and_holds_back_none() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let count = || job_of(Kind::Count, &model, Priority::Bulk, usize::MAX);
    let jobs = [job(&model, Priority::Bulk, 1), count(), count()];
    ready(&mut queue, &jobs[0], &[1, 1, 1]);
    queue.push(jobs[1].clone()).unwrap();
    queue.push(jobs[2].clone()).unwrap();
    assert_eq!(next(&mut queue, &jobs), "tokenise 1");
    // More windows of it are left, and micro-batches get in between.
    queue.tokenised(&jobs[1], Vec::new(), true);
    assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
    assert_eq!(next(&mut queue, &jobs), "tokenise 1");
    queue.tokenised(&jobs[1], Vec::new(), false);
    assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
    assert_eq!(next(&mut queue, &jobs), "tokenise 2");
    // While somebody counts, others compute.
    assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
    queue.tokenised(&jobs[2], Vec::new(), true);
    // Without micro-batches to get in between, one window follows the other.
    for _ in 0..2 {
        assert_eq!(next(&mut queue, &jobs), "tokenise 2");
        queue.tokenised(&jobs[2], Vec::new(), true);
    }
    queue.tokenised(&jobs[2], Vec::new(), false);
    assert!(queue.is_empty());
}

#[test]
fn settled_calls_leave() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let jobs: Vec<_> = (0..4).map(|_| job(&model, Priority::Bulk, 9)).collect();
    for job in &jobs {
        ready(&mut queue, job, &[1]);
    }
    assert!(queue.remove(jobs[0].id).is_some());
    assert!(queue.remove(jobs[0].id).is_none());
    jobs[1].fail(Failure::cancelled());
    assert_eq!(next(&mut queue, &jobs), "encode 2:1/1 3:1/1");
    assert!(queue.is_empty());
    // The answer of a step that comes too late is no error.
    queue.tokenised(&jobs[0], pieces(&[1]), false);
    assert!(queue.is_empty());
}

#[test]
fn a_call_in_windows_is_tokenised_again_when_its_pieces_are_gone() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let jobs = [job(&model, Priority::Bulk, 9)];
    queue.push(jobs[0].clone()).unwrap();
    assert_eq!(next(&mut queue, &jobs), "tokenise 0");
    queue.tokenised(&jobs[0], pieces(&[100, 100]), true);
    assert_eq!(next(&mut queue, &jobs), "encode 0:1/100");
    assert_eq!(next(&mut queue, &jobs), "encode 0:1/100");
    assert_eq!(next(&mut queue, &jobs), "tokenise 0");
    queue.tokenised(&jobs[0], pieces(&[1]), false);
    assert_eq!(next(&mut queue, &jobs), "encode 0:1/1");
    assert!(queue.is_empty());
}

/// A queue with endless work in both lanes: units that each lane got until bulk had `turns` micro-batches. With `within`,
/// interactive work also comes between the layers of bulk micro-batches, as often as it is let in.
fn shares(interactive: u64, bulk: u64, within: bool, turns: usize) -> (u64, u64) {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let refill = |queue: &mut Queue, priority, work| {
        if queue.lane(priority).depth() == 0 {
            ready(queue, &job(&model, priority, 1), &[work; TEXTS]);
        }
    };
    let (mut of_interactive, mut of_bulk, mut turn) = (0, 0, 0);
    while turn < turns {
        refill(&mut queue, Priority::Interactive, interactive);
        refill(&mut queue, Priority::Bulk, bulk);
        let Some(Step::Encode(batch)) = queue.next(|_| 1) else { panic!("nothing to compute") };
        let work = batch.shares[0].piece.work;
        if batch.priority == Priority::Interactive {
            of_interactive += work;
            assert!(of_interactive <= 200 * (of_bulk + bulk), "{interactive} against {bulk}: bulk starves");
            continue;
        }
        of_bulk += work;
        turn += 1;
        if !within {
            continue;
        }
        refill(&mut queue, Priority::Interactive, interactive);
        while let Some(Step::Encode(batch)) = queue.next_interactive(1) {
            of_interactive += batch.shares[0].piece.work;
            assert!(of_interactive <= 200 * of_bulk, "{interactive} within {bulk}: bulk starves");
            refill(&mut queue, Priority::Interactive, interactive);
        }
    }
    (of_interactive, of_bulk)
}

#[test]
fn bulk_keeps_a_tenth_of_the_work_and_no_more() {
    let mut wrong = Vec::new();
    for within in [false, true] {
        for (interactive, bulk) in [(1, 1), (1, 100), (100, 1), (7, 3), (20, 160), (1000, 999)] {
            let (of_interactive, of_bulk) = shares(interactive, bulk, within, 500);
            // One micro-batch of either at the ends.
            if of_interactive > 9 * of_bulk + interactive || of_interactive + interactive < 9 * (of_bulk - bulk) {
                wrong.push(format!("{interactive} against {bulk}, within {within}: {of_interactive} and {of_bulk}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn interactive_work_without_bulk_work_is_not_held_against_it() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let call = |priority| job(&model, priority, 1);
    let jobs = [Priority::Interactive, Priority::Bulk, Priority::Interactive].map(call);
    ready(&mut queue, &jobs[0], &[50; 8]);
    (0..8).for_each(|_| assert_eq!(next(&mut queue, &jobs), "encode 0:1/50"));
    // Nor does a large bulk call that is gone hold back the next one.
    ready(&mut queue, &jobs[1], &[5000]);
    assert_eq!(next(&mut queue, &jobs), "encode 1:1/5000");
    queue.rest();
    ready(&mut queue, &jobs[2], &[50; 8]);
    let later = [jobs.to_vec(), vec![call(Priority::Bulk)]].concat();
    ready(&mut queue, &later[3], &[5]);
    assert_eq!(next(&mut queue, &later), "encode 2:1/50");
    assert_eq!(next(&mut queue, &later), "encode 3:1/5");
}

#[test]
fn a_window_is_booked_with_all_that_it_holds() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let chunk = Kind::Chunk(Default::default());
    let (embed, long) = (Kind::Embed { width: Some(8) }, 3 * WINDOW_BYTES);
    // (what is asked, lengths of the texts, bytes that are read)
    let cases = [
        ("a short text", embed, vec![100], 100),
        ("a text over the window", embed, vec![long, 7], long),
        ("a text to be cut is read twice", chunk, vec![long], 2 * long),
        ("the texts of one window", Kind::Count, vec![WINDOW_BYTES / 2; 5], WINDOW_BYTES),
    ];
    for (what, kind, lengths, read) in cases {
        let mut queue = queue();
        let texts: Vec<String> = lengths.into_iter().map(|length| "x".repeat(length)).collect();
        let order = Order { texts, kind, ..order(Priority::Interactive) };
        let handed = tokenise::window(&order, 0).len() as u64;
        let passes = if kind == chunk { 2 } else { 1 };
        queue.push(new_job(order, &model)).unwrap();
        queue.push(job(&model, Priority::Bulk, 1)).unwrap();
        assert!(matches!(queue.next(|_| BUDGET), Some(Step::Tokenise(_))), "{what}");
        let booked = (read as u64 + passes * handed * TEXT_BYTES) * BYTE_WORK;
        assert_eq!(queue.balance, -(booked as i64), "{what}");
    }
}

#[test]
fn counting_queries_without_end_does_not_starve_bulk() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let count = job_of(Kind::Count, &model, Priority::Interactive, 1);
    let bulk = job(&model, Priority::Bulk, 1);
    queue.push(count.clone()).unwrap();
    ready(&mut queue, &bulk, &[1]);
    let jobs = [count, bulk];
    assert_eq!(next(&mut queue, &jobs), "tokenise 0");
    queue.tokenised(&jobs[0], Vec::new(), true);
    assert_eq!(next(&mut queue, &jobs), "encode 1:1/1");
}

#[test]
fn a_lane_that_is_full_refuses_and_the_other_does_not() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let size = job(&model, Priority::Bulk, 1).bytes;
    assert!(size >= TEXTS, "a text without bytes costs something too");
    let instruction = Some("x".repeat(1000));
    assert_eq!(new_job(Order { instruction, ..order(Priority::Bulk) }, &model).bytes, size + 1000, "once for the call");
    let mut queue = Queue::new(2 * size);
    let jobs: Vec<_> = (0..4).map(|_| job(&model, Priority::Bulk, 1)).collect();
    queue.push(jobs[0].clone()).unwrap();
    queue.push(jobs[1].clone()).unwrap();
    let failure = queue.push(jobs[2].clone()).unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Overloaded);
    let facts = (failure.limit, failure.actual, failure.unit);
    assert_eq!(facts, (Some(2.0 * size as f64), Some(3.0 * size as f64), Some("bytes")));
    for word in ["bulk", "embedStream", "SIMILE_QUEUE_MB"] {
        assert!(failure.message.contains(word), "{}", failure.message);
    }
    assert_eq!(queue.depth(), (0, 2));
    assert_eq!(Arc::strong_count(&jobs[2]), 1, "nothing of it is kept");
    queue.push(job(&model, Priority::Interactive, 1)).unwrap();
    // Room comes back however a call leaves.
    queue.remove(jobs[0].id);
    queue.push(jobs[2].clone()).unwrap();
    assert!(queue.push(jobs[3].clone()).is_err());
    for settled in &jobs[1..3] {
        settled.fail(Failure::cancelled());
    }
    while queue.next(|_| BUDGET).is_some() {}
    queue.push(jobs[3].clone()).unwrap();
    queue.tokenised(&jobs[3], pieces(&[1]), false);
    assert!(matches!(queue.next(|_| BUDGET), Some(Step::Encode(_))));
    assert_eq!(queue.bulk.bytes, 0);
    assert_eq!(jobs[3].statistics.snapshot().queued_calls, 0);
}

#[test]
fn an_empty_lane_takes_a_call_of_any_size() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = Queue::new(1);
    let large = job(&model, Priority::Bulk, 1);
    queue.push(large.clone()).unwrap();
    queue.remove(large.id).unwrap();
    queue.push(job(&model, Priority::Bulk, 1)).unwrap();
    assert!(queue.push(job(&model, Priority::Bulk, 1)).is_err());
}

#[test]
fn calls_that_were_not_begun_in_time_are_given_up() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let now = Instant::now();
    let call = |ms| {
        let max_wait = (ms > 0).then(|| MaxWait::new(Duration::from_millis(ms)));
        new_job(Order { max_wait, ..order(Priority::Bulk) }, &model)
    };
    // No limit, begun, late, later, gone by itself.
    let jobs = [0, 1000, 1000, 9000, 1000].map(call);
    let give_up = |queue: &mut Queue, ms| -> Vec<u64> {
        queue.expired(now + Duration::from_millis(ms)).iter().map(|job| job.id).collect()
    };
    queue.push(jobs[1].clone()).unwrap();
    assert!(matches!(queue.next(|_| BUDGET), Some(Step::Tokenise(_))));
    assert_eq!(queue.deadline(), None, "begun");
    for at in [0, 2, 3, 4] {
        queue.push(jobs[at].clone()).unwrap();
    }
    queue.remove(jobs[4].id);
    assert_eq!(queue.deadline(), jobs[2].order.max_wait.map(MaxWait::deadline));
    assert!(give_up(&mut queue, 999).is_empty());
    assert_eq!(give_up(&mut queue, 5000), [jobs[2].id]);
    assert_eq!(give_up(&mut queue, 100_000), [jobs[3].id]);
    assert_eq!(queue.deadline(), None);
    assert_eq!(queue.depth(), (0, 2));
    // For ever is a long time and no overflow.
    queue
        .push(new_job(Order { max_wait: Some(MaxWait::new(Duration::MAX)), ..order(Priority::Bulk) }, &model))
        .unwrap();
    assert!(give_up(&mut queue, 1 << 40).is_empty());
}

#[test]
fn a_hundred_thousand_calls_cost_each_what_a_hundred_do() {
    let (a, b): (Arc<dyn Model>, Arc<dyn Model>) = (Arc::new(Named::default()), Arc::new(Named::default()));
    let mut queue = queue();
    let jobs: Vec<_> = (0..100_000).map(|at| job(if at % 2 == 0 { &a } else { &b }, Priority::Bulk, 1)).collect();
    for job in &jobs {
        queue.push(job.clone()).unwrap();
    }
    // Some leave, from the end, where a search from the front would take longest.
    for job in jobs.iter().rev().step_by(3) {
        queue.remove(job.id).unwrap();
    }
    let mut seen = 0;
    while let Some(step) = queue.next(|_| 64) {
        match step {
            Step::Tokenise(job) => queue.tokenised(&job, pieces(&[1]), false),
            Step::Encode(batch) => {
                assert!(batch.shares.len() <= LOOKAHEAD);
                seen += batch.shares.len();
            }
        }
    }
    assert_eq!(seen, 66_666);
    assert!(queue.is_empty());
}

#[test]
fn statistics_say_what_waits() {
    let model: Arc<dyn Model> = Arc::new(Named::default());
    let mut queue = queue();
    let call = job(&model, Priority::Bulk, 1);
    let waiting = || {
        let counted = call.statistics.snapshot();
        (counted.queued_calls, counted.queued_texts)
    };
    ready(&mut queue, &call, &[1; TEXTS]);
    assert_eq!(waiting(), (1, TEXTS as u64));
    assert!(queue.next(|_| 3).is_some());
    assert_eq!(waiting(), (1, TEXTS as u64 - 1));
    queue.drain();
    assert_eq!(waiting(), (0, 0));
}
