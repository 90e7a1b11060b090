//! What a text of thousands of tokens costs on the shapes of long-context models: time of a layer, and memory. Weights are
//! random and of two layers, so that no model needs to be there.
//!
//! ```text
//! cargo run --release -p simile-encoder --example long_texts -- [TOKENS] [THREADS] [SHAPE]
//! ```

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::collections::HashMap;
use std::time::Instant;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use simile_encoder::families::{LayerNames, LinearNames, NormNames, TensorNames};
use simile_encoder::spec::{
    AttentionPosition, AttentionSpec, EmbeddingSpec, EncoderSpec, LayerSpec, MlpKind, MlpSpec, Norm, NormPlacement,
    Positions, QkNorm, Rope, RopeScaling,
};
use simile_encoder::{Architecture, Context, Encoder, EncoderInput, Flow, Rows, Scratch, Weights, simd};
use simile_kernels::{Activation, Isa, ThreadPool};

const VOCAB: usize = 100;
const RMS: Norm = Norm::RmsNorm { epsilon: 1e-6, offset: 0.0 };
const LAYER_NORM: Norm = Norm::LayerNorm { epsilon: 1e-5, bias: false };

const NAMES: TensorNames = TensorNames {
    prefixes: &[""],
    word_embeddings: "words.weight",
    position_embeddings: None,
    token_type_embeddings: None,
    embeddings_norm: Some("hidden"),
    relative_bias: None,
    final_norm: None,
    norm: &[NormNames { weight: "norm", bias: "bias" }],
    layer: LayerNames {
        query: LinearNames::unbiased("query"),
        key: LinearNames::unbiased("key"),
        value: LinearNames::unbiased("key"),
        query_norm: Some("head"),
        key_norm: Some("head"),
        attention_output: LinearNames::unbiased("out"),
        attention_norm: "hidden",
        attention_output_norm: None,
        up: LinearNames::unbiased("up"),
        gate: Some(LinearNames::unbiased("up")),
        down: LinearNames::unbiased("down"),
        mlp_norm: "hidden",
        mlp_output_norm: None,
    },
};

fn spec(hidden: usize, heads: (usize, usize, usize), intermediate: usize) -> EncoderSpec {
    let (heads, kv_heads, head_dim) = heads;
    let layer = LayerSpec {
        placement: NormPlacement::Post { twice: false },
        norm: LAYER_NORM,
        attention: AttentionSpec {
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f64).sqrt(),
            qk_norm: None,
            position: AttentionPosition::Rope(Rope { theta: 10_000.0, scaling: RopeScaling::None }),
            causal: false,
            window: None,
        },
        mlp: MlpSpec { intermediate_size: intermediate, kind: MlpKind::Gated, activation: Activation::Gelu },
    };
    EncoderSpec {
        vocab_size: VOCAB,
        hidden_size: hidden,
        max_positions: 8192,
        embeddings: EmbeddingSpec { scale: 1.0, positions: Positions::None, token_types: None, norm: Some(LAYER_NORM) },
        layers: vec![layer; 2],
        final_norm: None,
    }
}

