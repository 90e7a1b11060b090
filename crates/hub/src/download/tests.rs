//! What needs short time-outs or a file system without links; the rest is tested from JavaScript.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use sha1::{Digest, Sha1};

use super::*;
use crate::hash::hexadecimal;
use crate::settings::HubOptions;
use crate::{ModelRequest, Source, resolve};

const ID: &str = "owner/model";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const WEIGHTS: &str = "weights, as far as a test cares";

fn files() -> [(&'static str, &'static str); 4] {
    [
        ("config.json", "{}"),
        ("tokenizer.json", "{ }"),
        ("1_Pooling/config.json", "{  }"),
        ("model.safetensors", WEIGHTS),
    ]
}

fn git_id(content: &str) -> String {
    hexadecimal(&Sha1::new_with_prefix(format!("blob {}\0{content}", content.len())).finalize())
}

/// Whatever the configuration says.
fn taken(_: &[u8]) -> Result<(), HubError> {
    Ok(())
}

/// A hub that never goes on, until the test's process ends.
fn forever() {
    loop {
        thread::park();
    }
}

/// How the hub of a test treats the weights; everything else is served.
type Weights = dyn Fn(&mut TcpStream) + Send + Sync;

/// A hub on loopback; `asked` counts its requests.
struct Hub {
    url: String,
    asked: Arc<AtomicUsize>,
}

fn hub(weights: Box<Weights>) -> Hub {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let (weights, counted) = (Arc::new(weights), asked.clone());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (weights, counted) = (weights.clone(), counted.clone());
            thread::spawn(move || answer(stream.unwrap(), &**weights, &counted));
        }
    });
    Hub { url, asked }
}

fn answer(mut stream: TcpStream, weights: &Weights, asked: &AtomicUsize) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    asked.fetch_add(1, Ordering::SeqCst);
    let path = request.split(' ').nth(1).unwrap().to_owned();
    if path.ends_with("model.safetensors") {
        return weights(&mut stream);
    }
    let body = match files().iter().find(|(name, _)| path.ends_with(&format!("{COMMIT}/{name}"))) {
        Some((_, content)) => (*content).to_owned(),
        None => {
            let siblings = files()
                .map(|(name, content)| json!({"rfilename": name, "size": content.len(), "blobId": git_id(content)}));
            json!({"sha": COMMIT, "siblings": siblings}).to_string()
        }
    };
    serve(&mut stream, &body);
}

fn head(stream: &mut TcpStream, length: usize) {
    // Whoever asked may be gone, which is what some tests are about.
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
}

fn serve(stream: &mut TcpStream, body: &str) {
    head(stream, body.len());
    let _ = stream.write_all(body.as_bytes());
}

fn settings(hub: &Hub) -> HubSettings {
    let options = HubOptions { endpoint: Some(hub.url.clone()), ..Default::default() };
    HubSettings::new(options, &|_| None, None)
}

/// Patience of a test: what has to run out does so soon, everything else never.
fn rules() -> Rules {
    let patience =
        Patience { idle: Duration::from_millis(200), pause: Duration::from_millis(1), tries: 2, ..Patience::default() };
    Rules { patience, links: true }
}

fn get(hub: &Hub, cache: &Path, rules: &Rules, stop: &Stop) -> Result<(), HubError> {
    download(cache, &ModelRequest::new(ID), &settings(hub), rules, stop, &mut |_| {}, &taken)
}

#[test]
fn a_configuration_that_is_refused_ends_the_download_before_the_weights() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|_| panic!("the weights were asked for")));
    let refuse = |content: &[u8]| {
        assert_eq!(content, b"{}");
        Err(HubError::NoCacheDir)
    };
    let result =
        download(dir.path(), &ModelRequest::new(ID), &settings(&hub), &rules(), &Stop::default(), &mut |_| {}, &refuse);
    assert!(matches!(result, Err(HubError::NoCacheDir)), "{result:?}");
    // The listing and the configuration.
    assert_eq!(hub.asked.load(Ordering::Relaxed), 2);
    assert!(found(dir.path()).is_err());
}

