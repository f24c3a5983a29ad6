//! The control tree of a daemon under load: as a file system and over its socket, with libblkio as the front-end.

use crate::blkio_disk::{BLOCK, DISK, Disk};
use blkio::ReqFlags;
use iocm::config::Config;
use iocm::control::client::Client;
use iocm::control::mount::Mounted;
use iocm::control::rates::Rates;
use iocm::control::socket::{BoundSocket, ControlSocket};
use iocm::control::{Access, Errno};
use iocm::daemon::Daemon;
use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, FrontEnd};
use serde_json::{Value as Json, json};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn daemon(directory: &Path) -> (Arc<Daemon>, ControlSocket) {
    let path = directory.join("disk");
    File::create(&path).unwrap().set_len(DISK).unwrap();
    let socket = directory.join("disk.sock");
    let text = format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\nserial = \"s-1\"\n"
    );
    let daemon = Arc::new(Daemon::start(&Config::parse(&text).unwrap()).unwrap());
    let control =
        BoundSocket::bind(&directory.join("control"), Access::own()).unwrap().serve(&daemon).unwrap();
    (daemon, control)
}

/// Writes blocks and reads them back until it is told to end. Returns the number of requests, all of which succeeded.
fn load(socket: &Path, end: &AtomicBool) -> u64 {
    const AT_ONCE: usize = 8;
    let mut disk = Disk::connect(socket);
    let mut turns: u64 = 0;
    while !end.load(Ordering::Relaxed) || turns == 0 {
        let byte = (turns % 250) as u8 + 1;
        let place = |slot: usize| ((turns as usize * AT_ONCE + slot) * BLOCK) as u64 % DISK;
        for slot in 0..AT_ONCE {
            disk.fill(slot, byte);
            disk.queue.write(place(slot), disk.block(slot), BLOCK, slot, ReqFlags::empty());
        }
        assert_eq!(disk.wait(AT_ONCE), [0; AT_ONCE]);
        for slot in 0..AT_ONCE {
            disk.queue.read(place(slot), disk.block(slot + AT_ONCE), BLOCK, slot, ReqFlags::empty());
        }
        assert_eq!(disk.wait(AT_ONCE), [0; AT_ONCE]);
        assert!((0..AT_ONCE).all(|slot| disk.holds(slot + AT_ONCE, byte)), "what was written is read back");
        turns += 1;
    }
    turns * 2 * AT_ONCE as u64
}

/// Ends the load when it is dropped; otherwise a failing test would hang.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn workers_and_devices_come_and_go_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, _control) = daemon(directory.path());
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| load(&directory.path().join("disk.sock"), &end));
        let ending = End(&end);
        let mut client = Client::connect(&directory.path().join("control")).unwrap();
        while client.get("vq.0.0/state").unwrap() != "served" {
            std::thread::yield_now();
        }
        for turn in 0..10 {
            let worker = client.create("workers", "").unwrap();
            client.move_to(&["vq.0.0"], &worker).unwrap();
            assert_eq!(client.get("vq.0.0/worker").unwrap(), worker.as_str());
            client.set("vq.0.0/weight", &format!("{}", 100 + turn)).unwrap();
            client.set("vq.0.0/poll", if turn % 2 == 0 { "always" } else { "auto" }).unwrap();
            let socket = directory.path().join("other.sock");
            let line = json!({ "name": "other", "type": "block", "socket": socket }).to_string();
            let other = client.create("devices", &line).unwrap();
            let _front = Disk::connect_to_any(&socket);
            client.remove(&other).unwrap();
            // The queue goes to the other worker by itself.
            client.remove(&worker).unwrap();
            assert_eq!(client.get("vq.0.0/worker").unwrap(), "w.0");
        }
        // Each turn moves it there and back. A worker counts a queue when it has received it.
        let late = Instant::now() + Duration::from_secs(20);
        while client.get("vq.0.0/moves/count").unwrap() != 20 {
            assert!(Instant::now() < late, "{}", client.get("vq.0.0/moves").unwrap());
        }
        let [last, longest] =
            ["last", "longest"].map(|which| client.get(&format!("vq.0.0/moves/{which}_pause_ns")).unwrap());
        assert!(last.as_u64() > Some(0) && last.as_u64() <= longest.as_u64(), "{last} {longest}");
        println!("the longest pause of 20 moves took {longest} ns");
        drop(ending);
        let requests = requests.join().unwrap();
        let counted = client.get("d.0/statistics/requests").unwrap().as_u64().unwrap();
        assert!(counted >= requests, "{counted} of {requests}");
        assert_eq!(client.get("d.0/statistics/errors").unwrap(), 0);
        assert_eq!(client.get("d.0/statistics/in_flight").unwrap(), 0);
    });
    assert_eq!(daemon.pool().workers().len(), 1);
}

