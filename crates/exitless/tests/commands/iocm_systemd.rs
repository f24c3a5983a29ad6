//! The daemon under a service manager: sockets that it inherits, and sockets that the manager keeps across a
//! restart.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, FrontEnd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::iocm_device::{Ended, disk, machine, reads, until};
use crate::systemd::Systemd;

/// A service manager as the daemon sees it: receives messages, stores descriptors, and passes them to the
/// next process.
struct Manager {
    directory: PathBuf,
    socket: UnixDatagram,
    /// Names and descriptors in the order of their arrival.
    store: Vec<(String, OwnedFd)>,
    is_ready: bool,
}

impl Manager {
    fn new(directory: &Path) -> Self {
        let socket = UnixDatagram::bind(directory.join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { directory: directory.to_owned(), socket, store: Vec::new(), is_ready: false }
    }

    /// Handles the messages that have arrived.
    fn hear(&mut self) {
        loop {
            let mut bytes = [0; 1024];
            let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut room);
            let flags = RecvFlags::CMSG_CLOEXEC;
            let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
            let Ok(received) = received else { return };
            let text = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default();
            assert!(
                name.len() < 256 && name.bytes().all(|byte| (b' '..0x7f).contains(&byte) && byte != b':')
            );
            match text.lines().next() {
                Some("FDSTORE=1") => {
                    for message in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(files) = message {
                            self.store.extend(files.map(|file| (name.to_owned(), file)));
                        }
                    }
                }
                Some("FDSTOREREMOVE=1") => self.store.retain(|(stored, _)| stored != name),
                Some("READY=1") => self.is_ready = true,
                _ => {}
            }
        }
    }

    /// The command for a daemon that inherits all stored descriptors, and `more`.
    fn command(&self, more: &[(&str, RawFd)]) -> Command {
        let stored = self.store.iter().map(|(name, file)| (name.as_str(), file.as_raw_fd()));
        let all: Vec<(&str, RawFd)> = more.iter().copied().chain(stored).collect();
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let mut files: Vec<RawFd> = all.iter().map(|(_, file)| *file).collect();
        // The shell knows its process ID, and `exec` keeps it.
        let mut command = Command::new("sh");
        command.args(["-c", "LISTEN_PID=$$ exec \"$@\"", "sh", env!("CARGO_BIN_EXE_exitless")]);
        command.args(["iocm", "serve", "--config"]).arg(self.directory.join("iocm.toml"));
        command.env("LISTEN_FDS", files.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        command.env("NOTIFY_SOCKET", self.directory.join("notify")).stdin(Stdio::null());
        let passes = move || {
            // Move the descriptors above the target range first, so that none overwrites another.
            let above = 3 + files.len() as RawFd;
            for file in &mut files {
                // SAFETY: fcntl() only copies a descriptor, and is async-signal-safe as required between
                // fork(2) and execve(2).
                *file = unsafe { libc::fcntl(*file, libc::F_DUPFD_CLOEXEC, above) };
            }
            for (number, file) in (3..).zip(&files) {
                // SAFETY: as above. A descriptor that is replaced would have been closed by execve(2) anyway.
                if unsafe { libc::dup2(*file, number) } != number {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure only makes async-signal-safe system calls.
        unsafe { command.pre_exec(passes) };
        command
    }

    fn start(&mut self, more: &[(&str, RawFd)]) -> Ended {
        self.is_ready = false;
        let mut daemon = Ended(self.command(more).spawn().unwrap());
        until("the daemon is ready", || {
            assert!(daemon.0.try_wait().unwrap().is_none(), "the daemon ended");
            self.hear();
            self.is_ready
        });
        daemon
    }

    /// Stops the daemon, and handles its last messages.
    fn stop(&mut self, mut daemon: Ended) {
        daemon.terminate();
        assert_eq!(daemon.status(), Some(0));
        self.hear();
    }

    fn names(&self) -> Vec<&str> {
        self.store.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// Writes a configuration with a control socket and disks.
fn configure(directory: &Path, disks: &[&str]) {
    let mut text = format!("[control]\nsocket = {:?}\nmount = \"\"\n", directory.join("control"));
    for name in disks {
        let socket = directory.join(format!("{name}.sock"));
        text += &format!(
            "[[device]]\nname = \"{name}\"\ntype = \"block\"\nsocket = {socket:?}\npath = {:?}\nshare-rw = true\n",
            directory.join("disk")
        );
    }
    let user = rustix::process::geteuid().as_raw();
    std::fs::write(directory.join("iocm.toml"), format!("{text}[safety]\nuser = \"{user}\"\n")).unwrap();
}

/// Reads a sector again and again, reconnecting like QEMU with `reconnect=`. Returns the pause at each change
/// of the daemon.
///
/// Panics if the socket does not listen at any moment.
fn reads_without_end(socket: &Path, ends: &AtomicBool, count: &AtomicUsize) -> Vec<Duration> {
    let mut pauses = Vec::new();
    let mut last: Option<Instant> = None;
    while !ends.load(Ordering::Relaxed) {
        let stream = UnixStream::connect(socket).expect("somebody always listens");
        // A daemon that ends during the negotiation closes the connection; try again.
        let mut is_new = last.is_some();
        let _ = (|| -> std::io::Result<()> {
            let mut driver = BlockDriver::new(16, RingFeatures::default());
            let mut front = FrontEnd::new(stream)?;
            front.negotiate(&driver.driver, 0)?;
            if !front.start(0, &driver.driver.layout(), 16, 0)? {
                return Ok(());
            }
            while !ends.load(Ordering::Relaxed) {
                driver.submit(0, 5, &[], 512).unwrap();
                front.kick()?;
                let sent = Instant::now();
                while driver.ended().is_none() {
                    std::thread::yield_now();
                    // Use the connection too: a virtqueue does not show that its device has gone.
                    if sent.elapsed() > Duration::from_millis(2) {
                        front.ask(1)?;
                    }
                }
                let now = Instant::now();
                if std::mem::take(&mut is_new) {
                    pauses.extend(last.map(|last| now - last));
                }
                last = Some(now);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })();
    }
    pauses
}

/// The journal's directory is private to root: the daemon's user could open nothing in it.
#[test]
fn the_packaged_daemon_uses_nothing_in_the_directory_of_roots_journal() {
    let unit = include_str!("../../../../packaging/systemd/exitless-iocm.service");
    let example = include_str!("../../../../packaging/iocm.toml.example");
    let settings = unit.lines().filter(|line| !line.starts_with('#'));
    let uses: Vec<&str> = settings
        .chain(example.lines())
        .filter(|line| line.contains("/var/lib/exitless/") || line.ends_with("/var/lib/exitless"))
        .collect();
    assert!(uses.is_empty(), "{uses:?}");
    assert!(unit.lines().any(|line| line == "StateDirectory=exitless-images"));
    assert!(example.contains("\"/var/lib/exitless-images/"));
}

#[test]
fn a_front_end_that_reconnects_finds_a_listener_over_twenty_restarts() {
    const RESTARTS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a", "b"]);
    let mut manager = Manager::new(directory.path());
    let mut daemon = manager.start(&[]);
    assert_eq!(manager.store.len(), 3, "two disks and the control socket: {:?}", manager.names());
    let (ends, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let socket = directory.path().join("a.sock");
    let front = {
        let (ends, count) = (Arc::clone(&ends), Arc::clone(&count));
        std::thread::spawn(move || reads_without_end(&socket, &ends, &count))
    };
    let goes_on = |what: &str| {
        let before = count.load(Ordering::Relaxed);
        until(what, || count.load(Ordering::Relaxed) > before + 20);
    };
    goes_on("it reads");
    for restart in 0..RESTARTS + 2 {
        // The last two daemons are killed.
        match restart < RESTARTS {
            true => manager.stop(daemon),
            false => drop(daemon),
        }
        for socket in ["a.sock", "b.sock", "control"] {
            drop(UnixStream::connect(directory.path().join(socket)).expect("the socket is kept"));
        }
        daemon = manager.start(&[]);
        assert_eq!(manager.store.len(), 3, "the same are kept: {:?}", manager.names());
        goes_on("it reads on");
    }
    ends.store(true, Ordering::Relaxed);
    let mut pauses = front.join().unwrap();
    assert_eq!(pauses.len(), RESTARTS + 2);
    pauses.truncate(RESTARTS);
    pauses.sort();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!(
        "{RESTARTS} restarts: no I/O for {:.1?} (p50), {:.1?} at the longest; load average {load}",
        pauses[RESTARTS / 2],
        pauses[RESTARTS - 1]
    );
    manager.stop(daemon);
}

/// A boot sector that reads the next sector over and over, and prints K to the debug console each time.
#[rustfmt::skip]
const READS_ON: [u8; 29] = [
    // es = 0, and one sector (cylinder 0, sector 2, disk 0x80) to 0x8000 by the BIOS (int 0x13, ah 2).
    0x31, 0xc0, 0x8e, 0xc0, 0xb8, 0x01, 0x02, 0xb9, 0x02, 0x00, 0xba, 0x80, 0x00, 0xbb, 0x00, 0x80, 0xcd, 0x13,
    // On an error, halts.
    0x72, 0x06, 0xb0, b'K', 0xe6, 0xe9, 0xeb, 0xea, 0xf4, 0xeb, 0xfd,
];

#[test]
fn qemu_reads_on_over_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let disk = std::fs::File::options().write(true).open(disk(directory.path())).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&disk, &READS_ON, 0).unwrap();
    configure(directory.path(), &["a"]);
    let mut manager = Manager::new(directory.path());
    let mut daemon = manager.start(&[]);
    let Some(_machine) = machine(directory.path(), "socket,id=disk,path=a.sock,reconnect=1") else {
        return println!("not tested: no qemu-system-x86_64 here");
    };
    let count = || std::fs::metadata(directory.path().join("told")).map_or(0, |told| told.len());
    for _ in 0..3 {
        let before = count();
        until("the machine reads on", || count() > before + 100);
        let begin = Instant::now();
        manager.stop(daemon);
        let before = count();
        daemon = manager.start(&[]);
        until("the machine reads on", || count() > before);
        println!("a restart under QEMU with reconnect=1: {:.2?}", begin.elapsed());
    }
    manager.stop(daemon);
}

#[test]
fn a_device_that_goes_is_kept_no_longer() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a", "b", "c"]);
    let mut manager = Manager::new(directory.path());
    let daemon = manager.start(&[]);
    // Removed while the daemon runs, it is forgotten.
    let mut client = iocm::control::client::Client::connect(&directory.path().join("control")).unwrap();
    client.remove("d.0").unwrap();
    drop(client);
    until("it is forgotten", || {
        manager.hear();
        manager.store.len() == 3
    });
    assert!(!directory.path().join("a.sock").exists());
    manager.stop(daemon);
    // Left out of the next daemon's configuration, it is forgotten too.
    configure(directory.path(), &["c"]);
    let daemon = manager.start(&[]);
    let names = manager.names().join(" ");
    assert!(names.contains("c.sock") && names.contains("control") && manager.store.len() == 2, "{names}");
    drop(reads(UnixStream::connect(directory.path().join("c.sock")).unwrap(), 5));
    assert!(UnixStream::connect(directory.path().join("b.sock")).is_err());
    manager.stop(daemon);
}

#[test]
fn sockets_of_a_unit_are_served_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a", "b"]);
    let mut manager = Manager::new(directory.path());
    let of_unit = |name: &str| UnixListener::bind(directory.path().join(name)).unwrap();
    let (disk, control) = (of_unit("a.sock"), of_unit("control"));
    // Connects before anybody serves the socket.
    let early = UnixStream::connect(directory.path().join("a.sock")).unwrap();
    let unit = [("a.socket", disk.as_raw_fd()), ("control.socket", control.as_raw_fd())];
    let daemon = manager.start(&unit);
    assert!(
        manager.names().join("").ends_with("b.sock") && manager.store.len() == 1,
        "{:?}",
        manager.names()
    );
    drop(reads(early, 5));
    drop(iocm::control::client::Client::connect(&directory.path().join("control")).unwrap());
    manager.stop(daemon);
    drop(UnixStream::connect(directory.path().join("a.sock")).expect("the unit's socket still listens"));
}

#[test]
fn what_is_inherited_and_no_listening_socket_is_closed_and_told_once() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a"]);
    let mut manager = Manager::new(directory.path());
    let nothing = std::fs::File::open("/dev/null").unwrap();
    let datagrams = UnixDatagram::unbound().unwrap();
    let (connected, _other) = UnixStream::pair().unwrap();
    let unwanted = UnixListener::bind(directory.path().join("unwanted")).unwrap();
    // Nearly half of what a process may have open, because the child holds each descriptor twice until execve(2).
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
    let many = (most as usize / 2 - 100).min(5000);
    let mut wrong = vec![("x", nothing.as_raw_fd()); many];
    wrong.extend([
        ("y", datagrams.as_raw_fd()),
        ("z", connected.as_raw_fd()),
        ("iocm=/x", nothing.as_raw_fd()),
    ]);
    wrong.push(("w", unwanted.as_raw_fd()));
    let log = directory.path().join("log");
    manager.is_ready = false;
    let mut command = manager.command(&wrong);
    let mut daemon = Ended(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
    until("the daemon is ready", || {
        assert!(daemon.0.try_wait().unwrap().is_none(), "{}", std::fs::read_to_string(&log).unwrap());
        manager.hear();
        manager.is_ready
    });
    drop(reads(UnixStream::connect(directory.path().join("a.sock")).unwrap(), 5));
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.0.id())).unwrap().count();
    assert!(open < 60, "{open} descriptors are open");
    let told = std::fs::read_to_string(&log).unwrap();
    assert_eq!(told.matches("inherited").count(), 2, "{told}");
    let closed = format!("{} of {} inherited descriptors", many + 3, many + 4);
    assert!(told.contains(&closed) && told.contains("unwanted"), "{told}");
    manager.stop(daemon);
}

#[test]
fn descriptors_that_are_announced_wrongly_are_refused_and_those_of_another_process_are_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a"]);
    let serve = |variables: &str| {
        let mut command = Command::new("sh");
        // Whoever runs the tests may have a descriptor 3 open.
        command.args(["-c", &format!("{variables} exec \"$@\" 3>&-"), "sh", env!("CARGO_BIN_EXE_exitless")]);
        command.args(["iocm", "serve", "--config"]).arg(directory.path().join("iocm.toml"));
        command
    };
    for (variables, expected) in [
        ("LISTEN_PID=$$ LISTEN_FDS=1", "descriptor 3 is not open"),
        ("LISTEN_PID=$$ LISTEN_FDS=4000000000", "at most"),
        ("LISTEN_PID=$$ LISTEN_FDS=-1", "not a number"),
        ("LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=a", "has 1 names"),
        ("LISTEN_PID=me LISTEN_FDS=1", "LISTEN_PID=me"),
    ] {
        let output = serve(variables).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected) && told.contains("sd_listen_fds"), "{told}");
    }
    let mut other = Ended(serve("LISTEN_PID=1 LISTEN_FDS=7").spawn().unwrap());
    let socket = directory.path().join("a.sock");
    until("it serves", || UnixStream::connect(&socket).is_ok());
    other.terminate();
    assert_eq!(other.status(), Some(0));
    assert!(!socket.exists(), "without a service manager nothing is kept");
}

