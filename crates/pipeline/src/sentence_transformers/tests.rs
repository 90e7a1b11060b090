//! Layouts of all versions, and what is refused.

use std::fs;

use serde_json::{Value, json};
use simile_hub::{HubError, Source};
use simile_kernels::Activation;

use super::*;
use crate::dense::DenseConfig;
use crate::static_files::UNLIMITED;

/// A model folder with just these files.
fn folder(files: &[(&str, Value)]) -> (tempfile::TempDir, ModelFiles) {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.to_string()).unwrap();
    }
    let files = ModelFiles { id: "m".into(), revision: None, folder: dir.path().to_path_buf(), source: Source::Folder };
    (dir, files)
}

fn read(files: &[(&str, Value)]) -> Result<Files, LoadError> {
    let (_dir, files) = folder(files);
    super::read(&files)
}

fn modules(list: &[(&str, &str)]) -> Value {
    list.iter()
        .enumerate()
        .map(|(i, (path, class))| json!({"idx": i, "name": i.to_string(), "path": path, "type": class}))
        .collect()
}

fn old(list: &[(&str, &str)]) -> Value {
    let classes: Vec<(&str, String)> =
        list.iter().map(|(path, class)| (*path, format!("sentence_transformers.models.{class}"))).collect();
    modules(&classes.iter().map(|(path, class)| (*path, class.as_str())).collect::<Vec<_>>())
}

const SHORT: [(&str, &str); 2] = [("", "Transformer"), ("1_Pooling", "Pooling")];

#[test]
fn nothing_there_says_nothing() {
    let files = read(&[]).unwrap();
    assert!(files.pooling.is_none() && files.static_model.is_none() && files.normalize.is_none() && !files.lowercase);
    assert_eq!((files.limit, files.truncation_side, files.query_prompt), (Limit::default(), None, None));
}

