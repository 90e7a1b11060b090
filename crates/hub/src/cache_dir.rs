//! Where the shared cache is: the precedence of `huggingface_hub`, so that Python and we find the same files.
//!
//! `HF_HUB_CACHE`, else `HUGGINGFACE_HUB_CACHE`, else `$HF_HOME/hub`, else `$XDG_CACHE_HOME/huggingface/hub`, else
//! `~/.cache/huggingface/hub` (source: `huggingface_hub/constants.py`). A leading `~` and `$NAME` or `${NAME}` in a value
//! are expanded, as there. One difference: a blank value counts as not set, where Python would take the current directory.

use std::path::{Path, PathBuf};

use crate::HubError;

/// The cache folder that the environment asks for. It need not exist.
///
/// # Errors
/// [`HubError::NoCacheDir`] when nothing is set and there is no home directory.
pub fn cache_dir() -> Result<PathBuf, HubError> {
    from_environment(&|name| std::env::var(name).ok(), std::env::home_dir().as_deref())
}

/// The same as a function of the environment: `lookup` gives a variable's value, `home` is the user's home directory.
///
/// # Errors
/// [`HubError::NoCacheDir`] when nothing is set and `home` is `None`.
pub fn from_environment(lookup: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Result<PathBuf, HubError> {
    let set =
        |name: &str| lookup(name).filter(|value| !value.trim().is_empty()).map(|value| expand(&value, lookup, home));
    if let Some(hub) = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE")) {
        return Ok(hub);
    }
    if let Some(hf_home) = set("HF_HOME") {
        return Ok(hf_home.join("hub"));
    }
    let cache = set("XDG_CACHE_HOME").or_else(|| home.map(|home| home.join(".cache"))).ok_or(HubError::NoCacheDir)?;
    Ok(cache.join("huggingface").join("hub"))
}

/// Expands a leading `~` and every `$NAME` or `${NAME}` that is set; whatever is not known stays as it is.
pub(crate) fn expand(value: &str, lookup: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> PathBuf {
    let mut expanded = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at..];
        let (name, whole) = if let Some(inner) = rest.strip_prefix("${") {
            inner.find('}').map_or(("", 1), |end| (&inner[..end], end + 3))
        } else {
            let end =
                rest[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(rest.len(), |end| end + 1);
            (&rest[1..end], end)
        };
        match lookup(name).filter(|_| !name.is_empty()) {
            Some(value) => expanded.push_str(&value),
            None => expanded.push_str(&rest[..whole]),
        }
        rest = &rest[whole..];
    }
    expanded.push_str(rest);
    match (expanded.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_path_buf(),
        (Some(below), Some(home)) if below.starts_with(['/', '\\']) => home.join(below.trim_start_matches(['/', '\\'])),
        _ => PathBuf::from(expanded),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(variables: &[(&str, &str)]) -> PathBuf {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        from_environment(&lookup, Some(Path::new("/home/u"))).unwrap()
    }

    #[test]
    fn precedence_and_expansion() {
        let all =
            [("HF_HUB_CACHE", "/a"), ("HUGGINGFACE_HUB_CACHE", "/b"), ("HF_HOME", "/c"), ("XDG_CACHE_HOME", "/d")];
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&all, "/a"),
            (&all[1..], "/b"),
            (&all[2..], "/c/hub"),
            (&all[3..], "/d/huggingface/hub"),
            (&[], "/home/u/.cache/huggingface/hub"),
            (&[("HF_HUB_CACHE", ""), ("HF_HOME", "  "), ("XDG_CACHE_HOME", "/d")], "/d/huggingface/hub"),
            (&[("HF_HOME", "~/hf")], "/home/u/hf/hub"),
            (&[("HF_HUB_CACHE", "~")], "/home/u"),
            (&[("HF_HUB_CACHE", "~other/x")], "~other/x"),
            (&[("HF_HUB_CACHE", "$DISK/m/${SUB}/x"), ("DISK", "/mnt"), ("SUB", "s")], "/mnt/m/s/x"),
            (&[("HF_HUB_CACHE", "/m/$MISSING/${NOT_CLOSED/$")], "/m/$MISSING/${NOT_CLOSED/$"),
        ];
        let wrong: Vec<_> = cases
            .iter()
            .map(|(env, want)| (env, dir(env), PathBuf::from(want)))
            .filter(|(_, got, want)| got != want)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn no_home_and_nothing_set_is_an_error() {
        assert!(matches!(from_environment(&|_| None, None), Err(HubError::NoCacheDir)));
        assert_eq!(
            from_environment(&|name| (name == "HF_HOME").then(|| "/h".to_owned()), None).unwrap(),
            Path::new("/h/hub")
        );
    }
}
