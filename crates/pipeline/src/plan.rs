//! Which texts go into one micro-batch.

/// Most texts of one call in a micro-batch when neither the load nor the call says otherwise: the default of
/// sentence-transformers' `encode`. It bounds memory and never changes a vector.
pub const DEFAULT_BATCH_SIZE: usize = 32;

/// Cuts texts into micro-batches: indices into `lengths`, longest first, ties by index.
///
/// A batch holds at most `batch_size` texts (0 counts as 1) and at most `budget` of estimated work, where `cost` gives
/// the work of one text of a length; a text that alone costs more than the budget gets a batch of its own. Every index is
/// in exactly one batch. A pure function: the same lengths give the same batches. Sorting keeps similar lengths together,
/// so that threads that share a batch finish together, and puts the most expensive batch first, where its memory is
/// allocated once. Cost: n log n comparisons, one call of `cost` for each distinct length.
pub fn plan(lengths: &[usize], batch_size: usize, budget: u64, cost: impl Fn(usize) -> u64) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by(|&a, &b| lengths[b].cmp(&lengths[a]).then(a.cmp(&b)));
    let batch_size = batch_size.max(1);
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut work = 0u64;
    let mut last = None;
    for index in order {
        let length = lengths[index];
        let own = match last {
            Some((known, own)) if known == length => own,
            _ => cost(length),
        };
        last = Some((length, own));
        match batches.last_mut() {
            Some(batch) if batch.len() < batch_size && work.checked_add(own).is_some_and(|sum| sum <= budget) => {
                batch.push(index);
                work += own;
            }
            _ => {
                batches.push(vec![index]);
                work = own;
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_BUDGET: u64 = u64::MAX;

    #[test]
    fn the_worked_example() {
        // Five texts at a batch size of two: input 1 is the longest with 512 tokens, input 2 the shortest with two, and it
        // stays alone. Inputs 0 and 4 tie.
        let lengths = [9, 512, 2, 120, 9];
        assert_eq!(plan(&lengths, 2, NO_BUDGET, |n| n as u64), [vec![1, 3], vec![0, 4], vec![2]]);
    }

    #[test]
    fn table() {
        let tokens = |n: usize| n as u64;
        // Lengths, batch size, budget; batches.
        type Case = (&'static [usize], usize, u64, &'static [&'static [usize]]);
        let cases: Vec<Case> = vec![
            (&[], 32, 100, &[]),
            (&[5], 32, 0, &[&[0]]),
            (&[3, 3, 3], 32, 6, &[&[0, 1], &[2]]),
            (&[3, 3, 3], 32, 5, &[&[0], &[1], &[2]]),
            (&[1, 2, 3], 0, NO_BUDGET, &[&[2], &[1], &[0]]),
            // Over the budget: alone, and nothing joins it, although the next is small.
            (&[1, 100, 1], 32, 10, &[&[1], &[0, 2]]),
            (&[6, 5, 4, 3, 2, 1], 32, 10, &[&[0], &[1, 2], &[3, 4, 5]]),
            (&[7, 7], 32, NO_BUDGET, &[&[0, 1]]),
        ];
        let wrong: Vec<_> = cases
            .iter()
            .filter(|(lengths, size, budget, want)| plan(lengths, *size, *budget, tokens) != *want)
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn work_that_overflows_ends_a_batch() {
        assert_eq!(plan(&[2, 1], 32, u64::MAX, |_| u64::MAX), [[0], [1]]);
    }

    #[test]
    fn every_text_once_and_every_batch_within_its_limits() {
        let mut state = 1u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let cost = |n: usize| (n * n + 10 * n) as u64;
        for _ in 0..200 {
            let lengths: Vec<usize> = (0..random(60)).map(|_| 1 + random(300)).collect();
            let (size, budget) = (1 + random(40), random(100_000) as u64);
            let batches = plan(&lengths, size, budget, cost);
            let order: Vec<usize> = batches.concat();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..lengths.len()).collect::<Vec<_>>());
            assert!(order.windows(2).all(|pair| (lengths[pair[1]], pair[0]) < (lengths[pair[0]], pair[1])));
            for batch in &batches {
                let work: u64 = batch.iter().map(|&index| cost(lengths[index])).sum();
                assert!(
                    batch.len() <= size && (batch.len() == 1 || work <= budget),
                    "{lengths:?} {size} {budget} {batch:?}"
                );
            }
            // No batch could have taken the text that begins the next.
            for pair in batches.windows(2) {
                let work: u64 = pair[0].iter().chain(&pair[1][..1]).map(|&index| cost(lengths[index])).sum();
                assert!(pair[0].len() == size || work > budget);
            }
        }
    }
}
