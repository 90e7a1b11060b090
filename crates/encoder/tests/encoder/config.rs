//! `config.json` is understood whole or refused by name.

use serde_json::{Value, json};
use simile_encoder::spec::{Norm, Positions};
use simile_encoder::{Architecture, ConfigError};
use simile_kernels::Activation;

use crate::models::{Random, odd, read_json, tiny};

/// Of a checkpoint whose tensors nobody asks for.
fn parse_config(json: &Value) -> Result<Architecture, ConfigError> {
    simile_encoder::parse_config(json, &|_| false)
}

fn with(changes: Value) -> Value {
    let mut config = Random::default().config();
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn without(key: &str) -> Value {
    let mut config = Random::default().config();
    config.as_object_mut().unwrap().remove(key);
    config
}

#[test]
fn a_bert_config_becomes_a_spec() {
    let spec = parse_config(&with(json!({ "layer_norm_eps": 1e-5, "hidden_act": "relu" }))).unwrap().spec;
    assert_eq!((spec.hidden_size, spec.layers.len(), spec.vocab_size), (64, 3, 97));
    assert_eq!((spec.layers[0].attention.heads, spec.layers[0].attention.head_dim), (2, 32));
    assert_eq!(spec.layers[0].mlp.intermediate_size, 128);
    assert_eq!(spec.layers[0].mlp.activation, Activation::Relu);
    assert_eq!(spec.layers[0].norm, Norm::LayerNorm { epsilon: 1e-5, bias: true });
    assert_eq!(spec.embeddings.positions, Positions::Absolute { table: 320 });
    assert_eq!(spec.embeddings.token_types, Some(2));
}

#[test]
fn gelu_is_the_erf_form_and_only_named_ones_are_the_tanh_form() {
    let cases = [
        ("gelu", Activation::Gelu),
        ("gelu_python", Activation::Gelu),
        ("gelu_new", Activation::GeluTanh),
        ("gelu_fast", Activation::GeluTanh),
        ("gelu_pytorch_tanh", Activation::GeluTanh),
        ("relu", Activation::Relu),
        ("silu", Activation::Silu),
        ("swish", Activation::Silu),
        ("tanh", Activation::Tanh),
    ];
    for (name, expected) in cases {
        let spec = parse_config(&with(json!({ "hidden_act": name }))).unwrap().spec;
        assert_eq!(spec.layers[0].mlp.activation, expected, "{name}");
    }
}

#[test]
fn files_of_every_version_of_transformers_load() {
    for name in ["tiny-bert-cls", "tiny-bert-gamma-prefix", "tiny-st6-bert"] {
        let config = read_json(&tiny(name).join("config.json"));
        parse_config(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    // Old files leave these out; transformers' defaults hold.
    for key in ["layer_norm_eps", "hidden_act", "type_vocab_size", "position_embedding_type", "architectures"] {
        assert_eq!(parse_config(&without(key)), parse_config(&Random::default().config()), "without {key}");
    }
    let harmless = json!({
        "dtype": "float32", "torch_dtype": "float16", "transformers_version": "5.24.0", "use_cache": true,
        "classifier_dropout": null, "gradient_checkpointing": false, "is_decoder": false, "add_cross_attention": false,
        "pruned_heads": {}, "rope_parameters": null, "tie_word_embeddings": true, "id2label": { "0": "LABEL_0" },
        "pad_token_id": 0, "hidden_dropout_prob": 0.5, "chunk_size_feed_forward": 0, "auto_map": null,
    });
    assert_eq!(parse_config(&with(harmless)), parse_config(&Random::default().config()));
}

#[test]
fn values_that_would_change_the_result_are_refused_by_name() {
    let cases = [
        ("hidden_act", json!("quick_gelu"), "\"gelu\""),
        ("hidden_act", json!("mish"), "\"silu\""),
        ("position_embedding_type", json!("relative_key"), "\"absolute\""),
        ("position_embedding_type", json!("relative_key_query"), "\"absolute\""),
        ("position_embedding_type", json!("rotary"), "\"absolute\""),
        ("is_decoder", json!(true), "false"),
        ("add_cross_attention", json!(true), "false"),
        ("is_encoder_decoder", json!(true), "false"),
        ("pruned_heads", json!({ "0": [1] }), "none"),
        ("rope_scaling", json!({ "type": "linear" }), "absent"),
        ("quantization_config", json!({ "quant_method": "gptq" }), "absent"),
        ("embedding_size", json!(32), "hidden_size"),
    ];
    for (key, value, allowed) in cases {
        let mut changes = json!({});
        changes[key] = value.clone();
        let error = parse_config(&with(changes)).unwrap_err();
        assert!(
            matches!(error, ConfigError::Unsupported { key: named, .. } if named == key),
            "{key} = {value}: {error:?}"
        );
        let message = error.to_string();
        for part in [key, &value.to_string(), allowed] {
            assert!(message.contains(part), "{key} = {value}: {message:?} does not say {part:?}");
        }
    }
    let custom = with(json!({ "auto_map": { "AutoModel": "someone/code--modeling.MyModel" } }));
    let message = parse_config(&custom).unwrap_err().to_string();
    assert!(message.contains("auto_map.AutoModel") && message.contains("MyModel"), "{message}");
}

/// What each family's class computes differently, or not at all, is not loaded as if it were not there.
#[test]
fn values_that_would_change_a_family_s_result_are_refused_by_name() {
    let (yes, no) = (json!(true), json!(false));
    let scaled = json!({ "rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0 });
    let cases = [
        ("distilbert", "activation", json!("quick_gelu"), "\"gelu\""),
        ("distilbert", "pruned_heads", json!({ "0": [1] }), "none"),
        ("gemma3", "use_bidirectional_attention", no.clone(), "true"),
        ("gemma3", "attention_bias", yes.clone(), "false"),
        ("gemma3", "attn_logit_softcapping", json!(50.0), "null"),
        ("gemma3", "rope_scaling", scaled.clone(), "absent"),
        ("gte-native", "rope_parameters", scaled.clone(), "\"default\""),
        ("gte-new", "rope_scaling", json!({ "type": "linear", "factor": 2.0 }), "\"ntk\""),
        ("gte-new", "rope_scaling", json!({ "type": "ntk", "factor": 2.0, "mixed_b": 0.5 }), "without mixed_b"),
        ("gte-new", "position_embedding_type", json!("absolute"), "\"rope\""),
        ("gte-new", "logn_attention_scale", yes.clone(), "false"),
        ("gte-new", "layer_norm_type", json!("rms_norm"), "\"layer_norm\""),
        ("jina-bert", "position_embedding_type", json!("absolute"), "\"alibi\""),
        ("jina-bert", "feed_forward_type", json!("original"), "\"geglu\""),
        ("modern-bert", "rope_scaling", scaled.clone(), "absent"),
        // transformers computes with 32 whatever the file says, and would read past a smaller table.
        ("mpnet", "relative_attention_num_buckets", json!(16), "32"),
        ("mpnet", "relative_attention_num_buckets", json!(64), "32"),
        ("nomic-bert", "prenorm", yes.clone(), "false"),
        ("nomic-bert", "rotary_emb_interleaved", yes.clone(), "false"),
        ("nomic-bert", "rotary_emb_fraction", json!(0.5), "1.0"),
        ("nomic-bert", "activation_function", json!("gelu"), "\"swiglu\""),
        ("nomic-bert", "num_experts", json!(8), "0"),
        ("nomic-bert-native", "rope_parameters", scaled.clone(), "\"default\""),
        ("nomic-bert-native", "head_dim", json!(16), "hidden_size / num_attention_heads"),
        ("qwen3", "attention_bias", yes.clone(), "false"),
        ("qwen3", "hidden_act", json!("gelu"), "\"silu\""),
        ("qwen3", "use_sliding_window", yes.clone(), "false"),
        ("qwen3", "rope_scaling", scaled.clone(), "absent"),
        ("qwen3", "is_causal", no, "true"),
        ("roberta", "position_embedding_type", json!("relative_key"), "\"absolute\""),
        ("xlm-roberta-flash-rotary", "lora_adaptations", json!(["retrieval"]), "absent"),
        ("xlm-roberta-flash-rotary", "rotary_emb_interleaved", yes, "false"),
        ("xlm-roberta-flash-absolute", "position_embedding_type", json!("alibi"), "\"rotary\""),
    ];
    let mut failures = Vec::new();
    for (name, key, value, allowed) in cases {
        let mut config = read_json(&odd(name).join("config.json"));
        config[key] = value.clone();
        match parse_config(&config) {
            Err(error @ ConfigError::Unsupported { .. }) if says(&error, &[key, &value.to_string(), allowed]) => {}
            other => failures.push(format!("{name}, {key} = {value}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn says(error: &ConfigError, parts: &[&str]) -> bool {
    let message = error.to_string();
    parts.iter().all(|part| message.contains(part))
}

#[test]
fn malformed_values_are_refused_by_name() {
    let cases = [
        ("hidden_size", json!(0)),
        ("hidden_size", json!(-4)),
        ("hidden_size", json!("64")),
        ("hidden_size", json!(64.5)),
        ("num_attention_heads", json!(5)),
        ("num_attention_heads", json!(0)),
        ("num_hidden_layers", json!(0)),
        ("type_vocab_size", json!(0)),
        ("layer_norm_eps", json!("tiny")),
        ("layer_norm_eps", json!(-1e-12)),
        ("layer_norm_eps", json!(1e300)),
        ("hidden_act", json!(["gelu"])),
        ("model_type", json!(7)),
    ];
    for (key, value) in cases {
        let mut changes = json!({});
        changes[key] = value.clone();
        let error = parse_config(&with(changes)).unwrap_err();
        assert!(matches!(error, ConfigError::Invalid { key: named, .. } if named == key), "{key} = {value}: {error:?}");
        assert!(error.to_string().contains(&value.to_string()), "{error}");
    }
    let sizes = [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    ];
    for key in sizes {
        let error = parse_config(&without(key)).unwrap_err();
        assert!(matches!(error, ConfigError::Missing { key: named, .. } if named == key), "{key}: {error:?}");
    }
    for (json, found) in [(json!([]), "an array"), (json!(null), "null"), (json!("bert"), "a string")] {
        assert_eq!(parse_config(&json).unwrap_err(), ConfigError::NotAnObject { found });
    }
}

#[test]
fn unknown_families_are_refused_with_the_list_of_known_ones() {
    for name in ["electra", "llama", "Bert", ""] {
        let error = parse_config(&with(json!({ "model_type": name }))).unwrap_err();
        assert!(matches!(&error, ConfigError::UnknownModelType { value, .. } if value == name), "{error:?}");
        assert!(error.to_string().contains("supported: bert, distilbert"), "{error}");
    }
    let error = parse_config(&without("model_type")).unwrap_err();
    assert!(matches!(error, ConfigError::MissingModelType { .. }), "{error:?}");
    assert!(error.to_string().contains("supported: bert, distilbert"), "{error}");
}

#[test]
fn jina_bert_is_told_apart_from_bert() {
    let cases = [
        json!({ "position_embedding_type": "alibi" }),
        json!({ "architectures": ["JinaBertForMaskedLM"] }),
        json!({ "auto_map": { "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel" } }),
    ];
    for mut changes in cases {
        // Read as plain BERT each would load and be wrong: the key is asked for by JinaBert's parser alone.
        changes["position_embedding_type"] = json!("alibi");
        changes["feed_forward_type"] = json!("gelu");
        let error = parse_config(&with(changes.clone())).unwrap_err();
        assert!(error.to_string().contains("feed_forward_type"), "{changes}: {error}");
    }
}
