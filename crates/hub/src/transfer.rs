//! One file from the hub into its blob: resumed, checked, and renamed only when it is right.
//!
//! Contract: after [`Transfer::fetch`] the blob is there with the size and hash that the hub lists. Whatever else happens,
//! no blob is: what was received stays as a partial file, from its first byte on, and the next try goes on from its end
//! (`Range`). A server that ignores that starts from the beginning, and so do we. A partial file whose content turns out to
//! be wrong is deleted; if some of it was of an earlier try, which may be to blame, this one starts afresh, once. An answer
//! that is seen to be something else (another part, a web page) spoils nothing.
//!
//! Cost: the content is hashed as it comes, and what is there already is read once. Memory is one buffer.

use std::io::{self, Read, Seek, SeekFrom, Write};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::ResponseExt;
use ureq::http::{StatusCode, header};

use crate::HubError;
use crate::error::shorten;
use crate::hash::{hexadecimal, is_lfs_pointer};
use crate::http::Http;
use crate::listing::{Etag, RemoteFile};
use crate::partial::Partial;
use crate::progress::Meter;
use crate::retry::{Fault, Patience, Retries};
use crate::stop::Stop;
use crate::store::{Store, not_written};

/// Bytes that are read at once: between two, a stop is noticed.
const BUFFER: usize = 1 << 16;
/// A try that came so much further before it failed is one that works: its failure does not count as one in a row.
const PROGRESS: u64 = 1 << 20;

/// Brings the files of one repository.
pub(crate) struct Transfer<'a> {
    pub(crate) http: &'a Http<'a>,
    pub(crate) store: &'a Store<'a>,
    pub(crate) patience: &'a Patience,
    pub(crate) stop: &'a Stop,
}

impl Transfer<'_> {
    /// Brings one file. `explain` turns a refusal into what it means for this model.
    pub(crate) fn fetch(
        &self,
        file: &RemoteFile,
        url: &str,
        meter: &mut Meter<'_>,
        explain: &dyn Fn(Fault) -> Fault,
    ) -> Result<(), HubError> {
        meter.begin(&file.name, file.size);
        meter.at(0);
        if self.store.has(file)? {
            meter.at(file.size);
            return Ok(());
        }
        let lock = self.store.lock(file, self.stop, |bytes| meter.at(bytes))?;
        // Whoever had the lock may have finished.
        if !self.store.has(file)? {
            self.bring(file, url, meter, explain)?;
        }
        drop(lock);
        meter.at(file.size);
        Ok(())
    }

    /// Tries until the blob is there.
    fn bring(
        &self,
        file: &RemoteFile,
        url: &str,
        meter: &mut Meter<'_>,
        explain: &dyn Fn(Fault) -> Fault,
    ) -> Result<(), HubError> {
        let mut retries = Retries::new(self.patience, self.stop);
        let mut partial = self.store.open_partial(file)?;
        let (mut resume, mut afresh, mut furthest) = (true, false, 0);
        loop {
            let mut came = Came::default();
            let outcome = self.attempt(file, url, &mut partial, resume, meter, &mut came);
            // One that cannot be resumed is read from the beginning; if that fails, it is resumed again.
            resume = !matches!(&outcome, Err(Fault::Refused(refusal)) if refusal.status == 416 && resume);
            let fault = match outcome {
                Ok(()) => {
                    if self.store.finish(file, partial)? {
                        return Ok(());
                    }
                    partial = self.store.open_partial(file)?;
                    let problem = "what was received was deleted or replaced by somebody else".to_owned();
                    Fault::Passing { url: url.to_owned(), problem }
                }
                Err(_) if !resume => continue,
                Err(Fault::Final(_)) if partial.is_discarded() && came.resumed && !afresh => {
                    afresh = true;
                    partial = self.store.open_partial(file)?;
                    continue;
                }
                Err(fault) => fault,
            };
            // Measured from the furthest point: who starts from the beginning each time gets nowhere.
            if came.reached >= furthest + PROGRESS {
                furthest = came.reached;
                retries.progress();
            }
            retries.pause(explain(fault))?;
        }
    }

    /// One request at most, after which the partial file is whole and right, or is not.
    fn attempt(
        &self,
        file: &RemoteFile,
        url: &str,
        partial: &mut Partial,
        resume: bool,
        meter: &mut Meter<'_>,
        came: &mut Came,
    ) -> Result<(), Fault> {
        let failed = |source| Fault::Final(not_written(&self.store.blob(file), source));
        let mut sink = Sink::new(file);
        if resume {
            self.read_again(file, partial, &mut sink).map_err(failed)?;
        }
        came.resumed = sink.length > 0;
        meter.at(sink.length);

        if sink.length < file.size {
            let mut response = self.http.get(url, sink.length)?;
            if response.status() != StatusCode::PARTIAL_CONTENT {
                sink = Sink::new(file);
                came.resumed = false;
            } else if !continues(&response, sink.length, file.size) {
                return Err(wrong(url, "it is another part than was asked for"));
            }
            if let Some(problem) = other_content(&mut response, sink.length, file.size) {
                return Err(wrong(url, &problem));
            }
            // Not truncated: what is there is of the same content, and more of it than may come now.
            partial.file.seek(SeekFrom::Start(sink.length)).map_err(failed)?;
            let source = response.get_uri().clone();
            let mut body = response.into_body().into_reader();
            let mut buffer = vec![0; BUFFER];
            loop {
                let read = body.read(&mut buffer);
                if self.stop.is_stopped() {
                    return Err(HubError::Stopped.into());
                }
                let read = read.map_err(|error| self.http.broken(error, &source))?;
                if read == 0 {
                    break;
                }
                if sink.length + read as u64 > file.size {
                    partial.discard().map_err(failed)?;
                    return Err(wrong(url, &format!("it has more than {} bytes", file.size)));
                }
                partial.file.write_all(&buffer[..read]).map_err(failed)?;
                sink.take(&buffer[..read]);
                came.reached = sink.length;
                meter.at(sink.length);
            }
            if sink.length < file.size {
                let problem = format!("the answer ended after {} of {} bytes", sink.length, file.size);
                return Err(Fault::Passing { url: url.to_owned(), problem });
            }
        }
        let pointer = is_lfs_pointer(&sink.start);
        let actual = sink.hash();
        if actual != file.etag.name() || pointer {
            partial.discard().map_err(failed)?;
            let hash = format!("its hash is {actual}, not {}", file.etag.name());
            return Err(wrong(url, if pointer { POINTER } else { &hash }));
        }
        Ok(())
    }

    /// Hashes what an earlier try left. One that is longer than the file is no part of it.
    fn read_again(&self, file: &RemoteFile, partial: &mut Partial, sink: &mut Sink) -> io::Result<()> {
        let length = partial.file.metadata()?.len();
        if length > file.size {
            return Ok(());
        }
        partial.file.seek(SeekFrom::Start(0))?;
        let mut content = (&partial.file).take(length);
        let mut buffer = vec![0; BUFFER];
        while !self.stop.is_stopped() {
            match content.read(&mut buffer)? {
                0 => break,
                read => sink.take(&buffer[..read]),
            }
        }
        Ok(())
    }
}

