//! One file of weights, safetensors or PyTorch's by its name: recognised and checked by its header, its tensors read when
//! they are asked for.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::header::Outline;
use super::source::SourceFile;
use super::{Tensor, WeightsError, torch};

/// Bytes of the length field that a file starts with.
const LENGTH_BYTES: u64 = 8;
/// The library's limit of a header, 100 MB.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes that files of other kinds are recognised by: more than a Git LFS pointer has.
const HEAD_BYTES: u64 = 512;

/// An open file whose header is known to fit it.
pub(super) struct TensorFile {
    source: Arc<SourceFile>,
    places: HashMap<String, Place>,
}

/// Where a tensor is in the file, and what.
pub(super) struct Place {
    /// Position of its first element.
    pub start: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
}

/// The formats that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Safetensors,
    Torch,
}

impl Format {
    /// By the file's name: a file of one format under a name of the other is refused, so that a file that is named
    /// `.safetensors` is never unpickled.
    fn of(path: &Path) -> Format {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin" | "pt" | "pth") => Format::Torch,
            _ => Format::Safetensors,
        }
    }
}

impl TensorFile {
    pub(super) fn open(path: PathBuf) -> Result<TensorFile, WeightsError> {
        let format = Format::of(&path);
        let source = SourceFile::open(path)?;
        recognise(&source, format)?;
        let places = match format {
            Format::Safetensors => read_header(&source)?,
            Format::Torch => torch::places(&source)?,
        };
        Ok(TensorFile { source: Arc::new(source), places })
    }

    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.places.keys()
    }

    pub(super) fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let Place { start, dtype, shape } = self.places.get(name)?;
        Some(Tensor::new(name.to_owned(), &self.source, *start, *dtype, shape.clone()))
    }

    /// See [`SourceFile::check`].
    pub(super) fn check(&self) -> Result<(), WeightsError> {
        self.source.check()
    }
}

fn read(source: &SourceFile, position: u64, length: u64) -> Result<Vec<u8>, WeightsError> {
    let mut bytes = vec![0; length as usize];
    source.read(position, &mut bytes)?;
    Ok(bytes)
}

/// What the header of a safetensors file says.
fn read_header(source: &SourceFile) -> Result<HashMap<String, Place>, WeightsError> {
    let path = || source.path().to_path_buf();
    let damaged = |reason: String| WeightsError::Damaged { path: path(), reason };
    let truncated = |expected: u64| WeightsError::Truncated { path: path(), actual: source.bytes(), expected };
    if source.bytes() < LENGTH_BYTES {
        return Err(damaged(format!("{} bytes are too few for a header", source.bytes())));
    }
    let mut field = [0; LENGTH_BYTES as usize];
    source.read(0, &mut field)?;
    let length = u64::from_le_bytes(field);
    if length > MAX_HEADER {
        return Err(damaged(format!("a header of {length} bytes is over the limit of {MAX_HEADER}")));
    }
    let data = LENGTH_BYTES + length;
    if data > source.bytes() {
        return Err(truncated(data));
    }
    let bytes = read(source, LENGTH_BYTES, length)?;
    let json = std::str::from_utf8(&bytes).map_err(|error| damaged(format!("the header is not UTF-8: {error}")))?;
    let outline = Outline::read(json).map_err(|error| damaged(format!("the header is not valid: {error}")))?;
    if let Some(tensor) = outline.duplicate {
        return Err(WeightsError::DuplicateTensor {
            tensor,
            first: format!("in {}", source.path().display()),
            second: "in the same file".to_owned(),
        });
    }
    let expected = data.saturating_add(outline.data_bytes);
    if expected > source.bytes() {
        return Err(truncated(expected));
    }
    // Checks that the tensors follow each other without gaps and that each has the bytes of its shape and type.
    let metadata: Metadata =
        serde_json::from_str(json).map_err(|error| damaged(format!("the header is not valid: {error}")))?;
    if expected < source.bytes() {
        return Err(damaged(format!("{} bytes follow the last tensor", source.bytes() - expected)));
    }
    let place = |name: String| {
        let info = metadata.info(&name)?;
        let start = data + info.data_offsets.0 as u64;
        let place = Place { start, dtype: info.dtype, shape: info.shape.clone() };
        Some((name, place))
    };
    Ok(metadata.offset_keys().into_iter().filter_map(place).collect())
}

/// Tells files apart that come under the name of a format and are of another.
fn recognise(source: &SourceFile, format: Format) -> Result<(), WeightsError> {
    let path = || source.path().to_path_buf();
    let head = read(source, 0, source.bytes().min(HEAD_BYTES))?;
    if head.starts_with(b"version https://git-lfs.github.com/spec/") {
        let text = String::from_utf8_lossy(&head);
        let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
        return Err(WeightsError::GitLfsPointer { path: path(), size });
    }
    // A file that starts as safetensors do: a length, then the `{` of the header. A length's low bytes can look like
    // anything.
    let plausible = format == Format::Safetensors && head.get(LENGTH_BYTES as usize) == Some(&b'{');
    let found = match head.trim_ascii_start() {
        [b'P', b'K', 3, 4, ..] if format == Format::Torch => return Ok(()),
        // Before version 1.6, of 2020; a bare pickle begins in the same way.
        [0x80, 2..=5, ..] if format == Format::Torch => return Err(WeightsError::LegacyTorch { path: path() }),
        [] if head.is_empty() => "an empty file",
        [b'<', ..] => "an HTML or XML page",
        [b'P', b'K', 3, 4, ..] => "a zip archive (a PyTorch checkpoint?)",
        [0x80, 2..=5, ..] if !plausible => "a Python pickle",
        [b'G', b'G', b'U', b'F', ..] => "a GGUF file",
        [0x1f, 0x8b, ..] if !plausible => "a gzip archive",
        [b'{', ..] if !plausible => "JSON text",
        _ if format == Format::Torch => "a file of a kind that is not known",
        _ => return Ok(()),
    };
    Err(match format {
        Format::Safetensors => WeightsError::NotSafetensors { path: path(), found },
        Format::Torch => WeightsError::NotTorch { path: path(), found },
    })
}