#[test]
fn old_and_new_class_paths() {
    let paths = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")];
    let new = modules(&[
        ("", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1_Pooling", "sentence_transformers.sentence_transformer.modules.pooling.Pooling"),
        ("2_Dense", "sentence_transformers.base.modules.dense.Dense"),
        ("3_Normalize", "sentence_transformers.base.modules.normalize.Normalize"),
    ]);
    let pooling = json!({"pooling_mode": "cls", "embedding_dimension": 8});
    let dense = json!({"in_features": 8, "out_features": 4});
    for list in [old(&paths), new] {
        let files = read(&[
            (MODULES, list),
            ("1_Pooling/config.json", pooling.clone()),
            ("2_Dense/config.json", dense.clone()),
        ])
        .unwrap();
        assert_eq!(files.pooling.unwrap().modes, [Pooling::Cls]);
        assert_eq!(files.normalize, Some(true));
        let want = DenseConfig {
            folder: "2_Dense/".into(),
            inputs: 8,
            outputs: 4,
            bias: true,
            activation: Some(Activation::Tanh),
        };
        assert_eq!(files.vector_modules, [VectorModuleConfig::Dense(want)]);
    }
}

#[test]
fn a_transformer_in_a_subfolder_brings_its_files() {
    let list = old(&[("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")]);
    let files = read(&[
        (MODULES, list),
        ("1_Pooling/config.json", json!({"pooling_mode": "mean"})),
        ("0_Transformer/sentence_bert_config.json", json!({"max_seq_length": 75, "do_lower_case": true})),
        ("0_Transformer/tokenizer_config.json", json!({"model_max_length": 512})),
        ("sentence_bert_config.json", json!({"max_seq_length": 1})),
    ])
    .unwrap();
    assert_eq!((files.transformer.as_str(), files.lowercase), ("0_Transformer/", true));
    assert_eq!(files.limit, Limit { stated: Some(75), tokenizer: Some(512) });
}

#[test]
fn modules_that_are_refused() {
    let cases: Vec<(Value, &str)> = vec![
        (old(&[("", "Transformer"), ("1_CNN", "CNN")]), "models.CNN"),
        (old(&[("", "WordEmbeddings"), ("1_Pooling", "Pooling")]), "models.WordEmbeddings"),
        (old(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2_LSTM", "LSTM")]), "models.LSTM"),
        (
            old(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"), ("3", "LayerNorm")]),
            "models.Normalize",
        ),
        (old(&[("", "Asym")]), "models.Asym"),
        (old(&[("", "Router"), ("1_Normalize", "Normalize")]), "models.Router"),
        (old(&[("0_StaticEmbedding", "StaticEmbedding"), ("1_Pooling", "Pooling")]), "models.Pooling"),
        (
            old(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"), ("3_Dense", "Dense")]),
            "models.Normalize",
        ),
        (old(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2", "Pooling")]), "models.Pooling"),
        // The repository's own code, although it ends in a known name.
        (
            modules(&[("", "custom_st.Transformer"), ("1_Pooling", "sentence_transformers.models.Pooling")]),
            "custom_st.Transformer",
        ),
        (modules(&[("", "sentence_transformers.sparse_encoder.models.MLMTransformer")]), "MLMTransformer"),
    ];
    let mut wrong = Vec::new();
    for (list, class) in cases {
        let error = read(&[(MODULES, list), ("1_Pooling/config.json", json!({"pooling_mode": "mean"}))]).unwrap_err();
        if !matches!(&error, LoadError::UnsupportedModule { module, .. } if module.ends_with(class))
            || !error.to_string().contains(class)
        {
            wrong.push((class, error.to_string()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for list in
        [json!({}), json!([]), old(&[("", "Transformer")]), json!([{"type": 1, "path": ""}]), json!([{"path": ""}])]
    {
        let error = read(&[(MODULES, list.clone())]).unwrap_err();
        assert!(matches!(error, LoadError::Malformed { .. }), "{list}: {error}");
    }
    for path in ["../other", "/etc", "a/../../b"] {
        let error = read(&[(MODULES, old(&[(path, "Transformer"), ("1_Pooling", "Pooling")]))]).unwrap_err();
        assert!(matches!(error, LoadError::Hub(HubError::InvalidName { .. })), "{path}: {error}");
    }
}

#[test]
fn pooling_layouts() {
    use Pooling::{Cls, LastToken, Max, Mean, MeanSqrtLen, WeightedMean};
    let flags = |on: &[&str]| {
        let mut value = json!({"word_embedding_dimension": 8});
        for (key, _) in POOLING_FLAGS {
            value[key] = json!(on.contains(&key));
        }
        value
    };
    let good: Vec<(Value, Vec<Pooling>)> = vec![
        (json!({"pooling_mode": "lasttoken"}), vec![LastToken]),
        (json!({"pooling_mode": ["weightedmean", "mean_sqrt_len_tokens"]}), vec![WeightedMean, MeanSqrtLen]),
        (flags(&["pooling_mode_mean_tokens"]), vec![Mean]),
        // The order of the module, not of the file.
        (
            flags(&["pooling_mode_mean_tokens", "pooling_mode_max_tokens", "pooling_mode_cls_token"]),
            vec![Cls, Max, Mean],
        ),
        (flags(&[]), vec![Mean]),
        // As the oldest files are: four flags.
        (json!({"pooling_mode_cls_token": false, "pooling_mode_max_tokens": true}), vec![Max]),
        // The new key wins.
        (json!({"pooling_mode": "cls", "pooling_mode_mean_tokens": true}), vec![Cls]),
        (json!({"pooling_mode_mean_tokens": true, "pooling_mode_new_kind": false}), vec![Mean]),
    ];
    let pooling = |config: &Value| {
        read(&[(MODULES, old(&SHORT)), ("1_Pooling/config.json", config.clone())]).map(|files| files.pooling.unwrap())
    };
    let wrong: Vec<_> = good
        .iter()
        .map(|(config, want)| (config, pooling(config), want))
        .filter(|(_, got, want)| !matches!(got, Ok(got) if got.modes == **want))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");

    let bad = [
        (json!({"pooling_mode": "attention"}), "\"attention\""),
        (json!({"pooling_mode": ["mean", 3]}), "3"),
        (json!({"pooling_mode": []}), "[]"),
        (json!({"pooling_mode_mean_tokens": true, "pooling_mode_new_kind": true}), "pooling_mode_new_kind"),
        (json!({"pooling_mode_mean_tokens": "yes"}), "\"yes\""),
        (json!({"word_embedding_dimension": 8}), "pooling_mode"),
        (json!({"pooling_mode": "mean", "include_prompt": 1}), "include_prompt"),
    ];
    for (config, part) in bad {
        let error = pooling(&config).unwrap_err();
        let known = matches!(error, LoadError::UnsupportedValue { .. } | LoadError::Malformed { .. });
        assert!(
            known && error.to_string().contains(part) && error.to_string().contains("1_Pooling/config.json"),
            "{config}: {error}"
        );
    }
    let file = pooling(&json!({"pooling_mode": "mean", "embedding_dimension": 8, "include_prompt": false})).unwrap();
    assert_eq!((file.width, file.include_prompt), (Some(8), false));
}

#[test]
fn a_listed_pooling_without_its_file_is_an_error() {
    let error = read(&[(MODULES, old(&SHORT))]).unwrap_err();
    assert!(matches!(&error, LoadError::MissingFile { name, .. } if name == "1_Pooling/config.json"), "{error}");
}

#[test]
fn pooling_is_read_without_a_list_of_modules() {
    let files = read(&[("1_Pooling/config.json", json!({"pooling_mode": "cls"}))]).unwrap();
    assert_eq!((files.normalize, files.pooling.unwrap().modes), (None, vec![Pooling::Cls]));
}

#[test]
fn limits() {
    let huge = json!({"model_max_length": 1000000000000000019884624838656f64});
    let tokenizer = |length: usize| json!({"model_max_length": length});
    let six = json!({"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"});
    let cases: Vec<(Option<Value>, Option<Value>, Limit)> = vec![
        (Some(json!({"max_seq_length": 256})), Some(tokenizer(512)), Limit { stated: Some(256), tokenizer: Some(512) }),
        (
            Some(json!({"max_seq_length": null})),
            Some(tokenizer(512)),
            Limit { stated: Some(512), tokenizer: Some(512) },
        ),
        // Version 6 keeps the limit in the tokenizer's file.
        (Some(six.clone()), Some(tokenizer(64)), Limit { stated: Some(64), tokenizer: Some(64) }),
        (Some(six), Some(huge.clone()), Limit { stated: None, tokenizer: None }),
        (None, Some(tokenizer(128)), Limit { stated: None, tokenizer: Some(128) }),
        (None, Some(huge), Limit { stated: None, tokenizer: None }),
    ];
    for (transformer, tokenizer, want) in cases {
        let named = [("sentence_bert_config.json", transformer), ("tokenizer_config.json", tokenizer)];
        let files: Vec<_> = named.into_iter().filter_map(|(name, content)| Some((name, content?))).collect();
        assert_eq!(read(&files).unwrap().limit, want, "{files:?}");
    }
    let files = read(&[("sentence_roberta_config.json", json!({"max_seq_length": 75}))]).unwrap();
    assert_eq!(files.limit.stated, Some(75));
}

#[test]
fn the_transformer_s_and_the_tokenizer_s_options() {
    let side = |side: &str| {
        read(&[("tokenizer_config.json", json!({"truncation_side": side}))]).map(|files| files.truncation_side)
    };
    assert_eq!(side("right").unwrap(), Some(Truncate::End));
    assert_eq!(side("left").unwrap(), Some(Truncate::Start));
    let harmless = json!({"model_args": {"torch_dtype": "float16"}, "config_args": {"trust_remote_code": true}, "tokenizer_args": {}});
    assert!(read(&[("sentence_bert_config.json", harmless)]).is_ok());
    let bad = [
        ("tokenizer_config.json", json!({"truncation_side": "middle"}), "middle"),
        ("tokenizer_config.json", json!({"model_max_length": "long"}), "long"),
        ("sentence_bert_config.json", json!({"max_seq_length": 0}), "max_seq_length"),
        ("sentence_bert_config.json", json!({"do_lower_case": "no"}), "do_lower_case"),
        ("sentence_bert_config.json", json!({"transformer_task": "fill-mask"}), "fill-mask"),
        ("sentence_bert_config.json", json!({"module_output_name": "pooler_output"}), "pooler_output"),
        ("sentence_bert_config.json", json!({"tokenizer_args": {"truncation_side": "left"}}), "truncation_side"),
        ("sentence_bert_config.json", json!({"config_args": {"hidden_act": "relu"}}), "hidden_act"),
        ("sentence_bert_config.json", json!({"query_length": 32}), "query_length"),
        (PROMPTS, json!({"model_type": "SparseEncoder"}), "SparseEncoder"),
        (PROMPTS, json!({"model_type": "CrossEncoder"}), "CrossEncoder"),
        (PROMPTS, json!({"prompts": "query: "}), "prompts"),
        (PROMPTS, json!({"prompts": {"query": 1}}), "query"),
    ];
    for (file, content, part) in bad {
        let error = read(&[(file, content)]).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(file), "{error}");
    }
}

#[test]
fn a_file_that_holds_no_object_is_malformed() {
    let names = [
        PROMPTS,
        "sentence_bert_config.json",
        "tokenizer_config.json",
        "config.json",
        MODULES,
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "3_Normalize/config.json",
    ];
    let paths = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")];
    for name in names {
        for content in [json!([]), json!([{"do_lower_case": true}]), json!("text"), json!(1), json!(null)] {
            // An empty list of modules is a list, and said to be too short.
            let good = [
                (MODULES, old(&paths)),
                ("1_Pooling/config.json", json!({"pooling_mode": "mean"})),
                ("2_Dense/config.json", json!({"in_features": 8, "out_features": 4})),
            ];
            let mut list: Vec<_> = good.into_iter().filter(|(good, _)| *good != name).collect();
            list.push((name, content.clone()));
            let error = read(&list).unwrap_err();
            assert!(matches!(&error, LoadError::Malformed { file, .. } if file == name), "{name} {content}: {error}");
        }
    }
}

#[test]
fn prompts() {
    let read = |prompts: Value| {
        let files = read(&[(PROMPTS, json!({"prompts": prompts, "default_prompt_name": "query"}))]).unwrap();
        (files.query_prompt, files.passage_prompt)
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(read(json!({})), (None, None));
    assert_eq!(read(json!({"query": "", "document": ""})), (None, None));
    assert_eq!(read(json!({"query": "q: ", "passage": "p: ", "s2p_query": "x"})), (some("q: "), some("p: ")));
    assert_eq!(read(json!({"document": "", "passage": "p: ", "corpus": "c: "})), (None, some("p: ")));
    assert_eq!(read(json!({"document": "d: ", "passage": "p: "})), (None, some("d: ")));
}

#[test]
fn dense_and_normalize_options_that_change_a_vector() {
    let with = |name: &str, config: Value| {
        let list =
            old(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]);
        let mut files = vec![(MODULES, list), ("1_Pooling/config.json", json!({"pooling_mode": "mean"}))];
        if name != "2_Dense/config.json" {
            files.push(("2_Dense/config.json", json!({"in_features": 8, "out_features": 4})));
        }
        files.push((name, config));
        read(&files).map(|files| match files.vector_modules.into_iter().next() {
            Some(VectorModuleConfig::Dense(dense)) => dense,
            other => panic!("{other:?}"),
        })
    };
    let dense = |key: &str, value: Value| {
        let mut config = json!({"in_features": 8, "out_features": 4});
        config[key] = value;
        with("2_Dense/config.json", config)
    };
    for (path, want) in [
        ("torch.nn.modules.activation.Tanh", Some(Activation::Tanh)),
        ("torch.nn.modules.linear.Identity", None),
        ("torch.nn.Identity", None),
        ("torch.nn.modules.activation.ReLU", Some(Activation::Relu)),
        ("torch.nn.modules.activation.GELU", Some(Activation::Gelu)),
        ("torch.nn.modules.activation.SiLU", Some(Activation::Silu)),
    ] {
        assert_eq!(dense("activation_function", json!(path)).unwrap().activation, want, "{path}");
    }
    assert!(!dense("bias", json!(false)).unwrap().bias);
    let bad = [
        ("activation_function", json!("torch.nn.modules.activation.Softmax"), "Softmax"),
        ("activation_function", json!("my_code.Tanh"), "my_code.Tanh"),
        ("use_residual", json!(true), "use_residual"),
        ("module_input_name", json!("token_embeddings"), "token_embeddings"),
        ("module_output_name", json!("other"), "other"),
        ("in_features", json!(null), "in_features"),
        ("out_features", json!(0), "out_features"),
    ];
    for (key, value, part) in bad {
        let error = dense(key, value).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("2_Dense/config.json"), "{error}");
    }
    let error = with("3_Normalize/config.json", json!({"module_input_name": "token_embeddings"})).unwrap_err();
    assert!(error.to_string().contains("3_Normalize/config.json"), "{error}");
}

#[test]
fn modules_of_other_kinds_of_models_name_the_class_that_loads_them() {
    let of = |files: &[(&str, Value)]| {
        let (_dir, files) = folder(files);
        crate::ModelKind::Dense.check(&files)
    };
    let module = |class: &str| of(&[(MODULES, modules(&[("", &format!("sentence_transformers.x.{class}"))]))]);
    for (error, class) in [
        (module("MLMTransformer"), "SparseTextEmbedding"),
        (module("SpladePooling"), "SparseTextEmbedding"),
        (module("LogitScore"), "TextCrossEncoder"),
        (of(&[(PROMPTS, json!({"model_type": "CrossEncoder"}))]), "TextCrossEncoder"),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("{class} loads")), "{error}");
    }
}

#[test]
fn dense_and_layer_norm_in_any_order() {
    let list = old(&[
        ("", "Transformer"),
        ("1_Pooling", "Pooling"),
        ("2_Dense", "Dense"),
        ("3_LayerNorm", "LayerNorm"),
        ("4_Dropout", "Dropout"),
        ("5_Dense", "Dense"),
    ]);
    let dense = json!({"in_features": 8, "out_features": 8});
    let all = [
        (MODULES, list),
        ("1_Pooling/config.json", json!({"pooling_mode": "mean"})),
        ("2_Dense/config.json", dense.clone()),
        ("3_LayerNorm/config.json", json!({"dimension": 8})),
        ("5_Dense/config.json", dense),
    ];
    let files = read(&all).unwrap();
    let folders: Vec<_> = files.vector_modules.iter().map(VectorModuleConfig::folder).collect();
    assert_eq!((folders, files.normalize), (vec!["2_Dense/", "3_LayerNorm/", "5_Dense/"], Some(false)));
    for dimension in [json!(null), json!(0), json!("8")] {
        let mut all = all.clone();
        all[3].1 = json!({ "dimension": dimension });
        let error = read(&all).unwrap_err().to_string();
        assert!(error.contains("3_LayerNorm/config.json: dimension"), "{error}");
    }
}

#[test]
fn static_models_by_either_library() {
    let list = |normalize: bool| match normalize {
        true => old(&[(".", "StaticEmbedding"), ("1_Normalize", "Normalize")]),
        false => old(&[("0_StaticEmbedding", "StaticEmbedding")]),
    };
    let model2vec = json!({"model_type": "model2vec", "normalize": true});
    // Files; is model2vec's, limit, normalise.
    type Case<'a> = (Vec<(&'a str, Value)>, (bool, usize, Option<bool>));
    let cases: Vec<Case<'_>> = vec![
        (vec![(MODULES, list(true)), ("config.json", model2vec.clone())], (true, 512, Some(true))),
        (vec![("config.json", model2vec)], (true, 512, Some(true))),
        (vec![("config.json", json!({"model_type": "model2vec", "max_length": 64}))], (true, 64, Some(false))),
        (vec![("config.json", json!({"model_type": "model2vec", "max_length": null}))], (true, UNLIMITED, Some(false))),
        (vec![(MODULES, list(false))], (false, UNLIMITED, Some(false))),
        (vec![(MODULES, list(true)), ("config.json", json!({"model_type": "other"}))], (false, UNLIMITED, Some(true))),
    ];
    for (files, want) in cases {
        let got = read(&files).unwrap();
        let is = got.static_model.as_ref().map(|files| (files.model2vec, files.max_length, got.normalize));
        assert_eq!(is, Some(want), "{files:?}");
        assert_eq!((got.limit.stated, got.pooling.unwrap().modes), (Some(want.1), vec![Pooling::Mean]));
    }
    for (key, value) in [("max_length", json!(0)), ("normalize", json!("yes")), ("model_type", json!(1))] {
        let mut config = json!({"model_type": "model2vec"});
        config[key] = value;
        let error = read(&[(MODULES, list(true)), ("config.json", config)]).unwrap_err().to_string();
        assert!(error.contains(&format!("config.json: {key}")), "{error}");
    }
}

#[test]
fn dimensions_that_files_name() {
    let of = |files: &[(&str, Value)]| read(files).map(|files| files.matryoshka);
    assert_eq!(of(&[("config.json", json!({"matryoshka_dimensions": [8, 16]}))]).unwrap(), [8, 16]);
    assert_eq!(of(&[(PROMPTS, json!({"truncate_dim": 16}))]).unwrap(), [16]);
    assert!(of(&[(PROMPTS, json!({"truncate_dim": null}))]).unwrap().is_empty());
    for (file, content) in [
        ("config.json", json!({"matryoshka_dimensions": [8, 0]})),
        ("config.json", json!({"matryoshka_dimensions": 8})),
        (PROMPTS, json!({"truncate_dim": -1})),
    ] {
        let error = of(&[(file, content)]).unwrap_err().to_string();
        assert!(error.contains(file) && error.contains("at least 1"), "{error}");
    }
}
