//! Finding models: what a user has on disk, and what he is told when it is not enough.

use std::fs;
use std::path::{Path, PathBuf};

use simile_hub::{HubError, ModelRequest, Source, resolve};

const ID: &str = "owner/model";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "89abcdef0123456789abcdef0123456789abcdef";

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A folder with the least that is a model.
fn model(folder: &Path, weights: &str) {
    write(&folder.join("config.json"), r#"{"model_type": "bert"}"#);
    write(&folder.join("tokenizer.json"), "{}");
    write(&folder.join("model.safetensors"), weights);
}

fn snapshot(cache: &Path, commit: &str) -> PathBuf {
    cache.join("models--owner--model").join("snapshots").join(commit)
}

fn reference(cache: &Path, name: &str, content: &str) {
    write(&cache.join("models--owner--model").join("refs").join(name), content);
}

/// A cache whose `main` is at `COMMIT`, with plain files in the snapshot.
fn cache() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    reference(dir.path(), "main", COMMIT);
    model(&snapshot(dir.path(), COMMIT), "weights");
    dir
}

fn request(id: &str, cache: &Path) -> ModelRequest {
    ModelRequest { cache_dir: Some(cache.to_path_buf()), ..ModelRequest::new(id) }
}

fn at(cache: &Path, revision: &str) -> ModelRequest {
    ModelRequest { revision: Some(revision.to_owned()), ..request(ID, cache) }
}

#[test]
fn cache_by_branch_tag_reference_and_commit() {
    let dir = cache();
    reference(dir.path(), "v1.0", &format!("{OTHER}\n"));
    reference(dir.path(), "refs/pr/3", OTHER);
    model(&snapshot(dir.path(), OTHER), "other");

    let found = resolve(&request(ID, dir.path())).unwrap();
    assert_eq!((found.id.as_str(), found.revision.as_deref(), found.source), (ID, Some(COMMIT), Source::Cache));
    assert_eq!(found.folder, snapshot(dir.path(), COMMIT));
    for (revision, commit) in
        [("main", COMMIT), ("v1.0", OTHER), ("refs/pr/3", OTHER), (COMMIT, COMMIT), (OTHER, OTHER)]
    {
        assert_eq!(resolve(&at(dir.path(), revision)).unwrap().revision.as_deref(), Some(commit), "{revision}");
    }
}

#[test]
fn a_model_without_owner_is_found_too() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("models--bert-base-uncased");
    write(&root.join("refs/main"), COMMIT);
    model(&root.join("snapshots").join(COMMIT), "w");
    assert_eq!(resolve(&request("bert-base-uncased", dir.path())).unwrap().revision.as_deref(), Some(COMMIT));
}

