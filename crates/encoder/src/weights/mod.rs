//! Weights of a checkpoint: `model.safetensors`, or the shards that `model.safetensors.index.json` lists; where neither is,
//! PyTorch's `pytorch_model.bin` or the shards of `pytorch_model.bin.index.json`.
//!
//! # Contract
//! - Files are read at positions, not mapped: opening one reads its header, and a tensor costs nothing until it is asked
//!   for. Then its stored bytes pass through a small buffer while they are widened.
//! - Stored types F32, F16 and BF16 are widened to f32, exactly. Anything else is an error when it is asked for, not
//!   before: files hold tensors that no encoder reads (`position_ids` is I64).
//! - A pickle is read without running anything of it: it may contain a state dict and nothing else.
//! - What is wrong with a file is said in its own words: a Git LFS pointer, an HTML page, a cut-off download, a pickle.
//! - A file that is overwritten or cut in place while it is open is noticed: [`Weights::check`] while a model is loaded,
//!   [`EmbeddingTable::check`] after each batch. Deleting it, or replacing it by a rename, changes nothing.

mod error;
mod file;
mod header;
mod pickle;
mod resolve;
mod source;
mod table;
mod tensor;
mod torch;
mod widen;

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub use error::WeightsError;
use file::TensorFile;
pub use resolve::{LinearTensors, NormTensors, Resolver};
pub use table::{EmbeddingTable, RowBuffer};
pub use tensor::{Tensor, TensorReader};

/// What a checkpoint's weights are called, best first: a single file, and the index of shards. As in transformers, safetensors
/// win over pickles, and a single file over shards.
pub const FORMATS: [[&str; 2]; 2] =
    [["model.safetensors", "model.safetensors.index.json"], ["pytorch_model.bin", "pytorch_model.bin.index.json"]];
/// For the error message.
const NAMES_LOOKED_FOR: &str =
    "model.safetensors or pytorch_model.bin, or one of them with .index.json and the shards that it names";

/// How weights in formats that are not read are called, files and folders. A model with nothing but these is refused as
/// [`WeightsError::OnlyOtherFormats`].
pub const OTHER_FORMATS: &[&str] =
    &["tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "model.onnx", "onnx", "openvino"];

/// A checkpoint's tensors by name.
pub struct Weights {
    folder: PathBuf,
    files: Vec<TensorFile>,
    /// Tensor name to its place in `files`.
    places: HashMap<String, usize>,
}

impl Weights {
    /// Opens the weights of the model folder `dir`, in the order of [`FORMATS`].
    ///
    /// # Errors
    /// [`WeightsError`]: no weights, only other formats, or a file that is not sound.
    pub fn open(dir: &Path) -> Result<Weights, WeightsError> {
        let names = Self::file_names(dir)?;
        let files = names.iter().map(|name| TensorFile::open(dir.join(name))).collect::<Result<Vec<_>, _>>()?;
        Self::from_files(dir, files)
    }

    /// The files that [`open`](Self::open) opens: names in the folder `dir`, sorted.
    ///
    /// # Errors
    /// [`WeightsError`]: no weights, only other formats, or an index that is not sound.
    pub fn file_names(dir: &Path) -> Result<Vec<String>, WeightsError> {
        for [single, index] in FORMATS {
            let index = dir.join(index);
            if dir.join(single).exists() {
                return Ok(vec![single.to_owned()]);
            } else if index.exists() {
                return shards(&index);
            }
        }
        Err(Self::absent(dir))
    }

    /// Why a folder without weights that are read has nothing to open: [`WeightsError::OnlyOtherFormats`] with what is there
    /// instead, [`WeightsError::Missing`] when nothing is, [`WeightsError::Io`] when it cannot be read.
    pub fn absent(dir: &Path) -> WeightsError {
        if let Err(source) = std::fs::read_dir(dir) {
            return WeightsError::Io { path: dir.to_path_buf(), source };
        }
        let found: Vec<String> =
            OTHER_FORMATS.iter().filter(|name| dir.join(name).exists()).map(|name| (*name).to_owned()).collect();
        if found.is_empty() {
            WeightsError::Missing { folder: dir.to_path_buf() }
        } else {
            WeightsError::OnlyOtherFormats { folder: dir.to_path_buf(), found }
        }
    }

    /// Opens one file by path, for modules that bring weights of their own (`2_Dense/model.safetensors`,
    /// `colbert_linear.pt`).
    ///
    /// # Errors
    /// [`WeightsError`]: the file is absent or not sound.
    pub fn open_file(path: &Path) -> Result<Weights, WeightsError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::from_files(folder, vec![TensorFile::open(path.to_path_buf())?])
    }

    fn from_files(folder: &Path, files: Vec<TensorFile>) -> Result<Weights, WeightsError> {
        let mut places = HashMap::new();
        for (number, file) in files.iter().enumerate() {
            for name in file.names() {
                if let Some(first) = places.insert(name.clone(), number) {
                    return Err(WeightsError::DuplicateTensor {
                        tensor: name.to_owned(),
                        first: format!("in {}", files[first].path().display()),
                        second: format!("in {}", file.path().display()),
                    });
                }
            }
        }
        Ok(Weights { folder: folder.to_path_buf(), files, places })
    }

    /// Whether all files are still what they were when they were opened, so that what was read of them belongs together.
    ///
    /// # Errors
    /// [`WeightsError::Changed`], [`WeightsError::Io`].
    pub fn check(&self) -> Result<(), WeightsError> {
        self.files.iter().try_for_each(TensorFile::check)
    }

    /// The tensor called exactly `name`, if there is one.
    pub fn get(&self, name: &str) -> Option<Tensor<'_>> {
        let file = &self.files[*self.places.get(name)?];
        file.tensor(name)
    }

    /// The tensor called exactly `name`.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, WeightsError> {
        self.get(name).ok_or_else(|| self.missing(vec![name.to_owned()]))
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.places.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn missing(&self, tried: Vec<String>) -> WeightsError {
        const SHOWN: usize = 5;
        let names = self.names();
        let available = match names.len() {
            0 => "no tensors at all".to_owned(),
            count if count <= SHOWN => names.join(", "),
            count => format!("{} and {} more", names[..SHOWN].join(", "), count - SHOWN),
        };
        WeightsError::MissingTensor { folder: self.folder.clone(), tried, available }
    }
}

/// The shard files that an index names, in order of their names.
fn shards(index: &Path) -> Result<Vec<String>, WeightsError> {
    let wrong = |reason: String| WeightsError::Index { path: index.to_path_buf(), reason };
    let text =
        std::fs::read_to_string(index).map_err(|source| WeightsError::Io { path: index.to_path_buf(), source })?;
    let json: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let map = json
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| wrong("weight_map is missing or not an object".to_owned()))?;
    let mut names = BTreeSet::new();
    for (tensor, shard) in map {
        let shard = shard.as_str().ok_or_else(|| wrong(format!("the shard of tensor {tensor} is not a string")))?;
        // An index comes from the network: it may not point outside its folder.
        if shard.is_empty() || shard == ".." || shard.contains(['/', '\\', ':']) {
            return Err(wrong(format!("shard {shard:?} of tensor {tensor} is not a plain file name")));
        }
        names.insert(shard.to_owned());
    }
    if names.is_empty() {
        return Err(wrong("weight_map is empty".to_owned()));
    }
    let folder = index.parent().unwrap_or(Path::new("."));
    match names.iter().map(|name| folder.join(name)).find(|path| !path.exists()) {
        Some(shard) => Err(WeightsError::MissingShard { shard, index: index.to_path_buf() }),
        None => Ok(names.into_iter().collect()),
    }
}
