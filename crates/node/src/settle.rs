//! Promises that always settle.
//!
//! [`Settle`] is the one way in which this addon ends a promise, from any thread. Dropping it, for example because a
//! panic unwound past it, ends the promise as `TaskFailed`. An environment that is gone gets nothing: napi disarms its
//! promises before it goes, and settling one is then a no-op.

use std::panic::{AssertUnwindSafe, catch_unwind};

use napi::bindgen_prelude::{Either, Env, Object, ToNapiValue};
use napi::{Error, JsDeferred, Result, Status};
use simile_engine::{ErrorKind, Failure};

use crate::failure::NativeFailure;

type Tagged<T> = Either<NativeFailure, T>;
type Resolver<T> = Box<dyn FnOnce(Env) -> Result<Tagged<T>> + Send>;

/// The unsettled end of a promise for a `T` or a failure.
pub(crate) struct Settle<T: ToNapiValue + 'static>(Option<JsDeferred<Tagged<T>, Resolver<T>>>);

impl<T: ToNapiValue + 'static> Settle<T> {
    /// A promise and its end.
    pub(crate) fn new(env: &Env) -> Result<(Self, Object<'_>)> {
        let (deferred, promise) = env.create_deferred()?;
        Ok((Settle(Some(deferred)), promise))
    }

    /// Ends the promise. `convert` runs on the JavaScript thread.
    pub(crate) fn with<V: Send + 'static>(
        mut self,
        outcome: std::result::Result<V, Failure>,
        convert: impl FnOnce(V) -> T + Send + 'static,
    ) {
        self.resolve(Box::new(move |_env| {
            // Called by napi from C, where a panic would end the process.
            catch_unwind(AssertUnwindSafe(|| match outcome {
                Ok(value) => Either::B(convert(value)),
                Err(failure) => Either::A(failure.into()),
            }))
            .map_err(|_| Error::new(Status::GenericFailure, "converting a result panicked"))
        }));
    }

    /// Ends the promise with a failure.
    pub(crate) fn fail(mut self, failure: Failure) {
        self.resolve(Box::new(move |_env| Ok(Either::A(failure.into()))));
    }

    fn resolve(&mut self, resolver: Resolver<T>) {
        if let Some(deferred) = self.0.take() {
            deferred.resolve(resolver);
        }
    }
}

impl<T: ToNapiValue + 'static> Drop for Settle<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            let failure = Failure::new(ErrorKind::TaskFailed, "the call was dropped before it was finished");
            self.resolve(Box::new(move |_env| Ok(Either::A(failure.into()))));
        }
    }
}
