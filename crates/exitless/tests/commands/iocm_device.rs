//! A device's back-end program: QEMU's conventions (docs/interop/vhost-user.rst), and the descriptor files by
//! which management software finds it (docs/interop/vhost-user.json).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, FrontEnd, NetDriver};
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::Value;

use crate::command::command;

const LIMIT: Duration = Duration::from_secs(60);
const SECTOR: usize = 512;
/// A boot sector that prints K to the debug console, and halts.
const BOOT: [u8; 7] = [0xb0, b'K', 0xe6, 0xe9, 0xf4, 0xeb, 0xfd];

/// A process that is killed when it is dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    /// The exit status, once the process ends by itself.
    pub(crate) fn status(&mut self) -> Option<i32> {
        until("it ends", || self.0.try_wait().unwrap().is_some());
        self.0.wait().unwrap().code()
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "waited a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn device(arguments: &[&str]) -> Command {
    let mut command = command(&["iocm", "device"]);
    command.args(arguments).env("NO_COLOR", "1");
    command
}

/// A disk of 4 MiB. The first sector is a boot sector; the others begin with their number.
pub(crate) fn disk(directory: &Path) -> PathBuf {
    let path = directory.join("disk");
    let file = File::create(&path).unwrap();
    file.set_len(4 << 20).unwrap();
    for sector in 1..64_u64 {
        file.write_all_at(&sector.to_le_bytes(), sector * SECTOR as u64).unwrap();
    }
    file.write_all_at(&BOOT, 0).unwrap();
    file.write_all_at(&[0x55, 0xaa], 510).unwrap();
    path
}

fn connected(socket: &Path) -> UnixStream {
    until("it listens", || UnixStream::connect(socket).is_ok());
    UnixStream::connect(socket).unwrap()
}

/// Makes a descriptor inheritable by the next program; returns its number.
fn inherited(file: &impl AsFd) -> String {
    fcntl_setfd(file, FdFlags::empty()).unwrap();
    file.as_fd().as_raw_fd().to_string()
}

/// A front-end that has read one sector and stays connected.
pub(crate) fn reads(stream: UnixStream, sector: u64) -> FrontEnd {
    let mut driver = BlockDriver::new(16, RingFeatures::default());
    let mut front = FrontEnd::new(stream).unwrap();
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 16, 0).unwrap());
    driver.submit(0, sector, &[], SECTOR as u32).unwrap();
    front.kick().unwrap();
    let mut answer = None;
    until("the sector is read", || {
        answer = driver.ended();
        answer.is_some()
    });
    let (_, status, data) = answer.unwrap();
    assert_eq!((status, data.first_chunk()), (0, Some(&sector.to_le_bytes())));
    front
}

fn refused(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    told
}

/// The schema's `VHostUserBackendType`.
const TYPES: &[&str] = &[
    "9p",
    "balloon",
    "block",
    "caif",
    "console",
    "crypto",
    "gpu",
    "input",
    "net",
    "rng",
    "rpmsg",
    "rproc-serial",
    "scsi",
    "vsock",
    "fs",
];

#[test]
fn the_descriptors_are_of_the_schema_and_their_programs_have_the_same_type() {
    let directory = tempfile::tempdir().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/vhost-user");
    let mut types = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let prefix = name.split_once('-').unwrap().0;
        assert!(prefix.len() == 2 && prefix.parse::<u8>().is_ok() && name.ends_with(".json"), "{name}");
        let descriptor: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        // `VhostUserBackend`: three texts, and the optional tags.
        let fields: Vec<_> = descriptor.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["binary", "description", "type"], "{name}");
        let text = |field: &str| descriptor[field].as_str().unwrap();
        assert!(TYPES.contains(&text("type")) && !text("description").is_empty());
        let binary = Path::new(text("binary"));
        assert!(binary.is_absolute());
        let link = directory.path().join(binary.file_name().unwrap());
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_exitless"), &link).unwrap();
        // All other arguments are ignored.
        let mut command = Command::new(&link);
        command.args(["--fd=99", "--evdev-path=/x", "--print-capabilities", "--blk-file=/nowhere", "more"]);
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let capabilities: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(capabilities["type"], descriptor["type"]);
        // `VHostUserBackendCapabilitiesBlock`; the schema has nothing more for the type `net`.
        let expected = match text("type") {
            "block" => serde_json::json!({ "type": "block", "features": ["read-only", "blk-file"] }),
            other => serde_json::json!({ "type": other }),
        };
        assert_eq!(capabilities, expected);
        types.push(text("type").to_owned());
    }
    types.sort();
    assert_eq!(types, ["block", "net"]);
}