/// What came of a try, however it ended.
#[derive(Default)]
struct Came {
    /// Whether it went on from what an earlier one left.
    resumed: bool,
    /// Bytes of the file that are here, if any came.
    reached: u64,
}

fn wrong(url: &str, problem: &str) -> Fault {
    HubError::WrongContent { url: url.to_owned(), problem: problem.to_owned() }.into()
}

const POINTER: &str =
    "it is a git-lfs pointer and not the file itself: whoever runs this hub must fetch its large files";

/// Whether an answer with a part is the rest of the file from `from` on.
fn continues(response: &ureq::http::Response<ureq::Body>, from: u64, size: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.is_some_and(|range| {
        let end = format!("/{size}");
        range.starts_with(&format!("bytes {from}-")) && (range.ends_with(&end) || range.ends_with("/*"))
    })
}

/// What shows, before any of it is kept, that an answer is not the content from `from` on.
fn other_content(response: &mut ureq::http::Response<ureq::Body>, from: u64, size: u64) -> Option<String> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = header(header::CONTENT_ENCODING).to_owned();
    let page = header(header::CONTENT_TYPE).starts_with("text/html");
    let announced = response.body().content_length();
    if announced.is_none_or(|announced| announced == size - from) && !page && matches!(&*encoding, "" | "identity") {
        return None;
    }
    let mut start = Vec::new();
    // What cannot be read is not shown.
    let _ = response.body_mut().as_reader().take(1024).read_to_end(&mut start);
    let text = String::from_utf8_lossy(&start);
    Some(if is_lfs_pointer(&start) {
        POINTER.to_owned()
    } else if page || text.trim_start().starts_with('<') {
        format!("it is a web page that begins '{}'", shorten(text.trim()))
    } else if !matches!(&*encoding, "" | "identity") {
        format!("it is encoded ({}), which was not asked for", shorten(&encoding))
    } else {
        format!("it has {} bytes, not {size}", from.saturating_add(announced.unwrap_or_default()))
    })
}

/// What a content hashes to.
struct Sink {
    hasher: Hasher,
    length: u64,
    /// The content, if it is short enough for a git-lfs pointer.
    start: Vec<u8>,
}

enum Hasher {
    Sha256(Sha256),
    Git(Sha1),
}

impl Sink {
    fn new(file: &RemoteFile) -> Self {
        let hasher = match file.etag {
            Etag::Sha256(_) => Hasher::Sha256(Sha256::new()),
            // Git's id of a file is the hash of this and its content.
            Etag::Git(_) => Hasher::Git(Sha1::new_with_prefix(format!("blob {}\0", file.size))),
        };
        Sink { hasher, length: 0, start: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let room = 1025usize.saturating_sub(self.start.len());
        self.start.extend_from_slice(&bytes[..bytes.len().min(room)]);
        match &mut self.hasher {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Git(hasher) => hasher.update(bytes),
        }
    }

    fn hash(self) -> String {
        match self.hasher {
            Hasher::Sha256(hasher) => hexadecimal(&hasher.finalize()),
            Hasher::Git(hasher) => hexadecimal(&hasher.finalize()),
        }
    }
}
