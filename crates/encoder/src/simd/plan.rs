//! How a batch is shared out among threads: a pure function of lengths, costs and the number of threads.
//!
//! Either every thread takes whole groups of sequences through all layers, without a barrier; or, when that would leave
//! threads idle, all threads work on the whole batch together. Results are the same bytes either way, so this is only
//! about time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Tokens of a group. Enough for the linear layers to run at full speed (256 to 1,024 measured alike) and few enough
/// for its activations to stay in a second-level cache of 1 to 2 MB.
const GROUP_TOKENS: usize = 512;

/// Tokens for each thread below which the team works together: a group this small would read all weights for little
/// work, and the weights are then what is waited for.
const TEAM_TOKENS: usize = 32;

/// Groups are used while their estimated time is within this of a perfect split, in percent. A team loses about as much
/// to barriers and to uneven shares.
const SLACK_PERCENT: u64 = 115;

/// How a batch is shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Groups of sequences (indices), the costliest first, to be taken one by one.
    Groups(Vec<Vec<usize>>),
    /// All threads work on the whole batch.
    Team,
}

/// Shares sequences of `lengths` out among `threads`; `cost` estimates the work of a length.
pub(super) fn plan(lengths: &[usize], cost: impl Fn(usize) -> u64, threads: usize) -> Plan {
    let tokens: usize = lengths.iter().sum();
    if threads > 1 && (lengths.len() < threads || tokens < threads * TEAM_TOKENS) {
        return Plan::Team;
    }
    let groups = groups(lengths, &cost, threads);
    let costs: Vec<u64> = groups.iter().map(|group| group.iter().map(|&i| cost(lengths[i])).sum()).collect();
    let ideal = costs.iter().sum::<u64>() / threads as u64;
    if threads > 1 && makespan(&costs, threads) * 100 > ideal * SLACK_PERCENT {
        return Plan::Team;
    }
    Plan::Groups(groups)
}

/// Balanced groups for `threads` threads, the costliest first.
pub(super) fn groups(lengths: &[usize], cost: impl Fn(usize) -> u64, threads: usize) -> Vec<Vec<usize>> {
    let tokens: usize = lengths.iter().sum();
    let rounds = tokens.div_ceil(threads * GROUP_TOKENS).max(1);
    balanced(lengths, &cost, (threads * rounds).min(lengths.len()))
}

/// Longest processing time first: each sequence, the costliest first, goes to the group with the least work. Ties by
/// index.
fn balanced(lengths: &[usize], cost: impl Fn(usize) -> u64, count: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| (Reverse(lengths[i]), i));
    let mut groups = vec![Vec::new(); count];
    let mut least: BinaryHeap<Reverse<(u64, usize)>> = (0..count).map(|group| Reverse((0, group))).collect();
    for i in order {
        // `count` is 0 only when there are no sequences.
        if let Some(Reverse((load, group))) = least.pop() {
            groups[group].push(i);
            least.push(Reverse((load + cost(lengths[i]), group)));
        }
    }
    let mut loads: Vec<(u64, Vec<usize>)> =
        groups.into_iter().map(|group| (group.iter().map(|&i| cost(lengths[i])).sum(), group)).collect();
    loads.sort_by_key(|(load, group)| (Reverse(*load), group[0]));
    loads.into_iter().map(|(_, group)| group).collect()
}

/// When the last thread is done, if each takes the next group as soon as it is free.
fn makespan(costs: &[u64], threads: usize) -> u64 {
    let mut free = vec![0u64; threads];
    for cost in costs {
        if let Some(first) = free.iter_mut().min() {
            *first += cost;
        }
    }
    free.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About MiniLM: linear in length, a little quadratic.
    fn cost(length: usize) -> u64 {
        (length * 2000 + length * length) as u64
    }

    fn planned(lengths: &[usize], threads: usize) -> Vec<Vec<usize>> {
        match plan(lengths, cost, threads) {
            Plan::Groups(groups) => groups,
            Plan::Team => panic!("{} sequences on {threads} threads: expected groups", lengths.len()),
        }
    }

    #[test]
    fn every_sequence_is_in_exactly_one_group() {
        for threads in [1, 2, 3, 4, 7, 16] {
            let lengths: Vec<usize> = (0..200).map(|i| 1 + (i * 37) % 256).collect();
            let mut all = planned(&lengths, threads).concat();
            all.sort_unstable();
            assert_eq!(all, (0..200).collect::<Vec<_>>(), "{threads} threads");
        }
    }

    #[test]
    fn groups_are_balanced_and_of_bounded_size() {
        for threads in [1, 2, 4, 7] {
            let lengths: Vec<usize> = (0..300).map(|i| 5 + (i * 91) % 250).collect();
            let groups = planned(&lengths, threads);
            assert_eq!(groups.len() % threads, 0, "{threads} threads, {} groups", groups.len());
            let tokens: Vec<usize> = groups.iter().map(|group| group.iter().map(|&i| lengths[i]).sum()).collect();
            assert!(tokens.iter().all(|&tokens| tokens <= GROUP_TOKENS + 256), "{threads} threads: {tokens:?}");
            let (least, most) = (tokens.iter().min().unwrap(), tokens.iter().max().unwrap());
            assert!(most * 10 <= least * 12, "{threads} threads: {tokens:?}");
        }
    }

    #[test]
    fn the_team_works_together_when_threads_would_be_idle() {
        let cases: [(&[usize], usize); 5] = [
            (&[12], 2),              // one short text
            (&[256], 2),             // one long text
            (&[256, 12, 12, 12], 2), // one that outweighs the others
            (&[100, 100, 100], 2),   // three for two
            (&[12, 12, 12, 12], 2),  // too few tokens to read the weights twice
        ];
        for (lengths, threads) in cases {
            assert_eq!(plan(lengths, cost, threads), Plan::Team, "{lengths:?} on {threads} threads");
        }
    }

    #[test]
    fn one_thread_never_waits_for_a_team() {
        for lengths in [&[1][..], &[512], &[3, 400, 7]] {
            assert!(matches!(plan(lengths, cost, 1), Plan::Groups(_)), "{lengths:?}");
        }
    }

    #[test]
    fn an_empty_batch_has_no_groups() {
        assert_eq!(plan(&[], cost, 1), Plan::Groups(Vec::new()));
    }
}