fn found(cache: &Path) -> Result<crate::ModelFiles, HubError> {
    resolve(&ModelRequest { cache_dir: Some(cache.to_path_buf()), ..ModelRequest::new(ID) })
}

fn blobs(cache: &Path) -> std::path::PathBuf {
    cache.join("models--owner--model/blobs")
}

#[test]
fn a_file_system_without_links_gets_plain_files() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|stream| serve(stream, WEIGHTS)));
    get(&hub, dir.path(), &Rules { links: false, ..rules() }, &Stop::default()).unwrap();
    let model = found(dir.path()).unwrap();
    assert_eq!((model.source, model.revision.as_deref()), (Source::Cache, Some(COMMIT)));
    for (name, content) in files() {
        let path = model.folder.join(name);
        assert!(!path.is_symlink(), "{name}");
        assert_eq!(fs::read_to_string(path).unwrap(), content, "{name}");
    }
}

#[test]
fn silence_ends_a_try_and_keeps_what_came() {
    type Case = (&'static str, Box<Weights>, bool);
    let cases: [Case; 2] = [
        ("before the answer", Box::new(|_| forever()), false),
        (
            "within it",
            Box::new(|stream| {
                head(stream, WEIGHTS.len());
                stream.write_all(&WEIGHTS.as_bytes()[..7]).unwrap();
                forever();
            }),
            true,
        ),
    ];
    for (what, weights, keeps) in cases {
        let dir = tempfile::tempdir().unwrap();
        let hub = hub(weights);
        let error = get(&hub, dir.path(), &rules(), &Stop::default()).unwrap_err();
        let HubError::Interrupted { tries: 2, problem, .. } = &error else { panic!("{what}: {error:?}") };
        assert!(problem.contains("nothing came for 0.2 s"), "{what}: {problem}");
        let partial = blobs(dir.path()).join(format!("{}.incomplete", git_id(WEIGHTS)));
        assert_eq!(fs::read_to_string(partial).ok().as_deref(), keeps.then_some(&WEIGHTS[..7]), "{what}");
        assert!(found(dir.path()).is_err(), "{what}");
    }
}

#[test]
fn a_slow_download_that_goes_on_is_a_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|stream| {
        head(stream, WEIGHTS.len());
        for byte in WEIGHTS.as_bytes() {
            thread::sleep(Duration::from_millis(20));
            stream.write_all(&[*byte]).unwrap();
        }
    }));
    let begun = Instant::now();
    get(&hub, dir.path(), &rules(), &Stop::default()).unwrap();
    assert!(begun.elapsed() > rules().patience.idle, "it took longer than any silence may");
    assert!(found(dir.path()).is_ok());
}

#[test]
fn a_stop_ends_whatever_a_download_waits_for() {
    let busy = |stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n");
    };
    type Act = fn(&mut TcpStream);
    let cases: [(&str, Act); 4] = [
        ("an answer", |_| forever()),
        ("the rest of an answer", |stream| {
            head(stream, WEIGHTS.len());
            stream.write_all(b"w").unwrap();
            forever();
        }),
        ("its turn", busy),
        ("a lock", |_| panic!("not while somebody else has the lock")),
    ];
    for (what, act) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (reached, reaches) = channel();
        let lock = (what == "a lock").then(|| {
            let folder = dir.path().join(".locks/models--owner--model");
            fs::create_dir_all(&folder).unwrap();
            let file = fs::File::create(folder.join(format!("{}.lock", git_id(WEIGHTS)))).unwrap();
            file.lock().unwrap();
            file
        });
        let signal = reached.clone();
        let hub = hub(Box::new(move |stream| {
            signal.send(()).unwrap();
            act(stream);
        }));
        let (stop, patient) = (Stop::default(), Rules::default());
        let begun = Instant::now();
        let outcome = thread::scope(|scope| {
            let loader = scope.spawn(|| get(&hub, dir.path(), &patient, &stop));
            if lock.is_none() {
                reaches.recv().unwrap();
            } else {
                // The listing and three small files; then it waits.
                while hub.asked.load(Ordering::SeqCst) < 4 {
                    thread::yield_now();
                }
            }
            stop.stop();
            loader.join().unwrap()
        });
        assert!(matches!(outcome, Err(HubError::Stopped)), "{what}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {:?}", begun.elapsed());
        assert!(found(dir.path()).is_err(), "{what}");
        let again = get(&hub, dir.path(), &patient, &stop);
        assert!(matches!(again, Err(HubError::Stopped)), "{what}: {again:?}");
    }
}

