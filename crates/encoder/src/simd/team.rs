//! Whether it pays that the threads work together on one batch.
//!
//! A team meets at dozens of barriers in a pass. When the host has something else to do, a rank that lost its CPU holds
//! up all others: one text of 12 tokens took 26 ms instead of 2 on a machine whose two CPUs were busy. So a pass that
//! took longer than one thread alone would have taken is followed by some without a team. Results are the same bytes
//! either way.

use std::time::Duration;

/// Passes without a team after one that did not pay; then it is tried again.
const REST: u32 = 8;

/// What the last passes of a team were like.
#[derive(Debug, Default)]
pub(crate) struct TeamRecord {
    rest: u32,
}

impl TeamRecord {
    /// Whether the next pass may be a team's.
    pub(crate) fn usable(&mut self) -> bool {
        let usable = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        usable
    }

    /// Notes a pass of `size` threads that took `total`, of which one thread waited for others for `waited`.
    pub(super) fn note(&mut self, total: Duration, waited: Duration, size: usize) {
        let alone = total.saturating_sub(waited).saturating_mul(u32::try_from(size).unwrap_or(u32::MAX));
        if total > alone {
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usable_after(total: u64, waited: u64, size: usize) -> bool {
        let mut record = TeamRecord::default();
        record.note(Duration::from_micros(total), Duration::from_micros(waited), size);
        record.usable()
    }

    #[test]
    fn a_team_is_given_up_when_one_thread_would_have_been_faster() {
        // (pass, waited, threads, whether a team is used again); alone the pass would have taken (pass - waited) x
        // threads.
        let cases = [
            (1100, 100, 2, true),
            (1100, 500, 2, true),
            (1100, 600, 2, false),
            (26_000, 24_000, 2, false),
            (500, 370, 4, true),
            (500, 380, 4, false),
        ];
        for (total, waited, size, expected) in cases {
            assert_eq!(usable_after(total, waited, size), expected, "{waited} of {total} us, {size} threads");
        }
    }

    #[test]
    fn a_team_is_tried_again_after_a_while() {
        let mut record = TeamRecord::default();
        record.note(Duration::from_millis(26), Duration::from_millis(24), 2);
        let passes = (0..).take_while(|_| !record.usable()).count();
        assert_eq!(passes, REST as usize);
        assert!(record.usable());
    }
}
