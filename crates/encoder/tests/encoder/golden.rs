//! The committed tiny checkpoints against vectors that sentence-transformers, or another implementation, made of them.

use simile_encoder::{Flow, Pooling};
use simile_kernels::Isa;

use crate::models::{read_json, tiny};
use crate::reference::difference;
use crate::run::{Batch, Machine, load};

/// Checkpoint and its pooling. EmbeddingGemma's raw vectors have Dense modules behind them: see the pipeline's tests.
pub const CHECKPOINTS: [(&str, Pooling); 19] = [
    ("tiny-bert-cls", Pooling::Cls),
    ("tiny-bert-mean-pooler", Pooling::Mean),
    ("tiny-bert-max", Pooling::Max),
    ("tiny-bert-weightedmean", Pooling::WeightedMean),
    ("tiny-bert-meansqrt", Pooling::MeanSqrtLen),
    ("tiny-bert-gamma-prefix", Pooling::Mean),
    ("tiny-st6-bert", Pooling::Cls),
    ("tiny-distilbert", Pooling::Mean),
    ("tiny-roberta", Pooling::Mean),
    ("tiny-xlm-roberta", Pooling::Cls),
    ("tiny-mpnet", Pooling::Mean),
    ("tiny-modernbert", Pooling::Cls),
    ("tiny-st6-modernbert", Pooling::Cls),
    ("tiny-nomic", Pooling::Mean),
    ("tiny-gte-en", Pooling::Cls),
    ("tiny-gte-multilingual", Pooling::Cls),
    ("tiny-jina-v2", Pooling::Mean),
    ("tiny-jina-v2-6heads", Pooling::Mean),
    ("tiny-qwen3-embedding", Pooling::LastToken),
];

/// Promise 1 of the design: of the largest component. A vector's norm is at least that, so it bounds the normalised
/// vector too.
pub const TOLERANCE: f64 = 1e-5;

#[test]
fn tiny_checkpoints_give_the_vectors_of_sentence_transformers() {
    let mut failures = Vec::new();
    for isa in Isa::available() {
        for (name, pooling) in CHECKPOINTS {
            let dir = tiny(name);
            let golden = read_json(&dir.join("golden.json"));
            let ids: Vec<Vec<u32>> = serde_json::from_value(golden["ids"].clone()).unwrap();
            let raw: Vec<Vec<f64>> = serde_json::from_value(golden["raw"].clone()).unwrap();
            assert!(raw.len() == ids.len() && ids.len() >= 17, "{name}: a vector for each text");
            let encoder = load(isa, &dir);
            let width = encoder.hidden_size();
            for threads in [1, 2] {
                let mut machine = Machine::new(threads);
                let batch = Batch::of(&ids);
                let hidden = machine.try_run(&*encoder, &batch, pooling.rows(), &|| Flow::Continue).unwrap();
                let mut pooled = vec![0.0f32; ids.len() * width];
                hidden.pool(pooling, &mut pooled);
                for (text, (ours, theirs)) in pooled.chunks(width).zip(&raw).enumerate() {
                    let off = difference(ours, theirs);
                    if off > TOLERANCE {
                        failures
                            .push(format!("{}, {name}, text {text}, {threads} threads: off by {off:e}", isa.name()));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
