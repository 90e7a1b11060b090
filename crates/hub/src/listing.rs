//! What a repository holds, and which of it a model needs.
//!
//! One request (`/api/models/<id>/revision/<revision>?blobs=true`) gives the commit and every file with its size and hash,
//! so that all that follows is of one commit, and is checked. Which shards there are is said by the index of the weights
//! and not by their names, so that has to be fetched before the rest is known ([`Listing::index`]).

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use crate::cache::is_commit;
use crate::{HubError, formats};

/// The most files that a repository may have: no model has more than some thousands.
const MAX_FILES: usize = 100_000;
/// The longest name of a file or folder on the file systems of all platforms, in bytes.
const MAX_PART: usize = 255;

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

/// The index of weights in several files: in which file each tensor is.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
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
        if answer.siblings.len() > MAX_FILES {
            return Err(format!("it lists {} files, which is more than {MAX_FILES}", answer.siblings.len()));
        }
        let files = answer.siblings.into_iter().filter(|sibling| is_kept(&sibling.rfilename)).map(RemoteFile::try_from);
        Ok(Listing { commit: answer.sha, files: files.collect::<Result<_, _>>()? })
    }

    /// The index of the weights, where they are in several files: what [`Listing::model_files`] needs the content of.
    ///
    /// # Errors
    /// [`HubError::OnlyOtherFormats`], [`HubError::NotAModel`].
    pub(crate) fn index(&self, id: &str) -> Result<Vec<&RemoteFile>, HubError> {
        let has = |wanted: &str| {
            self.files
                .iter()
                .any(|file| matches!(in_place(&file.name), (place, name) if name == wanted && is_main(place)))
        };
        for missing in ["config.json", "tokenizer.json"] {
            // A static model has no configuration but the list of its modules; one whose rows are pooled is no such model.
            let pooled = || self.files.iter().any(|file| file.name.ends_with("_Pooling/config.json"));
            let listed = missing == "config.json" && has("modules.json") && !pooled();
            if !has(missing) && !listed {
                return Err(HubError::NotAModel { id: id.to_owned(), commit: self.commit.clone(), missing });
            }
        }
        if formats::loaded(has).is_none() {
            let others =
                |file: &&RemoteFile| formats::OTHER_STARTS.iter().any(|name| in_place(&file.name).1.starts_with(name));
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
        let loaded = self.loaded();
        let is_index = |file: &&RemoteFile| {
            let (place, name) = in_place(&file.name);
            formats::READ.iter().any(|[_, index]| *index == name) && loaded.get(place) == Some(&name)
        };
        Ok(self.files.iter().filter(is_index).collect())
    }

    /// The weights that are loaded from each folder.
    fn loaded(&self) -> HashMap<&str, &'static str> {
        let names: HashSet<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
        let places: HashSet<&str> = self.files.iter().map(|file| in_place(&file.name).0).collect();
        let of = |place| Some((place, formats::loaded(|name| names.contains(format!("{place}{name}").as_str()))?));
        places.into_iter().filter_map(of).collect()
    }

    /// The configuration that lies beside the weights. (Old versions of sentence-transformers wrote another `config.json` into
    /// the repository itself when the model was in a folder.)
    pub(crate) fn config(&self) -> Option<&RemoteFile> {
        let loaded = self.loaded();
        let wanted =
            |(place, name): (&str, &str)| name == "config.json" && is_main(place) && loaded.contains_key(place);
        self.files.iter().find(|file| wanted(in_place(&file.name)))
    }

    /// The files that a load reads, in the order in which they are fetched: what is small and may show that the rest is
    /// not worth fetching comes first, the weights that make a folder a model last. `indices` are those of
    /// [`Listing::index`] with their contents; one that is none is for the loader to refuse.
    pub(crate) fn model_files(&self, indices: &[(&RemoteFile, Vec<u8>)]) -> Vec<&RemoteFile> {
        let mut ranks: HashMap<String, u8> = HashMap::new();
        for (index, content) in indices {
            let (place, _) = in_place(&index.name);
            // In a module's folder the index makes nothing a model.
            ranks.insert(index.name.clone(), if is_main(place) { 2 } else { 0 });
            let Ok(Index { weight_map }) = serde_json::from_slice(content) else { continue };
            for shard in weight_map.into_values() {
                ranks.insert(format!("{place}{shard}"), if is_main(place) { 1 } else { 0 });
            }
        }
        let loaded = self.loaded();
        let has = |wanted: &str| self.files.iter().any(|file| file.name == wanted);
        let heads: Vec<&str> =
            formats::HEADS.iter().filter_map(|names| names.iter().copied().find(|name| has(name))).collect();
        let rank = |file: &RemoteFile| {
            let (place, name) = in_place(&file.name);
            let is_small = SMALL.contains(&name) || (name.starts_with("sentence_") && name.ends_with("_config.json"));
            if is_small || heads.contains(&file.name.as_str()) {
                Some(0)
            } else if formats::READ.iter().any(|[single, _]| *single == name) && loaded.get(place) == Some(&name) {
                Some(if is_main(place) { 2 } else { 0 })
            } else {
                ranks.get(&file.name).copied()
            }
        };
        let mut wanted: Vec<_> = self.files.iter().filter_map(|file| Some((rank(file)?, file))).collect();
        wanted.sort_by_key(|(rank, file)| (*rank, file.size));
        wanted.into_iter().map(|(_, file)| file).collect()
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
        if let Some(part) = name.split('/').find(|part| part.len() > MAX_PART) {
            let shown = crate::error::shorten(part);
            return Err(format!("it lists a name of {} bytes, more than {MAX_PART}: '{shown}'", part.len()));
        }
        Ok(RemoteFile { name, size, etag })
    }
}

