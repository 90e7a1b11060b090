//! Turns a panic into a value, quietly.
//!
//! A panic on one of our threads is the failure of one job, and the job's error tells it: printing it as well would put
//! lines on the standard error of somebody else's program. So the first use installs a panic hook that keeps message
//! and place of panics on threads named `simile-…` and hands all others to the hook that was there before. The standard
//! library is linked into the addon, so the hook sees the panics of this library only.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once};

use crate::failure::{ErrorKind, Failure};

/// All threads of this library are named with it.
pub(crate) const THREAD_PREFIX: &str = "simile-";

/// The last panic on a thread of ours, as (message, `file:line`).
static LAST: Mutex<Option<(String, String)>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// Runs `work` and gives its result, or what it said when it panicked: the message, and where known the source line.
///
/// The caller says what happens to state that `work` borrowed: it may be half changed.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(install);
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(describe)
}

/// The failure of a job in which `what` panicked.
pub(crate) fn failure(what: &str, panic: &str) -> Failure {
    Failure::new(ErrorKind::TaskFailed, format!("{what} panicked: {panic}; this is a bug of the library"))
}

fn install() {
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let ours = std::thread::current().name().is_some_and(|name| name.starts_with(THREAD_PREFIX));
        if !ours {
            return previous(info);
        }
        let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        *last() = Some((message(info.payload()), place));
    }));
}

fn describe(payload: Box<dyn Any + Send>) -> String {
    let message = message(&*payload);
    let place = last().take().filter(|(same, _)| *same == message).map(|(_, place)| place);
    // A payload's destructor may panic too; what that panic carries is leaked.
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    match place {
        Some(place) => format!("{message} ({place})"),
        None => message,
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "no message".to_owned(),
    }
}

fn last() -> std::sync::MutexGuard<'static, Option<(String, String)>> {
    LAST.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place() {
        let caught = std::thread::Builder::new()
            .name(format!("{THREAD_PREFIX}test"))
            .spawn(|| catch(|| -> u32 { panic!("no {}", "luck") }))
            .unwrap()
            .join()
            .unwrap();
        let text = caught.unwrap_err();
        assert!(text.starts_with("no luck ("), "{text}");
        assert!(text.contains("panics.rs:"), "{text}");
    }

    #[test]
    fn what_a_panic_carries_is_freed() {
        let carried = Arc::new(());
        let inside = carried.clone();
        let thread = std::thread::Builder::new().name(format!("{THREAD_PREFIX}test"));
        let caught = thread.spawn(move || catch(|| -> u32 { panic::panic_any(inside) })).unwrap().join().unwrap();
        assert!(caught.unwrap_err().starts_with("no message"));
        assert_eq!(Arc::strong_count(&carried), 1);
    }

    #[test]
    fn a_result_passes() {
        assert_eq!(catch(|| 3), Ok(3));
    }
}
