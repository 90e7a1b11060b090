//! Rules of heads that no tiny checkpoint has: BGE-M3's two, and ColBERT as PyLate writes it. The checkpoints are made here,
//! so that what comes out can be said by hand.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::{copy, edit, files, json, tiny};
use serde_json::{Value, json};
use simile_encoder::{Context, EncoderInput, Flow, Rows, Scratch, Weights, load_simd};
use simile_kernels::{Isa, ThreadPool};
use simile_pipeline::{HeadModel, Input, LoadOptions, ModelKind, Outputs, Role, Tokens, load_head};

const TEXTS: [&str; 4] = ["a vector is a list of numbers", "list list list", "x", ""];

fn load(kind: ModelKind, folder: &Path) -> Box<dyn HeadModel> {
    load_head(kind, &files(folder), &LoadOptions::new(Isa::best())).unwrap_or_else(|error| panic!("{error}"))
}

fn encode(model: &dyn HeadModel, role: Role, text: &str) -> (Tokens, Vec<f32>, Vec<u32>) {
    let tokens = model.tokenize(&Input { role, text, ..Input::default() }, &|| true).unwrap().unwrap();
    let (pool, mut scratch, mut out) = (ThreadPool::new(2), Scratch::new(), Outputs::default());
    let mut context = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
    model.encode(&[&tokens], &mut out, &mut context).unwrap();
    let (values, indices) = (out.row(0).0.to_vec(), out.row(0).1.to_vec());
    (tokens, values, indices)
}

/// Hidden states of a sequence, by the encoder alone.
fn hidden(folder: &Path, ids: &[u32]) -> Vec<Vec<f32>> {
    let encoder = load_simd(Isa::best(), &json(&folder.join("config.json")), folder).unwrap();
    let (pool, mut scratch) = (ThreadPool::new(1), Scratch::new());
    let mut context = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
    let input = EncoderInput { input_ids: ids, token_type_ids: &[], lengths: &[ids.len()], attended: &[] };
    let hidden = encoder.forward(&input, Rows::All, &mut context).unwrap();
    hidden.rows(0).iter().map(<[f32]>::to_vec).collect()
}

/// A safetensors file of f32 tensors.
fn write(path: &Path, tensors: &[(&str, &[usize], Vec<f32>)]) {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        values.iter().for_each(|value| data.extend_from_slice(&value.to_le_bytes()));
        header.insert((*name).to_owned(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let header = Value::Object(header).to_string();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()).unwrap();
}

const WIDTH: usize = 32;

#[test]
fn bge_m3_weighs_each_word_by_its_largest_token_and_special_tokens_not_at_all() {
    let dir = copy("tiny-xlm-roberta");
    // The weight of a token is its first component, plus a half.
    let mut first = vec![0.0; WIDTH];
    first[0] = 1.0;
    write(&dir.path().join("sparse_linear.safetensors"), &[("weight", &[1, WIDTH], first), ("bias", &[1], vec![0.5])]);
    let model = load(ModelKind::Sparse, dir.path());
    assert_eq!(model.descriptor().head, "bge-m3");
    for text in TEXTS {
        let (tokens, values, indices) = encode(&*model, Role::Generic, text);
        let mut want: BTreeMap<u32, f32> = BTreeMap::new();
        for (&id, row) in tokens.ids.iter().zip(hidden(dir.path(), &tokens.ids)) {
            // <s>, <pad>, </s> and <unk> are 0 to 3.
            if id > 3 && row[0] + 0.5 > 0.0 {
                let known = want.entry(id).or_default();
                *known = known.max(row[0] + 0.5);
            }
        }
        assert_eq!(indices, want.keys().copied().collect::<Vec<_>>(), "{text:?}");
        assert!(values.iter().zip(want.values()).all(|(got, want)| (got - want).abs() < 1e-5), "{text:?}");
    }
    assert!(!encode(&*model, Role::Generic, TEXTS[0]).1.is_empty());
}

#[test]
fn bge_m3_gives_a_vector_to_every_token_but_the_first() {
    let dir = copy("tiny-xlm-roberta");
    // The identity, plus one in every component.
    let identity = (0..WIDTH * WIDTH).map(|at| f32::from(u8::from(at / WIDTH == at % WIDTH))).collect();
    write(
        &dir.path().join("colbert_linear.safetensors"),
        &[("weight", &[WIDTH, WIDTH], identity), ("bias", &[WIDTH], vec![1.0; WIDTH])],
    );
    let model = load(ModelKind::MultiVector, dir.path());
    assert_eq!((model.descriptor().head, model.descriptor().query_length), ("bge-m3", None));
    for text in TEXTS {
        let (tokens, passage, _) = encode(&*model, Role::Passage, text);
        let (_, query, _) = encode(&*model, Role::Query, text);
        assert_eq!(passage, query, "{text:?}: both sides are alike");
        let rows = hidden(dir.path(), &tokens.ids);
        let mut want = Vec::new();
        for row in &rows[1..] {
            let shifted: Vec<f32> = row.iter().map(|value| value + 1.0).collect();
            let norm = shifted.iter().map(|value| value * value).sum::<f32>().sqrt();
            want.extend(shifted.iter().map(|value| value / norm));
        }
        assert_eq!(passage.len(), want.len(), "{text:?}");
        assert!(passage.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-5), "{text:?}");
    }
}

/// The same model in both layouts.
#[test]
fn pylate_and_colbert_say_the_same() {
    let dir = copy("tiny-colbert");
    fs::remove_file(dir.path().join("artifact.metadata")).unwrap();
    let weights = Weights::open(&tiny("tiny-colbert")).unwrap();
    let linear = weights.tensor("linear.weight").unwrap();
    let shape = linear.shape().to_vec();
    write(&dir.path().join("1_Dense/model.safetensors"), &[("linear.weight", &shape, linear.to_vec().unwrap())]);
    edit(dir.path(), "1_Dense/config.json", |config| {
        *config = json!({"in_features": shape[1], "out_features": shape[0], "bias": false,
            "activation_function": "torch.nn.modules.linear.Identity"});
    });
    edit(dir.path(), "modules.json", |modules| {
        *modules = json!([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
        ]);
    });
    edit(dir.path(), "config_sentence_transformers.json", |config| {
        *config = json!({"query_prefix": "[unused0]", "document_prefix": "[unused1]", "query_length": 32,
            "document_length": 48, "attend_to_expansion_tokens": false, "similarity_fn_name": "MaxSim",
            "skiplist_words": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~".split("").filter(|word| !word.is_empty()).collect::<Vec<_>>()});
    });
    let (colbert, pylate) =
        (load(ModelKind::MultiVector, &tiny("tiny-colbert")), load(ModelKind::MultiVector, dir.path()));
    for role in [Role::Query, Role::Passage] {
        for text in TEXTS.into_iter().chain(["a, list; of (numbers)!"]) {
            let (a, b) = (encode(&*colbert, role, text), encode(&*pylate, role, text));
            assert!(a == b, "{role} {text:?}");
        }
    }
    // Without expansion a query has the vectors of its own tokens.
    edit(dir.path(), "config_sentence_transformers.json", |config| config["do_query_expansion"] = json!(false));
    let plain = load(ModelKind::MultiVector, dir.path());
    let (tokens, values, _) = encode(&*plain, Role::Query, TEXTS[0]);
    assert_eq!((tokens.padding, values.len()), (0, tokens.ids.len() * shape[0]));
    let (filled, all, _) = encode(&*pylate, Role::Query, TEXTS[0]);
    assert_eq!(values, all[..values.len()], "fillers are not attended to");
    assert_eq!(filled.embedded(), tokens.ids.len());
}
