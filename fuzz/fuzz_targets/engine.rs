//! A sequence of calls to the engine: each settles exactly once, with the vectors that each text has alone, bit for bit,
//! or with a failure that the call has a reason for.
//!
//! An input is read byte by byte (see [`Input`]): flags, then calls, cancellations and changes of the number of threads.
#![no_main]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use simile_encoder::{Context, Flow, Scratch};
use simile_engine::{
    CancelToken, Chunk, ChunkJob, CountJob, DescriptorOverrides, EmbedJob, EmbedOutput, Engine, ErrorKind, Failure,
    LazyModel, LoadRequest, LoadedModel, Matryoshka, MaxWait, ModelRequest, Priority, Role, Statistics, TokenCounts,
    Truncate,
};
use simile_fuzz::tiny;
use simile_kernels::ThreadPool;
use simile_pipeline::PipelineError;

/// The most calls of an input; more add time and no new state.
const CALLS: usize = 24;
const WORDS: [&str; 8] = ["", "hello world", "the quick brown fox", "日本語", "a", "[SEP]", "Café", "x1 y2"];

/// Takes the input apart; after its end everything is 0.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit
    }

    /// A word, some of them, or bytes of the input itself.
    fn text(&mut self) -> String {
        let (kind, length) = (self.byte(), usize::from(self.below(40)));
        if kind & 1 == 0 {
            return (0..length.min(20)).map(|i| WORDS[(usize::from(kind >> 1) + i) % 8]).collect::<Vec<_>>().join(" ");
        }
        let (text, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}

fn models() -> &'static [Arc<LoadedModel>] {
    static MODELS: OnceLock<Vec<Arc<LoadedModel>>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let load = |name: &str, truncate, limit| {
            let descriptor =
                DescriptorOverrides { matryoshka: Some(Matryoshka::Any), ..DescriptorOverrides::default() };
            let request = LoadRequest {
                model: ModelRequest::new(tiny(name).to_str().unwrap()),
                max_length: Some(limit),
                truncate: Some(truncate),
                descriptor: Some(descriptor),
                ..LoadRequest::default()
            };
            let (sender, receiver) = channel();
            LazyModel::new(request).load(&CancelToken::new(), move |outcome| sender.send(outcome).unwrap());
            receiver.recv().unwrap().unwrap()
        };
        vec![
            load("tiny-bert-dense", Truncate::End, 24),
            // Its query prompt has 50 tokens.
            load("tiny-bert-cls", Truncate::Start, 60),
            load("tiny-bert-mean-pooler", Truncate::Error, 24),
        ]
    })
}

/// What a text gives alone: its tokens, and the bits of its vector.
#[derive(Clone)]
enum Alone {
    Tokens { total: u32, embedded: u32, vector: Vec<u32> },
    Refused,
}

fn alone(model: usize, role: Role, text: &str, dimensions: usize) -> Alone {
    type Known = HashMap<(usize, u8, String, usize), Alone>;
    static KNOWN: Mutex<Option<(Known, ThreadPool, Scratch)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap();
    let (known, pool, scratch) = known.get_or_insert_with(|| (HashMap::new(), ThreadPool::new(1), Scratch::new()));
    if known.len() > 20_000 {
        known.clear();
    }
    let key = (model, role as u8, text.to_owned(), dimensions);
    let compute = || {
        let model = &models()[model];
        let tokens = match model.tokenize(role, None, text) {
            Ok(tokens) => tokens,
            Err(PipelineError::TextTooLong { .. } | PipelineError::TemplateTooLong { .. }) => return Alone::Refused,
            Err(error) => panic!("{error}"),
        };
        let mut row = vec![f32::NAN; dimensions];
        let mut context = Context { pool, scratch, checkpoint: &|| Flow::Continue };
        let outcome = model.encode(&[&tokens.ids], dimensions, &mut [&mut row], &mut context).unwrap();
        assert_eq!(outcome, [Ok(())]);
        assert!(row.iter().all(|value| value.is_finite()));
        let vector = row.iter().map(|value| value.to_bits()).collect();
        Alone::Tokens { total: tokens.total as u32, embedded: tokens.ids.len() as u32, vector }
    };
    known.entry(key).or_insert_with(compute).clone()
}

enum Output {
    Vectors(EmbedOutput),
    Counts(TokenCounts),
    Chunks(Vec<Chunk>),
}

struct Call {
    model: usize,
    role: Role,
    texts: Vec<String>,
    /// What the call has a reason to fail with, besides what its texts have.
    invalid: bool,
    hurried: bool,
    cancel: CancelToken,
    answers: Receiver<Result<Output, Failure>>,
    settled: Arc<AtomicUsize>,
}