#[test]
fn a_command_line_needs_one_device_and_one_source_of_its_front_end() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let disk = disk.to_str().unwrap();
    let refused = |arguments: &[&str]| refused(&device(arguments).output().unwrap());
    assert!(refused(&["--socket-path", "/tmp/x"]).contains("Which device"));
    assert!(refused(&["--blk-file", disk]).contains("exactly one"));
    assert!(refused(&["--blk-file", disk, "--socket-path", "/tmp/x", "--fd", "9"]).contains("exactly one"));
    assert!(refused(&["--blk-file", disk, "--tap", "t0", "--fd", "9"]).contains("give one"));
    assert!(refused(&["--type", "net", "--blk-file", disk, "--fd", "9"]).contains("--tap NAME"));
    assert!(refused(&["--type", "block", "--tap", "t0", "--fd", "9"]).contains("--blk-file"));
    assert!(refused(&["--tap", "t0", "--read-only", "--fd", "9"]).contains("--read-only"));
    assert!(refused(&["--tap", "t0", "--format", "raw", "--fd", "9"]).contains("--format"));
    assert!(refused(&["--blk-file", disk, "--fd", "9", "--queues", "999"]).contains("999 queues"));
    let output = device(&["--blk-file", "/nowhere/disk", "--socket-path", "/tmp/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/disk"));
    let image = directory.path().join("image");
    std::fs::write(&image, b"QFI\xfb").unwrap();
    let image = ["--blk-file", image.to_str().unwrap(), "--socket-path", "/nowhere/socket"];
    let told = |arguments: &[&str]| {
        let output = device(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(told(&image).contains("--format raw"));
    let raw = told(&[&image[..], &["--format", "raw"]].concat());
    assert!(raw.contains("/nowhere/socket") && !raw.contains("qcow2"), "{raw}");
}

#[test]
fn descriptors_that_are_no_vhost_user_socket_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let refused = |number: &str| {
        let told =
            refused(&device(&["--blk-file", disk.to_str().unwrap(), "--fd", number]).output().unwrap());
        assert!(told.contains(&format!("descriptor {number} ")) || told.contains("invalid value"), "{told}");
        told
    };
    for number in ["-1", "0", "1", "2"] {
        assert!(refused(number).contains("standard streams"));
    }
    assert!(refused("99").contains("Bad file descriptor"));
    assert!(refused("2147483647").contains("Bad file descriptor"));
    refused("2147483648");
    refused("three");
    let file = File::open("/dev/null").unwrap();
    assert!(refused(&inherited(&file)).contains("not a socket"));
    let datagrams = std::os::unix::net::UnixDatagram::unbound().unwrap();
    assert!(refused(&inherited(&datagrams)).contains("another kind"));
    let network = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(refused(&inherited(&network)).contains("another kind"));
}

#[test]
fn a_device_serves_one_front_end_on_a_socket_of_its_own_and_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, socket) = (disk(directory.path()), directory.path().join("socket"));
    let (disk, path) = (disk.to_str().unwrap(), socket.to_str().unwrap());
    let arguments = ["--socket-path", path, "--blk-file", disk, "--read-only"];
    let mut child = Ended(device(&arguments).spawn().unwrap());
    // A connection without a message does not count: somebody only tested whether the socket listens.
    let front = reads(connected(&socket), 7);
    assert!(child.0.try_wait().unwrap().is_none());
    drop(front);
    assert_eq!(child.status(), Some(0));
    assert!(!socket.exists());
    // A signal while the program waits, and one while it serves.
    for serves in [false, true] {
        let mut child = Ended(device(&arguments).stderr(Stdio::null()).spawn().unwrap());
        let front = serves.then(|| reads(connected(&socket), 9));
        until("it listens", || socket.exists());
        child.terminate();
        let begin = Instant::now();
        assert_eq!(child.status(), Some(0), "a front-end: {serves}");
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(!socket.exists());
        drop(front);
    }
}

