//! A PyTorch checkpoint (`pytorch_model.bin`, `colbert_linear.pt`): a zip archive of a pickle and of one entry for each
//! storage, none of it compressed. Tensors are read in place, as those of a safetensors file.
//!
//! The archive's checksums are not looked at: they would cost a pass over the file, and a changed byte in a download is
//! found by its hash. Source: `torch/serialization.py` (`_save`), `caffe2/serialize/inline_container.cc`.

use std::collections::HashMap;
use std::io;

use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ReaderAt, ZipLocator};

use super::WeightsError;
use super::file::Place;
use super::pickle::{self, Description, Refusal};
use super::source::SourceFile;

/// The largest pickle that is read. That of a model with 10,000 tensors has 1.5 MB; an instruction of one byte can make
/// values of 40 (an empty tuple and its number).
const MAX_PICKLE: u64 = 16 << 20;

/// Characters of a message that quotes the file.
const MAX_QUOTED: usize = 300;

/// Bytes of an entry in the file.
#[derive(Clone, Copy)]
struct Entry {
    start: u64,
    bytes: u64,
    stored: bool,
}

/// Where the tensors of the archive are.
pub(super) fn places(source: &SourceFile) -> Result<HashMap<String, Place>, WeightsError> {
    let damaged = |reason: String| WeightsError::Damaged { path: source.path().to_path_buf(), reason: shown(&reason) };
    let refused =
        |reason: String| WeightsError::NotAStateDict { path: source.path().to_path_buf(), reason: shown(&reason) };
    let entries = entries(source)?;
    let mut programs: Vec<(&str, &Entry)> =
        entries.iter().filter_map(|(name, entry)| Some((folder_of_program(name)?, entry))).collect();
    programs.sort_unstable_by_key(|(folder, _)| *folder);
    let (folder, program) = match programs[..] {
        [(folder, program)] => (folder, program),
        [] => return Err(refused("the archive has no <folder>/data.pkl".to_owned())),
        [(first, _), (second, _), ..] => {
            return Err(refused(format!("the archive has two pickles, {first}data.pkl and {second}data.pkl")));
        }
    };
    if program.bytes > MAX_PICKLE {
        return Err(refused(format!("its pickle has {} bytes, more than {MAX_PICKLE}", program.bytes)));
    }
    let read = |entry: &Entry| -> Result<Vec<u8>, WeightsError> {
        if !entry.stored {
            return Err(refused("it is compressed".to_owned()));
        }
        let mut bytes = vec![0; entry.bytes as usize];
        source.read(entry.start, &mut bytes)?;
        Ok(bytes)
    };
    if let Some(order) = entries.get(&format!("{folder}byteorder")).filter(|entry| entry.bytes < 16) {
        let order = read(order)?;
        if order != b"little" {
            return Err(refused(format!("its byte order is {:?}, not little", String::from_utf8_lossy(&order))));
        }
    }
    let tensors = pickle::read(&read(program)?).map_err(|refusal| match refusal {
        Refusal::Global(global) => {
            WeightsError::PickleGlobal { path: source.path().to_path_buf(), global: shown(&global) }
        }
        Refusal::Twice(name) => WeightsError::DuplicateTensor {
            tensor: shown(&name),
            first: format!("in {}", source.path().display()),
            second: "in the same file".to_owned(),
        },
        Refusal::Other(reason) => refused(reason),
    })?;
    let mut places = HashMap::new();
    for (name, tensor) in tensors {
        let storage = entries
            .get(&format!("{folder}data/{}", tensor.storage))
            .ok_or_else(|| damaged(format!("tensor {name} is in data/{}, which is not there", tensor.storage)))?;
        if !storage.stored {
            return Err(refused(format!("the data of tensor {name} is compressed")));
        }
        let start = start(&tensor, storage).map_err(|reason| damaged(format!("tensor {name} {reason}")))?;
        if !is_contiguous(&tensor) {
            let Description { shape, strides, .. } = tensor;
            return Err(refused(format!(
                "tensor {name} of shape {shape:?} is not stored row by row (strides {strides:?})"
            )));
        }
        let place = Place { start, dtype: tensor.dtype, shape: tensor.shape };
        places.insert(name, place);
    }
    Ok(places)
}

