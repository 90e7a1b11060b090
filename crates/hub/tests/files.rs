//! Reading files of a found model: content, JSON, hashes, and what a damaged file is called.

use std::fs;
use std::path::Path;

use simile_hub::{HubError, ModelFiles, Source};

/// SHA-256 of "abc" (FIPS 180-2, appendix B.1).
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db\nsize 90868376\n";

fn files(folder: &Path) -> ModelFiles {
    ModelFiles { id: "m".into(), revision: None, folder: folder.to_path_buf(), source: Source::Folder }
}

#[test]
fn content_json_and_absence() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("good.json"), r#"{"a": 1}"#).unwrap();
    fs::write(dir.path().join("bad.json"), "{\n  \"a\": }").unwrap();
    let files = files(dir.path());
    assert_eq!(files.read_json("good.json").unwrap().unwrap()["a"], 1);
    assert_eq!(files.read_json("none.json").unwrap(), None);
    assert_eq!(files.read("none/at/all").unwrap(), None);
    assert!(files.exists("good.json") && !files.exists("none.json") && !files.exists("../x"));
    let error = files.read_json("bad.json").unwrap_err();
    assert!(matches!(&error, HubError::InvalidJson { message, .. } if message.contains("line 2")), "{error}");
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "abc").unwrap();
    let inside = dir.path().join("model");
    fs::create_dir(&inside).unwrap();
    let files = files(&inside);
    for name in ["../secret", "a/../../secret", "/etc/passwd", "..\\secret", ""] {
        assert!(matches!(files.path(name), Err(HubError::InvalidName { .. })), "{name}");
        assert!(matches!(files.read(name), Err(HubError::InvalidName { .. })), "{name}");
        assert!(matches!(files.sha256(name), Err(HubError::InvalidName { .. })), "{name}");
    }
}

#[test]
fn lfs_pointers_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokenizer.json", "model.safetensors"] {
        fs::write(dir.path().join(name), POINTER).unwrap();
        let files = files(dir.path());
        assert!(matches!(files.read(name), Err(HubError::LfsPointer { .. })));
        assert!(matches!(files.read_json(name), Err(HubError::LfsPointer { .. })));
        let error = files.sha256(name).unwrap_err();
        assert!(matches!(error, HubError::LfsPointer { .. }) && error.to_string().contains("git lfs pull"), "{error}");
    }
}

#[test]
fn hashes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "abc").unwrap();
    let files = files(dir.path());
    assert_eq!(files.sha256("f").unwrap(), ABC);
    assert_eq!(files.sha256("f").unwrap(), ABC);
    // Another size is another file, whatever was remembered.
    fs::write(&path, "abcd").unwrap();
    assert_ne!(files.sha256("f").unwrap(), ABC);
    // More than one buffer.
    fs::write(&path, vec![b'a'; 1_000_000]).unwrap();
    assert_eq!(files.sha256("f").unwrap(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    assert!(matches!(files.sha256("none"), Err(HubError::Io { .. })));
}

#[cfg(unix)]
#[test]
fn a_blob_that_is_named_by_its_hash_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = dir.path().join("blobs");
    let snapshot = dir.path().join("snapshots/c");
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    let stated = "5".repeat(64);
    // Content whose hash is another one: what comes back shows which of the two was taken.
    for (name, blob) in [("weights", stated.as_str()), ("small", &"5".repeat(40))] {
        fs::write(blobs.join(blob), "abc").unwrap();
        std::os::unix::fs::symlink(Path::new("../../blobs").join(blob), snapshot.join(name)).unwrap();
    }
    let files = files(&snapshot);
    assert_eq!(files.sha256("weights").unwrap(), stated);
    // A git blob id is not a hash of the content alone.
    assert_eq!(files.sha256("small").unwrap(), ABC);
}

#[cfg(unix)]
#[test]
fn a_link_whose_target_is_gone_is_not_taken_for_no_file() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("../../blobs/gone", dir.path().join("modules.json")).unwrap();
    let files = files(dir.path());
    let error = files.read_json("modules.json").unwrap_err();
    assert!(matches!(error, HubError::DanglingLink { .. }), "{error:?}");
    assert!(error.to_string().contains("modules.json"), "{error}");
    assert_eq!(files.read_json("config.json").unwrap(), None);
}
