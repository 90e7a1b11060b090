//! A model from the hub into the cache.
//!
//! The order keeps the cache sound at every moment: the listing, which pins one commit and refuses what is no model before
//! anything large is fetched; the configuration, which the caller may refuse; the index of the weights, if they are in several files; the blobs, small ones first; then
//! the snapshot's links, the weights' last; then the reference. A process that is killed at any point leaves blobs and
//! partial files, which the next try uses, and nothing that resolves.

use std::fs;
use std::io::Read;
use std::path::Path;

use ureq::ResponseExt;

use crate::cache::{CachedModel, DEFAULT_REVISION, is_commit};
use crate::http::{Http, not_a_hub, segment};
use crate::listing::{Listing, RemoteFile};
use crate::progress::{Meter, Progress};
use crate::retry::{Fault, Patience, Refusal, Retries};
use crate::settings::HubSettings;
use crate::stop::Stop;
use crate::store::Store;
use crate::transfer::Transfer;
use crate::{HubError, ModelRequest};

/// The largest listing that is read: one of 100,000 files has about as much.
const MAX_LISTING: u64 = 32 << 20;

/// The largest index of weights that is read: one of 10,000 tensors has 1 MB.
const MAX_INDEX: u64 = 16 << 20;

/// What tests change.
pub(crate) struct Rules {
    pub(crate) patience: Patience,
    /// Whether the cache's file system has links.
    pub(crate) links: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { patience: Patience::default(), links: true }
    }
}

/// Downloads what `cache` has not of the model. Afterwards the snapshot is whole and `revision` refers to it.
///
/// # Errors
/// Those of [`crate::obtain`].
pub(crate) fn download<E: From<HubError>>(
    cache: &Path,
    request: &ModelRequest,
    settings: &HubSettings,
    rules: &Rules,
    stop: &Stop,
    report: &mut dyn FnMut(Progress),
    check: &dyn Fn(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let id = request.id_or_folder.as_str();
    let revision = request.revision.as_deref().unwrap_or(DEFAULT_REVISION);
    let cached = CachedModel::new(cache, id)?;
    let http = Http::new(id, settings, &rules.patience, stop)?;
    let asked = Asked { id, revision, http: &http };
    let listing = asked.listing(&rules.patience, stop)?;
    let indices = listing.index(id)?;

    let store = Store::new(cache, &cached, rules.links);
    let transfer = Transfer { http: &http, store: &store, patience: &rules.patience, stop };
    let url = |file: &RemoteFile| {
        let name: Vec<String> = file.name.split('/').map(segment).collect();
        format!("{}/{id}/resolve/{}/{}", http.endpoint(), listing.commit, name.join("/"))
    };
    let fetch = |file: &RemoteFile, meter: &mut Meter<'_>| {
        transfer.fetch(file, &url(file), meter, &|fault| asked.explain(fault, Wanted::File))
    };
    // Unreported, since how much there is to fetch is known only afterwards.
    let small = |file: &RemoteFile| -> Result<Vec<u8>, HubError> {
        fetch(file, &mut Meter::new(id, 0, &mut |_| {}))?;
        let blob = store.blob(file);
        fs::read(&blob).map_err(|source| HubError::io(&blob, source))
    };
    if let Some(config) = listing.config() {
        check(&small(config)?)?;
    }
    let mut contents = Vec::new();
    for index in indices {
        if index.size > MAX_INDEX {
            let problem = format!("it has {} bytes; an index of weights has at most {MAX_INDEX}", index.size);
            return Err(HubError::WrongContent { url: url(index), problem }.into());
        }
        contents.push((index, small(index)?));
    }
    let files = listing.model_files(&contents);
    let total = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.size));
    let mut meter = Meter::new(id, total, report);
    for file in &files {
        fetch(file, &mut meter)?;
    }
    for file in &files {
        store.link(&listing.commit, file)?;
    }
    store.reference(revision, &listing.commit)?;
    meter.finish();
    Ok(())
}

/// What the hub is asked for, for messages.
struct Asked<'a> {
    id: &'a str,
    revision: &'a str,
    http: &'a Http<'a>,
}

enum Wanted {
    Listing,
    File,
}

impl Asked<'_> {
    fn listing(&self, patience: &Patience, stop: &Stop) -> Result<Listing, HubError> {
        let Asked { id, revision, http } = self;
        let url = format!("{}/api/models/{id}/revision/{}?blobs=true", http.endpoint(), segment(revision));
        let shown = url.trim_end_matches("?blobs=true");
        let mut retries = Retries::new(patience, stop);
        let attempt = || -> Result<Vec<u8>, Fault> {
            let response = http.get(&url, 0)?;
            let source = response.get_uri().clone();
            let mut body = Vec::new();
            let read = response.into_body().into_reader().take(MAX_LISTING + 1).read_to_end(&mut body);
            read.map_err(|error| http.broken(error, &source))?;
            if body.len() as u64 > MAX_LISTING {
                return Err(not_a_hub(shown, "its answer is larger than any listing").into());
            }
            Ok(body)
        };
        let body = loop {
            match attempt() {
                Ok(body) => break body,
                Err(fault) => retries.pause(self.explain(fault, Wanted::Listing))?,
            }
        };
        let listing = Listing::parse(&body).map_err(|problem| not_a_hub(shown, &problem))?;
        if is_commit(revision) && listing.commit != *revision {
            return Err(not_a_hub(shown, &format!("it lists the commit {}", listing.commit)));
        }
        Ok(listing)
    }

    /// What a refusal means for this model.
    ///
    /// A hub tells by code; one that sends none (a mirror, an older one) by status alone. Without a token it answers 401
    /// both for a private repository and for one that does not exist, so that nobody learns which.
    fn explain(&self, fault: Fault, wanted: Wanted) -> Fault {
        let Fault::Refused(refusal) = fault else { return fault };
        if !refusal.of_hub {
            return Fault::Refused(refusal);
        }
        let Refusal { status, code, said, url, token, .. } = &refusal;
        let (status, token) = (*status, *token);
        let (id, endpoint) = (self.id.to_owned(), self.http.endpoint().to_owned());
        let not_there = || HubError::NotOnHub { id: id.clone(), endpoint: endpoint.clone(), status, token };
        let gated = || HubError::Gated { id: id.clone(), page: format!("{endpoint}/{id}"), status, token };
        let says = |word: &str| said.as_ref().is_some_and(|said| said.to_ascii_lowercase().contains(word));
        let error = match (code.as_deref(), status) {
            (Some("GatedRepo"), _) => gated(),
            (Some("RevisionNotFound"), _) => {
                HubError::RevisionNotOnHub { id, revision: self.revision.to_owned(), endpoint, status }
            }
            (Some("EntryNotFound"), _) => HubError::FileNotOnHub { url: url.clone(), status },
            (Some("RepoNotFound"), _) => not_there(),
            (_, 401) if token => {
                let from = self.http.token().map(|(_, from)| from.clone()).unwrap_or_default();
                HubError::TokenRefused { url: url.clone(), from }
            }
            (_, 401) => not_there(),
            (_, 403) if says("gated") || says("restricted") || says("authorized list") => gated(),
            (_, 404) => match wanted {
                Wanted::Listing => not_there(),
                Wanted::File => HubError::FileNotOnHub { url: url.clone(), status },
            },
            _ => return Fault::Refused(refusal),
        };
        Fault::Final(error)
    }
}

#[cfg(test)]
mod tests;
