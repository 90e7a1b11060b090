//! Jobs whose rows have lengths of their own, and jobs of pairs.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use simile_encoder::{Context, EncodeError};
use simile_engine::{
    CancelToken, EmbedJob, EmbedOutput, Engine, ErrorKind, Failure, LazyModel, LoadRequest, Model, ModelKind,
    ModelRequest, Role, Statistics,
};
use simile_pipeline::{Chunk, ChunkRequest, Input, NonFinite, Outputs, PipelineError, Tokens};

/// A sparse model: an entry for each character of a text, its place and its code. With `pairs` the query comes first. A text
/// that begins with `nan` is not finite.
struct Characters {
    pairs: bool,
}

impl Model for Characters {
    fn check_dimensions(&self, _: Option<usize>) -> Result<Option<usize>, PipelineError> {
        Ok(None)
    }

    fn takes_pairs(&self) -> bool {
        self.pairs
    }

    fn check_instruction(&self, _: Role, _: Option<&str>) -> Result<(), PipelineError> {
        Ok(())
    }

    fn contract(&self, width: Option<usize>) -> String {
        format!("{width:?}")
    }

    fn tokenize(&self, input: &Input<'_>, _: &dyn Fn() -> bool) -> Result<Option<Tokens>, PipelineError> {
        let all = format!("{}{}", input.query.unwrap_or_default(), input.text);
        let ids: Vec<u32> = all.chars().map(u32::from).collect();
        Ok(Some(Tokens { total: ids.len(), ids, ..Tokens::default() }))
    }

    fn count_tokens(&self, _: &Input<'_>, _: &dyn Fn() -> bool) -> Result<Option<(usize, usize)>, PipelineError> {
        unreachable!()
    }

