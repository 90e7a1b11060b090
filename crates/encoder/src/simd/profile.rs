//! Where the time of a forward pass goes.

use std::time::{Duration, Instant};

/// Parts of a forward pass that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Embed,
    Qkv,
    Turn,
    Attention,
    Output,
    Up,
    Down,
    Norm,
    Wait,
}

impl Stage {
    pub(crate) const ALL: [Stage; 9] = [
        Stage::Embed,
        Stage::Qkv,
        Stage::Turn,
        Stage::Attention,
        Stage::Output,
        Stage::Up,
        Stage::Down,
        Stage::Norm,
        Stage::Wait,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Embed => "embed",
            Stage::Qkv => "qkv",
            Stage::Turn => "norm and rotation of q and k",
            Stage::Attention => "attention",
            Stage::Output => "output projection",
            Stage::Up => "feed-forward up",
            Stage::Down => "feed-forward down",
            Stage::Norm => "norm",
            Stage::Wait => "wait",
        }
    }
}

/// A stopwatch for stages; off unless someone asks.
#[derive(Default)]
pub(crate) struct Clock {
    last: Option<Instant>,
    totals: [Duration; Stage::ALL.len()],
    enabled: bool,
}

impl Clock {
    pub(crate) fn enable(&mut self, on: bool) {
        self.enabled = on;
    }

    /// Starts to measure: what follows belongs to the next [`tick`](Self::tick).
    #[inline]
    pub(super) fn start(&mut self) {
        if self.enabled {
            self.last = Some(Instant::now());
        }
    }

    /// Books the time since the last tick to `stage`.
    #[inline]
    pub(super) fn tick(&mut self, stage: Stage) {
        if self.enabled {
            let now = Instant::now();
            if let Some(last) = self.last.replace(now) {
                self.totals[stage as usize] += now - last;
            }
        }
    }

    pub(crate) fn take(&mut self) -> [Duration; Stage::ALL.len()] {
        std::mem::take(&mut self.totals)
    }
}
