//! What the tests share: checkpoints, reference vectors, and a small service around a model.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use simile_encoder::{Context, Flow, Scratch, Weights};
use simile_hub::{ModelFiles, ModelRequest, resolve};
use simile_kernels::{Isa, ThreadPool};
use simile_pipeline::{LoadOptions, Role, TextModel, Tokens, plan};

/// The tiny static models.
pub const STATIC: [&str; 4] = ["tiny-static", "tiny-static-f16", "tiny-static-plain", "tiny-static-quant"];

/// All tiny dense encoders with reference vectors.
pub const TINY: [&str; 22] = [
    "tiny-bert-cls",
    "tiny-bert-dense",
    "tiny-bert-gamma-prefix",
    "tiny-bert-max",
    "tiny-bert-mean-pooler",
    "tiny-bert-meansqrt",
    "tiny-bert-weightedmean",
    "tiny-distilbert",
    "tiny-embeddinggemma",
    "tiny-gte-en",
    "tiny-gte-multilingual",
    "tiny-jina-v2",
    "tiny-jina-v2-6heads",
    "tiny-modernbert",
    "tiny-mpnet",
    "tiny-nomic",
    "tiny-qwen3-embedding",
    "tiny-roberta",
    "tiny-st6-bert",
    "tiny-st6-embeddinggemma",
    "tiny-st6-modernbert",
    "tiny-xlm-roberta",
];

/// Largest difference to the reference on vectors of unit length (the design's promise 1).
pub const TOLERANCE: f32 = 1e-5;

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub fn tiny(name: &str) -> PathBuf {
    repository().join("__test__/fixtures/tiny").join(name)
}

pub fn files(folder: &Path) -> ModelFiles {
    resolve(&ModelRequest::new(folder.to_str().unwrap())).unwrap()
}

pub fn load(folder: &Path, isa: Isa) -> TextModel {
    TextModel::load(&files(folder), &LoadOptions::new(isa))
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// A real model of the local Hugging Face cache. Fails, and says how to get it, when it is not there.
pub fn real(id: &str) -> ModelFiles {
    let cache_dir =
        std::env::var_os("SIMILE_TEST_MODELS").map_or_else(|| repository().join(".models/hub"), PathBuf::from);
    let request = ModelRequest { cache_dir: Some(cache_dir.clone()), ..ModelRequest::new(id) };
    resolve(&request).unwrap_or_else(|error| {
        panic!(
            "this test needs {id} in {} (SIMILE_TEST_MODELS names another cache). Get it with \
             `python3 tools/fetch_models.py --all --cache-dir .models/hub`. {error}",
            cache_dir.display()
        )
    })
}

/// What the reference says about some texts.
pub struct Golden {
    pub texts: Vec<String>,
    pub ids: Vec<Vec<u32>>,
    /// Tokens before truncation, where the file has them.
    pub totals: Option<Vec<usize>>,
    /// Where the reference has a limit.
    pub max_length: Option<usize>,
    /// Before normalisation, where the file has them.
    pub raw: Option<Vec<Vec<f32>>>,
    pub vectors: Vec<Vec<f32>>,
    /// Of a static model: what sentence-transformers' rule gives, where `vectors` are by model2vec's.
    pub by_sentence_transformers: Option<Vec<Vec<f32>>>,
}

fn list<T>(value: &Value, convert: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("a list").iter().map(convert).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    list(value, |id| id.as_u64().unwrap() as u32)
}

pub fn json(path: &Path) -> Value {
    let content = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&content).unwrap()
}

/// `golden.json` of a tiny checkpoint.
pub fn golden(folder: &Path) -> Golden {
    let json = json(&folder.join("golden.json"));
    let rows = |key: &str| json.get(key).map(rows);
    Golden {
        texts: list(&json["texts"], |text| text.as_str().unwrap().to_owned()),
        ids: list(&json["ids"], ids),
        totals: None,
        max_length: json["max_seq_length"].as_u64().map(|length| length as usize),
        raw: rows("raw"),
        vectors: rows("vectors").expect("every golden file has them"),
        by_sentence_transformers: rows("st_vectors"),
    }
}

/// What sentence-transformers gives for tiny checkpoints with other modules (`tools/make_modules_reference.py`).
pub fn modules_reference() -> Value {
    json(&repository().join("__test__/fixtures/reference/tiny-modules.json"))
}

/// Writes a safetensors file of f32 vectors.
pub fn write_vectors(path: &Path, tensors: &[(&str, Vec<f32>)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = serde_json::json!({"dtype": "F32", "shape": [values.len()], "data_offsets": [start, data.len()]});
        header.insert((*name).to_owned(), entry);
    }
    let header = Value::Object(header).to_string();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()).unwrap();
}

/// What model2vec gives for the texts of `tiny-static` in other settings (`tools/make_static_reference.py`).
pub fn static_reference() -> Value {
    json(&repository().join("__test__/fixtures/reference/tiny-static.json"))
}

/// Rows of a list of lists.
pub fn rows(value: &Value) -> Vec<Vec<f32>> {
    list(value, |row| list(row, |value| value.as_f64().unwrap() as f32))
}