    fn chunk(
        &self,
        _: Role,
        _: Option<&str>,
        _: &str,
        _: ChunkRequest,
        _: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Chunk>>, PipelineError> {
        unreachable!()
    }

    fn cost(&self, length: usize) -> u64 {
        length as u64
    }

    fn encode(
        &self,
        batch: &[&Tokens],
        width: Option<usize>,
        out: &mut Outputs,
        _: &mut Context<'_>,
    ) -> Result<Vec<Result<(), NonFinite>>, EncodeError> {
        assert_eq!(width, None);
        let nan: Vec<u32> = "nan".chars().map(u32::from).collect();
        for tokens in batch {
            let broken = tokens.ids.starts_with(&nan);
            let value = |id: u32| if broken { f32::NAN } else { id as f32 };
            out.push_sparse((0u32..).zip(&tokens.ids).map(|(at, id)| (at, value(*id))));
        }
        Ok((0..out.len())
            .map(|row| out.non_finite(row).map_or(Ok(()), |component| Err(NonFinite { component })))
            .collect())
    }
}

fn run(engine: &Engine, model: &Arc<Characters>, job: EmbedJob) -> Result<EmbedOutput, Failure> {
    let (sender, receiver) = channel();
    let done = move |result| sender.send(result).unwrap();
    engine.embed(model.clone(), Arc::new(Statistics::default()), job, &[CancelToken::new()], done);
    receiver.recv().unwrap()
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// The texts that the rows were made of.
fn spelt(output: &EmbedOutput) -> Vec<String> {
    let mut start = 0;
    output
        .ends
        .iter()
        .map(|&end| {
            let row = start..end;
            start = end;
            assert!(output.indices[row.clone()].iter().copied().eq(0..row.len() as u32));
            output.data[row].iter().map(|&value| char::from_u32(value as u32).unwrap()).collect()
        })
        .collect()
}

#[test]
fn rows_of_any_length_come_back_in_the_order_of_the_texts() {
    let model = Arc::new(Characters { pairs: false });
    let list = ["one", "", "a longer one", "x", "the longest of all of them", ""];
    for (threads, batch_size) in [(1, None), (2, Some(1)), (3, Some(2)), (7, Some(100))] {
        let job = EmbedJob { texts: texts(&list), batch_size, ..EmbedJob::default() };
        let output = run(&Engine::new(threads), &model, job).unwrap();
        assert_eq!(spelt(&output), list, "{threads} threads, batches of {batch_size:?}");
        assert_eq!((output.dimensions, &output.contract_id[..]), (0, "None"));
        assert_eq!(output.tokens.total, list.map(|text| text.len() as u32));
    }
}

#[test]
fn pairs_share_a_query_or_have_one_each() {
    let (engine, model) = (Engine::new(2), Arc::new(Characters { pairs: true }));
    let job = |queries: &[&str], list: &[&str]| EmbedJob {
        texts: texts(list),
        queries: texts(queries),
        batch_size: Some(2),
        ..EmbedJob::default()
    };
    let of = |queries: &[&str], list: &[&str]| run(&engine, &model, job(queries, list));
    assert_eq!(spelt(&of(&["q:"], &["a", "bc", ""]).unwrap()), ["q:a", "q:bc", "q:"]);
    assert_eq!(spelt(&of(&["q:", "r:", ""], &["a", "bc", "d"]).unwrap()), ["q:a", "r:bc", "d"]);
    for (queries, list) in [(&["q", "r"][..], &["a", "b", "c"][..]), (&[], &["a"])] {
        assert_eq!(of(queries, list).unwrap_err().kind, ErrorKind::Internal, "{queries:?} {list:?}");
    }
    let plain = Arc::new(Characters { pairs: false });
    assert_eq!(run(&engine, &plain, job(&["q"], &["a"])).unwrap_err().kind, ErrorKind::Internal);
}

#[test]
fn a_row_that_is_not_finite_fails_its_own_call() {
    let (engine, model) = (Engine::new(2), Arc::new(Characters { pairs: false }));
    let (sender, receiver) = channel();
    // Submitted together, so that they can share a micro-batch.
    for (name, list) in [("broken", ["fine", "nan"]), ("whole", ["good", "well"])] {
        let sender = sender.clone();
        let job = EmbedJob { texts: texts(&list), ..EmbedJob::default() };
        engine.embed(model.clone(), Arc::default(), job, &[], move |result| sender.send((name, result)).unwrap());
    }
    for _ in 0..2 {
        match receiver.recv().unwrap() {
            ("broken", result) => {
                let failure = result.unwrap_err();
                assert_eq!((failure.kind, failure.index), (ErrorKind::InferenceFailed, Some(1)));
            }
            (_, result) => assert_eq!(spelt(&result.unwrap()), ["good", "well"]),
        }
    }
}

fn lazy(kind: ModelKind, name: &str) -> LazyModel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/tiny").join(name);
    let id = if folder.exists() { folder.to_str().unwrap().to_owned() } else { name.to_owned() };
    LazyModel::new(LoadRequest {
        model: ModelRequest { id_or_folder: id, ..ModelRequest::default() },
        kind,
        ..LoadRequest::default()
    })
}

fn embed(model: &LazyModel, job: EmbedJob) -> Result<EmbedOutput, Failure> {
    let (sender, receiver) = channel();
    model.embed(job, &CancelToken::new(), move |result| sender.send(result).unwrap());
    receiver.recv().unwrap()
}

#[test]
fn a_model_of_each_kind_works_and_another_kind_is_refused() {
    let job = |queries: &[&str]| EmbedJob {
        texts: texts(&["a vector", "list"]),
        queries: texts(queries),
        ..EmbedJob::default()
    };
    let sparse = embed(&lazy(ModelKind::Sparse, "tiny-splade"), job(&[])).unwrap();
    assert_eq!((sparse.ends.len(), sparse.indices.len()), (2, sparse.data.len()));
    let vectors = embed(&lazy(ModelKind::MultiVector, "tiny-colbert"), job(&[])).unwrap();
    assert_eq!((vectors.ends.len(), vectors.data.len() % 16), (2, 0));
    let scores = embed(&lazy(ModelKind::Rerank, "tiny-cross-bert"), job(&["what"])).unwrap();
    assert_eq!((scores.dimensions, scores.data.len(), scores.ends.len()), (1, 2, 0));
    let computed = embed(&lazy(ModelKind::Sparse, "qdrant/bm25"), job(&[])).unwrap();
    assert_eq!(computed.ends, [1, 2]);
    let other = [
        (ModelKind::Dense, "tiny-splade"),
        (ModelKind::Rerank, "tiny-colbert"),
        // By its id, before anything is looked for.
        (ModelKind::Sparse, "Qdrant/minicoil-v1"),
    ];
    for (kind, name) in other {
        let failure = embed(&lazy(kind, name), job(&[])).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::UnsupportedModel, "{name} as {kind}");
    }
}