fn submit(engine: &Engine, input: &mut Input<'_>) -> Call {
    let flags = input.byte();
    let model = usize::from(input.below(3));
    let role = [Role::Generic, Role::Query, Role::Passage][usize::from(flags & 3) % 3];
    let priority = if flags & 4 == 0 { Priority::Bulk } else { Priority::Interactive };
    let texts: Vec<String> = (0..input.below(13)).map(|_| input.text()).collect();
    let cancel = CancelToken::new();
    if flags & 0xc0 == 0x40 {
        cancel.cancel();
    }
    let (sender, answers) = channel();
    let settled = Arc::new(AtomicUsize::new(0));
    let counter = settled.clone();
    let done = move |result| {
        counter.fetch_add(1, Ordering::SeqCst);
        let _ = sender.send(result);
    };
    let (subject, statistics) = (models()[model].clone(), Arc::new(Statistics::default()));
    let cancels = [cancel.clone(), CancelToken::new()];
    let (mut invalid, mut max_wait) = (false, None);
    if flags & 8 == 0 {
        let native = subject.dimensions();
        let dimensions = if flags & 16 == 0 { None } else { Some(usize::from(input.byte())) };
        let batch_size = if flags & 32 == 0 { None } else { Some(usize::from(input.byte() & 7)) };
        invalid = dimensions.is_some_and(|some| some == 0 || some > native) || batch_size == Some(0);
        let wait = input.below(16);
        max_wait = (wait < 4).then(|| MaxWait::new(Duration::from_millis(u64::from(wait))));
        let job =
            EmbedJob { texts: texts.clone(), role, instruction: None, dimensions, batch_size, priority, max_wait };
        engine.embed(subject, statistics, job, &cancels, move |result| done(result.map(Output::Vectors)));
    } else if flags & 16 != 0 {
        let job = ChunkJob { text: texts.concat(), role, ..ChunkJob::default() };
        engine.chunk(subject, statistics, job, &cancels, move |result| done(result.map(Output::Chunks)));
    } else {
        let job = CountJob { texts: texts.clone(), role, instruction: None, priority };
        engine.count(subject, statistics, job, &cancels, move |result| done(result.map(Output::Counts)));
    }
    if flags & 0xc0 == 0x80 {
        cancel.cancel();
    }
    Call { model, role, texts, invalid, hurried: max_wait.is_some(), cancel, answers, settled }
}

impl Call {
    fn check(&self, stopped: bool) {
        let answer = self.answers.recv_timeout(Duration::from_secs(60)).expect("a call settles");
        match answer {
            Ok(Output::Vectors(output)) => {
                assert!(!self.invalid);
                assert_eq!(output.data.len(), self.texts.len() * output.dimensions);
                self.counts(&output.tokens);
                for (text, row) in self.texts.iter().zip(output.data.chunks(output.dimensions)) {
                    let Alone::Tokens { vector, .. } = alone(self.model, self.role, text, output.dimensions) else {
                        panic!("{text:?} is refused alone");
                    };
                    let row: Vec<u32> = row.iter().map(|value| value.to_bits()).collect();
                    assert_eq!(row, vector, "{text:?}");
                }
            }
            Ok(Output::Counts(counts)) => self.counts(&counts),
            Ok(Output::Chunks(chunks)) => {
                let limit = models()[self.model].max_length();
                assert!(chunks.iter().all(|chunk| chunk.start < chunk.end && chunk.tokens <= limit), "{chunks:?}");
                assert!(chunks.is_sorted_by(|one, next| one.end < next.end), "{chunks:?}");
            }
            Err(failure) => {
                let refused = |text: &String| matches!(alone(self.model, self.role, text, 1), Alone::Refused);
                let reason = match failure.kind {
                    ErrorKind::InvalidInput => self.invalid,
                    ErrorKind::Overloaded => self.hurried,
                    ErrorKind::TaskFailed => stopped || self.cancel.is_cancelled(),
                    ErrorKind::TextTooLong => failure.index.is_some_and(|index| refused(&self.texts[index])),
                    _ => false,
                };
                assert!(reason, "{failure}");
            }
        }
    }

    fn counts(&self, counts: &TokenCounts) {
        assert_eq!((counts.total.len(), counts.embedded.len()), (self.texts.len(), self.texts.len()));
        for (i, text) in self.texts.iter().enumerate() {
            if let Alone::Tokens { total, embedded, .. } = alone(self.model, self.role, text, 1) {
                assert_eq!((counts.total[i], counts.embedded[i]), (total, embedded), "{text:?}");
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let mut input = Input(data);
    // Few inputs have an engine of their own, which they stop while calls wait: its threads take their time to start.
    let own = (input.byte() == 255).then(|| Engine::new(2));
    let engine = own.as_ref().unwrap_or_else(|| ENGINE.get_or_init(|| Engine::new(2)));
    let mut calls: Vec<Call> = Vec::new();
    while !input.0.is_empty() && calls.len() < CALLS {
        match input.below(8) {
            0 => engine.set_threads(usize::from(1 + input.below(4))),
            1 | 2 if !calls.is_empty() => calls[usize::from(input.byte()) % calls.len()].cancel.cancel(),
            _ => calls.push(submit(engine, &mut input)),
        }
    }
    let stopped = own.is_some();
    drop(own);
    calls.iter().for_each(|call| call.check(stopped));
    for call in &calls {
        assert_eq!(call.settled.load(Ordering::SeqCst), 1, "settled once");
    }
});