#[test]
fn a_device_serves_the_front_end_of_a_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, socket) = (disk(directory.path()), directory.path().join("socket"));
    let link = directory.path().join("exitless-vhost-user-blk");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_exitless"), &link).unwrap();
    // Given a listening socket of somebody else, the program waits for a front-end.
    let listener = UnixListener::bind(&socket).unwrap();
    let mut command = Command::new(&link);
    command.arg(format!("--fd={}", inherited(&listener))).arg("--blk-file").arg(&disk);
    let mut child = Ended(command.spawn().unwrap());
    drop(listener);
    drop(reads(UnixStream::connect(&socket).unwrap(), 3));
    assert_eq!(child.status(), Some(0));
    assert!(socket.exists(), "it is not the program's");
    // Given a connected socket, it serves that connection.
    let (own, others) = UnixStream::pair().unwrap();
    let mut command = Command::new(&link);
    command.arg(format!("--fd={}", inherited(&others))).arg("--blk-file").arg(&disk);
    let mut child = Ended(command.spawn().unwrap());
    drop(others);
    drop(reads(own, 4));
    assert_eq!(child.status(), Some(0));
}

#[test]
fn a_front_end_that_breaks_the_protocol_is_told_by_the_exit_status() {
    use std::io::Write as _;
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let (mut own, others) = UnixStream::pair().unwrap();
    let arguments = ["--fd", &inherited(&others), "--blk-file", disk.to_str().unwrap()];
    let mut child = Ended(device(&arguments).stderr(Stdio::null()).spawn().unwrap());
    drop(others);
    // GET_FEATURES, and then a message of a version that does not exist.
    let message = |flags: u32| [1, flags, 0].map(u32::to_ne_bytes).concat();
    own.write_all(&message(1)).unwrap();
    own.write_all(&message(3)).unwrap();
    assert_eq!(child.status(), Some(1));
}

#[test]
fn a_front_end_that_is_gone_or_says_half_a_message_holds_no_device() {
    use std::io::Write as _;
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(directory.path());
    let start = |half: Option<&[u8]>| {
        let (mut own, others) = UnixStream::pair().unwrap();
        own.write_all(half.unwrap_or_default()).unwrap();
        let arguments = ["--fd", &inherited(&others), "--blk-file", disk.to_str().unwrap()];
        (own, Ended(device(&arguments).stderr(Stdio::null()).spawn().unwrap()))
    };
    // The front-end has gone before the program starts.
    let (own, mut child) = start(None);
    drop(own);
    assert_eq!(child.status(), Some(0));
    let (own, mut child) = start(Some(&[1, 0, 0, 0, 1]));
    // The device's threads exist while it waits for the rest of the message.
    let task = format!("/proc/{}/task", child.0.id());
    until("it serves", || std::fs::read_dir(&task).is_ok_and(|threads| threads.count() > 2));
    child.terminate();
    let begin = Instant::now();
    assert_eq!(child.status(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5));
    drop(own);
}

/// A machine with a disk behind a character device, whose debug console is the file `told`; `None` without
/// QEMU.
pub(crate) fn machine(directory: &Path, chardev: &str) -> Option<Ended> {
    let mut command = Command::new("qemu-system-x86_64");
    command.current_dir(directory).args(["-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none"]);
    command.args(["-object", "memory-backend-memfd,id=memory,size=64M,share=on"]);
    command.args(["-machine", "q35,memory-backend=memory", "-debugcon", "file:told"]);
    command.args(["-chardev", chardev, "-device", "vhost-user-blk-pci,chardev=disk,bootindex=0"]);
    command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Ended)
}

