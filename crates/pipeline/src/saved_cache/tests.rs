use std::hash::{BuildHasherDefault, Hasher};
use std::process::Command;

use super::*;

const WIDTH: usize = 4;

fn identity() -> Identity {
    Identity { space: "contract 0123456789abcdef, avx2, 1.0.0".to_owned(), dimensions: WIDTH }
}

/// A cache with entries for ids 0 to `count`, each of `nth + 1` tokens.
fn filled(count: u32) -> SavedCache {
    let cache = SavedCache::new(identity());
    for nth in 0..count {
        cache.insert(&ids(nth), &vector(nth));
    }
    cache
}

fn ids(nth: u32) -> Vec<u32> {
    (0..=nth).map(|token| token + 7 * nth).collect()
}

fn vector(nth: u32) -> [f32; WIDTH] {
    [nth as f32, -0.0, f32::MIN_POSITIVE / 2.0, 1.0 / 3.0]
}

fn get<S: BuildHasher>(cache: &SavedCache<S>, ids: &[u32]) -> Option<[f32; WIDTH]> {
    let mut out = [f32::NAN; WIDTH];
    cache.get(ids, &mut out).then_some(out)
}

/// Writes the checksum of a changed content.
fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let end = content.len() - DIGEST;
    let digest = Sha256::digest(&content[..end]);
    content[end..].copy_from_slice(&digest);
    content
}

#[test]
fn what_is_saved_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b/embed_model_4d.bin");
    let cache = filled(5);
    assert_eq!(cache.save(&path).unwrap(), 5);
    let restored = SavedCache::new(identity());
    assert_eq!(restored.restore(&path).unwrap(), 5);
    for nth in 0..5 {
        let bits = |vector: [f32; WIDTH]| vector.map(f32::to_bits);
        assert_eq!(get(&restored, &ids(nth)).map(bits), Some(bits(vector(nth))), "{nth}");
    }
    assert_eq!(get(&restored, &[1, 2, 3]), None);
    assert_eq!(SavedCache::new(identity()).restore(&dir.path().join("none")).unwrap(), 0, "no file is no error");
    // Saving again is the same file, whose order of use was kept.
    let content = fs::read(&path).unwrap();
    let again = SavedCache::new(identity());
    again.restore(&path).unwrap();
    again.save(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
}

