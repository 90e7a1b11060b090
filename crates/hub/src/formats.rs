//! How the weights of models are called.
//!
//! The loader (`simile-encoder`) has the same names; a test of the pipeline, which sees both crates, keeps them alike.

/// Weights that are loaded, best first: a single file, and the index that names its shards. Only the best that a folder has
/// is loaded, so only that is downloaded.
pub const READ: [[&str; 2]; 2] =
    [["model.safetensors", "model.safetensors.index.json"], ["pytorch_model.bin", "pytorch_model.bin.index.json"]];

/// Weights that are not loaded, files and folders: a folder with nothing but these is a model, and the loader refuses it by
/// its format.
pub const OTHERS: [&str; 6] =
    ["tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "model.onnx", "onnx", "openvino"];

/// How the names of weights begin that are not loaded, shards without an index among them; for the error message.
pub(crate) const OTHER_STARTS: [&str; 6] =
    ["pytorch_model", "tf_model", "flax_model", "model.ckpt", "model.onnx", "openvino_model"];

/// Weights of heads beside the encoder's, best first (BGE-M3). They are small, and only the best is downloaded.
pub(crate) const HEADS: [[&str; 2]; 2] =
    [["colbert_linear.safetensors", "colbert_linear.pt"], ["sparse_linear.safetensors", "sparse_linear.pt"]];

/// The weights that are loaded from a folder, by what it `has`.
pub(crate) fn loaded(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    READ.as_flattened().iter().copied().find(|name| has(name))
}
