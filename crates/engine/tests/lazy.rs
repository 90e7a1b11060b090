//! The lazy loader: one load for all, failures remembered by their service only, values shared while they live.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use simile_engine::lazy::{Lazy, Load, Loads, Outcome, Resolve};
use simile_engine::{CancelToken, ErrorKind, Failure};

/// A process: its loads, and how many were started.
#[derive(Clone, Default)]
struct World {
    loads: Arc<Loads<String>>,
    started: Arc<AtomicUsize>,
}

impl World {
    /// A service whose value is what `load` gives.
    fn service(&self, key: &str, load: impl FnOnce() -> Result<String, Failure> + Send + 'static) -> Lazy<String> {
        let (started, key) = (self.started.clone(), key.to_owned());
        let resolve: Resolve<String> = Box::new(move |_| {
            let load: Load<String> = Box::new(move || {
                started.fetch_add(1, Ordering::SeqCst);
                load()
            });
            Ok((key, load))
        });
        Lazy::new(self.loads.clone(), resolve)
    }

    /// A service whose load tells that it runs and waits until it gets its result.
    fn held(&self, key: &str) -> (Lazy<String>, Receiver<()>, Sender<Result<String, Failure>>) {
        let (running, runs) = channel();
        let (finish, finished) = channel();
        let finished = Mutex::new(finished);
        let service = self.service(key, move || {
            running.send(()).unwrap();
            finished.lock().unwrap().recv().unwrap()
        });
        (service, runs, finish)
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }
}

fn ask(service: &Lazy<String>) -> Receiver<Outcome<String>> {
    ask_with(service, &CancelToken::new())
}

fn ask_with(service: &Lazy<String>, cancel: &CancelToken) -> Receiver<Outcome<String>> {
    let (sender, receiver) = channel();
    service.load(cancel, move |outcome| {
        let _ = sender.send(outcome);
    });
    receiver
}

fn broken() -> Failure {
    Failure::new(ErrorKind::ModelInitialization, "no such file")
}

#[test]
fn nothing_is_loaded_before_the_first_request_and_then_once() {
    let world = World::default();
    let service = world.service("a", || Ok("value".to_owned()));
    assert!(service.get().is_none());
    assert_eq!(world.started(), 0);
    let first = ask(&service).recv().unwrap().unwrap();
    let second = ask(&service).try_recv().expect("answered by the asking thread").unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&first, &service.get().unwrap().unwrap()));
    assert_eq!((world.started(), first.as_str()), (1, "value"));
}

#[test]
fn a_failure_is_remembered_by_its_service_and_by_no_other() {
    let world = World::default();
    let service = world.service("a", || Err(broken()));
    assert_eq!(ask(&service).recv().unwrap().unwrap_err(), broken());
    assert_eq!(ask(&service).try_recv().expect("no new load").unwrap_err(), broken());
    assert_eq!(world.started(), 1);
    let repaired = world.service("a", || Ok("value".to_owned()));
    assert_eq!(ask(&repaired).recv().unwrap().unwrap().as_str(), "value");
    assert_eq!(ask(&service).recv().unwrap().unwrap_err(), broken());
}

