//! What a repository holds, and which of it a model needs.
//!
//! One request (`/api/models/<id>/revision/<revision>?blobs=true`) gives the commit and every file with its size and hash,
//! so that all that follows is of one commit, and is checked.

use serde::Deserialize;

use crate::HubError;
use crate::cache::is_commit;

/// A commit of a repository.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<RemoteFile>,
}

/// A file as the hub lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// Name relative to the repository.
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size: u64,
    /// What its content hashes to, which is its name in the cache.
    pub(crate) etag: Etag,
}

/// The hash of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Etag {
    /// SHA-256 of a file in large-file storage.
    Sha256(String),
    /// The id that git has for the file.
    Git(String),
}

impl Etag {
    /// 64 or 40 hexadecimal digits.
    pub(crate) fn name(&self) -> &str {
        let (Etag::Sha256(name) | Etag::Git(name)) = self;
        name
    }
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listing {
    /// Reads the hub's answer. The error is what is wrong with it.
    pub(crate) fn parse(body: &[u8]) -> Result<Listing, String> {
        let answer: Answer = serde_json::from_slice(body).map_err(|error| {
            let start = String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
            format!("it should be the JSON of a model ({error}) and begins '{}'", crate::error::shorten(start.trim()))
        })?;
        if !is_commit(&answer.sha) {
            return Err(format!("its commit is '{}'", crate::error::shorten(&answer.sha)));
        }
        let files = answer.siblings.into_iter().filter(|sibling| is_kept(&sibling.rfilename)).map(RemoteFile::try_from);
        Ok(Listing { commit: answer.sha, files: files.collect::<Result<_, _>>()? })
    }

    /// The files that a load reads, in the order in which they are fetched: what is small and may show that the rest is
    /// not worth fetching comes first, the weights that make a folder a model last.
    ///
    /// # Errors
    /// [`HubError::OnlyOtherFormats`], [`HubError::NotAModel`].
    pub(crate) fn model_files(&self, id: &str) -> Result<Vec<&RemoteFile>, HubError> {
        let places = self.places();
        let has = |name: &str| places.iter().any(|place| self.get(place, name).is_some());
        for missing in ["config.json", "tokenizer.json"] {
            if !has(missing) {
                return Err(HubError::NotAModel { id: id.to_owned(), commit: self.commit.clone(), missing });
            }
        }
        if !has(SINGLE) && !has(INDEX) {
            let others = |file: &&RemoteFile| OTHER_FORMATS.iter().any(|name| in_place(&file.name).1.starts_with(name));
            let found: Vec<_> = self.files.iter().filter(others).map(|file| file.name.clone()).collect();
            return Err(match found.is_empty() {
                true => HubError::NotAModel {
                    id: id.to_owned(),
                    commit: self.commit.clone(),
                    missing: "weights (model.safetensors)",
                },
                false => HubError::OnlyOtherFormats { id: id.to_owned(), found },
            });
        }
        let mut wanted: Vec<(u8, &RemoteFile)> = Vec::new();
        for file in &self.files {
            let (place, name) = in_place(&file.name);
            let main = places.contains(&place);
            let single = self.get(place, SINGLE).is_some();
            if SMALL.contains(&name) || (name.starts_with("sentence_") && name.ends_with("_config.json")) {
                wanted.push((0, file));
            } else if name == SINGLE || (name == INDEX && !single) {
                wanted.push((if main { 2 } else { 0 }, file));
            } else if is_shard(name) && !single {
                wanted.push((if main { 1 } else { 0 }, file));
            }
        }
        wanted.sort_by_key(|(rank, file)| (*rank, file.size));
        Ok(wanted.into_iter().map(|(_, file)| file).collect())
    }

    /// Where configuration and weights may be: the repository itself, and the folder of its first module as old versions
    /// of sentence-transformers wrote it (`0_Transformer/`).
    fn places(&self) -> Vec<&str> {
        let mut places = vec![""];
        for file in &self.files {
            let (place, _) = in_place(&file.name);
            if place.starts_with("0_") && !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    fn get(&self, place: &str, name: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| in_place(&file.name) == (place, name))
    }
}

impl TryFrom<Sibling> for RemoteFile {
    type Error = String;

    fn try_from(sibling: Sibling) -> Result<Self, String> {
        let Sibling { rfilename: name, size, blob_id, lfs } = sibling;
        let hexadecimal =
            |text: &str, digits| text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let (etag, size) = match (lfs, blob_id, size) {
            (Some(lfs), _, _) if hexadecimal(&lfs.sha256, 64) => (Etag::Sha256(lfs.sha256), lfs.size),
            (None, Some(id), Some(size)) if hexadecimal(&id, 40) => (Etag::Git(id), size),
            _ => return Err(format!("it lists '{name}' without size and hash")),
        };
        Ok(RemoteFile { name, size, etag })
    }
}

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Small files that the loader reads where they are there.
const SMALL: [&str; 6] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "config_sentence_transformers.json",
];

/// How the names of weights in other formats begin.
const OTHER_FORMATS: [&str; 6] =
    ["pytorch_model", "tf_model", "flax_model", "model.ckpt", "model.onnx", "openvino_model"];

/// The folder of a file, with its slash, and the name in it.
fn in_place(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('/').map_or(0, |slash| slash + 1))
}

