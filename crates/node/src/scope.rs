//! What ends with a JavaScript environment: the calls that it made.
//!
//! A worker that is terminated leaves calls behind whose promises nobody can settle. Each call's token is a child of its
//! environment's, which a cleanup hook cancels, so the queue does not work for the dead. Models are not touched: other
//! environments may use them, and the garbage collector lets go of the environment's own handles.

use std::cell::RefCell;
use std::collections::HashMap;

use napi::{Env, Result};
use simile_engine::CancelToken;

thread_local! {
    /// By environment; more than one can live on a thread, one after the other or (in Electron) side by side.
    static SCOPES: RefCell<HashMap<usize, CancelToken>> = RefCell::default();
}

/// The token that is cancelled when `env` ends.
pub(crate) fn of(env: &Env) -> Result<CancelToken> {
    let key = env.raw() as usize;
    if let Some(token) = SCOPES.with_borrow(|scopes| scopes.get(&key).cloned()) {
        return Ok(token);
    }
    let token = CancelToken::new();
    let ending = token.clone();
    env.add_env_cleanup_hook((), move |()| {
        SCOPES.with_borrow_mut(|scopes| scopes.remove(&key));
        ending.cancel();
    })?;
    SCOPES.with_borrow_mut(|scopes| scopes.insert(key, token.clone()));
    Ok(token)
}
