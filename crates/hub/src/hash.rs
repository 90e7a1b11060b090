//! SHA-256 of files, computed at most once per process for a file that does not change.
//!
//! Cost: 1-2 GB/s where the processor has SHA instructions, about 0.4 GB/s elsewhere; nothing for a git-lfs blob of the
//! cache, whose name is the hash already.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::HubError;

/// First bytes of every git-lfs pointer, whatever its version.
const LFS_PREFIX: &[u8] = b"version https://git-lfs.github.com/spec/";
/// A pointer has three short lines; a larger file is no pointer.
const LFS_MAX: u64 = 1024;

/// Whether `content`, the whole of a file, is a git-lfs pointer.
pub fn is_lfs_pointer(content: &[u8]) -> bool {
    content.len() as u64 <= LFS_MAX && content.starts_with(LFS_PREFIX)
}

/// A file as it was when its hash was taken: another size or time means another content.
type Key = (PathBuf, u64, Option<SystemTime>);

static KNOWN: LazyLock<Mutex<HashMap<Key, String>>> = LazyLock::new(Mutex::default);

/// SHA-256 of a file as 64 lower-case hexadecimal digits.
///
/// # Errors
/// [`HubError::Io`]; [`HubError::LfsPointer`], whose hash would be that of the wrong thing.
pub fn sha256(path: &Path) -> Result<String, HubError> {
    let real = fs::canonicalize(path).map_err(|source| HubError::io(path, source))?;
    if let Some(name) = blob_name(&real) {
        return Ok(name);
    }
    let metadata = fs::metadata(&real).map_err(|source| HubError::io(path, source))?;
    let key = (real, metadata.len(), metadata.modified().ok());
    if let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(known.clone());
    }
    let digest = hash_content(&key.0, path)?;
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(key, digest.clone());
    Ok(digest)
}

/// The hash that a cache blob's name states: `blobs/<64 hexadecimal digits>`.
fn blob_name(real: &Path) -> Option<String> {
    let name = real.file_name()?.to_str()?;
    let in_blobs = real.parent()?.file_name()? == "blobs";
    let is_digest = name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (in_blobs && is_digest).then(|| name.to_owned())
}

fn hash_content(real: &Path, shown: &Path) -> Result<String, HubError> {
    let mut file = File::open(real).map_err(|source| HubError::io(shown, source))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut total = 0;
    loop {
        let read = file.read(&mut buffer).map_err(|source| HubError::io(shown, source))?;
        if read == 0 {
            break;
        }
        total += read;
        if total == read && is_lfs_pointer(&buffer[..read]) {
            return Err(HubError::LfsPointer { path: shown.to_path_buf() });
        }
        hasher.update(&buffer[..read]);
    }
    Ok(hexadecimal(&hasher.finalize()))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
