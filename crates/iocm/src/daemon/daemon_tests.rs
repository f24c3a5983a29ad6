use super::*;
use crate::ring::RingFeatures;
use crate::testing::{BlockDriver, FrontEnd, MountedFile, attributes_of_one_file, lingering_socket};
use fuser::{Errno, FileHandle, Filesystem, INodeNo, OpenFlags, ReplyAttr, ReplyOpen, Request};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

fn config(directory: &std::path::Path, arrangement: &str) -> Config {
    let devices = (0..3).map(|number| {
        let socket = directory.join(format!("{number}.sock"));
        format!("[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")
    });
    let devices: String = devices.collect();
    Config::parse(&format!("[workers]\narrangement = \"{arrangement}\"\n{devices}")).unwrap()
}

#[test]
fn devices_are_given_to_workers_as_they_are_to_be() {
    for (arrangement, workers) in [("shared", [0, 0, 0]), ("per-device", [0, 1, 2])] {
        let directory = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(&config(directory.path(), arrangement)).unwrap();
        let mut fronts = Vec::new();
        for endpoint in daemon.endpoints() {
            let driver = BlockDriver::new(16, RingFeatures::default());
            let mut front = FrontEnd::new(UnixStream::connect(&endpoint.config.socket).unwrap()).unwrap();
            front.negotiate(&driver.driver, 0).unwrap();
            assert!(front.start(0, &driver.driver.layout(), 16, 0).unwrap());
            fronts.push((front, driver));
        }
        let figures = daemon.figures();
        let workers_of_queues: Vec<_> =
            figures.devices.iter().map(|device| device.queues[0].worker).collect();
        assert_eq!(workers_of_queues, workers.map(Some));
        assert!(figures.devices.iter().all(|device| device.connected));
        let text = serde_json::to_string(&figures).unwrap();
        assert!(text.contains("\"kicks_saved\":0") && text.contains("\"naps\":"), "{text}");
        let sockets: Vec<_> =
            daemon.endpoints().iter().map(|endpoint| endpoint.config.socket.clone()).collect();
        drop(daemon);
        assert!(sockets.iter().all(|socket| !socket.exists()), "nothing is left");
        for (mut front, _) in fronts {
            assert!(front.ask(1).is_err(), "the connection is closed");
        }
    }
}

/// Tests whether close(2) was called on the other end of a connection over IPv4, by the kernel's table (proc_pid_net(5)).
fn is_being_closed(peer: &std::net::TcpStream) -> bool {
    /// `TCP_FIN_WAIT1` of Linux's include/net/tcp_states.h.
    const FIN_WAIT1: &str = "04";
    let local = format!(":{:04X}", peer.peer_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|address| address.ends_with(&local)) && fields.get(3) == Some(&FIN_WAIT1)
    })
}

#[test]
fn devices_whose_threads_do_not_end_are_waited_for_together() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&config(directory.path(), "shared")).unwrap();
    let hold = |endpoint: Arc<Endpoint>| {
        let (stream, peer) = lingering_socket();
        let mut front = FrontEnd::new(UnixStream::connect(&endpoint.config.socket).unwrap()).unwrap();
        // This is not an eventfd, so the daemon closes it.
        front.send_closed(12, &0_u64.to_ne_bytes(), stream.into()).unwrap();
        (front, peer)
    };
    let held: Vec<_> = daemon.endpoints().into_iter().map(hold).collect();
    let end = Instant::now() + Duration::from_secs(20);
    while !held.iter().all(|(_, peer)| is_being_closed(peer)) {
        assert!(Instant::now() < end, "the daemon keeps what is no eventfd");
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    drop(daemon);
    let took = began.elapsed();
    assert_eq!(held.len(), 3);
    // One after the other they would take three times the two seconds that a device is waited for.
    assert!((Duration::from_secs(1)..Duration::from_secs(6)).contains(&took), "{took:?}");
}

#[test]
fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path(), "shared");
    drop(std::os::unix::net::UnixListener::bind(&config.devices[0].socket).unwrap());
    let daemon = Daemon::start(&config).unwrap();
    let error = Daemon::start(&config).unwrap_err();
    assert!(error.to_string().contains("0.sock"), "{error}");
    std::thread::sleep(Duration::from_millis(10));
    assert!(daemon.endpoints()[0].config.socket.exists());
}

#[test]
fn a_disk_that_a_guest_made_look_like_an_image_is_left_out_and_the_others_are_served() {
    use crate::control::FactSource;
    let directory = tempfile::tempdir().unwrap();
    let device = |name: &str, more: &str| {
        let (path, socket) = (directory.path().join(name), directory.path().join(format!("{name}.sock")));
        std::fs::write(&path, if name == "image" { b"QFI\xfb" } else { b"data" }).unwrap();
        format!("[[device]]\nname = {name:?}\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n{more}")
    };
    let both = |more: &str| {
        let workers = "[workers]\narrangement = \"per-device\"\ncpus = [\"0\"]\n".to_owned();
        Config::parse(&(workers + &device("image", more) + &device("disk", ""))).unwrap()
    };
    let daemon = Daemon::start(&both("")).unwrap();
    assert_eq!(daemon.device_numbers(), [1], "its place in the file");
    let cpus: Vec<_> = daemon.pool().workers().iter().map(|worker| worker.told_cpus()).collect();
    assert_eq!(cpus, [host::CpuSet::default()], "the list is that of the first device");
    let refused = FactSource::daemon(&daemon).refused;
    assert!(matches!(&refused[..], [one] if one.starts_with("image: ") && one.contains("format = \"raw\"")));
    let mut names: Vec<_> = daemon.configuration().devices.into_iter().map(|device| device.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["disk", "image"], "the next daemon knows both");
    let mut again = both("").devices.remove(0);
    assert!(matches!(daemon.add_device(&again), Err(DaemonError::Storage { .. })));
    again.format = Some(crate::config::DiskFormat::Raw);
    assert_eq!(daemon.add_device(&again).unwrap(), 2);
    assert!(FactSource::daemon(&daemon).refused.is_empty());
    drop(daemon);
    let mut raw = both("format = \"raw\"\n");
    raw.workers.cpus.clear();
    let daemon = Daemon::start(&raw).unwrap();
    assert_eq!((daemon.device_numbers(), daemon.refused().len()), (vec![0, 1], 0));
    drop(daemon);
    // Without any other device there is nothing to serve.
    let alone = Config::parse(&device("image", "")).unwrap();
    assert!(matches!(Daemon::start(&alone), Err(DaemonError::Storage { .. })));
}

