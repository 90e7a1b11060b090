//! Reports of a download, on their way to JavaScript.
//!
//! The loader's thread leaves them here and wakes JavaScript, which takes all that are here: when it wakes, and once more
//! before it lets a load resolve, so that the last report always comes before the result. When JavaScript is busy the
//! newest report replaces the one before it, so this holds two at most: the first and the latest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use napi_derive::napi;
use simile_engine::Progress;

const HELD: usize = 2;

/// How far a download is, in bytes.
#[napi(object, object_from_js = false)]
pub struct NativeProgress {
    /// Model id.
    pub model: String,
    /// The file that is being transferred.
    pub file: String,
    /// Bytes of the model that are here.
    pub loaded: f64,
    /// Bytes of the model.
    pub total: f64,
    /// Bytes of the file that are here.
    pub file_loaded: f64,
    /// Bytes of the file.
    pub file_total: f64,
}

impl From<Progress> for NativeProgress {
    fn from(progress: Progress) -> Self {
        // A number of JavaScript is exact up to 2^53 bytes.
        NativeProgress {
            model: progress.model,
            file: progress.file,
            loaded: progress.loaded as f64,
            total: progress.total as f64,
            file_loaded: progress.file_loaded as f64,
            file_total: progress.file_total as f64,
        }
    }
}

/// Reports that JavaScript has not taken. Clones are the same list.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<Mutex<VecDeque<Progress>>>);

impl Reports {
    pub(crate) fn push(&self, progress: Progress) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() == HELD {
            held.pop_back();
        }
        held.push_back(progress);
    }

    pub(crate) fn take(&self) -> Vec<NativeProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).map(NativeProgress::from).collect()
    }
}
