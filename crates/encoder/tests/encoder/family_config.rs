//! Every family's `config.json`: what is refused, what old and new files call differently, and the values in the spec that
//! end-to-end numbers are too weak to prove.

use std::path::Path;

use serde_json::{Value, json};
use simile_encoder::spec::{
    AttentionPosition, EncoderSpec, MlpKind, Norm, NormPlacement, Positions, QkNorm, RopeScaling,
};
use simile_encoder::{Architecture, ConfigError, families};
use simile_kernels::Activation;

use crate::models::{read_json, tiny};

/// Of `__test__/fixtures/configs`: each family's as its repositories write it, with small sizes.
fn config(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/configs");
    read_json(&folder.join(format!("{name}.json")))
}

fn parse(config: &Value) -> Result<Architecture, ConfigError> {
    simile_encoder::parse_config(config, &|_| false)
}

fn spec(config: &Value) -> EncoderSpec {
    parse(config).unwrap_or_else(|error| panic!("{error}")).spec
}

/// With these keys instead, and without those that are `null`.
fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn theta(spec: &EncoderSpec, layer: usize) -> f64 {
    match spec.layers[layer].attention.position {
        AttentionPosition::Rope(rope) => rope.theta,
        other => panic!("{other:?}"),
    }
}

fn epsilon(norm: Norm) -> f32 {
    let (Norm::LayerNorm { epsilon, .. } | Norm::RmsNorm { epsilon, .. }) = norm;
    epsilon
}