#[test]
fn who_waited_for_a_lock_uses_what_the_other_one_brought() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(".locks/models--owner--model");
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join(format!("{}.lock", git_id(WEIGHTS)))).unwrap();
    lock.lock().unwrap();
    let hub = hub(Box::new(|_| panic!("transferred twice")));
    let (waiting, waits) = channel();
    let mut report = move |progress: Progress| {
        if progress.file == "model.safetensors" && progress.file_loaded == 5 {
            let _ = waiting.send(());
        }
    };
    thread::scope(|scope| {
        let (settings, cache) = (settings(&hub), dir.path());
        let loader = scope.spawn(move || {
            download(cache, &ModelRequest::new(ID), &settings, &rules(), &Stop::default(), &mut report, &taken)
        });
        while !blobs(cache).is_dir() {
            thread::yield_now();
        }
        fs::write(blobs(cache).join(format!("{}.incomplete", git_id(WEIGHTS))), &WEIGHTS[..5]).unwrap();
        waits.recv().expect("it tells how far the other one is");
        fs::write(blobs(cache).join(git_id(WEIGHTS)), WEIGHTS).unwrap();
        lock.unlock().unwrap();
        loader.join().unwrap().unwrap();
    });
    assert!(found(dir.path()).is_ok());
}

/// A hub that stops within the weights, tells that it does, and goes on when it is told to.
#[cfg(unix)]
fn pausing_hub() -> (Hub, std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>) {
    let ((paused, pauses), (go_on, goes_on)) = (channel(), channel());
    let goes_on = std::sync::Mutex::new(goes_on);
    let first = AtomicUsize::new(0);
    let hub = hub(Box::new(move |stream| {
        if first.fetch_add(1, Ordering::SeqCst) > 0 {
            return serve(stream, WEIGHTS);
        }
        head(stream, WEIGHTS.len());
        stream.write_all(&WEIGHTS.as_bytes()[..9]).unwrap();
        paused.send(()).unwrap();
        goes_on.lock().unwrap().recv().unwrap();
        stream.write_all(&WEIGHTS.as_bytes()[9..]).unwrap();
    }));
    (hub, pauses, go_on)
}

#[cfg(unix)]
fn wait_for_partial(cache: &Path) {
    let partial = blobs(cache).join(format!("{}.incomplete", git_id(WEIGHTS)));
    while fs::metadata(&partial).map_or(0, |data| data.len()) < 9 {
        thread::yield_now();
    }
}

#[cfg(unix)]
fn unfinished(cache: &Path) -> Vec<String> {
    let names = fs::read_dir(blobs(cache)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("incomplete")).collect()
}