#[test]
fn not_found_says_where_it_looked_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong-package");
    write(&wrong.join("package.json"), r#"{"name": "wrong", "simile": {"model": "owner/other"}}"#);
    let request = ModelRequest { packages: vec![wrong.clone(), dir.path().join("none")], ..request(ID, dir.path()) };
    let error = resolve(&request).unwrap_err();
    let HubError::NotFound { id, looked } = &error else { panic!("{error:?}") };
    assert_eq!(id, ID);
    assert_eq!(looked.len(), 3, "{looked:?}");
    let message = error.to_string();
    for part in ["owner/other", "models--owner--model", "package.json", "hf download owner/model", "HF_HUB_CACHE"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn a_missing_revision_names_those_that_are_there() {
    let dir = cache();
    let error = resolve(&at(dir.path(), "v9")).unwrap_err();
    let HubError::RevisionNotCached { revision, found, .. } = &error else { panic!("{error:?}") };
    assert_eq!((revision.as_str(), found.as_slice()), ("v9", &["main".to_owned(), COMMIT.to_owned()][..]));

    // Downloaded by commit only: there is no branch to follow.
    let dir = tempfile::tempdir().unwrap();
    model(&snapshot(dir.path(), OTHER), "w");
    let error = resolve(&request(ID, dir.path())).unwrap_err();
    assert!(
        matches!(&error, HubError::RevisionNotCached { revision, found, .. } if revision == "main" && found == &[OTHER]),
        "{error:?}"
    );
}

#[test]
fn broken_snapshots_are_named() {
    let no_snapshot = tempfile::tempdir().unwrap();
    reference(no_snapshot.path(), "main", COMMIT);

    let no_weights = cache();
    fs::remove_file(snapshot(no_weights.path(), COMMIT).join("model.safetensors")).unwrap();

    let no_config = cache();
    fs::remove_file(snapshot(no_config.path(), COMMIT).join("config.json")).unwrap();

    let interrupted = cache();
    fs::remove_file(snapshot(interrupted.path(), COMMIT).join("model.safetensors")).unwrap();
    write(&interrupted.path().join("models--owner--model/blobs/abc.incomplete"), "half");

    let mut cases = vec![
        (&no_snapshot, "the folder is not there"),
        (&no_weights, "no weights"),
        (&no_config, "no config.json"),
        (&interrupted, "begun and not finished"),
    ];
    let dangling = cache();
    if cfg!(unix) {
        let link = snapshot(dangling.path(), COMMIT).join("model.safetensors");
        fs::remove_file(&link).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("../../blobs/gone", &link).unwrap();
        cases.push((&dangling, "model.safetensors is a link to a file that is not there"));
    }
    let mut wrong = Vec::new();
    for (dir, part) in cases {
        let error = resolve(&request(ID, dir.path())).unwrap_err();
        if !matches!(error, HubError::Incomplete { .. })
            || !error.to_string().contains(part)
            || !error.to_string().contains("Download")
        {
            wrong.push((part, error.to_string()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_reference_file_cannot_lead_out_of_the_cache() {
    let dir = cache();
    model(&dir.path().join("evil"), "w");
    for content in ["../../../evil", "/etc", "", "main", "0123"] {
        reference(dir.path(), "main", content);
        let error = resolve(&request(ID, dir.path())).unwrap_err();
        assert!(matches!(error, HubError::InvalidRevision { .. }), "{content:?}: {error:?}");
    }
}

#[test]
fn bad_ids_and_revisions_are_refused_before_anything_is_read() {
    let dir = cache();
    for id in ["", "owner/mo del", "owner/..x", "a--b", "owner/model.git", "owner\0/model"] {
        let error = resolve(&request(id, dir.path())).unwrap_err();
        assert!(matches!(error, HubError::InvalidId { .. }), "{id:?}: {error:?}");
    }
    for revision in ["", "../main", "refs/../../x", "a b", "/etc/passwd"] {
        let error = resolve(&at(dir.path(), revision)).unwrap_err();
        assert!(matches!(error, HubError::InvalidRevision { .. }), "{revision:?}: {error:?}");
    }
}

#[test]
fn folders() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("my model");
    model(&folder, "w");
    let text = folder.to_str().unwrap();
    let found = resolve(&ModelRequest::new(text)).unwrap();
    assert_eq!(
        (found.id.as_str(), found.revision, found.source, found.folder.as_path()),
        (text, None, Source::Folder, folder.as_path())
    );

    let error = resolve(&ModelRequest { revision: Some("main".into()), ..ModelRequest::new(text) }).unwrap_err();
    assert!(matches!(error, HubError::RevisionOfFolder { .. }), "{error:?}");
    for missing in ["./no-such-folder", "/no/such/folder", "../nothing/at/all", "a/b/c"] {
        let error = resolve(&ModelRequest::new(missing)).unwrap_err();
        assert!(matches!(error, HubError::FolderMissing { .. }), "{missing}: {error:?}");
    }
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(resolve(&ModelRequest::new(empty.to_str().unwrap())), Err(HubError::Incomplete { .. })));
}

#[test]
fn old_layout_with_the_transformer_in_a_subfolder() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("modules.json"), "[]");
    model(&dir.path().join("0_Transformer"), "w");
    assert!(resolve(&ModelRequest::new(dir.path().to_str().unwrap())).is_ok());
}

#[test]
fn packages() {
    let dir = tempfile::tempdir().unwrap();
    let package = |name: &str, json: &str| {
        let folder = dir.path().join(name);
        write(&folder.join("package.json"), json);
        model(&folder, "at the top");
        model(&folder.join("files"), "below");
        folder
    };
    let plain = package("plain", r#"{"simile": {"model": "owner/model"}}"#);
    let pinned = package("pinned", r#"{"simile": {"model": "owner/model", "revision": "v2", "folder": "./files/"}}"#);
    let evil = package("evil", r#"{"simile": {"model": "owner/model", "folder": "../plain"}}"#);
    let absolute = package("absolute", r#"{"simile": {"model": "owner/model", "folder": "/etc"}}"#);
    let not_one = package("not-one", r#"{"name": "lodash"}"#);
    let broken = package("broken", "{");

    let find = |packages: &[&PathBuf], revision: Option<&str>| {
        let packages = packages.iter().map(|package| (*package).clone()).collect();
        resolve(&ModelRequest { packages, revision: revision.map(str::to_owned), ..request(ID, dir.path()) })
    };
    let found = find(&[&broken, &not_one, &plain, &pinned], None).unwrap();
    assert_eq!((found.folder, found.revision, found.source), (plain.clone(), None, Source::Package));
    let found = find(&[&plain, &pinned], Some("v2")).unwrap();
    assert_eq!((found.folder, found.revision.as_deref()), (pinned.join("files"), Some("v2")));

    for (packages, why) in [
        (vec![&plain], "another revision"),
        (vec![&evil, &absolute], "bad folder"),
        (vec![&broken, &not_one], "package.json"),
    ] {
        let error = find(&packages, Some("v3").filter(|_| why == "another revision")).unwrap_err();
        assert!(matches!(error, HubError::NotFound { .. }) && error.to_string().contains(why), "{why}: {error}");
    }
}

#[test]
fn a_package_comes_before_the_cache() {
    let dir = cache();
    let package = dir.path().join("package");
    write(&package.join("package.json"), r#"{"simile": {"model": "owner/model", "revision": "abc"}}"#);
    model(&package, "w");
    let request = ModelRequest { packages: vec![package], ..request(ID, dir.path()) };
    assert_eq!(resolve(&request).unwrap().source, Source::Package);
    // Another revision than the package's: the cache has it.
    let request = ModelRequest { revision: Some("main".into()), ..request };
    assert_eq!(resolve(&request).unwrap().source, Source::Cache);
}
