//! The masked language model's head of ModernBERT, whose activation has a key of its own, and what has no such head.

use std::collections::BTreeMap;

use safetensors::Dtype;
use serde_json::{Value, json};
use simile_encoder::{
    Architecture, ConfigError, Context, Flow, LoadError, MaskedLm, MlmPooling, MlmSettings, Rows, Weights, parse_config,
};
use simile_kernels::Isa;

use crate::models::{Rng, odd, read_json, write_file};
use crate::reference::difference;
use crate::run::{Batch, Machine, load, sequences, states};

type Function = fn(f64) -> f64;

const SETTINGS: MlmSettings = MlmSettings { pooling: MlmPooling::Max, twice: false, tied: false };

/// A head of random weights: its tensors by name, and a file of them.
struct Head {
    tensors: BTreeMap<String, Vec<f32>>,
    _dir: tempfile::TempDir,
    weights: Weights,
}

impl Head {
    fn new(hidden: usize, vocab: usize) -> Head {
        let mut random = Rng(11);
        let mut draw = |count, centre: f32| (0..count).map(|_| centre + 0.5 * random.next()).collect::<Vec<f32>>();
        let shapes = [
            ("head.dense.weight", vec![hidden, hidden], 0.0),
            ("head.norm.weight", vec![hidden], 1.0),
            ("decoder.weight", vec![vocab, hidden], 0.0),
            ("decoder.bias", vec![vocab], 0.0),
        ];
        let entries: Vec<_> = shapes
            .map(|(name, shape, centre)| (name.to_owned(), shape.clone(), draw(shape.iter().product(), centre)))
            .into();
        let tensors = entries.iter().map(|(name, _, values)| (name.clone(), values.clone())).collect();
        let dir = tempfile::tempdir().unwrap();
        write_file(&dir.path().join("model.safetensors"), &entries, Dtype::F32);
        let weights = Weights::open(dir.path()).unwrap();
        Head { tensors, _dir: dir, weights }
    }

    fn load(&self, architecture: &Architecture, config: &Value) -> Result<MaskedLm, LoadError> {
        MaskedLm::load(Isa::best(), &self.weights, architecture, config, SETTINGS)
    }

    /// The largest logit of each word, less those below 0, in f64.
    fn expected(&self, rows: &[Vec<f32>], epsilon: f64, activation: Function) -> Vec<f64> {
        let product = |name: &str, x: &[f64]| -> Vec<f64> {
            let rows = self.tensors[name].chunks_exact(x.len());
            rows.map(|row| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect()
        };
        let mut greatest = vec![0f64; self.tensors["decoder.bias"].len()];
        for row in rows {
            let x: Vec<f64> = row.iter().map(|&value| value.into()).collect();
            let x: Vec<f64> = product("head.dense.weight", &x).into_iter().map(activation).collect();
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
            let gamma = self.tensors["head.norm.weight"].iter();
            let x: Vec<f64> =
                x.iter().zip(gamma).map(|(x, g)| (x - mean) / (variance + epsilon).sqrt() * f64::from(*g)).collect();
            let logits = product("decoder.weight", &x).into_iter().zip(&self.tensors["decoder.bias"]);
            for (greatest, (logit, bias)) in greatest.iter_mut().zip(logits) {
                *greatest = greatest.max(logit + f64::from(*bias));
            }
        }
        greatest.into_iter().map(f64::ln_1p).collect()
    }
}

#[test]
fn modern_bert_s_head_has_the_activation_of_its_own_key() {
    let dir = odd("modern-bert");
    let plain = read_json(&dir.join("config.json"));
    let mut machine = Machine::new(1);
    let encoder = load(Isa::best(), &dir);
    let hidden = {
        let batch = Batch::of(&sequences(&[9], encoder.vocab_size()));
        machine.try_run(&*encoder, &batch, Rows::All, &|| Flow::Continue).unwrap()
    };
    let head = Head::new(encoder.hidden_size(), encoder.vocab_size());
    let mut weights = |hidden_activation: &str, classifier_activation: Value| -> Vec<f32> {
        let mut config = plain.clone();
        config["hidden_activation"] = json!(hidden_activation);
        config["classifier_activation"] = classifier_activation;
        let architecture = parse_config(&config, &|_| true).unwrap();
        let head = head.load(&architecture, &config).unwrap();
        let ctx = Context { pool: &machine.pool, scratch: &mut machine.scratch, checkpoint: &|| Flow::Continue };
        let mut dense = vec![0.0; head.vocabulary()];
        for (word, weight) in head.weights(&hidden, &ctx).unwrap().remove(0) {
            dense[word as usize] = weight;
        }
        dense
    };
    let rows = states(&hidden).remove(0);
    let epsilon = plain["norm_eps"].as_f64().unwrap();
    let cases: [(&str, Function); 3] =
        [("relu", |x| x.max(0.0)), ("tanh", f64::tanh), ("silu", |x| x / (1.0 + (-x).exp()))];
    for (name, activation) in cases {
        let off = difference(&weights("gelu", json!(name)), &head.expected(&rows, epsilon, activation));
        assert!(off <= 1e-5, "{name}: off by {off:e}");
    }
    let absent = weights("relu", json!(null));
    assert_eq!(absent, weights("relu", json!("gelu")), "absent is gelu, whatever the layers have");
    assert_ne!(absent, weights("relu", json!("relu")));
}

#[test]
fn heads_that_are_not_computed_are_refused_by_name() {
    let open = |name: &str| read_json(&odd(name).join("config.json"));
    let refused = |config: &Value| {
        let architecture = parse_config(config, &|_| true).unwrap();
        let head = Head::new(architecture.spec.hidden_size, architecture.spec.vocab_size);
        match head.load(&architecture, config).err() {
            Some(LoadError::Config(ConfigError::Unsupported { key, value, .. })) => (key, value),
            other => panic!("{other:?}"),
        }
    };
    let mut modern = open("modern-bert");
    modern["classifier_activation"] = json!("swoosh");
    assert_eq!(refused(&modern), ("classifier_activation", json!("swoosh").to_string()));
    // A norm without mean: the head's epsilon would be a guess.
    let mut qwen = open("qwen3");
    qwen["architectures"] = json!(["Qwen3ForMaskedLM"]);
    assert_eq!(refused(&qwen), ("architectures", r#"["Qwen3ForMaskedLM"]"#.to_owned()));
}