#[test]
fn queues_start_and_stop_while_they_are_moved() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path());
    let mut client = Client::connect(&directory.path().join("control")).unwrap();
    let workers = ["w.0".to_owned(), client.create("workers", "").unwrap()];
    let stream = UnixStream::connect(directory.path().join("disk.sock")).unwrap();
    let features = RingFeatures { packed: false, event_index: false, indirect: false };
    let driver = BlockDriver::new(64, features).driver;
    let mut front = FrontEnd::new(stream).unwrap();
    front.negotiate(&driver, 0).unwrap();
    let end = AtomicBool::new(false);
    let starts = std::thread::scope(|scope| {
        let front_end = scope.spawn(|| {
            let (mut base, mut starts) = (0, 0);
            while !end.load(Ordering::Relaxed) {
                assert!(front.start(0, &driver.layout(), 64, base).unwrap());
                starts += 1;
                base = front.stop(0).unwrap();
            }
            assert!(front.start(0, &driver.layout(), 64, base).unwrap());
            starts
        });
        let ending = End(&end);
        for turn in 1..=2000 {
            client.move_to(&["vq.0.0"], &workers[turn % 2]).unwrap();
        }
        drop(ending);
        front_end.join().unwrap()
    });
    assert!(starts > 0);
    assert_eq!(client.get("vq.0.0/worker").unwrap(), "w.0", "after {starts} starts");
}

#[test]
fn one_worker_stays_whoever_removes_them() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, _control) = daemon(directory.path());
    let connect = || Client::connect(&directory.path().join("control")).unwrap();
    let (mut one, mut other) = (connect(), connect());
    let together = Barrier::new(2);
    for turn in 0..500 {
        one.create("workers", "").unwrap();
        let workers = daemon.pool().workers();
        let [first, second] = [0, 1].map(|at| format!("w.{}", workers[at].number()));
        let remove = |client: &mut Client, name: &str| {
            together.wait();
            client.remove(name).is_ok()
        };
        let removed = std::thread::scope(|scope| {
            let thread = scope.spawn(|| remove(&mut other, &second));
            [remove(&mut one, &first), thread.join().unwrap()]
        });
        assert!(removed.contains(&false) && daemon.pool().workers().len() == 1, "turn {turn}: {removed:?}");
    }
}

