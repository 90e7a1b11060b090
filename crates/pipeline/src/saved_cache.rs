//! Vectors of a model that outlive the process: a bounded cache in memory, and the file that it is saved to.
//!
//! An entry is found by the token ids of a text, after template and truncation, which are all that a vector depends on
//! beside the model. They are kept whole and compared whole: a hash only says where to look. What the vectors of a cache
//! have in common is its [`Identity`]; a file of another identity is of no use.
//!
//! File, in little-endian numbers:
//! ```text
//! "SIMCACHE"  format u32  identity: length u32, bytes  dimensions u32  entries u64
//! for each entry, the least recently used first:  tokens u32, the ids u32 each, the vector f32 each
//! SHA-256 of all before it
//! ```
//!
//! Invariants: a file is used whole or not at all; what is saved is written beside its place, flushed to the disk and renamed,
//! so a reader meets the old file or the new one, whoever else saves. Every vector has the cache's dimensions and finite values.
//!
//! Cost: [`MAX_BYTES`] at most, the least recently used go first. A look-up takes the hash of the ids and one copy.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lru::LruCache;
use sha2::{Digest, Sha256};

/// The most bytes that entries take, in memory and so in the file: some 25,000 vectors of 1,024 dimensions.
pub const MAX_BYTES: usize = 128 << 20;

/// What an entry takes besides ids and vector: places in the list and the table, two counted allocations.
const ENTRY_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"SIMCACHE";
const FORMAT: u32 = 1;
const DIGEST: usize = 32;

/// What vectors must share to be the same bytes: asked of a file before anything of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What decides the bytes besides ids and dimensions: the contract, what computes, and which version of it.
    pub space: String,
    /// Length of a vector.
    pub dimensions: usize,
}

/// Why a file was not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavedCacheError {
    /// The system did not let it be read or written.
    #[error("'{}' could not be {done}: {source}", path.display())]
    Io {
        /// The file, or the folder that it should be in.
        path: PathBuf,
        /// `"read"` or `"written"`.
        done: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// It is not what was saved.
    #[error("'{}' is no saved cache, or a damaged one: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It holds vectors that this model does not give: another model, other options, processor or version.
    #[error(
        "'{}' holds vectors of another model or of another way to compute it ({}; this is {})", path.display(), shown(found), shown(wanted)
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is of.
        found: Identity,
        /// What this model is.
        wanted: Identity,
    },
}

fn shown(identity: &Identity) -> String {
    let space: String = identity.space.chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{space}, {} dimensions", identity.dimensions)
}

/// The vectors of one identity, shared between threads. `S` is another hash in tests.
pub struct SavedCache<S = RandomState> {
    identity: Identity,
    limit: usize,
    entries: Mutex<Entries<S>>,
}

struct Entries<S> {
    list: LruCache<Arc<[u32]>, Arc<[f32]>, S>,
    bytes: usize,
}

impl SavedCache {
    /// An empty cache.
    pub fn new(identity: Identity) -> SavedCache {
        SavedCache::with(identity, MAX_BYTES, RandomState::new())
    }
}

impl<S: BuildHasher> SavedCache<S> {
    fn with(identity: Identity, limit: usize, hasher: S) -> SavedCache<S> {
        let list = LruCache::unbounded_with_hasher(hasher);
        SavedCache { identity, limit, entries: Mutex::new(Entries { list, bytes: 0 }) }
    }

    /// What its vectors share.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.lock().list.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the vector of `ids` to `out`, if it is there. `out` has the cache's dimensions.
    pub fn get(&self, ids: &[u32], out: &mut [f32]) -> bool {
        let mut entries = self.lock();
        let Some(vector) = entries.list.get(ids).cloned() else { return false };
        drop(entries);
        out.copy_from_slice(&vector);
        true
    }

    /// Keeps a vector. One that is not finite or has other dimensions is not kept.
    pub fn insert(&self, ids: &[u32], vector: &[f32]) {
        let bytes = entry_bytes(ids.len(), vector.len());
        let sound = vector.len() == self.identity.dimensions && vector.iter().all(|value| value.is_finite());
        if !sound || bytes > self.limit {
            return;
        }
        let mut entries = self.lock();
        let Entries { list, bytes: total } = &mut *entries;
        if list.put(ids.into(), vector.into()).is_none() {
            *total += bytes;
        }
        while *total > self.limit {
            let Some((ids, vector)) = list.pop_lru() else { break };
            *total -= entry_bytes(ids.len(), vector.len());
        }
    }

    /// Takes in the entries of a file; 0 without one. What does not fit, the least recently used, is left out.
    ///
    /// # Errors
    /// [`SavedCacheError`]; nothing of the file is used then.
    pub fn restore(&self, path: &Path) -> Result<usize, SavedCacheError> {
        let Some(content) = self.read(path)? else { return Ok(0) };
        let damaged = |problem: String| SavedCacheError::Damaged { path: path.to_path_buf(), problem };
        let (found, entries) = parse(&content).map_err(damaged)?;
        if found != self.identity {
            return Err(SavedCacheError::Foreign { path: path.to_path_buf(), found, wanted: self.identity.clone() });
        }
        for (ids, vector) in entries {
            self.insert(&ids, &vector);
        }
        Ok(self.len())
    }

