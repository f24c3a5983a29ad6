use super::*;
use crate::config::{Config, PollingConfig};
use crate::control::client::{Client, ClientError};
use crate::control::{Errno, LONGEST_LINE};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

struct Running {
    directory: tempfile::TempDir,
    socket: PathBuf,
    _control: ControlSocket,
    daemon: Arc<Daemon>,
}

fn running() -> Running {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("made/control.sock");
    let disk = directory.path().join("disk.sock");
    let text =
        format!("[workers]\ncount = 2\n[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {disk:?}\n");
    let daemon = Arc::new(Daemon::start(&Config::parse(&text).unwrap()).unwrap());
    let control = BoundSocket::bind(&socket, Access::own()).unwrap().serve(&daemon).unwrap();
    Running { directory, socket, _control: control, daemon }
}

fn errno(outcome: Result<impl std::fmt::Debug, ClientError>) -> Errno {
    match outcome {
        Err(ClientError::Refused(error)) => error.errno,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_daemon_is_looked_at_and_changed() {
    let running = running();
    let mut client = Client::connect(&running.socket).unwrap();
    assert_eq!(client.get("d.0/name").unwrap(), "disk");
    assert_eq!(client.get("d.0/state").unwrap(), "waiting");
    let worker = client.create("workers", "{ polling = \"never\" }").unwrap();
    assert_eq!(worker, "w.2");
    assert_eq!(client.get("w.2/pace/polling").unwrap(), "never");
    client.set("w.2/pace/longest_nap_us", "50").unwrap();
    assert_eq!(client.get("w.2/pace").unwrap(), json!({ "polling": "adaptive", "longest_nap_us": 50 }));
    client.set("w.2/pace/polling", "always").unwrap();
    client.set("w.2/pace/polling", "adaptive").unwrap();
    assert_eq!(client.get("w.2/pace/longest_nap_us").unwrap(), 50, "as it was set");
    client.move_to(&["d.0"], "w.2").unwrap();
    assert_eq!(client.get("vq.0.0/worker").unwrap(), "w.2");
    let other = running.directory.path().join("other.sock");
    let line = json!({ "name": "other", "type": "block", "socket": other, "queues": 3 }).to_string();
    assert_eq!(client.create("devices", &line).unwrap(), "d.1");
    assert!(other.exists());
    assert_eq!(errno(client.create("devices", &line)), Errno::Exists);
    assert_eq!(client.get("queues").unwrap().as_object().unwrap().len(), 4);
    client.set("d.1/size", "2147483648").unwrap();
    assert_eq!(client.get("d.1/size").unwrap(), 2_u64 << 30);
    assert_eq!(errno(client.set("d.1/size", "4096")), Errno::Invalid);
    client.set("d.1/limits/requests_per_second", "100").unwrap();
    let text = client.get("configuration").unwrap();
    let config = Config::parse(text.as_str().unwrap()).unwrap();
    assert_eq!((config.devices[1].requests_per_second, config.workers.count), (100, 3));
    client.remove("d.1").unwrap();
    assert!(!other.exists());
    assert_eq!(errno(client.remove("d.1")), Errno::Missing);
    assert_eq!(client.create("devices", &line).unwrap(), "d.2", "no number is given twice");
    for worker in ["w.0", "w.1"] {
        client.remove(worker).unwrap();
    }
    assert_eq!(errno(client.remove("w.2")), Errno::Busy);
    assert_eq!(running.daemon.pool().workers().len(), 1);
}

#[test]
fn the_configuration_keeps_the_cpus_of_workers_and_tells_what_it_cannot_say() {
    let running = running();
    let mut client = Client::connect(&running.socket).unwrap();
    let text = |client: &mut Client| client.get("configuration").unwrap().as_str().unwrap().to_owned();
    let workers = |text: &str| Config::parse(text).unwrap().workers;
    let first = text(&mut client);
    assert!(workers(&first).cpus.is_empty() && !first.contains('#'), "{first}");
    // All CPUs that there are, or as many as a quota leaves, are a list too.
    let worker = running.daemon.pool().worker(1).unwrap();
    let all = worker.cpus().to_string();
    client.set("w.1/cpu", &all).unwrap();
    assert_eq!(workers(&text(&mut client)).cpus, [all.clone(), all]);
    client.set("w.1/cpu", "all").unwrap();
    assert!(workers(&text(&mut client)).cpus.is_empty());
    for worker in ["w.0", "w.1"] {
        client.set(&format!("{worker}/pace/longest_nap_us"), "20").unwrap();
    }
    client.create("workers", "{ polling = \"always\" }").unwrap();
    let mixed = text(&mut client);
    let note = mixed.lines().next().unwrap();
    assert!(note.starts_with("# ") && note.ends_with(" w.2"), "{mixed}");
    let usual = workers(&mixed);
    assert_eq!((usual.polling, usual.longest_nap_us, usual.count), (PollingConfig::Adaptive, 20, 3));
    for worker in ["w.0", "w.1"] {
        client.set(&format!("{worker}/pace/polling"), "always").unwrap();
    }
    let usual = workers(&text(&mut client));
    assert_eq!((usual.polling, usual.longest_nap_us), (PollingConfig::Always, 20), "for the time after it");
}

#[test]
fn watching_tells_again_and_again() {
    let running = running();
    let mut client = Client::connect(&running.socket).unwrap();
    client.watch("", Duration::from_millis(20), Some(3)).unwrap();
    let samples: Vec<_> = (0..3).map(|_| client.sample().unwrap()).collect();
    assert!(samples.windows(2).all(|two| two[0].time_ns < two[1].time_ns));
    assert_eq!(samples[2].value["devices"]["d.0"]["name"], "disk");
    client.watch("w.0/load", Duration::from_secs(60), None).unwrap();
    client.sample().unwrap();
    // Another line ends it at once.
    assert_eq!(client.get("d.0/name").unwrap(), "disk");
    client.watch("w.9", Duration::from_millis(20), None).unwrap();
    assert_eq!(errno(client.sample()), Errno::Missing);
    assert_eq!(client.get("d.0/name").unwrap(), "disk", "what cannot be watched is told once");
}

#[test]
fn a_hostile_peer_harms_nobody() {
    let running = running();
    let ask = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&running.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut all = String::new();
        // The daemon may close the connection before it has read everything, which resets it.
        let _ = stream.read_to_string(&mut all);
        all
    };
    ask(&vec![b'x'; 2 * LONGEST_LINE]);
    assert!(ask(&vec![b'x'; LONGEST_LINE + 5]).contains("E2BIG"));
    let deep = vec![b'['; LONGEST_LINE - 1];
    assert!(ask(&[&deep[..], b"\n"].concat()).contains("EINVAL"));
    assert_eq!(ask(b"\n \n"), "");
    assert_eq!(ask(b"\xff\xfe\0\n{}\n").lines().count(), 2);
    let many = ask(&b"{\"op\":\"get\",\"path\":\"pid\",\"id\":1}\n".repeat(100));
    assert_eq!(many.lines().filter(|line| line.contains("\"id\":1,\"ok\":true")).count(), 100, "{many}");
    // Peers that say nothing fill all places; the last ones are refused.
    let silent: Vec<_> =
        (0..MAX_PEERS + 8).filter_map(|_| UnixStream::connect(&running.socket).ok()).collect();
    let mut last = String::new();
    let _ = BufReader::new(silent.last().unwrap()).read_line(&mut last);
    assert!(last.contains("EACCES"), "{last}");
    drop(silent);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while Client::connect(&running.socket).unwrap().get("pid").is_err() {
        assert!(std::time::Instant::now() < end, "there is room again");
    }
}

#[test]
fn others_are_turned_away() {
    let directory = tempfile::tempdir().unwrap();
    let (path, daemon) = (directory.path().join("s"), Daemon::start(&Config::parse("").unwrap()).unwrap());
    let daemon = Arc::new(daemon);
    let user = rustix::process::geteuid().as_raw();
    let stranger = Access { user: 12345, group: None };
    if user == 0 {
        println!("not tested: root may use any daemon's control socket");
        assert!(BoundSocket::bind(&path, stranger).unwrap().serve(&daemon).is_ok());
        return;
    }
    assert!(BoundSocket::bind(&path, stranger).is_err(), "only root can give it to another user");
}

#[test]
fn peers_that_are_turned_away_cause_so_many_log_lines_and_no_more() {
    let running = running();
    let (peers, log) = (Mutex::default(), Log::default());
    // Who connects from outside of the daemon's user namespace is the overflow user; here another thread's user.
    let stranger = std::thread::spawn(|| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_uid(nobody)
            .map(|()| (0..50).map(|_| UnixStream::pair().unwrap()).collect())
    });
    let pairs: Vec<_> = match stranger.join().unwrap() {
        Ok(pairs) => pairs,
        Err(error) => return println!("not tested: another user needs root: {error}"),
    };
    for (ours, _theirs) in pairs {
        accept(ours, Access::own(), &peers, &running.daemon, &log);
    }
    assert!(log.refusals.lines() == 50 && peers.lock().unwrap().is_empty(), "of which ten are written");
    assert_eq!(log.failures.lines(), 0, "they hide nothing else");
}