#[test]
fn a_limit_that_is_lifted_holds_no_request_back() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path());
    let mut client = Client::connect(&directory.path().join("control")).unwrap();
    let stream = UnixStream::connect(directory.path().join("disk.sock")).unwrap();
    let features = RingFeatures { packed: false, event_index: false, indirect: false };
    let mut driver = BlockDriver::new(64, features);
    let mut front = FrontEnd::new(stream).unwrap();
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    client.set("d.0/limits/bytes_per_second", "100").unwrap();
    let ends_within = |driver: &mut BlockDriver, limit| {
        let late = Instant::now() + limit;
        while driver.ended().is_none() {
            if Instant::now() >= late {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    };
    // The first requests use the credit of 40 minutes.
    for _ in 0..2 {
        for sector in 0..8 {
            driver.submit(0, sector * 64, &[], 32 << 10).unwrap();
        }
        front.kick().unwrap();
    }
    assert!(ends_within(&mut driver, Duration::from_secs(20)));
    assert!(!ends_within(&mut driver, Duration::from_millis(200)));
    client.set("d.0/limits/bytes_per_second", "0").unwrap();
    for _ in 1..16 {
        assert!(ends_within(&mut driver, Duration::from_secs(10)), "the queue sleeps");
    }
}

/// The time of an object, nanoseconds: worked, polled, napped, slept.
fn times(object: &Json) -> [u64; 4] {
    ["worked_ns", "polled_ns", "napped_ns", "slept_ns"].map(|part| object["time"][part].as_u64().unwrap())
}

#[test]
fn each_queue_tells_how_its_requests_were_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path());
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(&directory.path().join("disk.sock"), &end));
        let _ending = End(&end);
        let mut client = Client::connect(&directory.path().join("control")).unwrap();
        while client.get("vq.0.0/requests").unwrap() == 0 {
            std::thread::yield_now();
        }
        for polling in ["always", "never"] {
            client.set("w.0/pace/polling", polling).unwrap();
            // The worker has executed the command before it answers this.
            client.set("vq.0.0/weight", "100").unwrap();
            let mut look = || {
                let began = Instant::now();
                let both = ["w.0", "vq.0.0"].map(|name| client.get(name).unwrap());
                (began, both, Instant::now())
            };
            let (first, [worker, queue], after_first) = look();
            std::thread::sleep(Duration::from_millis(300));
            let (second, [worker_now, queue_now], after_second) = look();
            let least = (second - after_first).as_nanos() as f64;
            let most = (after_second - first).as_nanos() as f64;
            for (before, now) in [(&worker, &worker_now), (&queue, &queue_now)] {
                let all = times(now).iter().sum::<u64>().saturating_sub(times(before).iter().sum()) as f64;
                assert!(all > least * 0.95 && all < most * 1.05, "{polling}: {all} of {least} to {most}");
            }
            let grown =
                |counter: &str| queue_now[counter].as_u64().unwrap() - queue[counter].as_u64().unwrap();
            let [worked, polled, _, slept] =
                [0, 1, 2, 3].map(|part| times(&queue_now)[part].saturating_sub(times(&queue)[part]));
            assert!(worked > 0 && grown("requests") > 0, "{queue_now}");
            match polling {
                "always" => assert!(polled > 0 && grown("kicks_asked") + slept == 0, "{queue}\n{queue_now}"),
                _ => assert!(slept > 0 && grown("kicks_asked") > 0 && grown("kicks") > 0, "{queue_now}"),
            }
            assert!(grown("kicks") <= grown("kicks_asked") + 1, "{queue_now}");
        }
    });
}

#[test]
fn rates_are_right_while_workers_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path());
    let (end, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| load(&directory.path().join("disk.sock"), &end));
        let reader = scope.spawn(|| {
            let mut client = Client::connect(&directory.path().join("control")).unwrap();
            client.watch("", Duration::from_millis(10), None).unwrap();
            let mut before = client.sample().unwrap();
            while !end.load(Ordering::Relaxed) {
                let now = client.sample().unwrap();
                let rates = Rates::between(&before, &now);
                for queue in &rates.queues {
                    let parts = [
                        queue.worked_percent,
                        queue.polled_percent,
                        queue.napped_percent,
                        queue.slept_percent,
                    ];
                    assert!(parts.iter().all(|part| (0.0..=100.0).contains(&part.unwrap())), "{queue:?}");
                }
                for worker in rates.workers.iter().filter(|worker| worker.load_percent.is_some()) {
                    let parts = [worker.polled_percent, worker.napped_percent, worker.slept_percent];
                    assert!(parts.iter().all(|part| (0.0..=100.0).contains(&part.unwrap())), "{worker:?}");
                }
                seen.fetch_add(rates.queues.len(), Ordering::Relaxed);
                before = now;
            }
        });
        let ending = End(&end);
        let mut client = Client::connect(&directory.path().join("control")).unwrap();
        let late = Instant::now() + Duration::from_secs(20);
        let mut turns = 0;
        while turns < 20 || seen.load(Ordering::Relaxed) == 0 {
            assert!(turns < 20 || Instant::now() < late, "no rates of a queue in {turns} turns");
            let worker = client.create("workers", "").unwrap();
            client.move_to(&["d.0"], &worker).unwrap();
            client.set("w.0/pace/polling", ["always", "never", "adaptive"][turns % 3]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            client.remove(&worker).unwrap();
            turns += 1;
        }
        drop(ending);
        reader.join().unwrap();
    });
}

#[test]
fn a_disk_that_is_removed_has_all_that_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path());
    let mut client = Client::connect(&directory.path().join("control")).unwrap();
    let mut disk = Disk::connect(&directory.path().join("disk.sock"));
    assert_eq!(client.get("d.0/pid").unwrap(), std::process::id());
    assert!(!client.get("d.0/vm").unwrap().as_str().unwrap().is_empty());
    for slot in 0..8 {
        disk.fill(slot, 7);
        disk.queue.write((slot * BLOCK) as u64, disk.block(slot), BLOCK, slot, ReqFlags::empty());
    }
    disk.queue.do_io(&mut [], 0, None, None).unwrap();
    // Requests that the daemon has taken complete before it ends.
    while client.get("vq.0.0/requests").unwrap() != 8 && client.get("vq.0.0/in_flight").unwrap() == 0 {
        std::thread::yield_now();
    }
    client.remove("d.0").unwrap();
    assert_eq!(disk.wait(8), [0; 8]);
    let mut byte = [0];
    File::open(directory.path().join("disk")).unwrap().read_exact_at(&mut byte, 7 * BLOCK as u64).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(client.get("devices").unwrap(), json!({}));
}

