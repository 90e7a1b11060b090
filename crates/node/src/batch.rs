//! Texts on their way in.

use std::cell::RefCell;

use napi_derive::napi;

/// The texts of one call, handed over in slices.
#[napi]
#[derive(Default)]
pub struct NativeTextBatch {
    texts: RefCell<Vec<String>>,
}

#[napi]
impl NativeTextBatch {
    /// No texts yet.
    #[napi(constructor, catch_unwind)]
    pub fn new() -> Self {
        NativeTextBatch::default()
    }

    /// Appends texts. A lone surrogate becomes U+FFFD. Costs about 1 ms for a megabyte.
    #[napi(catch_unwind)]
    pub fn push(&self, texts: Vec<String>) {
        self.texts.borrow_mut().extend(texts);
    }
}

impl NativeTextBatch {
    /// The texts; the batch is empty then.
    pub(crate) fn take(&self) -> Vec<String> {
        self.texts.take()
    }
}