#[test]
fn every_model_type_has_a_checkpoint_and_every_tiny_one_is_read() {
    let folder = tiny("");
    let mut types = std::collections::BTreeSet::from(["gte".to_owned()]);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().join("config.json");
        if path.exists() && !path.to_string_lossy().contains("tiny-static") {
            let config = read_json(&path);
            parse(&config).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            types.insert(config["model_type"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(types.into_iter().collect::<Vec<_>>(), families::SUPPORTED_MODEL_TYPES);
}

#[test]
fn what_would_change_the_result_is_refused_by_name() {
    let quantised = json!({ "quant_method": "awq" });
    let cases: &[(&str, &[(&str, Value)])] = &[
        (
            "roberta",
            &[
                ("hidden_act", json!("quick_gelu")),
                ("position_embedding_type", json!("relative_key")),
                ("is_decoder", json!(true)),
                ("quantization_config", quantised.clone()),
            ],
        ),
        ("xlm-roberta", &[("hidden_act", json!("mish")), ("add_cross_attention", json!(true))]),
        ("distilbert", &[("activation", json!("mish")), ("quantization_config", quantised.clone())]),
        (
            "mpnet",
            &[
                ("hidden_act", json!("mish")),
                ("relative_attention_num_buckets", json!(30)),
                ("pad_token_id", json!(0)),
                ("is_decoder", json!(true)),
            ],
        ),
        (
            "modernbert",
            &[
                ("hidden_activation", json!("swoosh")),
                ("rope_scaling", json!({ "rope_type": "yarn", "factor": 4.0 })),
                ("rope_parameters", json!({ "full_attention": { "rope_type": "yarn", "rope_theta": 1e4 } })),
                ("layer_types", json!(["full_attention", "linear_attention", "full_attention", "full_attention"])),
                ("quantization_config", quantised.clone()),
            ],
        ),
        (
            "nomic",
            &[
                ("prenorm", json!(true)),
                ("causal", json!(true)),
                ("use_rms_norm", json!(true)),
                ("parallel_block", json!(true)),
                ("rotary_emb_fraction", json!(0.5)),
                ("rotary_emb_interleaved", json!(true)),
                ("rotary_emb_scale_base", json!(512)),
                ("activation_function", json!("relu")),
                ("scale_attn_by_inverse_layer_idx", json!(true)),
                ("moe_every_n_layers", json!(2)),
                ("num_experts", json!(8)),
            ],
        ),
        (
            "gte-new",
            &[
                ("position_embedding_type", json!("absolute")),
                ("layer_norm_type", json!("rms_norm")),
                ("logn_attention_scale", json!(true)),
                ("pack_qkv", json!(false)),
                ("hidden_act", json!("swoosh")),
                ("rope_scaling", json!({ "type": "linear", "factor": 2.0 })),
                ("rope_scaling", json!({ "type": "ntk", "factor": 2.0, "mixed_b": 0.5 })),
            ],
        ),
        (
            "jina-bert",
            &[
                ("feed_forward_type", json!("original")),
                ("feed_forward_type", json!(null)),
                ("position_embedding_type", json!("absolute")),
                ("is_decoder", json!(true)),
            ],
        ),
        (
            "gemma3",
            &[
                ("use_bidirectional_attention", json!(false)),
                ("use_bidirectional_attention", json!(null)),
                ("attention_bias", json!(true)),
                ("attn_logit_softcapping", json!(50.0)),
                ("final_logit_softcapping", json!(30.0)),
                ("rope_scaling", json!({ "rope_type": "linear", "factor": 8.0 })),
                ("hidden_activation", json!("swoosh")),
            ],
        ),
        (
            "qwen3",
            &[
                ("hidden_act", json!("gelu")),
                ("attention_bias", json!(true)),
                ("use_sliding_window", json!(true)),
                ("rope_scaling", json!({ "rope_type": "yarn", "factor": 4.0 })),
                ("rope_parameters", json!({ "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0 })),
                ("rope_parameters", json!({ "rope_type": "default", "type": "linear", "rope_theta": 1e6 })),
                ("rope_scaling", json!({ "rope_type": null, "type": "linear", "factor": 2.0 })),
                ("rope_scaling", json!({ "rope_type": "default", "type": "linear", "factor": 2.0 })),
                ("rope_scaling", json!({ "rope_type": 1 })),
                ("rope_scaling", json!({ "rope_type": null, "type": null, "factor": 2.0 })),
                ("layer_types", json!(["full_attention", "sliding_attention"])),
                ("is_causal", json!(false)),
            ],
        ),
        (
            "xlm-roberta-flash",
            &[
                ("lora_adaptations", json!(["retrieval.query"])),
                ("position_embedding_type", json!("alibi")),
                ("hidden_act", json!("swoosh")),
                ("rotary_emb_interleaved", json!(true)),
                ("rotary_emb_dim", json!(6)),
            ],
        ),
    ];
    let mut failures = Vec::new();
    for (name, changes) in cases {
        parse(&config(name)).unwrap();
        for (key, value) in *changes {
            match parse(&with(config(name), json!({ *key: value }))) {
                Err(error @ ConfigError::Unsupported { key: named, .. }) if named == *key => {
                    // Of a table or list, the part that is not supported is enough.
                    let (text, whole) = (error.to_string(), !value.is_object() && !value.is_array());
                    if whole && !text.contains(&value.to_string()) || !text.contains("allowed: ") {
                        failures.push(format!("{name}: {key} = {value}: {text:?} does not name the value"));
                    }
                }
                other => {
                    failures.push(format!("{name}: {key} = {value}: {:?}", other.map(|found| found.spec.layers.len())))
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sizes_that_do_not_fit_together_are_refused_by_name() {
    let cases = [
        ("roberta", "num_attention_heads", json!(7)),
        ("roberta", "max_position_embeddings", json!(2)),
        ("distilbert", "n_heads", json!(7)),
        ("modernbert", "num_attention_heads", json!(7)),
        ("modernbert", "layer_types", json!(["full_attention"])),
        ("gte-new", "num_attention_heads", json!(7)),
        ("jina-bert", "num_attention_heads", json!(7)),
        ("gemma3", "num_key_value_heads", json!(3)),
        ("gemma3", "head_dim", json!(13)),
        ("gemma3", "query_pre_attn_scalar", json!(0)),
        // One base for all layers is none that transformers reads.
        ("modernbert", "rope_parameters", json!({ "rope_theta": 1e6 })),
        ("gemma3", "rope_parameters", json!({ "rope_type": "default", "rope_theta": 1e6 })),
        ("qwen3", "rope_parameters", json!({ "rope_theta": null })),
        ("qwen3", "num_key_value_heads", json!(3)),
        ("qwen3", "head_dim", json!(13)),
        ("qwen3", "rope_theta", json!(-1.0)),
        ("xlm-roberta-flash", "rotary_emb_base", json!("10000")),
        ("nomic", "rotary_emb_base", json!(0)),
        // Rotation pairs the halves of a head: 60 / 4 = 15 has none.
        ("modernbert", "num_attention_heads", json!(4)),
        ("gte-new", "num_attention_heads", json!(4)),
        ("xlm-roberta-flash", "num_attention_heads", json!(4)),
        ("nomic", "n_head or num_attention_heads", json!(4)),
    ];
    let mut failures = Vec::new();
    for (name, key, value) in cases {
        let written = key.split(' ').next().unwrap();
        match parse(&with(config(name), json!({ written: value }))) {
            Err(ConfigError::Invalid { key: named, .. }) if named == key => {}
            other => failures.push(format!("{name}: {key} = {value}: {:?}", other.map(|found| found.spec))),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn old_and_new_files_say_the_same() {
    let same = |what: &str, old: Value, new: Value| assert_eq!(spec(&old), spec(&new), "{what}");
    // transformers 5: rope_parameters, by layer type where there are two kinds; dtype.
    let by_type = |full: f64, sliding: f64| {
        json!({
            "full_attention": { "rope_type": "default", "rope_theta": full },
            "sliding_attention": { "rope_type": "default", "rope_theta": sliding },
        })
    };
    let modern = with(
        config("modernbert"),
        json!({
            "global_rope_theta": null, "local_rope_theta": null, "rope_parameters": by_type(160_000.0, 10_000.0),
            "global_attn_every_n_layers": null, "dtype": "float32",
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        }),
    );
    same("modernbert", config("modernbert"), modern);
    let gemma = json!({ "rope_theta": null, "rope_local_base_freq": null, "rope_parameters": by_type(1e6, 1e4) });
    same("gemma3", config("gemma3"), with(config("gemma3"), gemma));
    let pattern = |key: &str| with(config("gemma3"), json!({ "layer_types": null, key: 2 }));
    same("gemma3 by pattern", config("gemma3"), pattern("sliding_window_pattern"));
    same("gemma3 by hidden pattern", config("gemma3"), pattern("_sliding_window_pattern"));
    let qwen = json!({
        "rope_theta": null, "rope_parameters": { "rope_type": "default", "rope_theta": 1e6 },
        "layer_types": ["full_attention", "full_attention"], "sliding_window": null, "dtype": "bfloat16",
    });
    same("qwen3", config("qwen3"), with(config("qwen3"), qwen));
    for name in ["tiny-modernbert", "tiny-embeddinggemma"] {
        let (old, new) = (tiny(name), tiny(&name.replace("tiny-", "tiny-st6-")));
        same(name, read_json(&old.join("config.json")), read_json(&new.join("config.json")));
    }
    let native = json!({
        "model_type": "nomic_bert", "hidden_size": 60, "num_attention_heads": 5, "num_hidden_layers": 2,
        "intermediate_size": 100, "hidden_act": "silu", "layer_norm_eps": 1e-5, "vocab_size": 41, "type_vocab_size": 2,
        "max_position_embeddings": 64, "rope_parameters": { "rope_type": "default", "rope_theta": 1000.0 },
    });
    same("nomic", config("nomic"), native);
    let unscaled = with(config("gte-new"), json!({ "rope_scaling": null }));
    let native = with(
        unscaled.clone(),
        json!({ "model_type": "gte", "rope_theta": null, "rope_parameters": { "rope_type": "default", "rope_theta": 2e4 } }),
    );
    same("gte", unscaled, native);
}

#[test]
fn layers_are_what_their_papers_say() {
    let modern = spec(&config("modernbert"));
    let windows = |spec: &EncoderSpec| spec.layers.iter().map(|layer| layer.attention.window).collect::<Vec<_>>();
    // local_attention 8 is 4 to each side.
    assert_eq!(windows(&modern), [None, Some(4), Some(4), None]);
    assert_eq!((theta(&modern, 0), theta(&modern, 1)), (160_000.0, 10_000.0));
    assert_eq!(modern.layers[0].placement, NormPlacement::Pre { attention_norm: false });
    assert_eq!(modern.layers[1].placement, NormPlacement::Pre { attention_norm: true });
    assert_eq!(modern.final_norm, Some(Norm::LayerNorm { epsilon: 1e-5, bias: false }));

    let gemma = spec(&config("gemma3"));
    // Those less than 8 / 2 + 1 away, whether the file says 8 or 9.
    assert_eq!(windows(&gemma), [Some(4), None, Some(4), None]);
    assert_eq!(windows(&spec(&with(config("gemma3"), json!({ "sliding_window": 9 }))))[0], Some(4));
    assert_eq!(windows(&spec(&with(config("gemma3"), json!({ "sliding_window": 512 }))))[0], Some(256));
    assert_eq!((theta(&gemma, 0), theta(&gemma, 1)), (1e4, 1e6));
    let attention = gemma.layers[0].attention;
    assert_eq!(attention.scale, 20f64.powf(-0.5));
    assert_eq!((attention.causal, attention.heads, attention.kv_heads, attention.head_dim), (false, 4, 2, 12));
    let norm = Norm::RmsNorm { epsilon: 1e-6, offset: 1.0 };
    assert_eq!((attention.qk_norm, gemma.final_norm), (Some(QkNorm::PerHead(norm)), Some(norm)));
    assert_eq!((gemma.layers[0].placement, gemma.embeddings.scale), (NormPlacement::Sandwich, 60f32.sqrt()));
    assert_eq!(gemma.layers[0].mlp.activation, Activation::GeluTanh);

    let qwen = spec(&config("qwen3"));
    let attention = qwen.layers[0].attention;
    assert!(attention.causal && qwen.layers.iter().all(|layer| layer.attention.causal));
    let norm = Norm::RmsNorm { epsilon: 1e-6, offset: 0.0 };
    assert_eq!((attention.qk_norm, qwen.final_norm), (Some(QkNorm::PerHead(norm)), Some(norm)));
    assert_eq!((theta(&qwen, 0), qwen.embeddings.scale, qwen.embeddings.norm), (1e6, 1.0, None));

    let roberta = spec(&config("roberta"));
    assert_eq!((roberta.embeddings.positions, roberta.max_positions), (Positions::NonPad { table: 66, pad: 1 }, 64));

    let mpnet = spec(&config("mpnet"));
    let bias = AttentionPosition::RelativeBias { buckets: 32, max_distance: 128 };
    assert!(mpnet.layers.iter().all(|layer| layer.attention.position == bias));
    assert_eq!((mpnet.embeddings.token_types, mpnet.max_positions), (None, 64));

    let scaling = |name| match spec(&config(name)).layers[0].attention.position {
        AttentionPosition::Rope(rope) => (rope.theta, rope.scaling),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(scaling("gte-new"), (20_000.0, RopeScaling::Ntk { factor: 8.0 }));
    assert_eq!(scaling("nomic"), (1000.0, RopeScaling::None));
    let dynamic = RopeScaling::DynamicNtk { factor: 2.0, trained: 16 };
    assert_eq!(scaling("nomic-dynamic-ntk-biases"), (1000.0, dynamic));
    assert_eq!(scaling("xlm-roberta-flash"), (10_000.0, RopeScaling::None));
    let absolute = spec(&config("xlm-roberta-flash-absolute"));
    assert_eq!(absolute.layers[0].attention.position, AttentionPosition::None);
    assert_eq!(absolute.embeddings.positions, Positions::NonPad { table: 66, pad: 1 });
    for name in ["nomic", "gte-new", "jina-bert", "modernbert", "gemma3", "qwen3"] {
        assert!(spec(&config(name)).layers.iter().all(|layer| layer.mlp.kind == MlpKind::Gated), "{name}");
    }
}

#[test]
fn jina_bert_s_layers_follow_its_tensors() {
    let of = |tensors: &'static [&'static str]| {
        let has = move |name: &str| tensors.iter().any(|tensor| name == format!("encoder.layer.0.{tensor}.weight"));
        simile_encoder::parse_config(&config("jina-bert"), &has).unwrap()
    };
    let gated = of(&["mlp.gated_layers", "attention.output.LayerNorm"]);
    let layer = &gated.spec.layers[0];
    assert_eq!((layer.placement, layer.attention.qk_norm), (NormPlacement::Post { twice: false }, None));
    assert_eq!(layer.attention.position, AttentionPosition::Alibi);
    // What is activated comes first here, and second there.
    let first = |architecture: &Architecture| {
        let layer = &architecture.names.layer;
        (layer.gate.unwrap().part.unwrap().first, layer.up.part.unwrap().first)
    };
    assert_eq!(first(&gated), (0, 100));
    let up_gated = of(&["mlp.up_gated_layer", "layer_norm_1"]);
    assert_eq!(first(&up_gated), (100, 0));
    assert_eq!(up_gated.spec.layers[0].placement, NormPlacement::Post { twice: false });
    let code = of(&["mlp.up_gated_layer", "layer_norm_1", "attention.output.LayerNorm", "attention.self.layer_norm_q"]);
    let layer = &code.spec.layers[0];
    assert_eq!(layer.placement, NormPlacement::Post { twice: true });
    assert_eq!(layer.attention.qk_norm, Some(QkNorm::AllHeads(Norm::LayerNorm { epsilon: 1e-5, bias: true })));
}

/// What transformers takes where the file says nothing: 1e-12 for 1e-5 moves a vector by 5e-6 only.
#[test]
fn defaults_are_those_of_transformers() {
    let cases = [
        ("bert", "layer_norm_eps", 1e-12),
        ("roberta", "layer_norm_eps", 1e-12),
        ("xlm-roberta", "layer_norm_eps", 1e-12),
        ("mpnet", "layer_norm_eps", 1e-12),
        ("modernbert", "norm_eps", 1e-5),
        ("gte-new", "layer_norm_eps", 1e-12),
        ("jina-bert", "layer_norm_eps", 1e-12),
        ("gemma3", "rms_norm_eps", 1e-6),
        ("qwen3", "rms_norm_eps", 1e-6),
    ];
    for (name, key, expected) in cases {
        let spec = spec(&with(config(name), json!({ key: null })));
        assert!(spec.layers.iter().all(|layer| epsilon(layer.norm) == expected), "{name}: {:?}", spec.layers[0].norm);
    }
    // Not in the file at all.
    let distilbert = spec(&config("distilbert"));
    assert!(distilbert.layers.iter().all(|layer| epsilon(layer.norm) == 1e-12));
    assert_eq!(distilbert.layers[0].mlp.activation, Activation::Gelu);
    let changes = json!({ "global_rope_theta": null, "local_rope_theta": null, "local_attention": null });
    let modern = spec(&with(config("modernbert"), changes));
    assert_eq!((theta(&modern, 0), theta(&modern, 1)), (160_000.0, 10_000.0));
    assert_eq!(modern.layers[1].attention.window, Some(64));
    let gemma = spec(&with(config("gemma3"), json!({ "rope_theta": null, "rope_local_base_freq": null })));
    assert_eq!((theta(&gemma, 0), theta(&gemma, 1)), (1e4, 1e6));
    // The name "gelu" is the erf form everywhere; only Gemma's default is the other.
    for (name, key) in [("bert", "hidden_act"), ("modernbert", "hidden_activation"), ("gte-new", "hidden_act")] {
        assert_eq!(
            spec(&with(config(name), json!({ key: null }))).layers[0].mlp.activation,
            Activation::Gelu,
            "{name}"
        );
    }
    let gemma = spec(&with(config("gemma3"), json!({ "hidden_activation": null })));
    assert_eq!(gemma.layers[0].mlp.activation, Activation::GeluTanh);
}

#[test]
fn a_number_of_layers_that_no_model_has_is_an_error_and_takes_no_memory() {
    for entry in std::fs::read_dir(tiny("")).unwrap() {
        let path = entry.unwrap().path().join("config.json");
        if !path.exists() || path.to_string_lossy().contains("tiny-static") {
            continue;
        }
        let config = read_json(&path);
        let keys = ["num_hidden_layers", "n_layers", "n_layer"];
        let key = keys.into_iter().find(|key| config[key].is_u64()).unwrap();
        for count in [1001, u64::from(u32::MAX), 1 << 60] {
            let error = parse(&with(config.clone(), json!({ key: count }))).err().map(|error| error.to_string());
            let expected = format!("config.json: {key} = {count} is not valid; expected a whole number from 1 to 1000");
            assert_eq!(error, Some(expected), "{}", path.display());
        }
    }
}