/// The folder, with its slash, of an entry that is called as `torch.save` calls the pickle: `<folder>/data.pkl`.
fn folder_of_program(name: &str) -> Option<&str> {
    let folder = name.strip_suffix("data.pkl")?;
    (folder.find('/')? + 1 == folder.len()).then_some(folder)
}

/// What a message may quote of the file: shortened, without control characters.
fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_QUOTED).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if text.chars().nth(MAX_QUOTED).is_some() {
        shown.push('…');
    }
    shown
}

/// The entries of the archive by name.
fn entries(source: &SourceFile) -> Result<HashMap<String, Entry>, WeightsError> {
    let damaged = |reason: String| WeightsError::Damaged { path: source.path().to_path_buf(), reason: shown(&reason) };
    let broken = |error: rawzip::Error| damaged(format!("the zip archive is not whole ({error})"));
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipLocator::new()
        .locate_in_reader(Reader(source), &mut buffer, source.bytes())
        .map_err(|(_, error)| broken(error))?;
    let mut found = Vec::new();
    let mut listing = archive.entries(&mut buffer);
    while let Some(entry) = listing.next_entry().map_err(broken)? {
        let name = String::from_utf8_lossy(entry.file_path().as_ref()).into_owned();
        found.push((name, entry.compression_method() == CompressionMethod::STORE, entry.wayfinder()));
    }
    if found.len() as u64 != archive.entries_hint() {
        return Err(damaged(format!("the zip archive lists {} of {} entries", found.len(), archive.entries_hint())));
    }
    let mut entries = HashMap::new();
    // A name and an extra field of any length.
    let mut header = vec![0; 2 << 16];
    for (name, stored, wayfinder) in found {
        let entry = archive.get_entry(wayfinder).map_err(broken)?;
        // Readers that go by the other name would read another file.
        let local = entry.local_header(&mut header).map_err(broken)?;
        let local = String::from_utf8_lossy(local.file_path().as_ref()).into_owned();
        if local != name {
            return Err(damaged(format!("{name} of the zip archive is called {local} where its data begins")));
        }
        let (start, end) = entry.compressed_data_range();
        if start > end || end > source.bytes() {
            return Err(damaged(format!("{name} of the zip archive is outside the file")));
        }
        if entries.insert(name.clone(), Entry { start, bytes: end - start, stored }).is_some() {
            return Err(damaged(format!("{name} is in the zip archive twice")));
        }
    }
    Ok(entries)
}

/// Where the tensor's bytes begin in the file. The error is what is wrong with it.
fn start(tensor: &Description, storage: &Entry) -> Result<u64, String> {
    let size = (tensor.dtype.bitsize() / 8) as u64;
    let elements = tensor.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    let end = elements.and_then(|elements| elements.checked_add(tensor.offset));
    if tensor.storage_elements.checked_mul(size) != Some(storage.bytes) {
        return Err(format!(
            "is in a storage of {} elements of {size} bytes, which has {} bytes",
            tensor.storage_elements, storage.bytes
        ));
    }
    match end {
        Some(end) if end <= tensor.storage_elements => Ok(storage.start + tensor.offset * size),
        _ => Err(format!(
            "of shape {:?} reaches beyond its storage of {} elements",
            tensor.shape, tensor.storage_elements
        )),
    }
}

/// Whether elements follow each other in row-major order. The stride of a dimension of one is never used.
fn is_contiguous(tensor: &Description) -> bool {
    let mut expected = 1;
    if tensor.shape.contains(&0) {
        return true;
    }
    for (&size, &stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
        if size != 1 && stride != expected {
            return false;
        }
        expected *= size;
    }
    true
}

struct Reader<'a>(&'a SourceFile);

impl ReaderAt for Reader<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = buffer.len().min(usize::try_from(self.0.bytes().saturating_sub(offset)).unwrap_or(usize::MAX));
        self.0.read(offset, &mut buffer[..count]).map_err(io::Error::other)?;
        Ok(count)
    }
}
