//! Weights that cannot be used, and what to do about it.

use std::path::PathBuf;

/// Weights that are absent, damaged, or not those of the model that `config.json` describes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// Nothing that looks like weights.
    #[error(
        "no weights in {}: expected {}",
        folder.display(),
        super::NAMES_LOOKED_FOR
    )]
    Missing {
        /// The model's folder.
        folder: PathBuf,
    },
    /// Weights in formats that are not read.
    #[error(
        "{} has no weights in a format that is read, only {}; read are safetensors, and PyTorch's zip files. \
         Use a revision of the repository that has model.safetensors (often `refs/pr/N`), or save the model again \
         with transformers' `save_pretrained(folder, safe_serialization=True)`",
        folder.display(),
        found.join(", ")
    )]
    OnlyOtherFormats {
        /// The model's folder.
        folder: PathBuf,
        /// The files that are there.
        found: Vec<String>,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file was overwritten, or cut, while it was in use.
    #[error("the weights file {} changed while the model was loaded; load the model again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The placeholder that git leaves when Git LFS is not installed.
    #[error(
        "{} is a Git LFS pointer, not the weights{}: run `git lfs pull` in the repository, or download the file itself",
        path.display(),
        size.map(|bytes| format!(" ({bytes} bytes)")).unwrap_or_default()
    )]
    GitLfsPointer {
        /// The file.
        path: PathBuf,
        /// Size of the real file, as the pointer states it.
        size: Option<u64>,
    },
    /// A file of another kind under a safetensors name.
    #[error("{} is not a safetensors file but {found}: download it again", path.display())]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: &'static str,
    },
    /// A file of another kind under the name of a PyTorch checkpoint.
    #[error("{} is not a PyTorch checkpoint but {found}: download it again", path.display())]
    NotTorch {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: &'static str,
    },
    /// A PyTorch checkpoint from before the zip format.
    #[error(
        "{} is a PyTorch checkpoint in the format before version 1.6, which is not read. Save the model again with \
         transformers' `save_pretrained(folder)`, which writes model.safetensors",
        path.display()
    )]
    LegacyTorch {
        /// The file.
        path: PathBuf,
    },
    /// A pickle that names code which a state dict has no use for. Nothing of it was run.
    #[error(
        "{} names {global}, which is not part of a state dict; nothing of it was run. Allowed are \
         collections.OrderedDict, torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter and torch's storages \
         of real numbers. Use weights as model.safetensors",
        path.display()
    )]
    PickleGlobal {
        /// The file.
        path: PathBuf,
        /// Module and name.
        global: String,
    },
    /// A PyTorch file that holds something else than a state dict, or in a form that is not read.
    #[error("{} cannot be read as a state dict: {reason}. Use weights as model.safetensors", path.display())]
    NotAStateDict {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Fewer bytes than the header promises.
    #[error("{} is cut off: {actual} bytes of {expected}; download it again", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        actual: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// A header that contradicts itself or the file.
    #[error("{} is damaged: {reason}; download it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An index of shards is malformed.
    #[error("{}: {reason}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A shard that the index names is not there.
    #[error(
        "{} is missing, and {} says that it holds part of the weights: the download is incomplete",
        shard.display(),
        index.display()
    )]
    MissingShard {
        /// The shard.
        shard: PathBuf,
        /// The index.
        index: PathBuf,
    },
    /// The same tensor twice: which one counts cannot be known.
    #[error("tensor {tensor} is there twice: {first} and {second}")]
    DuplicateTensor {
        /// The tensor, as the model needs it.
        tensor: String,
        /// One place or name.
        first: String,
        /// The other.
        second: String,
    },
    /// A tensor that the model needs.
    #[error(
        "{} has no tensor {}; it has {available}",
        folder.display(),
        tried.join(" or ")
    )]
    MissingTensor {
        /// The model's folder.
        folder: PathBuf,
        /// Names that were looked for.
        tried: Vec<String>,
        /// A few of the names that are there, and how many there are.
        available: String,
    },
    /// A tensor of another size than `config.json` says.
    #[error("{}: tensor {tensor} has shape {actual:?}, config.json asks for {expected:?}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        actual: Vec<usize>,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// A table or list of another shape than its use asks for, whatever `config.json` says.
    #[error("{}: tensor {tensor} has shape {actual:?}; expected {expected}", path.display())]
    NotOfForm {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        actual: Vec<usize>,
        /// What it should be.
        expected: String,
    },
    /// Layers that would not be computed.
    #[error(
        "{} has tensor {tensor}, of a layer beyond those of config.json: num_hidden_layers (n_layers, n_layer) = {layers} \
         is not the number of layers in the weights",
        folder.display()
    )]
    MoreLayers {
        /// The model's folder.
        folder: PathBuf,
        /// A tensor of the first layer too many.
        tensor: String,
        /// Layers that the configuration says.
        layers: usize,
    },
    /// A tensor of a type that is not read.
    #[error("{}: tensor {tensor} is {actual}; supported: {supported}", path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its type as safetensors spells it.
        actual: String,
        /// The types that are read in its place.
        supported: &'static str,
    },
    /// A row number that no row has.
    #[error("{}: tensor {tensor} has {value} at element {index}, but there are {rows} rows", path.display())]
    RowOutOfRange {
        /// The file.
        path: PathBuf,
        /// The tensor of row numbers.
        tensor: String,
        /// The first element that is out of range.
        index: usize,
        /// Its value.
        value: i64,
        /// Rows of the table that it points into.
        rows: usize,
    },
    /// NaN or an infinity in the weights.
    #[error(
        "{}: tensor {tensor} has {value} at element {index}: the file is damaged or the model was saved broken",
        path.display()
    )]
    NonFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Row-major index of the first such element.
        index: usize,
        /// NaN, inf or -inf.
        value: f32,
    },
}