#[test]
fn a_network_device_or_a_socket_that_cannot_be_used_is_not_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("nowhere");
    let usable = config(directory.path(), "shared");
    let beside = |kind: &str, socket: &std::path::Path, more: &str| {
        let text = format!("[[device]]\nname = \"other\"\ntype = {kind:?}\nsocket = {socket:?}\n{more}\n");
        let mut config = usable.clone();
        config.devices.extend(Config::parse(&text).unwrap().devices);
        Daemon::start(&config).unwrap_err()
    };
    let tap = format!("backend = {{ tap = \"tap\", netns = {nowhere:?} }}");
    let error = beside("net", &directory.path().join("net.sock"), &tap);
    assert!(matches!(&error, DaemonError::Net { name, .. } if name == "other"), "{error}");
    let error = beside("block", &nowhere.join("other.sock"), "");
    assert!(error.to_string().contains("nowhere/other.sock"), "{error}");
}

#[test]
fn the_descriptors_of_a_tap_are_those_that_the_daemon_inherited() {
    let directory = tempfile::tempdir().unwrap();
    let text = |device: &str, more: &str| {
        let socket = directory.path().join(device);
        format!("[[device]]\nname = {device:?}\nsocket = {socket:?}\n{more}\n")
    };
    let tap = text("net", "type = \"net\"\nbackend = { tap-fds = [99999] }");
    let config = Config::parse(&(text("disk", "type = \"block\"\npath = \"/nowhere\"") + &tap)).unwrap();
    // They are looked at before anything is opened.
    let error = BoundDevices::open(&config, &mut Inheritance::default()).unwrap_err();
    assert!(matches!(&error, DaemonError::Net { name, .. } if name == "net"), "{error}");
    let daemon = Daemon::start(&Config::default()).unwrap();
    let error = daemon.add_device(&config.devices[1]).unwrap_err();
    assert!(error.to_string().contains("tap-fds"), "{error}");
    assert_eq!(crate::control::ControlError::from(error).errno, crate::control::Errno::Invalid);
}

/// A file system with a single file, whose server tells of open(2), and blocks it until the channel closes.
struct Silent(Arc<Mutex<Receiver<()>>>, Sender<()>);

impl Filesystem for Silent {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(3600), &attributes_of_one_file(ino, 1 << 20));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let answers = Arc::clone(&self.0);
        let _ = self.1.send(());
        std::thread::spawn(move || {
            let _ = answers.lock().unwrap().recv();
            reply.error(Errno::EIO);
        });
    }
}

#[test]
fn a_disk_that_does_not_open_keeps_no_other_device_from_being_added() {
    let directory = tempfile::tempdir().unwrap();
    let ((answers, waits), (opening, opened)) = (channel(), channel());
    let Some(disk) = MountedFile::new(Silent(Arc::new(Mutex::new(waits)), opening)) else {
        println!("not tested: only root can mount a disk that does not open");
        return;
    };
    let daemon = Arc::new(Daemon::start(&config(directory.path(), "per-device")).unwrap());
    let (told, heard) = channel();
    let add = |name: &str, path: Option<&std::path::Path>| {
        let socket = directory.path().join(format!("{name}.sock"));
        let path = path.map(|path| format!("path = {path:?}\n")).unwrap_or_default();
        let text = format!("[[device]]\nname = {name:?}\ntype = \"block\"\nsocket = {socket:?}\n{path}");
        let config = Config::parse(&text).unwrap().devices.remove(0);
        let (told, daemon) = (told.clone(), Arc::clone(&daemon));
        std::thread::spawn(move || told.send(daemon.add_device(&config)));
    };
    let limit = Duration::from_secs(10);
    add("silent", Some(disk.path()));
    opened.recv_timeout(limit).unwrap();
    add("other", None);
    let number = heard.recv_timeout(limit).map(Result::ok);
    add("silent", None);
    let again = heard.recv_timeout(limit).map(Result::err);
    drop(answers);
    let failed = heard.recv_timeout(limit).map(Result::err);
    assert_eq!(number, Ok(Some(3)));
    assert!(matches!(again, Ok(Some(DaemonError::Exists(_)))), "its name is taken: {again:?}");
    assert!(matches!(failed, Ok(Some(DaemonError::Storage { .. }))), "{failed:?}");
    add("silent", None);
    assert_eq!(heard.recv_timeout(limit).map(Result::ok), Ok(Some(4)), "its name is free");
}