#[test]
fn systemds_own_program_for_socket_activation_starts_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a"]);
    let socket = directory.path().join("a.sock");
    let mut command = Command::new("systemd-socket-activate");
    command.arg("--listen").arg(&socket).arg(env!("CARGO_BIN_EXE_exitless"));
    command.args(["iocm", "serve", "--config"]).arg(directory.path().join("iocm.toml"));
    let Ok(child) = command.stderr(Stdio::null()).spawn() else {
        return println!("not tested: no systemd-socket-activate here");
    };
    let mut daemon = Ended(child);
    let mut stream = None;
    until("systemd listens", || {
        stream = UnixStream::connect(&socket).ok();
        stream.is_some()
    });
    drop(reads(stream.unwrap(), 6));
    daemon.terminate();
    assert_eq!(daemon.status(), Some(0));
}

#[test]
fn systemd_itself_keeps_the_sockets_over_a_restart_and_crashes_in_a_row() {
    use std::os::unix::fs::MetadataExt as _;
    // With the start and the restart, more than the five starts in ten seconds that systemd permits by default.
    const CRASHES: usize = 5;
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    configure(directory.path(), &["a"]);
    let systemd = match Systemd::start(directory.path()) {
        Ok(systemd) => systemd,
        Err(why) => return println!("not tested: {why}"),
    };
    systemd.ctl(&["start"]).expect("the unit starts");
    assert!(systemd.has("NFileDescriptorStore=2"), "the disk's and the control socket");
    let socket = directory.path().join("a.sock");
    let inode = std::fs::metadata(&socket).unwrap().ino();
    let (ends, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let front = {
        let (socket, ends, count) = (socket.clone(), Arc::clone(&ends), Arc::clone(&count));
        std::thread::spawn(move || reads_without_end(&socket, &ends, &count))
    };
    let goes_on = || {
        let before = count.load(Ordering::Relaxed);
        until("it reads on", || count.load(Ordering::Relaxed) > before + 20);
    };
    goes_on();
    systemd.ctl(&["restart"]).expect("the unit starts again");
    goes_on();
    for crash in 1..=CRASHES {
        systemd.ctl(&["kill", "--signal=KILL"]).unwrap();
        let restarted = format!("NRestarts={crash}");
        until("it is restarted", || systemd.has(&restarted) && systemd.has("ActiveState=active"));
        goes_on();
    }
    ends.store(true, Ordering::Relaxed);
    let pauses = front.join().unwrap();
    println!("under systemd: a restart {:.0?}, a crash {:.0?}", pauses[0], pauses[1]);
    assert!(systemd.has("NFileDescriptorStore=2"));
    assert_eq!(std::fs::metadata(&socket).unwrap().ino(), inode, "it is the same socket");
    systemd.ctl(&["stop"]).unwrap();
    until("nothing is kept of a unit that was stopped", || UnixStream::connect(&socket).is_err());
}

#[test]
fn systemd_does_not_start_a_daemon_again_whose_configuration_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    disk(directory.path());
    let systemd = match Systemd::start(directory.path()) {
        Ok(systemd) => systemd,
        Err(why) => return println!("not tested: {why}"),
    };
    std::fs::write(directory.path().join("iocm.toml"), "bad = ").unwrap();
    assert!(systemd.ctl(&["start"]).is_none(), "the unit must not start");
    assert!(systemd.has("ActiveState=failed") && systemd.has("NRestarts=0"), "it must not be tried again");
    configure(directory.path(), &["a"]);
    systemd.ctl(&["start"]).expect("it starts with the corrected configuration");
}

#[test]
fn the_other_packaged_services_do_not_start_again_either_with_wrong_options() {
    let monitor = include_str!("../../../../packaging/systemd/exitless-iocm-monitor.service");
    let exporter = include_str!("../../../../packaging/systemd/exitless-exporter.service");
    for unit in [monitor, exporter] {
        assert!(unit.contains("\nRestart=on-failure\n") && unit.contains("\nRestartPreventExitStatus=2\n"));
    }
    // The monitor restarts with the daemon, however often that is.
    assert!(monitor.contains("\nStartLimitIntervalSec=0\n"));
}
