//! One mapped safetensors file: recognised, checked, then read in place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::Metadata;

use super::header::Outline;
use super::{Tensor, WeightsError};

/// Bytes of the length field that a file starts with.
const LENGTH_BYTES: usize = 8;
/// The library's limit of a header, 100 MB.
const MAX_HEADER: u64 = 100_000_000;

/// A mapped safetensors file whose header is known to fit it.
pub(super) struct TensorFile {
    path: PathBuf,
    map: Arc<Mmap>,
    metadata: Metadata,
    /// Where the tensors' bytes begin.
    data: usize,
}

impl TensorFile {
    pub(super) fn open(path: PathBuf) -> Result<TensorFile, WeightsError> {
        let io = |source| WeightsError::Io { path: path.clone(), source };
        let file = File::open(&path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(WeightsError::NotSafetensors { path, found: "an empty file" });
        }
        // SAFETY: the mapping is read-only. That nobody changes the file meanwhile is the module's stated condition;
        // the header is checked against this mapping, and bytes are copied or used as plain numbers, never as
        // references or lengths.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let (data, metadata) = check(&path, &map)?;
        Ok(TensorFile { path, map: Arc::new(map), metadata, data })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.metadata.offset_keys().into_iter()
    }

    pub(super) fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let info = self.metadata.info(name)?;
        let (start, end) = info.data_offsets;
        let range = self.data + start..self.data + end;
        Some(Tensor::new(name.to_owned(), &self.path, &self.map, range, info.dtype, info.shape.clone()))
    }
}

/// Parses the header, or says what the file is instead.
fn check(path: &Path, bytes: &[u8]) -> Result<(usize, Metadata), WeightsError> {
    recognise(path, bytes)?;
    let damaged = |reason: String| WeightsError::Damaged { path: path.to_path_buf(), reason };
    let truncated =
        |expected: u64| WeightsError::Truncated { path: path.to_path_buf(), actual: bytes.len() as u64, expected };
    let Some(field) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Err(damaged(format!("{} bytes are too few for a header", bytes.len())));
    };
    let length = u64::from_le_bytes(*field);
    if length > MAX_HEADER {
        return Err(damaged(format!("a header of {length} bytes is over the limit of {MAX_HEADER}")));
    }
    let data = LENGTH_BYTES as u64 + length;
    if data > bytes.len() as u64 {
        return Err(truncated(data));
    }
    let json = std::str::from_utf8(&bytes[LENGTH_BYTES..data as usize])
        .map_err(|error| damaged(format!("the header is not UTF-8: {error}")))?;
    let outline = Outline::read(json).map_err(|error| damaged(format!("the header is not valid: {error}")))?;
    if let Some(tensor) = outline.duplicate {
        return Err(WeightsError::DuplicateTensor {
            tensor,
            first: format!("in {}", path.display()),
            second: "in the same file".to_owned(),
        });
    }
    let expected = data.saturating_add(outline.data_bytes);
    if expected > bytes.len() as u64 {
        return Err(truncated(expected));
    }
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(error.to_string()))?;
    Ok((data as usize, metadata))
}

/// Tells files apart that come under a safetensors name and are none.
fn recognise(path: &Path, bytes: &[u8]) -> Result<(), WeightsError> {
    let head = &bytes[..bytes.len().min(512)];
    if head.starts_with(b"version https://git-lfs.github.com/spec/") {
        let text = String::from_utf8_lossy(head);
        let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
        return Err(WeightsError::GitLfsPointer { path: path.to_path_buf(), size });
    }
    let found = match head.trim_ascii_start() {
        [b'<', ..] => "an HTML or XML page",
        [b'P', b'K', 3, 4, ..] => "a zip archive (a PyTorch checkpoint?)",
        [0x80, 2..=5, ..] if !plausible(bytes) => "a Python pickle",
        [b'G', b'G', b'U', b'F', ..] => "a GGUF file",
        [0x1f, 0x8b, ..] if !plausible(bytes) => "a gzip archive",
        [b'{', ..] if !plausible(bytes) => "JSON text",
        _ => return Ok(()),
    };
    Err(WeightsError::NotSafetensors { path: path.to_path_buf(), found })
}

/// Whether the file starts as safetensors do: a length, then the `{` of the header. A length's low bytes can look like
/// anything.
fn plausible(bytes: &[u8]) -> bool {
    bytes.get(LENGTH_BYTES) == Some(&b'{')
}
