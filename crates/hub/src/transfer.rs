//! One file from the hub into its blob: resumed, checked, and renamed only when it is right.
//!
//! Contract: after [`Transfer::fetch`] the blob is there with the size and hash that the hub lists. Whatever else happens,
//! no blob is: what was received stays as a partial file, from its first byte on, and the next try goes on from its end
//! (`Range`). A server that ignores that starts from the beginning, and so do we. A partial file whose content turns out to
//! be wrong is deleted, so that the next try starts afresh.
//!
//! Cost: the content is hashed as it comes, and what is there already is read once. Memory is one buffer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};

use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::http::{StatusCode, header};

use crate::HubError;
use crate::error::shorten;
use crate::hash::{hexadecimal, is_lfs_pointer};
use crate::http::Http;
use crate::listing::{Etag, RemoteFile};
use crate::progress::Meter;
use crate::retry::{Fault, Patience, Retries};
use crate::stop::Stop;
use crate::store::{Store, write};

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
            let mut retries = Retries::new(self.patience, self.stop);
            let (mut resume, mut furthest) = (true, 0);
            loop {
                let mut reached = 0;
                match self.attempt(file, url, resume, meter, &mut reached) {
                    Ok(()) => break,
                    Err(Fault::Refused(refusal)) if refusal.status == 416 && resume => resume = false,
                    Err(fault) => {
                        // Measured from the furthest point: who starts from the beginning each time gets nowhere.
                        if reached >= furthest + PROGRESS {
                            furthest = reached;
                            retries.progress();
                        }
                        retries.pause(explain(fault))?;
                    }
                }
            }
            self.store.finish(file)?;
        }
        drop(lock);
        meter.at(file.size);
        Ok(())
    }

    /// One request at most. `reached` is set to the bytes of the file that are here.
    fn attempt(
        &self,
        file: &RemoteFile,
        url: &str,
        resume: bool,
        meter: &mut Meter<'_>,
        reached: &mut u64,
    ) -> Result<(), Fault> {
        let path = self.store.partial(file);
        let failed = |source| Fault::Final(write(&path, source));
        let mut sink = Sink::new(file);
        if resume {
            self.read_again(file, &mut sink).map_err(failed)?;
        }
        meter.at(sink.length);

        if sink.length < file.size {
            let mut response = self.http.get(url, sink.length)?;
            if sink.length > 0 && !continues(&response, sink.length, file.size) {
                if response.status() == StatusCode::PARTIAL_CONTENT {
                    // Another part than the one asked for: of no use to anybody.
                    return Err(self.wrong(file, url, "it is another part than was asked for"));
                }
                sink = Sink::new(file);
            }
            if let Some(announced) = response.body().content_length()
                && sink.length + announced != file.size
            {
                let start = start_of(&mut response);
                return Err(self.wrong(file, url, &other_content(&start, sink.length + announced, file.size)));
            }
            // Not truncated, since without locks somebody else may be writing the same bytes at the same places.
            let partial = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let mut partial = partial.map_err(failed)?;
            partial.seek(SeekFrom::Start(sink.length)).map_err(failed)?;
            let mut body = response.into_body().into_reader();
            let mut buffer = vec![0; BUFFER];
            loop {
                let read = body.read(&mut buffer);
                if self.stop.is_stopped() {
                    return Err(HubError::Stopped.into());
                }
                let read = read.map_err(|error| self.http.broken(error, url))?;
                if read == 0 {
                    break;
                }
                if sink.length + read as u64 > file.size {
                    return Err(self.wrong(file, url, &format!("it has more than {} bytes", file.size)));
                }
                partial.write_all(&buffer[..read]).map_err(failed)?;
                sink.take(&buffer[..read]);
                *reached = sink.length;
                meter.at(sink.length);
            }
            if sink.length < file.size {
                let problem = format!("the answer ended after {} of {} bytes", sink.length, file.size);
                return Err(Fault::Passing { url: url.to_owned(), problem });
            }
        }
        let pointer = is_lfs_pointer(&sink.start);
        let actual = sink.hash();
        if actual != file.etag.name() {
            return Err(self.wrong(file, url, &format!("its hash is {actual}, not {}", file.etag.name())));
        }
        if pointer {
            return Err(self.wrong(file, url, POINTER));
        }
        // Whatever is beyond was not hashed. And a blob keeps its name for ever, so its content must be on the disk before.
        let partial = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        partial.set_len(file.size).and_then(|()| partial.sync_all()).map_err(failed)
    }

    /// Hashes what an earlier try left. One that is longer than the file is no part of it.
    fn read_again(&self, file: &RemoteFile, sink: &mut Sink) -> io::Result<()> {
        let partial = match File::open(self.store.partial(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            partial => partial?,
        };
        let length = partial.metadata()?.len();
        if length > file.size {
            return Ok(());
        }
        let mut partial = partial.take(length);
        let mut buffer = vec![0; BUFFER];
        while !self.stop.is_stopped() {
            match partial.read(&mut buffer)? {
                0 => break,
                read => sink.take(&buffer[..read]),
            }
        }
        Ok(())
    }

    /// The content is another than the listed one: nothing of it stays.
    fn wrong(&self, file: &RemoteFile, url: &str, problem: &str) -> Fault {
        let path = self.store.partial(file);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => write(&path, source).into(),
            _ => HubError::WrongContent { url: url.to_owned(), problem: problem.to_owned() }.into(),
        }
    }
}

const POINTER: &str =
    "it is a git-lfs pointer and not the file itself: whoever runs this hub must fetch its large files";

/// Whether an answer is the rest of the file from `from` on.
fn continues(response: &ureq::http::Response<ureq::Body>, from: u64, size: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| {
            let end = format!("/{size}");
            range.starts_with(&format!("bytes {from}-")) && (range.ends_with(&end) || range.ends_with("/*"))
        })
}

/// The first bytes of an answer that is not what was asked for.
fn start_of(response: &mut ureq::http::Response<ureq::Body>) -> Vec<u8> {
    let mut start = Vec::new();
    // What cannot be read is not shown.
    let _ = response.body_mut().as_reader().take(1024).read_to_end(&mut start);
    start
}

fn other_content(start: &[u8], actual: u64, size: u64) -> String {
    let text = String::from_utf8_lossy(start);
    if is_lfs_pointer(start) {
        POINTER.to_owned()
    } else if text.trim_start().starts_with('<') {
        format!("it is a web page that begins '{}'", shorten(text.trim()))
    } else {
        format!("it has {actual} bytes, not {size}")
    }
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
