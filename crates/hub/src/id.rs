//! Names that become parts of paths: model ids, revisions and file names. Each is checked before it is joined to one.

use crate::HubError;

/// Longest id that the hub takes, in bytes.
const MAX_ID: usize = 96;
/// Longest revision that we take, in bytes: file systems stop at 255 per name.
const MAX_REVISION: usize = 255;

/// Checks a repository id: `name` or `owner/name`, by the rules of the hub's own client.
///
/// Letters, digits, `-`, `_` and `.` only; at most 96 bytes; no part starts or ends with `-` or `.`; no `--`
/// (it separates the parts in the cache's folder names), no `..`, no trailing `.git`.
///
/// # Errors
/// [`HubError::InvalidId`] with the rule that is broken.
pub fn check_model_id(id: &str) -> Result<(), HubError> {
    let parts: Vec<&str> = id.split('/').collect();
    let reason = if id.is_empty() {
        "it is empty"
    } else if id.len() > MAX_ID {
        "it has more than 96 characters"
    } else if parts.len() > 2 {
        "it has more than one '/'"
    } else if parts.iter().any(|part| part.is_empty()) {
        "a part of it is empty"
    } else if !id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/')) {
        "it may hold only letters, digits, '-', '_', '.' and one '/'"
    } else if id.contains("--") || id.contains("..") {
        "it may not hold '--' or '..'"
    } else if parts.iter().any(|part| part.starts_with(['-', '.']) || part.ends_with(['-', '.'])) {
        "its parts may not start or end with '-' or '.'"
    } else if id.ends_with(".git") {
        "it may not end in '.git'"
    } else {
        return Ok(());
    };
    Err(HubError::InvalidId { id: id.to_owned(), reason })
}

/// Checks a revision: a branch, tag (`v1.0`, `refs/pr/3`) or commit, by git's rules for reference names.
///
/// # Errors
/// [`HubError::InvalidRevision`] with the rule that is broken.
pub fn check_revision(revision: &str) -> Result<(), HubError> {
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "\\~^:?*[<>|\"".contains(c);
    let reason = if revision.is_empty() {
        "it is empty"
    } else if revision.len() > MAX_REVISION {
        "it has more than 255 characters"
    } else if revision.contains(forbidden) {
        "it holds a character that no reference may have"
    } else if revision.split('/').any(|part| part.is_empty() || part.starts_with(['.', '-']) || part.ends_with('.')) {
        "a part of it is empty, or starts or ends with '.' or '-'"
    } else if revision.contains("..") {
        "it may not hold '..'"
    } else {
        return Ok(());
    };
    Err(HubError::InvalidRevision { revision: revision.to_owned(), reason })
}

/// Checks a file name relative to a model's folder: parts joined by `/`, none of them `.`, `..` or empty.
///
/// # Errors
/// [`HubError::InvalidName`] with the rule that is broken.
pub fn check_relative_name(name: &str) -> Result<(), HubError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.contains(['\\', '\0', ':']) {
        "it holds a backslash, a colon or a NUL"
    } else if name.starts_with('/') {
        "it is an absolute path"
    } else if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "it has an empty part, '.' or '..'"
    } else {
        return Ok(());
    };
    Err(HubError::InvalidName { name: name.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        let long = "a".repeat(97);
        let cases = [
            ("gpt2", true),
            ("sentence-transformers/all-MiniLM-L6-v2", true),
            ("BAAI/bge-small-en-v1.5", true),
            ("Foo-BAR_foo.bar123", true),
            ("", false),
            (&long, false),
            ("a/b/c", false),
            ("/a", false),
            ("a/", false),
            ("../a", false),
            ("a/..", false),
            ("a/.b", false),
            ("a/b.", false),
            ("-a/b", false),
            ("a--b", false),
            ("a..b", false),
            ("a/b.git", false),
            ("a b/c", false),
            ("a\\b", false),
            ("a\0b", false),
            ("é/b", false),
        ];
        let wrong: Vec<_> = cases.iter().filter(|(id, good)| check_model_id(id).is_ok() != *good).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn revisions() {
        let long = "a".repeat(256);
        let cases = [
            ("main", true),
            ("v1.0", true),
            ("refs/pr/3", true),
            ("1110a243fdf4706b3f48f1d95db1a4f5529b4d41", true),
            ("feature/über", true),
            ("", false),
            (&long, false),
            ("..", false),
            ("../main", false),
            ("a/../b", false),
            ("a/./b", false),
            ("/etc/passwd", false),
            ("a//b", false),
            ("a/", false),
            ("a b", false),
            ("a\nb", false),
            ("a\0b", false),
            ("a\\b", false),
            ("C:x", false),
            ("-rf", false),
        ];
        let wrong: Vec<_> = cases.iter().filter(|(revision, good)| check_revision(revision).is_ok() != *good).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn names() {
        let cases = [
            ("config.json", true),
            ("1_Pooling/config.json", true),
            ("a..b", true),
            ("", false),
            ("/etc/passwd", false),
            ("../config.json", false),
            ("a/../../b", false),
            ("a//b", false),
            ("./a", false),
            ("a\\..\\b", false),
            ("C:/a", false),
        ];
        let wrong: Vec<_> = cases.iter().filter(|(name, good)| check_relative_name(name).is_ok() != *good).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
