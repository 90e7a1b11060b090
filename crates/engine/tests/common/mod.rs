//! A model without weights, whose work a test can hold, watch and break.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use simile_encoder::{Context, EncodeError, Flow};
use simile_engine::{CancelToken, EmbedJob, EmbedOutput, Engine, Failure, Model, Priority, Role, Statistics};
use simile_pipeline::{Chunk, ChunkRequest, Input, Matryoshka, NonFinite, Outputs, PipelineError, Tokens};

/// Native dimensions of [`FakeModel`].
pub const DIMENSIONS: usize = 4;

type Hook = dyn Fn(&[String], &mut Context<'_>) -> Result<(), EncodeError> + Send + Sync;

/// Tokens are characters; a vector is the text's first characters. Texts that begin with these words behave:
/// `panic-tokenizer` and `panic-model` panic, `long` is too long, `nan` gives a vector that is not finite.
pub struct FakeModel {
    /// The micro-batches that ran, in order.
    pub batches: Mutex<Vec<Vec<String>>>,
    /// Called in `encode` with the texts of the micro-batch.
    hook: Box<Hook>,
}

impl FakeModel {
    pub fn new() -> Arc<FakeModel> {
        FakeModel::with(|_, _| Ok(()))
    }

    pub fn with(
        hook: impl Fn(&[String], &mut Context<'_>) -> Result<(), EncodeError> + Send + Sync + 'static,
    ) -> Arc<FakeModel> {
        Arc::new(FakeModel { batches: Mutex::default(), hook: Box::new(hook) })
    }

    /// A model whose micro-batch with the text `gate` tells that it runs and waits until it may go on.
    pub fn gated() -> (Arc<FakeModel>, Gate) {
        let (entered, enter) = channel();
        let (open, opened) = channel();
        let opened = Mutex::new(opened);
        let model = FakeModel::with(move |texts, _| {
            if texts.iter().any(|text| text == "gate") {
                entered.send(()).unwrap();
                opened.lock().unwrap().recv().unwrap();
            }
            Ok(())
        });
        (model, Gate { enter, open })
    }

    pub fn batches(&self) -> Vec<Vec<String>> {
        self.batches.lock().unwrap().clone()
    }
}

/// Holds a micro-batch.
pub struct Gate {
    enter: Receiver<()>,
    open: Sender<()>,
}

impl Gate {
    /// Returns when the held micro-batch runs.
    pub fn reached(&self) {
        self.enter.recv().unwrap();
    }

    /// Lets it go on.
    pub fn open(&self) {
        self.open.send(()).unwrap();
    }
}

/// The vector of a text.
pub fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    text.chars().map(|character| character as u32 as f32).chain(std::iter::repeat(0.0)).take(dimensions).collect()
}

impl Model for FakeModel {
    fn check_dimensions(&self, dimensions: Option<usize>) -> Result<Option<usize>, PipelineError> {
        match dimensions {
            None => Ok(Some(DIMENSIONS)),
            Some(actual) if (1..=DIMENSIONS).contains(&actual) => Ok(Some(actual)),
            Some(actual) => {
                Err(PipelineError::InvalidDimensions { actual, native: DIMENSIONS, allowed: Matryoshka::Any })
            }
        }
    }

    fn check_instruction(&self, role: Role, instruction: Option<&str>) -> Result<(), PipelineError> {
        match instruction {
            Some(_) => Err(PipelineError::InstructionNotSupported { role, pattern: None }),
            None => Ok(()),
        }
    }

    fn takes_pairs(&self) -> bool {
        false
    }

    fn contract(&self, width: Option<usize>) -> String {
        format!("fake-{}", width.unwrap_or_default())
    }

    /// A text that begins with `slow` asks once for each of its characters whether to go on.
    fn tokenize(&self, input: &Input<'_>, go_on: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        let text = input.text;
        assert!(!text.starts_with("panic-tokenizer"), "told to");
        if text.starts_with("long") {
            return Err(PipelineError::TextTooLong { limit: 8, actual: text.len() });
        }
        if text.starts_with("slow") && !text.chars().all(|_| go_on()) {
            return Ok(None);
        }
        let ids: Vec<u32> = text.chars().map(u32::from).collect();
        Ok(Some(Tokens { total: ids.len() + 1, ids, ..Tokens::default() }))
    }

    fn count_tokens(&self, input: &Input<'_>, _: &dyn Fn() -> bool) -> Result<Option<(usize, usize)>, PipelineError> {
        let characters = input.text.chars().count();
        Ok(Some((characters + 1, characters)))
    }

    /// One chunk for each character, asking between two whether to go on. "endless" is never done.
    fn chunk(
        &self,
        _: Role,
        _: Option<&str>,
        text: &str,
        _: ChunkRequest,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Chunk>>, PipelineError> {
        assert!(!text.starts_with("panic-tokenizer"), "told to");
        while text == "endless" && go_on() {
            std::thread::yield_now();
        }
        let one = |at| go_on().then_some(Chunk { start: at, end: at + 1, tokens: 1 });
        Ok((0..text.len()).map(one).collect())
    }

    fn cost(&self, length: usize) -> u64 {
        length as u64
    }

    fn encode(
        &self,
        batch: &[&Tokens],
        width: Option<usize>,
        out: &mut Outputs,
        context: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
        let texts: Vec<String> =
            batch.iter().map(|tokens| tokens.ids.iter().filter_map(|&id| char::from_u32(id)).collect()).collect();
        self.batches.lock().unwrap().push(texts.clone());
        (self.hook)(&texts, context)?;
        assert!(!texts.iter().any(|text| text.starts_with("panic-model")), "told to");
        if (context.checkpoint)() == Flow::Stop {
            return Err(EncodeError::Stopped);
        }
        let width = width.expect("its rows have one width");
        for (text, out) in texts.iter().zip(out.fixed(texts.len(), width)) {
            out.copy_from_slice(&vector(text, width));
        }
        let finite = |text: &String| if text.starts_with("nan") { Err(NonFinite { component: 1 }) } else { Ok(()) };
        Ok(texts.iter().map(finite).collect())
    }
}

pub type Answer = Receiver<Result<EmbedOutput, Failure>>;

/// A bulk call.
pub fn bulk(texts: &[&str]) -> EmbedJob {
    EmbedJob { texts: texts.iter().map(|text| (*text).to_owned()).collect(), ..EmbedJob::default() }
}

/// An interactive call.
pub fn interactive(texts: &[&str]) -> EmbedJob {
    EmbedJob { priority: Priority::Interactive, ..bulk(texts) }
}

/// Submits a call; the answer comes through the channel.
pub fn submit(engine: &Engine, model: &Arc<FakeModel>, job: EmbedJob) -> Answer {
    submit_with(engine, model, job, &CancelToken::new())
}

/// Submits a call that `cancel` ends.
pub fn submit_with(engine: &Engine, model: &Arc<FakeModel>, job: EmbedJob, cancel: &CancelToken) -> Answer {
    let (sender, receiver) = channel();
    engine.embed(model.clone(), Arc::new(Statistics::default()), job, std::slice::from_ref(cancel), move |result| {
        // A test that no longer listens is none of the engine's business.
        let _ = sender.send(result);
    });
    receiver
}
