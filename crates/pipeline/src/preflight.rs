//! What a model's configuration alone can be refused for: looked at before its weights are downloaded.

use simile_encoder::{LoadError as EncoderError, parse_config};
use simile_hub::HubError;

use crate::error::LoadError;

/// Refuses the content of a `config.json` whose model would be refused for it once everything is here: an architecture
/// that is not supported, an option of it that is not. Tensors are taken to be as they should be.
///
/// # Errors
/// [`LoadError::Encoder`], as a load has it; [`LoadError::Hub`] for what is no JSON.
pub fn check_config(content: &[u8]) -> Result<(), LoadError> {
    let config: serde_json::Value = serde_json::from_slice(content)
        .map_err(|error| HubError::InvalidJson { path: "config.json".into(), message: error.to_string() })?;
    // A static model has no encoder. One without a type may be static too: its tensors tell, once they are here.
    if config["model_type"] == "model2vec" || (config.is_object() && config["model_type"].is_null()) {
        return Ok(());
    }
    // Where the shape of a layer is written in tensor names only, the first that is asked for is there.
    parse_config(&config, &|_| true).map_err(EncoderError::from)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_configurations_are_refused_for() {
        // (config, words of the refusal; none: taken)
        let cases: [(&str, &[&str]); 6] = [
            (r#"{"model_type": "model2vec"}"#, &[]),
            (r#"{"model_type": "llama"}"#, &["llama", "bert"]),
            ("{}", &[]),
            (r#"{"model_type": null, "normalize": true}"#, &[]),
            ("[]", &["object"]),
            ("<html>", &["config.json", "JSON"]),
        ];
        for (config, words) in cases {
            match check_config(config.as_bytes()).map_err(|error| error.to_string()) {
                Ok(()) => assert!(words.is_empty(), "{config} was taken"),
                Err(message) => {
                    assert!(
                        !words.is_empty() && words.iter().all(|word| message.contains(word)),
                        "{config}: {message}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_checkpoint_that_loads_is_let_through() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../__test__/fixtures/tiny");
        let configs: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().join("config.json"))
            .filter(|config| config.is_file())
            .collect();
        assert!(configs.len() >= 32, "{configs:?}");
        let refused: Vec<_> = configs
            .iter()
            .filter_map(|config| Some((config, check_config(&std::fs::read(config).unwrap()).err()?.to_string())))
            .collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}
