//! What the environment and a caller say about the hub: where it is, who asks, and whether it may be asked at all.
//!
//! Variables are those of `huggingface_hub`, with its precedence (source: `huggingface_hub/constants.py`, `utils/_auth.py`),
//! and the proxies' of curl. A blank value counts as not set. Nothing is read here but what `lookup` gives, so the caller
//! decides when the environment is read, and values are checked when a download needs them: a model that is on this
//! machine loads whatever they say.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::HubError;
use crate::cache_dir::expand;

/// Where models come from unless something else is said.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// What a caller says, which beats the environment. Not to be printed: it holds a secret.
#[derive(Clone, Default)]
pub struct HubOptions {
    /// Base URL of the hub.
    pub endpoint: Option<String>,
    /// Access token.
    pub token: Option<String>,
    /// Whether to stay offline.
    pub offline: Option<bool>,
}

/// Everything that a download needs to know about the hub.
#[derive(Clone, Debug, Default)]
pub struct HubSettings {
    /// As it was given, with the name of the option or variable.
    endpoint: Option<(&'static str, String)>,
    token: Option<(&'static str, Secret)>,
    /// Where a token may be, when none was given.
    token_file: Option<PathBuf>,
    /// What says to stay offline.
    offline: Option<&'static str>,
    https_proxy: Option<(&'static str, Secret)>,
    http_proxy: Option<(&'static str, Secret)>,
    no_proxy: String,
}

/// A token, or a proxy that may have a password in it: never shown.
#[derive(Clone)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl HubSettings {
    /// Settings from options and an environment: `lookup` gives a variable's value, `home` is the user's home directory.
    pub fn new(options: HubOptions, lookup: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Self {
        let set = |name: &'static str| {
            let value = lookup(name)?.trim().to_owned();
            (!value.is_empty()).then_some((name, value))
        };
        let secret = |found: Option<(&'static str, String)>| found.map(|(name, value)| (name, Secret(value)));
        let is_on = |name: &'static str| set(name).is_some_and(|(_, value)| is_true(&value));

        let offline = match options.offline {
            Some(true) => Some("the option offline"),
            Some(false) => None,
            None => ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().find(|name| is_on(name)),
        };
        let given = options.token.map(|token| ("the option token", Secret(token.trim().to_owned())));
        let implicit = !is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN");
        let token = given
            .or_else(|| implicit.then(|| secret(set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN")))).flatten());
        let path = |name| set(name).map(|(_, value)| expand(&value, lookup, home));
        let hf_home = path("HF_HOME").or_else(|| {
            let cache = path("XDG_CACHE_HOME").or_else(|| home.map(|home| home.join(".cache")));
            cache.map(|cache| cache.join("huggingface"))
        });
        let token_file = path("HF_TOKEN_PATH").or_else(|| hf_home.map(|folder| folder.join("token")));
        // Lower case first, as curl has it; HTTP_PROXY in capitals too, since other tools of this trade read it.
        let all = || set("all_proxy").or_else(|| set("ALL_PROXY"));
        HubSettings {
            endpoint: options.endpoint.map(|url| ("endpoint", url)).or_else(|| set("HF_ENDPOINT")),
            token,
            token_file: token_file.filter(|_| implicit),
            offline,
            https_proxy: secret(set("https_proxy").or_else(|| set("HTTPS_PROXY")).or_else(all)),
            http_proxy: secret(set("http_proxy").or_else(|| set("HTTP_PROXY")).or_else(all)),
            no_proxy: set("no_proxy").or_else(|| set("NO_PROXY")).map(|(_, hosts)| hosts).unwrap_or_default(),
        }
    }

    /// What says to stay offline, if something does.
    pub fn offline(&self) -> Option<&'static str> {
        self.offline
    }

    /// Base URL of the hub, without a slash at its end.
    ///
    /// # Errors
    /// [`HubError::InvalidSetting`] for anything but `http://host…` and `https://host…`.
    pub(crate) fn endpoint(&self) -> Result<String, HubError> {
        let Some((name, url)) = &self.endpoint else { return Ok(DEFAULT_ENDPOINT.to_owned()) };
        let wrong = |problem: String| HubError::InvalidSetting { name, problem };
        let url = url.trim().trim_end_matches('/');
        let parsed = url.parse::<ureq::http::Uri>().ok();
        let known = parsed.as_ref().and_then(crate::http::origin).is_some();
        // Not echoed: it holds a password.
        if url.contains('@') {
            return Err(wrong("holds a user name; give a token instead".to_owned()));
        }
        if !known || url.contains(['?', '#']) {
            let shown = crate::error::shorten(url);
            return Err(wrong(format!("is '{shown}', which is not a URL like {DEFAULT_ENDPOINT}")));
        }
        Ok(url.to_owned())
    }

    /// The token to send, and where it is from.
    ///
    /// # Errors
    /// [`HubError::InvalidSetting`] for one that no HTTP header can carry, [`HubError::Io`] for a file that is there and
    /// cannot be read.
    pub(crate) fn token(&self) -> Result<Option<(String, String)>, HubError> {
        let found = match (&self.token, &self.token_file) {
            (Some((name, Secret(token))), _) => Some((token.clone(), (*name).to_owned())),
            (None, Some(path)) => match fs::read_to_string(path) {
                Ok(token) => Some((token.trim().to_owned(), path.display().to_string())),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
                Err(source) => return Err(HubError::io(path, source)),
            },
            (None, None) => None,
        };
        let found = found.filter(|(token, _)| !token.is_empty());
        if let Some((_, from)) = found.as_ref().filter(|(token, _)| !token.bytes().all(|b| b.is_ascii_graphic())) {
            let problem = format!("(from {from}) holds characters that no token has");
            return Err(HubError::InvalidSetting { name: "token", problem });
        }
        Ok(found)
    }

    /// The proxy for a URL's scheme and host: its URL and the variable that names it.
    pub(crate) fn proxy(&self, scheme: &str, host: &str) -> Option<(&'static str, &str)> {
        let proxy = if scheme == "https" { &self.https_proxy } else { &self.http_proxy };
        let (name, Secret(url)) = proxy.as_ref()?;
        (!is_exempt(&self.no_proxy, host)).then_some((name, url))
    }
}

/// `1`, `true`, `yes` or `on`, in any case: the values that `huggingface_hub` takes for true.
fn is_true(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether `NO_PROXY` names the host: itself, a domain above it (with or without a dot in front), or `*`. Ports are not
/// looked at.
fn is_exempt(no_proxy: &str, host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
        let bare = match entry.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') && port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => &entry,
        };
        let domain = bare.trim_start_matches("*.").trim_start_matches('.').trim_matches(['[', ']']);
        bare == "*" || (!domain.is_empty() && (host == domain || host.ends_with(&format!(".{domain}"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Environment<'a> = &'a [(&'a str, &'a str)];

    fn settings(options: HubOptions, variables: Environment<'_>) -> HubSettings {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        HubSettings::new(options, &lookup, Some(Path::new("/user")))
    }

    #[test]
    fn token_precedence() {
        let dir = tempfile::tempdir().unwrap();
        let (own, home) = (dir.path().join("own"), dir.path().join("home"));
        fs::create_dir(&home).unwrap();
        fs::write(&own, "of-path\n").unwrap();
        fs::write(home.join("token"), "  of-home \n").unwrap();
        let (own, home) = (own.to_str().unwrap(), home.to_str().unwrap());
        let all = [
            ("HF_TOKEN", "one"),
            ("HUGGING_FACE_HUB_TOKEN", "two"),
            ("HF_TOKEN_PATH", own),
            ("HF_HOME", home),
            ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "yes"),
        ];
        let option = || Some("given".to_owned());
        let cases: &[(Option<String>, Environment<'_>, Option<&str>)] = &[
            (option(), &all, Some("given")),
            (None, &all, None),
            (option(), &all[..4], Some("given")),
            (None, &all[..4], Some("one")),
            (None, &all[1..4], Some("two")),
            (None, &all[2..4], Some("of-path")),
            (None, &all[3..4], Some("of-home")),
            (None, &[("HF_TOKEN", "  "), ("HF_HOME", home)], Some("of-home")),
            (None, &[("HF_HOME", "/no/such/folder")], None),
        ];
        let wrong: Vec<_> = cases
            .iter()
            .map(|(token, env, want)| {
                let got = settings(HubOptions { token: token.clone(), ..Default::default() }, env).token().unwrap();
                (env, got.map(|(token, _)| token), *want)
            })
            .filter(|(_, got, want)| got.as_deref() != *want)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_token_is_never_shown() {
        let good = settings(HubOptions::default(), &[("HF_TOKEN", "hf_secret"), ("HTTPS_PROXY", "http://u:secret@p")]);
        assert!(!format!("{good:?}").contains("secret@") && !format!("{good:?}").contains("hf_secret"));
        let bad = settings(HubOptions { token: Some("hf_secret é".into()), ..Default::default() }, &[]);
        let error = bad.token().unwrap_err();
        assert!(matches!(error, HubError::InvalidSetting { name: "token", .. }), "{error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn endpoints() {
        let cases = [
            ("https://huggingface.co", Some("https://huggingface.co")),
            ("https://hub.example.com/base/", Some("https://hub.example.com/base")),
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080")),
            ("http://[::1]:8080//", Some("http://[::1]:8080")),
            ("huggingface.co", None),
            ("ftp://huggingface.co", None),
            ("https://", None),
            ("http://127.0.0.1:99999", None),
            ("https://u:p@huggingface.co", None),
            ("https://huggingface.co?x=1", None),
            ("not a url", None),
        ];
        let wrong: Vec<_> = cases
            .iter()
            .map(|(url, want)| (url, settings(HubOptions::default(), &[("HF_ENDPOINT", url)]).endpoint(), want))
            .filter(|(_, got, want)| got.as_ref().ok().map(String::as_str) != **want)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        let error = settings(HubOptions::default(), &[("HF_ENDPOINT", "hub")]).endpoint().unwrap_err().to_string();
        assert!(error.contains("HF_ENDPOINT") && error.contains("'hub'"), "{error}");
        assert_eq!(settings(HubOptions::default(), &[]).endpoint().unwrap(), DEFAULT_ENDPOINT);
        let options = HubOptions { endpoint: Some("http://a".into()), ..Default::default() };
        assert_eq!(settings(options, &[("HF_ENDPOINT", "http://b")]).endpoint().unwrap(), "http://a");
    }

    #[test]
    fn offline() {
        let cases: &[(Option<bool>, Environment<'_>, bool)] = &[
            (None, &[], false),
            (None, &[("HF_HUB_OFFLINE", "1")], true),
            (None, &[("TRANSFORMERS_OFFLINE", "Yes")], true),
            (None, &[("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "ON")], true),
            (None, &[("HF_HUB_OFFLINE", "off")], false),
            (Some(true), &[], true),
            (Some(false), &[("HF_HUB_OFFLINE", "true")], false),
        ];
        for (option, env, want) in cases {
            let options = HubOptions { offline: *option, ..Default::default() };
            assert_eq!(settings(options, env).offline().is_some(), *want, "{option:?} {env:?}");
        }
    }

    #[test]
    fn proxies() {
        let all = [("HTTPS_PROXY", "http://s"), ("http_proxy", "http://h"), ("ALL_PROXY", "socks5://a")];
        let cases: &[(Environment<'_>, &str, &str, Option<&str>)] = &[
            (&all, "https", "hub.co", Some("http://s")),
            (&all, "http", "hub.co", Some("http://h")),
            (&all[2..], "https", "hub.co", Some("socks5://a")),
            (&[], "https", "hub.co", None),
            (&[all[0], ("NO_PROXY", "localhost, hub.co")], "https", "cdn.hub.co", None),
            (&[all[0], ("NO_PROXY", ".hub.co:443")], "https", "hub.co", None),
            (&[all[0], ("no_proxy", "*")], "https", "hub.co", None),
            (&[all[0], ("NO_PROXY", "b.co,")], "https", "hub.co", Some("http://s")),
            (&[all[0], ("NO_PROXY", "::1")], "https", "[::1]", None),
        ];
        for (env, scheme, host, want) in cases {
            let got = settings(HubOptions::default(), env);
            assert_eq!(got.proxy(scheme, host).map(|(_, url)| url), *want, "{env:?} {scheme} {host}");
        }
    }
}