/// The reference files of a real model.
pub fn reference(id: &str) -> Golden {
    let path = repository().join("__test__/fixtures/reference").join(format!("{}.json", id.replace('/', "--")));
    let json = json(&path);
    let items = json["items"].as_array().unwrap();
    let weights = Weights::open_file(&path.with_extension("safetensors")).unwrap();
    let rows = |name: &str| -> Option<Vec<Vec<f32>>> {
        let tensor = weights.get(name)?;
        let width = tensor.shape()[1];
        Some(tensor.to_vec().unwrap().chunks(width).map(<[f32]>::to_vec).collect())
    };
    Golden {
        texts: items.iter().map(|item| item["text"].as_str().unwrap().to_owned()).collect(),
        ids: items.iter().map(|item| ids(&item["ids"])).collect(),
        totals: items.iter().map(|item| Some(item.get("tokens_before_truncation")?.as_u64()? as usize)).collect(),
        max_length: json["max_seq_length"].as_u64().map(|length| length as usize),
        raw: rows("raw"),
        vectors: rows("final").expect("every reference file has them"),
        by_sentence_transformers: None,
    }
}

/// A text of these ids.
pub fn tokens(ids: &[u32]) -> Tokens {
    Tokens { ids: ids.to_vec(), total: ids.len(), ..Tokens::default() }
}

/// Threads and memory to compute with.
pub struct Machine {
    pool: ThreadPool,
    scratch: Scratch,
}

impl Machine {
    pub fn new(threads: usize) -> Self {
        Machine { pool: ThreadPool::new(threads), scratch: Scratch::new() }
    }

    /// One micro-batch of texts without a prompt.
    pub fn encode(&mut self, model: &TextModel, batch: &[&[u32]], dimensions: usize) -> Vec<Vec<f32>> {
        let tokens: Vec<Tokens> = batch.iter().map(|ids| tokens(ids)).collect();
        self.encode_tokens(model, &tokens.iter().collect::<Vec<_>>(), dimensions)
    }

    /// One micro-batch.
    pub fn encode_tokens(&mut self, model: &TextModel, batch: &[&Tokens], dimensions: usize) -> Vec<Vec<f32>> {
        let mut rows = vec![vec![f32::NAN; dimensions]; batch.len()];
        let mut out: Vec<&mut [f32]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
        let mut ctx = Context { pool: &self.pool, scratch: &mut self.scratch, checkpoint: &|| Flow::Continue };
        let results = model.encode(batch, dimensions, &mut out, &mut ctx).unwrap();
        assert_eq!(results, vec![Ok(()); batch.len()]);
        rows
    }

    /// The nine steps for many texts, as a caller of the crate takes them.
    pub fn embed(
        &mut self,
        model: &TextModel,
        role: Role,
        texts: &[&str],
        batch_size: usize,
        budget: u64,
    ) -> Vec<Vec<f32>> {
        let tokens: Vec<Tokens> = texts.iter().map(|text| model.tokenize(role, None, text).unwrap()).collect();
        let lengths: Vec<usize> = tokens.iter().map(|tokens| tokens.ids.len()).collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        for batch in plan(&lengths, batch_size, budget, |length| model.cost(length)) {
            let together: Vec<&Tokens> = batch.iter().map(|&index| &tokens[index]).collect();
            for (index, vector) in batch.into_iter().zip(self.encode_tokens(model, &together, model.dimensions())) {
                vectors[index] = vector;
            }
        }
        vectors
    }
}

/// Largest difference, as a part of the reference's largest component where that is over 1 (vectors that are not normalised).
pub fn difference(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().fold(1f32, |max, value| max.max(value.abs()));
    got.iter()
        .zip(want)
        .map(|(got, want)| (got - want).abs())
        .fold(0f32, |max, value| if value.is_nan() { f32::NAN } else { max.max(value) })
        / scale
}

/// Bytes, so that equal means equal.
pub fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|value| value.to_bits()).collect()
}

/// A small generator of pseudo-random numbers: the same every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// A copy of a checkpoint that a test may change.
pub fn copy(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy_folder(&tiny(name), dir.path());
    dir
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            // Not fs::copy: fixtures may be read-only, and their copies must not be.
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Changes a JSON file of a copied checkpoint.
pub fn edit(folder: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let path = folder.join(name);
    let mut value = if path.exists() { json(&path) } else { Value::Object(Default::default()) };
    change(&mut value);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, value.to_string()).unwrap();
}

/// A static model as sentence-transformers saves it: its tensor's name, its list of modules, and no `config.json`. `prefix` is
/// the folder of the module, empty or with a trailing `/`.
pub fn saved_by_sentence_transformers(name: &str, prefix: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(prefix);
    fs::create_dir_all(&folder).unwrap();
    let bytes = fs::read(tiny(name).join("model.safetensors")).unwrap();
    let data = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8(bytes[8..data].to_vec()).unwrap();
    let header = header.trim_end().replace("\"embeddings\"", "\"embedding.weight\"");
    let content = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes[data..]].concat();
    fs::write(folder.join("model.safetensors"), content).unwrap();
    fs::copy(tiny(name).join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let class = "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding";
    let modules = serde_json::json!([{"idx": 0, "name": "0", "path": prefix.trim_end_matches('/'), "type": class},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.base.modules.normalize.Normalize"}]);
    fs::write(dir.path().join("modules.json"), modules.to_string()).unwrap();
    dir
}
