//! The monitor beside a real daemon, with libblkio as the front-end.

#[path = "../../../iocm/tests/blkio_disk/mod.rs"]
mod blkio_disk;
mod simulator;

use blkio::ReqFlags;
use blkio_disk::{BLOCK, DISK, Disk};
use iocm::config::Config;
use iocm::control::Access;
use iocm::control::client::Client;
use iocm::control::socket::{BoundSocket, ControlSocket};
use iocm::daemon::Daemon;
use iocm_monitor::actuator::{Actuator as _, Workers};
use iocm_monitor::{Action, Layout, Monitor, Settings};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn daemon(directory: &Path, cpus: &str) -> (Arc<Daemon>, ControlSocket) {
    let socket = directory.join("disk.sock");
    let text = format!(
        "[workers]\ncpus = [{cpus}]\n[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\n\
         null-size-bytes = {DISK}\n"
    );
    let daemon = Arc::new(Daemon::start(&Config::parse(&text).unwrap()).unwrap());
    let control =
        BoundSocket::bind(&directory.join("control"), Access::own()).unwrap().serve(&daemon).unwrap();
    (daemon, control)
}

fn monitor(directory: &Path, settings: Settings, dry_run: bool) -> Monitor<Workers> {
    Monitor::new(Workers::new(Path::new("/"), &directory.join("control"), None), settings, dry_run)
}

fn has_two_cpus() -> bool {
    let enough = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
    if !enough {
        println!("not tested: the monitor needs two CPUs");
    }
    enough
}

/// Ends the load when it is dropped; otherwise a failing test would hang.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs steps, a tenth of a second apart. Returns what was said.
fn steps(monitor: &mut Monitor<Workers>, count: u32) -> Vec<iocm_monitor::Decided> {
    let mut said = Vec::new();
    for step in 0..count {
        said.extend(monitor.step(f64::from(step) / 10.0).said);
        std::thread::sleep(Duration::from_millis(100));
    }
    said
}

#[test]
fn queues_go_to_a_core_of_their_own_while_their_requests_go_on() {
    if !has_two_cpus() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path(), "");
    let (end, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let mut disk = Disk::connect(&directory.path().join("disk.sock"));
            while !end.load(Ordering::Relaxed) {
                disk.queue.read(0, disk.block(0), BLOCK, 0, ReqFlags::empty());
                assert_eq!(disk.wait(1), [0]);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let ending = End(&end);
        let mut client = Client::connect(&directory.path().join("control")).unwrap();
        while client.get("vq.0.0/state").unwrap() != "served" {
            std::thread::yield_now();
        }
        let settings = Settings { least_cores: 1, ..Settings::default() };
        let dry = steps(&mut monitor(directory.path(), settings, true), 3);
        assert!(dry[0].dry_run && dry[0].cores.len() == 1 && !dry[0].actions.is_empty(), "{dry:?}");
        assert_eq!(client.get("vq.0.0/worker").unwrap(), "w.0", "a dry run moves nothing");

        let mut monitor = monitor(directory.path(), settings, false);
        let said = steps(&mut monitor, 8);
        let core = said[0].cores[0].to_string();
        assert_eq!(said[0].queues[&core], ["vq.0.0"], "{said:?}");
        let worker = client.get("vq.0.0/worker").unwrap();
        let worker = worker.as_str().unwrap();
        assert_ne!(worker, "w.0");
        assert_eq!(client.get(&format!("{worker}/cpu")).unwrap(), core.as_str());
        assert!(client.get("w.0/cpu").is_err(), "the worker that ran anywhere is no more");
        // A whole request since the last look, however busy the machine is.
        let (before, late) = (count.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(20));
        while count.load(Ordering::Relaxed) < before + 2 {
            assert!(Instant::now() < late, "the requests do not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
        let step = monitor.step(1.0);
        let view = step.seen.unwrap().view;
        assert!(view.queues[0].requests > 0.0 && view.queues[0].bytes > 0.0, "{view:?}");
        assert!(view.computing > 0.0, "the front-end's threads compute: {view:?}");
        assert_eq!(monitor.end(), [""; 0]);
        drop(ending);
        requests.join().unwrap();
    });
}

#[test]
fn a_core_without_io_is_given_back_and_the_end_of_the_daemon_is_survived() {
    if !has_two_cpus() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let first = daemon(directory.path(), "\"0\"");
    let mut monitor = monitor(directory.path(), Settings::default(), false);
    let said = steps(&mut monitor, 8);
    assert!(said.iter().any(|one| one.cores_before == [0] && one.cores.is_empty()), "{said:?}");
    drop(first.1);
    drop(first.0);
    let said = steps(&mut monitor, 3);
    // First that the daemon gave no answer, then that there is none.
    assert!((1..=2).contains(&said.len()), "{said:?}");
    assert!(said.iter().all(|one| one.trouble.as_ref().unwrap().contains("I/O daemon")), "{said:?}");
    let _ = std::fs::remove_file(directory.path().join("control"));
    let _again = daemon(directory.path(), "\"0\"");
    let said = steps(&mut monitor, 8);
    assert!(said.iter().any(|one| one.trouble.is_none() && one.cores_before == [0]), "{said:?}");
}

#[test]
fn a_queue_that_is_gone_does_not_keep_the_others_where_they_are() {
    if !has_two_cpus() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path(), "\"0\"");
    let _disk = Disk::connect(&directory.path().join("disk.sock"));
    let mut client = Client::connect(&directory.path().join("control")).unwrap();
    while client.get("vq.0.0/state").unwrap() != "served" {
        std::thread::yield_now();
    }
    let other = client.create("workers", r#"{"cpus":"1"}"#).unwrap();
    let mut workers = Workers::new(Path::new("/"), &directory.path().join("control"), None);
    let view = workers.look().unwrap().view;
    let queue = &view.queues[0];
    let actions = [queue.number, 99].map(|queue| Action::Move { queue, to: Some(1) });
    let left_out = workers.act(&actions, &Layout::default()).unwrap();
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert!(left_out[0].contains("queue 99"), "{left_out:?}");
    assert_eq!(client.get("vq.0.0/worker").unwrap(), other);
}
