//! The switch that ends a download from outside.
//!
//! Contract: [`Stop::stop`] never waits. A download that holds the switch ends with [`crate::HubError::Stopped`]: at once
//! where it pauses or waits for a lock or for bytes (the connection is shut down under it), and at the latest after the
//! connect time-out where it is resolving a name or connecting, which the system does not let anybody interrupt. What was
//! received stays for the next try.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ureq::Agent;

/// Ends the downloads that hold it. Clones are the same switch.
#[derive(Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stopped: bool,
    /// Whose connections are shut down.
    agents: Vec<Agent>,
}

impl Stop {
    /// Ends the downloads that hold this. They cannot be started again with it.
    pub fn stop(&self) {
        let agents = {
            let mut state = self.lock();
            state.stopped = true;
            std::mem::take(&mut state.agents)
        };
        self.0.changed.notify_all();
        agents.into_iter().for_each(Agent::shutdown);
    }

    /// Whether [`Stop::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Waits, and says whether it was ended.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.lock();
        while !state.stopped {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Makes [`Stop::stop`] shut down the agent's connections too.
    pub(crate) fn covers(&self, agent: &Agent) {
        let stopped = {
            let mut state = self.lock();
            state.agents.push(agent.clone());
            state.stopped
        };
        if stopped {
            self.stop();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