#[test]
fn two_waiters_share_one_load() {
    let world = World::default();
    let (service, runs, finish) = world.held("a");
    let (first, second) = (ask(&service), ask(&service));
    runs.recv().unwrap();
    assert!(first.try_recv().is_err() && second.try_recv().is_err());
    finish.send(Ok("value".to_owned())).unwrap();
    let (first, second) = (first.recv().unwrap().unwrap(), second.recv().unwrap().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(world.started(), 1);
}

#[test]
fn a_load_runs_on_when_its_waiters_leave() {
    let world = World::default();
    let (service, runs, finish) = world.held("a");
    let cancel = CancelToken::new();
    let waiter = ask_with(&service, &cancel);
    runs.recv().unwrap();
    cancel.cancel();
    assert_eq!(waiter.try_recv().expect("answered by the cancelling thread").unwrap_err(), Failure::cancelled());
    finish.send(Ok("value".to_owned())).unwrap();
    assert_eq!(ask(&service).recv().unwrap().unwrap().as_str(), "value");
    assert_eq!(world.started(), 1);
}

#[test]
fn a_waiter_leaves_with_the_parent_of_its_token_even_when_only_it_has_it() {
    let world = World::default();
    let (service, runs, finish) = world.held("a");
    let scope = CancelToken::new();
    let waiter = ask_with(&service, &scope.child());
    runs.recv().unwrap();
    scope.cancel();
    assert_eq!(waiter.try_recv().expect("answered").unwrap_err(), Failure::cancelled());
    finish.send(Ok("value".to_owned())).unwrap();
}

#[test]
fn a_request_that_is_cancelled_already_starts_nothing() {
    let world = World::default();
    let service = world.service("a", || Ok("value".to_owned()));
    let cancel = CancelToken::new();
    cancel.cancel();
    assert_eq!(ask_with(&service, &cancel).try_recv().expect("answered").unwrap_err(), Failure::cancelled());
    assert_eq!(world.started(), 0);
}

#[test]
fn services_share_a_load_in_flight() {
    let world = World::default();
    let (leader, runs, finish) = world.held("a");
    let first = ask(&leader);
    runs.recv().unwrap();
    // Its own load must not run; when it joined cannot be seen from outside, so it may also find the value alive.
    let follower = world.service("a", || panic!("loaded twice"));
    let second = ask(&follower);
    finish.send(Ok("value".to_owned())).unwrap();
    let (first, second) = (first.recv().unwrap().unwrap(), second.recv().unwrap().unwrap());
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(world.started(), 1);
}

#[test]
fn services_share_a_live_value_until_the_last_lets_go() {
    let world = World::default();
    let first = world.service("a", || Ok("old".to_owned()));
    let second = world.service("a", || Ok("unused".to_owned()));
    let other = world.service("b", || Ok("other".to_owned()));
    let value = ask(&first).recv().unwrap().unwrap();
    assert!(Arc::ptr_eq(&value, &ask(&second).recv().unwrap().unwrap()));
    assert_eq!(ask(&other).recv().unwrap().unwrap().as_str(), "other");
    let alive = Arc::downgrade(&value);
    drop(value);
    first.dispose();
    assert!(alive.upgrade().is_some(), "the second service still has it");
    drop(second);
    assert!(alive.upgrade().is_none(), "nobody has it");
    let third = world.service("a", || Ok("new".to_owned()));
    assert_eq!(ask(&third).recv().unwrap().unwrap().as_str(), "new");
    assert_eq!(world.started(), 3);
}

#[test]
fn disposal_ends_the_waiting_and_everything_after_it() {
    let world = World::default();
    let (service, runs, finish) = world.held("a");
    let waiter = ask(&service);
    runs.recv().unwrap();
    service.dispose();
    assert_eq!(waiter.try_recv().expect("answered by the disposing thread").unwrap_err(), Failure::disposed());
    assert_eq!(ask(&service).try_recv().expect("answered").unwrap_err(), Failure::disposed());
    assert!(service.get().is_none());
    assert!(service.disposal().is_cancelled());
    // The load ends for nobody; another service that shares it would still get it.
    let sharer = world.service("a", || Ok("own".to_owned()));
    let shared = ask(&sharer);
    finish.send(Ok("value".to_owned())).unwrap();
    assert!(["value", "own"].contains(&shared.recv().unwrap().unwrap().as_str()));
}

#[test]
fn a_panic_in_a_loader_is_its_failure() {
    let world = World::default();
    let service = world.service("a", || panic!("told to"));
    let failure = ask(&service).recv().unwrap().unwrap_err();
    assert_eq!(failure.kind, ErrorKind::ModelInitialization);
    assert!(failure.message.contains("told to"), "{}", failure.message);
    let next = world.service("a", || Ok("value".to_owned()));
    assert_eq!(ask(&next).recv().unwrap().unwrap().as_str(), "value");
}

#[test]
fn a_request_that_cannot_be_resolved_fails_without_a_load() {
    let world = World::default();
    let service = Lazy::new(world.loads.clone(), Box::new(|_| Err(broken())));
    for _ in 0..2 {
        assert_eq!(ask(&service).recv().unwrap().unwrap_err(), broken());
    }
}

#[test]
fn the_first_half_hears_when_nobody_can_want_its_outcome() {
    for dispose in [true, false] {
        let world = World::default();
        let (sender, tokens) = channel();
        let (release, held) = channel::<()>();
        let resolve: Resolve<String> = Box::new(move |abandoned| {
            sender.send(abandoned.clone()).unwrap();
            let _ = held.recv();
            Err(broken())
        });
        let service = Lazy::new(world.loads.clone(), resolve);
        let cancel = CancelToken::new();
        let waiting = ask_with(&service, &cancel);
        let abandoned = tokens.recv().unwrap();
        cancel.cancel();
        assert_eq!(waiting.recv().unwrap().unwrap_err(), Failure::cancelled());
        assert!(!abandoned.is_cancelled(), "the next call wants it");
        if dispose {
            service.dispose()
        } else {
            drop(service)
        }
        assert!(abandoned.is_cancelled(), "dispose: {dispose}");
        drop(release);
    }
}