#[test]
#[cfg(unix)]
fn a_partial_file_that_is_taken_away_in_mid_transfer_becomes_no_blob() {
    type Act = fn(&Path);
    let cases: [(&str, Act); 2] = [
        ("deleted", |partial| fs::remove_file(partial).unwrap()),
        ("replaced", |partial| {
            fs::remove_file(partial).unwrap();
            fs::write(partial, "x".repeat(WEIGHTS.len())).unwrap();
        }),
    ];
    for (what, act) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (hub, paused, go_on) = pausing_hub();
        let patient = Rules { patience: Patience { pause: Duration::ZERO, ..Patience::default() }, links: true };
        thread::scope(|scope| {
            let loader = scope.spawn(|| get(&hub, dir.path(), &patient, &Stop::default()));
            paused.recv().unwrap();
            wait_for_partial(dir.path());
            act(&blobs(dir.path()).join(format!("{}.incomplete", git_id(WEIGHTS))));
            go_on.send(()).unwrap();
            loader.join().unwrap().unwrap_or_else(|error| panic!("{what}: {error:?}"));
        });
        assert_eq!(fs::read_to_string(blobs(dir.path()).join(git_id(WEIGHTS))).unwrap(), WEIGHTS, "{what}");
        assert_eq!(unfinished(dir.path()), Vec::<String>::new(), "{what}");
    }
}

#[test]
#[cfg(unix)]
fn two_transfers_that_do_not_know_of_each_other_do_not_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (hub, paused, go_on) = pausing_hub();
    let patient = Rules::default();
    let blob = blobs(dir.path()).join(git_id(WEIGHTS));
    thread::scope(|scope| {
        let loader = scope.spawn(|| get(&hub, dir.path(), &patient, &Stop::default()));
        paused.recv().unwrap();
        wait_for_partial(dir.path());
        // The lock of the first is no lock for the second.
        fs::remove_dir_all(dir.path().join(".locks")).unwrap();
        get(&hub, dir.path(), &patient, &Stop::default()).unwrap();
        assert_eq!(fs::read_to_string(&blob).unwrap(), WEIGHTS);
        go_on.send(()).unwrap();
        loader.join().unwrap().unwrap();
    });
    assert_eq!(fs::read_to_string(&blob).unwrap(), WEIGHTS);
    assert_eq!(unfinished(dir.path()), Vec::<String>::new());
}

#[test]
#[cfg(unix)]
fn others_may_read_what_a_cache_holds() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|stream| serve(stream, WEIGHTS)));
    fs::write(dir.path().join("usual"), "").unwrap();
    let usual = fs::metadata(dir.path().join("usual")).unwrap().mode();
    get(&hub, dir.path(), &rules(), &Stop::default()).unwrap();
    let model = dir.path().join("models--owner--model");
    for path in [model.join("refs/main"), model.join("blobs").join(git_id(WEIGHTS))] {
        assert_eq!(fs::metadata(&path).unwrap().mode(), usual, "{}", path.display());
    }
}

#[test]
fn many_at_once_make_one_snapshot() {
    for links in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let cached = CachedModel::new(dir.path(), ID).unwrap();
        let store = Store::new(dir.path(), &cached, links);
        let file = crate::listing::RemoteFile {
            name: "model.safetensors".to_owned(),
            size: WEIGHTS.len() as u64,
            etag: crate::listing::Etag::Git(git_id(WEIGHTS)),
        };
        fs::create_dir_all(blobs(dir.path())).unwrap();
        let place = cached.snapshot(COMMIT).join(&file.name);
        for round in 0..20 {
            fs::write(store.blob(&file), WEIGHTS).unwrap();
            // What must be replaced: a link whose blob is gone.
            let _ = fs::remove_file(&place);
            #[cfg(unix)]
            if links {
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink("../../blobs/gone", &place).unwrap();
            }
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        store.link(COMMIT, &file).unwrap();
                        store.reference("main", COMMIT).unwrap();
                    });
                }
            });
            assert_eq!(fs::read_to_string(&place).unwrap(), WEIGHTS, "links: {links}, round {round}");
            assert_eq!(cached.commit(None).unwrap(), COMMIT);
        }
        #[cfg(unix)]
        assert_eq!(place.is_symlink(), links);
    }
}

