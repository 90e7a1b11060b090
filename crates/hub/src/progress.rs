//! How far a download is, in bytes.

use std::time::{Duration, Instant};

/// At most 20 reports a second: more than an eye or a terminal can follow.
const INTERVAL: Duration = Duration::from_millis(50);

/// One report. Bytes that an earlier try or another model left on this machine count as loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The model's id.
    pub model: String,
    /// The file that is being transferred, relative to the model, with `/`.
    pub file: String,
    /// Bytes of the model that are here.
    pub loaded: u64,
    /// Bytes of the model: known from the start, and the same in every report of a download.
    pub total: u64,
    /// Bytes of the file that are here.
    pub file_loaded: u64,
    /// Bytes of the file.
    pub file_total: u64,
}

/// Turns byte counts into reports: one at the start, some on the way, one at the end of the whole.
pub(crate) struct Meter<'a> {
    now: Progress,
    /// Bytes of the files before this one.
    before: u64,
    reported: Option<Instant>,
    report: &'a mut dyn FnMut(Progress),
}

impl<'a> Meter<'a> {
    pub(crate) fn new(model: &str, total: u64, report: &'a mut dyn FnMut(Progress)) -> Self {
        let now =
            Progress { model: model.to_owned(), file: String::new(), loaded: 0, total, file_loaded: 0, file_total: 0 };
        Meter { now, before: 0, reported: None, report }
    }

    /// A file begins.
    pub(crate) fn begin(&mut self, file: &str, size: u64) {
        self.before += self.now.file_total;
        self.now = Progress {
            file: file.to_owned(),
            loaded: self.before,
            file_loaded: 0,
            file_total: size,
            ..self.now.clone()
        };
    }

    /// So many bytes of the file are here. A try that starts from the beginning is not seen until it gets further than
    /// the last one: what was reported is never taken back.
    pub(crate) fn at(&mut self, bytes: u64) {
        self.now.file_loaded = bytes.min(self.now.file_total).max(self.now.file_loaded);
        self.now.loaded = self.before + self.now.file_loaded;
        let due = self.reported.is_none_or(|reported| reported.elapsed() >= INTERVAL);
        // The end is `finish`'s to report: a report of all bytes is the last one.
        if due && self.now.loaded < self.now.total {
            self.report();
        }
    }

    /// Everything is here.
    pub(crate) fn finish(mut self) {
        self.report();
    }

    fn report(&mut self) {
        self.reported = Some(Instant::now());
        (self.report)(self.now.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_at_nothing_last_at_everything_and_few_between() {
        let mut reports = Vec::new();
        let mut report =
            |one: Progress| reports.push((one.file, one.loaded, one.total, one.file_loaded, one.file_total));
        let mut meter = Meter::new("a/b", 1010, &mut report);
        meter.begin("config.json", 10);
        meter.at(0);
        meter.at(10);
        meter.begin("model.safetensors", 1000);
        (0..=1000).for_each(|bytes| meter.at(bytes));
        meter.at(0);
        meter.finish();
        assert_eq!(reports.first(), Some(&("config.json".to_owned(), 0, 1010, 0, 10)));
        assert_eq!(reports.last(), Some(&("model.safetensors".to_owned(), 1010, 1010, 1000, 1000)));
        assert_eq!(reports.iter().filter(|report| report.1 == 1010).count(), 1);
        assert!(reports.len() <= 5, "{reports:?}");
    }
}
