//! Cancellation of one call.

use napi::{Env, Result};
use napi_derive::napi;
use simile_engine::CancelToken;

use crate::scope;

/// Ends the calls that it was given to.
#[napi]
pub struct NativeCancel {
    pub(crate) token: CancelToken,
}

#[napi]
impl NativeCancel {
    /// A token that is cancelled by `cancel`, and when this environment ends.
    #[napi(constructor, catch_unwind)]
    pub fn new(env: Env) -> Result<Self> {
        Ok(NativeCancel { token: scope::of(&env)?.child() })
    }

    /// Ends the calls: their promises settle as `TaskFailed`, their work stops soon after.
    #[napi(catch_unwind)]
    pub fn cancel(&self) {
        self.token.cancel();
    }
}