#[test]
fn a_damaged_blob_is_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|stream| serve(stream, WEIGHTS)));
    fs::create_dir_all(blobs(dir.path())).unwrap();
    fs::write(blobs(dir.path()).join(git_id(WEIGHTS)), &WEIGHTS[..9]).unwrap();
    get(&hub, dir.path(), &rules(), &Stop::default()).unwrap();
    assert_eq!(fs::read_to_string(found(dir.path()).unwrap().folder.join("model.safetensors")).unwrap(), WEIGHTS);
}

#[test]
fn how_long_a_busy_hub_is_waited_for() {
    let patience = Patience { pause: Duration::ZERO, longest_wait: Duration::ZERO, tries: 3, ..Patience::default() };
    let stop = Stop::default();
    let cases = [
        (None, None),
        (Some("0"), None),
        (Some("11"), Some("in 11 s")),
        (Some("Wed, 21 Oct 2026 07:28:00 GMT"), Some("(Wed, 21 Oct 2026 07:28:00 GMT)")),
        (Some("0.5"), Some("in 0.5 s")),
        (Some("-1"), Some("in -1 s")),
        (Some("1e999"), Some("in 1e999 s")),
    ];
    for (wait, refused) in cases {
        let mut retries = Retries::new(&patience, &stop);
        let busy = || Fault::Busy { url: "u".to_owned(), wait: wait.map(str::to_owned) };
        match (retries.pause(busy()), refused) {
            (Ok(()), None) => {
                retries.pause(busy()).unwrap();
                assert!(matches!(retries.pause(busy()), Err(HubError::RateLimited { .. })), "{wait:?}: the third time");
            }
            (Err(error @ HubError::RateLimited { .. }), Some(part)) => {
                assert!(error.to_string().contains(part), "{wait:?}: {error}");
            }
            (outcome, _) => panic!("{wait:?}: {outcome:?}"),
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_said_and_asks_for_room() {
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|stream| serve(stream, WEIGHTS)));
    fs::create_dir_all(blobs(dir.path())).unwrap();
    let partial = blobs(dir.path()).join(format!("{}.incomplete", git_id(WEIGHTS)));
    std::os::unix::fs::symlink("/dev/full", partial).unwrap();
    let error = get(&hub, dir.path(), &rules(), &Stop::default()).unwrap_err();
    assert!(matches!(error, HubError::Write { .. }), "{error:?}");
    assert!(error.to_string().contains("Make room"), "{error}");
    assert!(found(dir.path()).is_err());
}

#[test]
fn a_server_that_starts_anew_each_time_is_not_tried_for_ever() {
    const SIZE: usize = 3 << 20;
    let dir = tempfile::tempdir().unwrap();
    let hub = hub(Box::new(|stream| serve(stream, WEIGHTS)));
    let patience = rules().patience;
    let (stop, settings) = (Stop::default(), settings(&hub));
    let cached = CachedModel::new(dir.path(), ID).unwrap();
    let store = Store::new(dir.path(), &cached, true);
    let large = crate::listing::RemoteFile {
        name: "large".to_owned(),
        size: SIZE as u64,
        etag: crate::listing::Etag::Git(git_id("")),
    };
    let cutting = self::hub(Box::new(|stream| {
        head(stream, SIZE);
        let _ = stream.write_all(&vec![0; SIZE / 2]);
    }));
    let http = Http::new(ID, &settings, &patience, &stop).unwrap();
    let transfer = Transfer { http: &http, store: &store, patience: &patience, stop: &stop };
    let mut report = |_: Progress| {};
    let url = format!("{}/model.safetensors", cutting.url);
    let outcome = transfer.fetch(&large, &url, &mut Meter::new(ID, SIZE as u64, &mut report), &|fault| fault);
    assert!(matches!(outcome, Err(HubError::Interrupted { .. })), "{outcome:?}");
    // The first came further than nothing was, the second not further than the first: two in a row are as many as allowed.
    assert_eq!(cutting.asked.load(Ordering::SeqCst), 2);
}
