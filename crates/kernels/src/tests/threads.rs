use crate::{Team, ThreadPool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More threads than CPUs among them, so that nothing may rest on everyone running at once.
const COUNTS: [usize; 5] = [1, 2, 3, 4, 7];

/// What a region panicked with.
fn panic_of(pool: &ThreadPool, f: impl Fn(Team<'_>) + Sync) -> String {
    let payload = catch_unwind(AssertUnwindSafe(|| pool.run(&f))).expect_err("the region panics");
    payload.downcast_ref::<&str>().map(|text| (*text).to_owned()).expect("a text")
}

#[test]
fn every_rank_takes_part_once() {
    for threads in COUNTS {
        let pool = ThreadPool::new(threads);
        assert_eq!(pool.threads(), threads);
        let ranks = Mutex::new(Vec::new());
        pool.run(&|team| {
            assert_eq!(team.size(), threads);
            ranks.lock().expect("no rank panics").push(team.rank());
        });
        let mut ranks = ranks.into_inner().expect("no rank panics");
        ranks.sort_unstable();
        assert_eq!(ranks, (0..threads).collect::<Vec<_>>());
    }
}

#[test]
fn the_caller_is_rank_0_and_workers_have_names() {
    let caller = std::thread::current().id();
    ThreadPool::new(3).run(&|team| {
        let thread = std::thread::current();
        if team.rank() == 0 {
            assert_eq!(thread.id(), caller);
        } else {
            assert_eq!(thread.name(), Some(format!("simile-compute-{}", team.rank()).as_str()));
        }
    });
}

#[test]
fn no_threads_count_as_one() {
    assert_eq!(ThreadPool::new(0).threads(), 1);
}

#[test]
fn many_regions_run_one_after_the_other() {
    for threads in COUNTS {
        let pool = ThreadPool::new(threads);
        let total = AtomicUsize::new(0);
        for region in 0..3000 {
            pool.run(&|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(total.load(Ordering::Relaxed), (region + 1) * threads);
        }
    }
}

#[test]
fn workers_that_have_gone_to_sleep_come_back() {
    let pool = ThreadPool::new(3);
    let total = AtomicUsize::new(0);
    for _ in 0..5 {
        // Longer than a worker spins and yields; whether it sleeps by then or not, it must come.
        std::thread::sleep(std::time::Duration::from_millis(5));
        pool.run(&|_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert_eq!(total.into_inner(), 15);
}

#[test]
fn a_barrier_separates_what_is_before_and_behind_it() {
    for threads in COUNTS {
        let pool = ThreadPool::new(threads);
        let steps = 500;
        let counters: Vec<AtomicUsize> = (0..steps).map(|_| AtomicUsize::new(0)).collect();
        pool.run(&|team| {
            for counter in &counters {
                counter.fetch_add(1, Ordering::Relaxed);
                team.barrier();
                assert_eq!(counter.load(Ordering::Relaxed), threads);
            }
        });
    }
}

#[test]
fn shares_are_even_and_cover_everything_in_order() {
    for threads in COUNTS {
        let pool = ThreadPool::new(threads);
        for n in (0..30).chain([1000, 1001]) {
            let shares = Mutex::new(vec![0..0; threads]);
            pool.run(&|team| shares.lock().expect("no rank panics")[team.rank()] = team.split(n));
            let shares = shares.into_inner().expect("no rank panics");
            let mut next = 0;
            for share in &shares {
                assert_eq!(share.start, next, "{n} on {threads}: {shares:?}");
                assert!(share.len() == n / threads || share.len() == n / threads + 1, "{n} on {threads}: {shares:?}");
                next = share.end;
            }
            assert_eq!(next, n);
        }
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    for threads in COUNTS {
        let pool = ThreadPool::new(threads);
        for culprit in 0..threads {
            let text = panic_of(&pool, |team| {
                if team.rank() == culprit {
                    panic!("on purpose");
                }
            });
            assert_eq!(text, "on purpose", "rank {culprit} of {threads}");
            let total = AtomicUsize::new(0);
            pool.run(&|team| {
                team.barrier();
                total.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(total.into_inner(), threads, "after rank {culprit} of {threads}");
        }
    }
}

/// The others would wait for ever for the rank that panicked.
#[test]
fn a_panic_frees_the_ranks_at_a_barrier() {
    for threads in COUNTS {
        let pool = ThreadPool::new(threads);
        for culprit in 0..threads {
            for meetings in [0, 1, 5] {
                let behind = AtomicUsize::new(0);
                let text = panic_of(&pool, |team| {
                    for _ in 0..meetings {
                        team.barrier();
                    }
                    if team.rank() == culprit {
                        panic!("on purpose");
                    }
                    team.barrier();
                    behind.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(text, "on purpose", "rank {culprit} of {threads} after {meetings}");
                assert_eq!(behind.into_inner(), 0, "nobody passes a barrier that a rank never reached");
            }
            let total = AtomicUsize::new(0);
            pool.run(&|team| {
                for _ in 0..10 {
                    team.barrier();
                }
                total.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(total.into_inner(), threads);
        }
    }
}

#[test]
fn a_rank_that_swallows_the_unwinding_is_not_counted_twice() {
    let pool = ThreadPool::new(3);
    let passed = AtomicUsize::new(0);
    let text = panic_of(&pool, |team| {
        if team.rank() == 2 {
            panic!("on purpose");
        }
        for _ in 0..3 {
            if catch_unwind(AssertUnwindSafe(|| team.barrier())).is_ok() {
                passed.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(text, "on purpose");
    assert_eq!(passed.into_inner(), 0);
}

#[test]
fn a_region_inside_a_region_runs_alone_on_its_thread() {
    for threads in COUNTS {
        let (pool, other) = (ThreadPool::new(threads), ThreadPool::new(2));
        let inner = AtomicUsize::new(0);
        pool.run(&|_| {
            let thread = std::thread::current().id();
            for pool in [&pool, &other] {
                pool.run(&|team| {
                    // A pool of one calls directly, from where other pools are free to be used.
                    if threads > 1 {
                        assert_eq!((team.rank(), team.size()), (0, 1));
                        assert_eq!(std::thread::current().id(), thread);
                        inner.fetch_add(1, Ordering::Relaxed);
                    }
                    team.barrier();
                });
            }
        });
        assert_eq!(inner.into_inner(), if threads > 1 { 2 * threads } else { 0 });
    }
}

#[test]
fn threads_that_share_a_pool_take_turns() {
    let pool = ThreadPool::new(3);
    let (inside, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(&|team| {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                        team.barrier();
                        total.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 4 * 200 * 3);
}

#[test]
fn pools_come_and_go() {
    for i in 0..200 {
        let pool = ThreadPool::new(1 + i % 5);
        if i % 3 > 0 {
            pool.run(&|team| team.barrier());
        }
    }
}

#[test]
fn a_team_of_one_waits_for_nobody() {
    let team = Team::solo();
    team.barrier();
    assert_eq!((team.rank(), team.size(), team.split(7)), (0, 1, 0..7));
}