#[test]
fn a_file_that_is_not_as_it_was_saved_is_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    filled(3).save(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let space = identity().space.len();
    // Where the parts are.
    let (identity_at, dimensions_at) = (12, 16 + space);
    let (count_at, first_at) = (dimensions_at + 4, dimensions_at + 12);
    let changed = |at: usize, bytes: &[u8]| {
        let mut content = whole.clone();
        content[at..at + bytes.len()].copy_from_slice(bytes);
        content
    };
    let resealed = |at: usize, bytes: &[u8]| sealed(changed(at, bytes));
    let mut cases: Vec<(String, Vec<u8>, &str)> = vec![
        ("empty".into(), vec![], "does not begin"),
        ("another file".into(), b"<html>".to_vec(), "does not begin"),
        ("magic only".into(), MAGIC.to_vec(), "ends in the middle"),
        ("header only".into(), whole[..12].to_vec(), "it is cut"),
        ("another format".into(), resealed(8, &2_u32.to_le_bytes()), "format is 2"),
        ("a component".into(), changed(first_at + 9, &[1]), "checksum"),
        ("an id".into(), changed(first_at + 4, &[1]), "checksum"),
        ("the checksum".into(), changed(whole.len() - 1, &[whole[whole.len() - 1] ^ 1]), "checksum"),
        ("a byte more".into(), [&whole[..], &[0]].concat(), "checksum"),
        ("NaN".into(), resealed(first_at + 8, &f32::NAN.to_le_bytes()), "vector 0 "),
        ("infinity".into(), resealed(first_at + 8, &f32::INFINITY.to_le_bytes()), "vector 0 "),
        ("fewer entries".into(), resealed(count_at, &2_u64.to_le_bytes()), "behind its last"),
        ("more entries".into(), resealed(count_at, &4_u64.to_le_bytes()), "ends in the middle"),
        ("entries without end".into(), resealed(count_at, &u64::MAX.to_le_bytes()), "ends in the middle"),
        ("a text of 4 billion tokens".into(), resealed(first_at, &u32::MAX.to_le_bytes()), "ends in the middle"),
        ("an identity of 4 GB".into(), resealed(identity_at, &u32::MAX.to_le_bytes()), "ends in the middle"),
        ("an identity that is no text".into(), resealed(identity_at + 4, &[0xff]), "no text"),
        ("another space".into(), resealed(identity_at + 4, b"X"), "another model"),
        ("vectors of no length".into(), resealed(dimensions_at, &0_u32.to_le_bytes()), "ends in the middle"),
    ];
    // Cut anywhere.
    cases.extend((0..whole.len()).step_by(7).map(|length| (format!("cut at {length}"), whole[..length].to_vec(), "")));
    let wrong: Vec<String> = cases
        .into_iter()
        .filter_map(|(name, content, words)| {
            fs::write(&path, content).unwrap();
            let cache = SavedCache::new(identity());
            match cache.restore(&path) {
                Err(error) if error.to_string().contains(words) && cache.is_empty() => None,
                other => Some(format!("{name}: {other:?}, {} entries", cache.len())),
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_file_of_another_model_or_dimension_is_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    filled(3).save(&path).unwrap();
    for other in [
        Identity { space: "contract fedcba9876543210, avx2, 1.0.0".to_owned(), ..identity() },
        Identity { space: String::new(), ..identity() },
        Identity { dimensions: 2, ..identity() },
        Identity { dimensions: 8, ..identity() },
    ] {
        let cache = SavedCache::new(other.clone());
        let error = cache.restore(&path).unwrap_err();
        assert!(matches!(error, SavedCacheError::Foreign { .. }), "{other:?}: {error}");
        assert!(cache.is_empty());
        assert!(error.to_string().contains("contract 0123456789abcdef"), "{error}");
    }
}

#[test]
fn a_file_larger_than_any_that_is_saved_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = fs::File::create(&path).unwrap();
    // A sparse file: it takes no room.
    file.set_len(MAX_BYTES as u64 * 2).unwrap();
    let error = SavedCache::new(identity()).restore(&path).unwrap_err().to_string();
    assert!(error.contains("more than"), "{error}");
}

#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn texts_with_the_same_hash_keep_their_own_vectors() {
    let cache = SavedCache::with(identity(), MAX_BYTES, BuildHasherDefault::<Same>::default());
    for nth in 0..50 {
        cache.insert(&ids(nth), &vector(nth));
    }
    for nth in 0..50 {
        assert_eq!(get(&cache, &ids(nth)), Some(vector(nth)), "{nth}");
    }
    // Of the same hash, the same length, the same beginning.
    assert_eq!(get(&cache, &[0, 0]), None);
    assert_eq!(get(&cache, &[]), None);
}

#[test]
fn the_least_recently_used_go_when_it_is_full() {
    let one = entry_bytes(1, WIDTH);
    let cache = SavedCache::with(identity(), 3 * one, RandomState::new());
    for id in 0..3 {
        cache.insert(&[id], &vector(id));
    }
    assert!(get(&cache, &[0]).is_some());
    cache.insert(&[1], &vector(9));
    cache.insert(&[3], &vector(3));
    let kept: Vec<u32> = (0..4).filter(|&id| get(&cache, &[id]).is_some()).collect();
    assert_eq!(kept, [0, 1, 3]);
    assert_eq!(get(&cache, &[1]), Some(vector(9)), "a vector that is kept anew replaces the old one");
    // Longer than all that is allowed: not kept, and nothing has to go for it.
    cache.insert(&[5; 1000], &vector(5));
    assert_eq!(cache.len(), 3);
    cache.insert(&[5; 70], &vector(5));
    assert_eq!(cache.len(), 1, "one that takes all of the room");
    assert!(cache.lock().bytes <= 3 * one);
}

#[test]
fn only_finite_vectors_of_its_dimensions_are_kept() {
    let cache = SavedCache::new(identity());
    for vector in [&[1.0; WIDTH - 1][..], &[1.0; WIDTH + 1], &[], &[1.0, f32::NAN, 1.0, 1.0], &[f32::INFINITY; WIDTH]] {
        cache.insert(&[1], vector);
        assert!(cache.is_empty(), "{vector:?}");
    }
}

/// Opening a pipe that nobody writes to never returns.
#[test]
fn what_is_no_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut found = vec![dir.path().to_path_buf()];
    #[cfg(unix)]
    {
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        found.push(pipe);
    }
    for path in found {
        let message = filled(0).restore(&path).unwrap_err().to_string();
        assert!(message.contains("not a file") && message.contains(&path.display().to_string()), "{message}");
    }
}

#[test]
fn a_save_that_fails_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    // A folder stands where the file should be.
    let path = dir.path().join("taken");
    fs::create_dir(&path).unwrap();
    let error = filled(2).save(&path).unwrap_err();
    assert!(matches!(error, SavedCacheError::Io { done: "written", .. }), "{error}");
    assert!(path.is_dir());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    // A file stands where the folder should be.
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    assert!(filled(2).save(&file.join("embed.bin")).is_err());
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert!(SavedCache::new(identity()).restore(&path).is_err(), "a folder is no cache");
}

/// The variable that makes this test's process one of those that save.
const SAVER: &str = "SIMILE_TEST_SAVED_CACHE";

#[test]
fn processes_and_threads_that_save_at_once_leave_a_whole_file() {
    if let Some(path) = std::env::var_os(SAVER) {
        for _ in 0..20 {
            filled(40).save(Path::new(&path)).unwrap();
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("embed.bin");
    let name = "saved_cache::tests::processes_and_threads_that_save_at_once_leave_a_whole_file";
    let spawn = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--test-threads=1"]).env(SAVER, &path);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    filled(40).save(&path).unwrap();
    let mut others = [spawn(), spawn()];
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20).for_each(|_| assert_eq!(filled(30).save(&path).unwrap(), 30)));
        // Whenever it is read, it is one of those that were saved.
        while others.iter_mut().any(|other| other.try_wait().unwrap().is_none()) {
            let count = SavedCache::new(identity()).restore(&path).unwrap();
            assert!([30, 40].contains(&count), "{count}");
        }
    });
    assert!(others.iter_mut().all(|other| other.wait().unwrap().success()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}