#[test]
fn a_disk_grows_and_its_front_end_sees_it() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, _control) = daemon(directory.path());
    let mut client = Client::connect(&directory.path().join("control")).unwrap();
    client.set("d.0/size", &(2 * DISK).to_string()).unwrap();
    assert_eq!(fs::metadata(directory.path().join("disk")).unwrap().len(), 2 * DISK);
    File::options().write(true).open(directory.path().join("disk")).unwrap().set_len(3 * DISK).unwrap();
    client.set("d.0/size", "file").unwrap();
    assert_eq!(client.get("d.0/size").unwrap(), 3 * DISK);
    let blkio = Disk::connect_to_any(&directory.path().join("disk.sock"));
    assert_eq!(blkio.get_u64("capacity").unwrap(), 3 * DISK);
}

#[test]
fn the_tree_is_files() {
    let directory = tempfile::tempdir().unwrap();
    let (daemon, _control) = daemon(directory.path());
    let root = directory.path().join("tree");
    let mounted = match Mounted::new(&root, Access::own()) {
        Ok(mounted) => mounted,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            println!("not tested: {error}: {}", cause.unwrap_or_default());
            return;
        }
    };
    let mount = mounted.serve(&daemon, true).unwrap();
    assert!(Mounted::new(&root, Access::own()).is_err(), "it is mounted once");
    let read = |path: &str| fs::read_to_string(root.join(path));
    let write = |path: &str, text: &str| fs::write(root.join(path), text);
    let errno = |outcome: std::io::Result<()>| outcome.unwrap_err().raw_os_error();
    let mut names: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "configuration",
            "devices",
            "pid",
            "queues",
            "refused",
            "removed_workers",
            "ticks_per_second",
            "version",
            "workers"
        ]
    );
    assert_eq!(read("devices/d.0/serial").unwrap(), "s-1\n");
    assert_eq!(read("devices/d.0/size").unwrap(), format!("{DISK}\n"));
    assert!(read("configuration").unwrap().contains("[[device]]"));
    write("workers/create", "{ polling = \"never\" }\n").unwrap();
    let workers = fs::read_dir(root.join("workers")).unwrap().count() - 2;
    let worker = format!("w.{}", workers - 1);
    assert_eq!(read(&format!("workers/{worker}/pace/polling")).unwrap(), "never\n");
    write("devices/d.0/worker", &format!("{worker}\n")).unwrap();
    assert_eq!(read("queues/vq.0.0/worker").unwrap(), format!("{worker}\n"));
    for (path, text, wanted) in [
        ("queues/vq.0.0/weight", "0", Errno::Invalid),
        ("queues/vq.0.0/weight", &"9".repeat(70_000), Errno::TooLarge),
        ("devices/create", "{}", Errno::Invalid),
        ("devices/remove", "d.7", Errno::Missing),
    ] {
        assert_eq!(errno(write(path, text)), Some(wanted.code()), "{path}");
    }
    assert!(write("workers/w.99", "1").is_err(), "nothing is made by opening it");
    assert_eq!(read("workers/create").unwrap_err().raw_os_error(), Some(Errno::Denied.code()));
    assert_eq!(read("devices/d.9/size").unwrap_err().raw_os_error(), Some(Errno::Missing.code()));
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
    let modes = ["devices/d.0/vm", "devices/d.0/size", "devices/create", "devices"].map(mode);
    assert_eq!(modes, [0o400, 0o600, 0o200, 0o500], "nobody reads it whom the socket refuses");
    // Reading a file that is still open when its object is removed fails.
    let load = File::open(root.join(format!("workers/{worker}/load"))).unwrap();
    write("workers/remove", &worker).unwrap();
    assert_eq!(load.read_at(&mut [0; 16], 0).unwrap_err().raw_os_error(), Some(Errno::Missing.code()));
    drop(mount);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "nothing is left");
}