/// Whether a file is in the repository itself, in the folder of a module (`1_Pooling/`), or shows which formats there are.
fn is_kept(name: &str) -> bool {
    let (place, file) = in_place(name);
    let module = place.split_once('_').is_some_and(|(number, rest)| {
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && rest.matches('/').count() == 1
    });
    let sound = crate::check_relative_name(name).is_ok();
    sound && (place.is_empty() || module || OTHER_FORMATS.iter().any(|start| file.starts_with(start)))
}

/// `model-00001-of-00002.safetensors`.
fn is_shard(name: &str) -> bool {
    name.starts_with("model-") && name.ends_with(".safetensors") && name.contains("-of-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn listing(names: &[&str]) -> Listing {
        let siblings: Vec<_> = names
            .iter()
            .map(|name| match name.ends_with(".safetensors") || name.ends_with(".bin") {
                true => json!({"rfilename": name, "size": 9000, "blobId": COMMIT, "lfs": {"sha256": "ab".repeat(32), "size": 9000, "pointerSize": 134}}),
                false => json!({"rfilename": name, "size": name.len(), "blobId": COMMIT}),
            })
            .collect();
        Listing::parse(json!({"sha": COMMIT, "siblings": siblings, "private": false}).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn which_files() {
        const REST: [&str; 12] = [
            ".gitattributes",
            "README.md",
            "onnx/model.onnx",
            "openvino/openvino_model.bin",
            "pytorch_model.bin",
            "tf_model.h5",
            "rust_model.ot",
            "train_script.py",
            "vocab.txt",
            "data_config.json",
            "1_Pooling/deeper/config.json",
            "../config.json",
        ];
        let cases: &[(&[&str], &[&str])] = &[
            (
                &["modules.json", "config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"],
                &["config.json", "modules.json", "tokenizer.json", "1_Pooling/config.json", "model.safetensors"],
            ),
            (
                &[
                    "model.safetensors",
                    "model.safetensors.index.json",
                    "model-00001-of-00002.safetensors",
                    "config.json",
                    "tokenizer.json",
                ],
                &["config.json", "tokenizer.json", "model.safetensors"],
            ),
            (
                &["model.safetensors.index.json", "model-00001-of-00001.safetensors", "config.json", "tokenizer.json"],
                &["config.json", "tokenizer.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json"],
            ),
            (
                &[
                    "0_Transformer/model.safetensors",
                    "0_Transformer/config.json",
                    "0_Transformer/tokenizer.json",
                    "modules.json",
                    "2_Dense/model.safetensors",
                    "2_Dense/config.json",
                    "sentence_bert_config.json",
                ],
                &[
                    "modules.json",
                    "2_Dense/config.json",
                    "0_Transformer/config.json",
                    "sentence_bert_config.json",
                    "0_Transformer/tokenizer.json",
                    "2_Dense/model.safetensors",
                    "0_Transformer/model.safetensors",
                ],
            ),
        ];
        for (names, want) in cases {
            let all: Vec<&str> = names.iter().chain(&REST).copied().collect();
            let listing = listing(&all);
            let got: Vec<_> = listing.model_files("a/b").unwrap().iter().map(|file| file.name.as_str()).collect();
            assert_eq!(got, *want);
        }
    }

    #[test]
    fn what_is_no_model() {
        let cases: &[(&[&str], &str)] = &[
            (
                &["config.json", "tokenizer.json", "pytorch_model.bin", "onnx/model.onnx"],
                "only pytorch_model.bin, onnx/model.onnx",
            ),
            (
                &["config.json", "tokenizer.json", "pytorch_model-00001-of-00002.bin"],
                "only pytorch_model-00001-of-00002.bin",
            ),
            (&["config.json", "tokenizer.json"], "no weights (model.safetensors)"),
            (&["config.json", "model.safetensors"], "no tokenizer.json"),
            (&["README.md"], "no config.json"),
        ];
        for (names, want) in cases {
            let error = listing(names).model_files("a/b").unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("'a/b'"), "{names:?}: {error}");
        }
    }

    #[test]
    fn answers_that_are_no_listing() {
        let file = |file: serde_json::Value| json!({"sha": COMMIT, "siblings": [file]}).to_string();
        let cases = [
            ("<html><body>Log in</body></html>".to_owned(), "begins '<html><body>Log in"),
            (String::new(), "begins ''"),
            (r#"{"error": "x"}"#.to_owned(), "missing field"),
            (json!({"sha": "main", "siblings": []}).to_string(), "its commit is 'main'"),
            (file(json!({"rfilename": "config.json"})), "'config.json' without size and hash"),
            (
                file(json!({"rfilename": "config.json", "size": 3, "blobId": "../../etc/passwd"})),
                "without size and hash",
            ),
            (file(json!({"rfilename": "a.safetensors", "size": 3, "lfs": {"sha256": "x", "size": 3}})), "without size"),
        ];
        for (body, want) in cases {
            let error = Listing::parse(body.as_bytes()).unwrap_err();
            assert!(error.contains(want), "{body}: {error}");
        }
    }
}