/// Small files that the loader reads where they are there.
const SMALL: [&str; 7] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "config_sentence_transformers.json",
    // ColBERT's rules.
    "artifact.metadata",
];

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
    sound && (place.is_empty() || module || formats::OTHER_STARTS.iter().any(|start| file.starts_with(start)))
}

/// Whether configuration and weights may be in a folder: the repository itself, and that of its first module as old
/// versions of sentence-transformers wrote it (`0_Transformer/`).
fn is_main(place: &str) -> bool {
    place.is_empty() || place.starts_with("0_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SINGLE: &str = formats::READ[0][0];
    const INDEX: &str = formats::READ[0][1];
    const PICKLE: &str = formats::READ[1][0];
    const PICKLE_INDEX: &str = formats::READ[1][1];
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

    /// Shards as transformers names them, and as others do.
    const INDEX_CONTENT: &str = r#"{"metadata": {}, "weight_map": {
        "a": "weights_1.safetensors", "b": "weights_1.safetensors", "c": "model-00001-of-00001.safetensors",
        "d": "../config.json"}}"#;

    #[test]
    fn which_files() {
        const REST: [&str; 11] = [
            ".gitattributes",
            "README.md",
            "onnx/model.onnx",
            "openvino/openvino_model.bin",
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
                    "model.safetensors.index.json",
                    "weights_1.safetensors",
                    "model-00001-of-00002.safetensors",
                    "config.json",
                    "tokenizer.json",
                ],
                &["config.json", "tokenizer.json", "weights_1.safetensors", "model.safetensors.index.json"],
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
            (
                &[
                    "model.safetensors",
                    "artifact.metadata",
                    "colbert_linear.pt",
                    "config.json",
                    "sparse_linear.pt",
                    "tokenizer.json",
                ],
                &[
                    "config.json",
                    "tokenizer.json",
                    "sparse_linear.pt",
                    "artifact.metadata",
                    "colbert_linear.pt",
                    "model.safetensors",
                ],
            ),
        ];
        for (names, want) in cases {
            let all: Vec<&str> = names.iter().chain(&REST).copied().collect();
            let listing = listing(&all);
            let content = |index| (index, INDEX_CONTENT.as_bytes().to_vec());
            let indices: Vec<_> = listing.index("a/b").unwrap().into_iter().map(content).collect();
            let got: Vec<_> = listing.model_files(&indices).iter().map(|file| file.name.as_str()).collect();
            assert_eq!(got, *want);
        }
    }

    #[test]
    fn what_is_no_model() {
        let cases: &[(&[&str], &str)] = &[
            (&["config.json", "tokenizer.json", "tf_model.h5", "onnx/model.onnx"], "only tf_model.h5, onnx/model.onnx"),
            (
                &["config.json", "tokenizer.json", "pytorch_model-00001-of-00002.bin"],
                "only pytorch_model-00001-of-00002.bin",
            ),
            (&["config.json", "tokenizer.json"], "no weights (model.safetensors)"),
            (&["config.json", "model.safetensors"], "no tokenizer.json"),
            (&["README.md"], "no config.json"),
            (&["modules.json", "model.safetensors"], "no tokenizer.json"),
        ];
        for (names, want) in cases {
            let error = listing(names).index("a/b").unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("'a/b'"), "{names:?}: {error}");
        }
    }

    #[test]
    fn pickles_are_taken_where_there_is_nothing_else() {
        let model = ["config.json", "tokenizer.json"];
        let cases: &[(&[&str], &[&str])] = &[
            (&[PICKLE], &[PICKLE]),
            (&[PICKLE, SINGLE], &[SINGLE]),
            (&[PICKLE, INDEX, "model-00001-of-00001.safetensors"], &["model-00001-of-00001.safetensors", INDEX]),
            (&[PICKLE_INDEX, "a.bin", "b.bin", "training_args.bin"], &["a.bin", PICKLE_INDEX]),
            (&[PICKLE, PICKLE_INDEX, "a.bin"], &[PICKLE]),
            (
                &[PICKLE, "colbert_linear.pt", "sparse_linear.pt", "sparse_linear.safetensors", "other.pt"],
                &["colbert_linear.pt", "sparse_linear.safetensors", PICKLE],
            ),
            (&[SINGLE, "2_Dense/pytorch_model.bin"], &["2_Dense/pytorch_model.bin", SINGLE]),
            (
                &[PICKLE, "2_Dense/pytorch_model.bin", "2_Dense/model.safetensors"],
                &["2_Dense/model.safetensors", PICKLE],
            ),
        ];
        for (names, want) in cases {
            let all: Vec<&str> = model.iter().chain(*names).copied().collect();
            let listing = listing(&all);
            let content =
                |index| (index, br#"{"weight_map": {"w": "a.bin", "v": "model-00001-of-00001.safetensors"}}"#.to_vec());
            let indices: Vec<_> = listing.index("a/b").unwrap().into_iter().map(content).collect();
            let files = listing.model_files(&indices);
            let got: Vec<_> =
                files.iter().map(|file| file.name.as_str()).filter(|name| !model.contains(name)).collect();
            assert_eq!(got, *want, "{names:?}");
        }
    }

    #[test]
    fn the_configuration_is_the_one_beside_the_weights() {
        let cases: &[(&[&str], Option<&str>)] = &[
            (&["1_Dense/config.json", "config.json", SINGLE, "1_Dense/model.safetensors"], Some("config.json")),
            (&["config.json", INDEX], Some("config.json")),
            (&["config.json", "0_BERT/config.json", "0_BERT/model.safetensors"], Some("0_BERT/config.json")),
            (&["1_Dense/config.json", "1_Dense/model.safetensors", SINGLE], None),
        ];
        for (names, want) in cases {
            assert_eq!(listing(names).config().map(|file| file.name.as_str()), *want, "{names:?}");
        }
    }

    #[test]
    fn a_static_model_needs_no_config() {
        let names =
            ["modules.json", "0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json", "README.md"];
        let listing = listing(&names);
        assert!(listing.index("a/b").unwrap().is_empty());
        let wanted: Vec<_> = listing.model_files(&[]).into_iter().map(|file| file.name.as_str()).collect();
        assert_eq!(wanted, ["modules.json", "0_StaticEmbedding/tokenizer.json", "0_StaticEmbedding/model.safetensors"]);
    }

    #[test]
    fn an_index_that_is_none_is_left_to_the_loader() {
        let listing = listing(&["config.json", "tokenizer.json", INDEX, "model-00001-of-00001.safetensors"]);
        for content in ["", "[]", "{}", r#"{"weight_map": []}"#, r#"{"weight_map": {"a": 7}}"#] {
            let indices = listing.index("a/b").unwrap().into_iter().map(|index| (index, content.as_bytes().to_vec()));
            let files = listing.model_files(&indices.collect::<Vec<_>>());
            assert_eq!(files.last().map(|file| file.name.as_str()), Some(INDEX), "{content}");
            assert_eq!(files.len(), 3, "{content}");
        }
    }

    #[test]
    fn a_listing_of_many_modules_is_read_in_no_time() {
        let mut names: Vec<String> = (0..40_000).map(|i| format!("0_x{i}/config.json")).collect();
        names.extend(["tokenizer.json", INDEX].map(str::to_owned));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let listing = listing(&names);
        let begun = std::time::Instant::now();
        assert_eq!(listing.index("a/b").unwrap().len(), 1);
        assert_eq!(listing.model_files(&[]).len(), 40_001);
        assert_eq!(listing.config(), None);
        // Tens of milliseconds; with one walk for each place, 1,600 million steps.
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    }

    #[test]
    fn answers_that_are_no_listing() {
        let file = |file: serde_json::Value| json!({"sha": COMMIT, "siblings": [file]}).to_string();
        let cases = [
            ("<html><body>Log in</body></html>".to_owned(), "begins '<html><body>Log in"),
            (String::new(), "begins ''"),
            (r#"{"error": "x"}"#.to_owned(), "missing field"),
            (json!({"sha": "main", "siblings": []}).to_string(), "its commit is 'main'"),
            (
                json!({"sha": COMMIT, "siblings": vec![json!({"rfilename": "a"}); MAX_FILES + 1]}).to_string(),
                "lists 100001 files",
            ),
            (
                file(json!({"rfilename": format!("1_{}/config.json", "é".repeat(127)), "size": 3, "blobId": COMMIT})),
                "a name of 256 bytes",
            ),
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