/// Tests whether a machine boots from a disk behind a character device; `false` without QEMU.
fn starts(directory: &Path, chardev: &str) -> bool {
    let told = directory.join("told");
    let _ = std::fs::remove_file(&told);
    let Some(mut machine) = machine(directory, chardev) else { return false };
    until("the machine starts from the disk", || {
        assert!(machine.0.try_wait().unwrap().is_none(), "QEMU ended");
        std::fs::read(&told).is_ok_and(|told| told == b"K")
    });
    true
}

#[test]
fn qemu_starts_from_a_device_by_a_socket_and_by_a_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, socket) = (disk(directory.path()), directory.path().join("socket"));
    let (disk, path) = (disk.to_str().unwrap(), socket.to_str().unwrap());
    let mut child = Ended(device(&["--socket-path", path, "--blk-file", disk]).spawn().unwrap());
    until("it listens", || socket.exists());
    if !starts(directory.path(), &format!("socket,id=disk,path={path}")) {
        return println!("not tested: no qemu-system-x86_64 here");
    }
    assert_eq!(child.status(), Some(0), "the machine is gone");
    let (one, other) = UnixStream::pair().unwrap();
    let number = inherited(&one);
    let mut child = Ended(device(&["--fd", &number, "--blk-file", disk]).spawn().unwrap());
    fcntl_setfd(&one, FdFlags::CLOEXEC).unwrap();
    assert!(starts(directory.path(), &format!("socket,id=disk,fd={}", inherited(&other))));
    drop((one, other));
    assert_eq!(child.status(), Some(0), "the machine is gone");
}

#[test]
fn a_device_on_a_tap_asks_the_host_and_gets_its_answer() {
    /// The IPv4 addresses of the host and the guest.
    const HOST: [u8; 4] = [198, 18, 7, 1];
    const GUEST: [u8; 4] = [198, 18, 7, 2];
    const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 7, 2];
    let tap = format!("xt{}", std::process::id() % 1_000_000);
    let tuntap = |verb: &str| {
        let mut ip = Command::new("ip");
        let done = ip.args(["tuntap", verb, "dev", &tap, "mode", "tap"]).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    // A container's root may not make one either.
    if !tuntap("add") || !tuntap("del") {
        println!("not tested: this user cannot make a tap with ip(8) here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let interface = Path::new("/sys/class/net").join(&tap);
    let arguments = ["--socket-path", socket.to_str().unwrap(), "--tap", &tap];
    let mut child = Ended(device(&arguments).stderr(Stdio::null()).spawn().unwrap());
    let stream = connected(&socket);
    let address = format!("{}.{}.{}.{}/30", HOST[0], HOST[1], HOST[2], HOST[3]);
    let set = Command::new("ip").args(["addr", "add", &address, "dev", &tap]).status().unwrap();
    assert!(set.success());
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let mut driver = NetDriver::new(16, features);
    let mut front = FrontEnd::new(stream).unwrap();
    front.negotiate(&driver.receive, 0).unwrap();
    for (index, layout) in [(0, driver.receive.layout()), (1, driver.transmit.layout())] {
        assert!(front.start(index, &layout, 16, 0).unwrap());
    }
    while driver.offer(2048).is_some() {}
    // An ARP request (RFC 826) for the host's address.
    let ask = [&[0xff; 6][..], &MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &MAC, &GUEST, &[0; 6], &HOST].concat();
    driver.send([0; 10], &ask).unwrap();
    front.kick().unwrap();
    until("the host answers", || {
        let mut answers = std::iter::from_fn(|| driver.received());
        answers.any(|(_, frame, _)| frame.starts_with(&MAC) && frame[28..32] == HOST)
    });
    assert!(interface.exists());
    drop(front);
    assert_eq!(child.status(), Some(0));
    assert!(!interface.exists(), "the tap is removed with the device");
}