    /// The content of a file, `None` when there is none.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, SavedCacheError> {
        let failed = |source| SavedCacheError::Io { path: path.to_path_buf(), done: "read", source };
        // Opening a pipe would wait for somebody who writes to it.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let problem = "it is not a file: move it away, or nothing can be saved there".to_owned();
            return Err(SavedCacheError::Damaged { path: path.to_path_buf(), problem });
        }
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        // What was saved is smaller than what is kept in memory; the rest is header and digest.
        let most = self.limit as u64 + (1 << 16);
        let mut content = Vec::new();
        file.take(most + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() as u64 > most {
            let problem = format!("it has more than the {most} bytes that are ever saved");
            return Err(SavedCacheError::Damaged { path: path.to_path_buf(), problem });
        }
        Ok(Some(content))
    }

    /// Writes all entries to `path`, making its folder, and gives their number. Who reads meanwhile meets what was there
    /// before; of several who save the last wins. Only this user may read the file.
    ///
    /// # Errors
    /// [`SavedCacheError::Io`]; what was there before is untouched then.
    pub fn save(&self, path: &Path) -> Result<usize, SavedCacheError> {
        // Counted references, so that nobody waits while they are written.
        let entries: Vec<_> = {
            let entries = self.lock();
            entries.list.iter().rev().map(|(ids, vector)| (ids.clone(), vector.clone())).collect()
        };
        let content = format(&self.identity, &entries);
        let folder = path.parent().unwrap_or(Path::new("."));
        let failed = |source| SavedCacheError::Io { path: path.to_path_buf(), done: "written", source };
        make_folder(folder).map_err(failed)?;
        // Made with mode 600, under a name of its own, and removed if it is not renamed.
        let mut file = tempfile::Builder::new().prefix(".saving-").tempfile_in(folder).map_err(failed)?;
        file.write_all(&content).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        // The name is on the disk once the folder is. Not every system can flush one, and the file is whole either way.
        let _ = fs::File::open(folder).and_then(|folder| folder.sync_all());
        Ok(entries.len())
    }

    fn lock(&self) -> MutexGuard<'_, Entries<S>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn entry_bytes(tokens: usize, dimensions: usize) -> usize {
    4 * (tokens + dimensions) + ENTRY_BYTES
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

type Entry = (Arc<[u32]>, Arc<[f32]>);

fn format(identity: &Identity, entries: &[Entry]) -> Vec<u8> {
    let bytes: usize = entries.iter().map(|(ids, vector)| 4 * (1 + ids.len() + vector.len())).sum();
    let mut content = Vec::with_capacity(bytes + identity.space.len() + 100);
    let number = |content: &mut Vec<u8>, number: usize| content.extend_from_slice(&(number as u32).to_le_bytes());
    content.extend_from_slice(MAGIC);
    content.extend_from_slice(&FORMAT.to_le_bytes());
    number(&mut content, identity.space.len());
    content.extend_from_slice(identity.space.as_bytes());
    number(&mut content, identity.dimensions);
    content.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    for (ids, vector) in entries {
        number(&mut content, ids.len());
        ids.iter().for_each(|id| content.extend_from_slice(&id.to_le_bytes()));
        vector.iter().for_each(|value| content.extend_from_slice(&value.to_le_bytes()));
    }
    let digest = Sha256::digest(&content);
    content.extend_from_slice(&digest);
    content
}

/// What a file is of, and its entries. The error is what is wrong with it.
fn parse(content: &[u8]) -> Result<(Identity, Vec<Entry>), String> {
    if content.get(..MAGIC.len()) != Some(MAGIC) {
        return Err("it does not begin as one".to_owned());
    }
    let mut rest = Bytes(&content[MAGIC.len()..]);
    let format = rest.number()?;
    if format != FORMAT {
        return Err(format!("its format is {format}, this version reads {FORMAT}"));
    }
    let Some((_, digest)) = content.split_last_chunk::<DIGEST>() else { return Err("it is cut".to_owned()) };
    if Sha256::digest(&content[..content.len() - DIGEST])[..] != digest[..] {
        return Err("its content and its checksum do not agree".to_owned());
    }
    rest.0 = &rest.0[..rest.0.len().saturating_sub(DIGEST)];
    let length = rest.number()? as usize;
    let space = String::from_utf8(rest.take(length)?.to_vec()).map_err(|_| "its identity is no text".to_owned())?;
    let dimensions = rest.number()? as usize;
    let count = u64::from_le_bytes(rest.take(8)?.try_into().expect("eight bytes"));
    let mut entries = Vec::new();
    for nth in 0..count {
        let tokens = rest.number()? as usize;
        let ids = rest.words(tokens)?.map(u32::from_le_bytes).collect();
        let vector: Arc<[f32]> = rest.words(dimensions)?.map(f32::from_le_bytes).collect();
        if vector.iter().any(|value| !value.is_finite()) {
            return Err(format!("vector {nth} has a component that is not a finite number"));
        }
        entries.push((ids, vector));
    }
    if !rest.0.is_empty() {
        return Err(format!("it has {} bytes behind its last entry", rest.0.len()));
    }
    Ok((Identity { space, dimensions }, entries))
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends in the middle of an entry")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn words(&mut self, count: usize) -> Result<impl Iterator<Item = [u8; 4]> + use<'a>, String> {
        let bytes = self.take(count.checked_mul(4).ok_or("it names an entry of no possible length")?)?;
        Ok(bytes.chunks_exact(4).map(|word| word.try_into().expect("four bytes")))
    }
}

#[cfg(test)]
mod tests;