#[test]
fn a_peers_groups_are_those_with_which_it_connected() {
    use rustix::process::{Gid, geteuid, getgroups};
    let told = |pair: (UnixStream, UnixStream)| groups(&pair.0).unwrap();
    let own: Vec<u32> = getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
    assert_eq!(told(UnixStream::pair().unwrap()), own);
    if !geteuid().is_root() {
        return println!("not tested: more groups than these need root");
    }
    for count in [0, 3, 64, 65, 1000] {
        let many: Vec<u32> = (5000..5000 + count).collect();
        let wanted: Vec<Gid> = many.iter().copied().map(Gid::from_raw).collect();
        let pair = std::thread::spawn(move || {
            rustix::thread::set_thread_groups(&wanted).map(|()| UnixStream::pair().unwrap())
        });
        // The thread has ended by then.
        match pair.join().unwrap() {
            Ok(pair) => assert_eq!(told(pair), many),
            Err(error) => return println!("not tested: this root has no other groups: {error}"),
        }
    }
}

#[test]
fn a_socket_in_use_and_a_file_are_left_alone() {
    let running = running();
    let error = BoundSocket::bind(&running.socket, Access::own()).unwrap_err();
    assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse, "{error}");
    let file = running.directory.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    assert!(BoundSocket::bind(&file, Access::own()).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let mode = std::fs::metadata(&running.socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}