/// Shapes of a layer of well-known models; of ModernBert a global and a local one.
fn shapes() -> Vec<(&'static str, EncoderSpec)> {
    let mut modern_bert = spec(768, (12, 12, 64), 1152);
    for layer in &mut modern_bert.layers {
        layer.placement = NormPlacement::Pre { attention_norm: true };
    }
    let mut modern_bert_local = modern_bert.clone();
    for layer in &mut modern_bert_local.layers {
        layer.attention.window = Some(64);
    }
    let mut nomic = spec(768, (12, 12, 64), 3072);
    let mut jina = spec(768, (12, 12, 64), 3072);
    for (nomic, jina) in nomic.layers.iter_mut().zip(&mut jina.layers) {
        let scaling = RopeScaling::DynamicNtk { factor: 2.0, trained: 2048 };
        nomic.attention.position = AttentionPosition::Rope(Rope { theta: 1000.0, scaling });
        jina.attention.position = AttentionPosition::Alibi;
    }
    let mut qwen3 = spec(1024, (16, 8, 128), 3072);
    for layer in &mut qwen3.layers {
        (layer.norm, layer.placement) = (RMS, NormPlacement::Pre { attention_norm: true });
        layer.attention.qk_norm = Some(QkNorm::PerHead(RMS));
        (layer.attention.causal, layer.mlp.activation) = (true, Activation::Silu);
    }
    qwen3.embeddings.norm = None;
    vec![
        ("ModernBert, global", modern_bert),
        ("ModernBert, local", modern_bert_local),
        ("NomicBert", nomic),
        ("GteNew", spec(768, (12, 12, 64), 3072)),
        ("JinaBert", jina),
        ("Qwen3 0.6B", qwen3),
    ]
}

/// Random weights; layers share them.
fn weights(spec: &EncoderSpec, path: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let layer = &spec.layers[0];
    let AttentionSpec { heads, kv_heads, head_dim, .. } = layer.attention;
    let (hidden, middle) = (spec.hidden_size, layer.mlp.intermediate_size);
    let shapes = [
        ("words.weight", vec![VOCAB, hidden]),
        ("hidden.norm", vec![hidden]),
        ("head.norm", vec![head_dim]),
        ("query.weight", vec![heads * head_dim, hidden]),
        ("key.weight", vec![kv_heads * head_dim, hidden]),
        ("out.weight", vec![hidden, heads * head_dim]),
        ("up.weight", vec![middle, hidden]),
        ("down.weight", vec![hidden, middle]),
    ];
    let mut state = 1u64;
    let mut tensors = HashMap::new();
    for (name, shape) in &shapes {
        let spread = 1.0 / (shape[shape.len() - 1] as f32).sqrt();
        let value = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            spread * ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        };
        let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(value).collect();
        tensors.insert(*name, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    }
    let views = shapes
        .iter()
        .map(|(name, shape)| Ok((*name, TensorView::new(Dtype::F32, shape.clone(), &tensors[name])?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    Ok(safetensors::serialize_to_file(views, None, path)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let tokens: usize = arguments.next().map_or(Ok(8192), |tokens| tokens.parse())?;
    let threads: usize = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let only = arguments.next();
    let isa = Isa::from_env()?;
    let ids: Vec<u32> = (0..tokens).map(|i| (i * 31 % VOCAB) as u32).collect();
    let pool = ThreadPool::new(threads);
    println!("{tokens} tokens on {}, {threads} threads", isa.name());
    for (name, spec) in shapes() {
        if only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let dir = tempfile::tempdir()?;
        weights(&spec, &dir.path().join("model.safetensors"))?;
        let architecture = Architecture { spec, names: NAMES };
        let encoder = simd::load(isa, &architecture, &Weights::open(dir.path())?)?;
        let mut scratch = Scratch::new();
        scratch.set_profiling(true);
        let input = EncoderInput { input_ids: &ids, token_type_ids: &[], lengths: &[tokens], attended: &[] };
        let mut context = Context { pool: &pool, scratch: &mut scratch, checkpoint: &|| Flow::Continue };
        let start = Instant::now();
        let hidden = encoder.forward(&input, Rows::All, &mut context)?;
        let seconds = start.elapsed().as_secs_f64();
        hidden.recycle(&mut scratch);
        let speed = encoder.flops(tokens) as f64 / seconds / 1e9;
        let megabytes = scratch.peak_bytes() as f64 / 1e6;
        println!("{name:18} {:.2} s a layer, {speed:.0} GFLOP/s, at most {megabytes:.0} MB", seconds / 2.0);
        let parts: Vec<String> =
            scratch.take_profile().iter().map(|(stage, time)| format!("{stage} {:.2} s", time.as_secs_f64())).collect();
        println!("    {}", parts.join(", "));
    }
    Ok(())
}
