//! Descriptors that block whoever uses or closes them.

use super::descriptors::{ends, goes_on};
use super::stage::{Attacker, Neighbour, Stage};
use fuser::{
    Config, FileHandle, Filesystem, FopenFlags, INodeNo, OpenFlags, ReplyAttr, ReplyOpen, ReplyStatfs,
    Request, Session, SessionACL,
};
use iocm::testing::{SIZE, USER, attributes_of_one_file, lingering_socket};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A file system with a single file, whose server answers statfs(2) later than these tests wait. It does answer in the
/// end, because a process that waits for it cannot be killed, and no such process should remain.
struct Silent;

impl Filesystem for Silent {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::from_secs(3600), &attributes_of_one_file(ino, SIZE));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(20));
            reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
        });
    }
}

/// The file of such a file system, which is not mounted; `None` if this user may not make one.
fn silent_file() -> Option<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    for (key, value) in [
        ("fd", device.as_raw_fd().to_string().as_str()),
        ("rootmode", "100600"),
        ("user_id", "0"),
        ("group_id", "0"),
    ] {
        fsconfig_set_string(&context, key, value).ok()?;
    }
    fsconfig_create(&context).ok()?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
    let session =
        Session::from_fd(Silent, OwnedFd::from(device), SessionACL::All, Config::default()).unwrap();
    session.spawn().unwrap();
    let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
    Some(File::options().read(true).write(true).open(path).unwrap())
}

/// A request that passes the guest's memory, and one that passes the kick eventfd of queue 0.
fn requests() -> [(u32, Vec<u8>); 2] {
    let mut memory = [1_u32, 0].map(u32::to_ne_bytes).concat();
    memory.extend([0, SIZE, USER, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()));
    [(5, memory), (12, 0_u64.to_ne_bytes().to_vec())]
}

/// A file on a file system whose server does not answer statfs(2).
pub(crate) fn by_a_file_system() {
    for (code, payload) in requests() {
        let Some(file) = silent_file() else {
            println!("not tested: only root can make a file system");
            return;
        };
        let mut stage = Stage::new(&["", ""]);
        let mut neighbour = Neighbour::new(&stage.socket(1));
        let mut attacker = Attacker::new(&stage.socket(0), 64, None);
        assert!(attacker.start(64));
        attacker.front.send(code, 1, &payload, &[file.as_fd()]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        goes_on(&mut stage, &mut neighbour);
    }
}

/// A TCP socket that lingers when it is closed for the last time.
pub(crate) fn by_a_socket() {
    for (code, payload) in requests() {
        let (stream, _peer) = lingering_socket();
        let mut stage = Stage::new(&["", ""]);
        let mut neighbour = Neighbour::new(&stage.socket(1));
        let mut attacker = Attacker::new(&stage.socket(0), 64, None);
        assert!(attacker.start(64));
        attacker.front.send_closed(code, &payload, stream.into()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        goes_on(&mut stage, &mut neighbour);
    }
}

/// A malformed message, followed by one that nobody will read, with a socket that lingers.
fn leave_behind(stream: &UnixStream) -> TcpStream {
    let (lingers, peer) = lingering_socket();
    rustix::net::send(stream, &[0; 16], SendFlags::empty()).unwrap();
    send_with(stream, lingers.into());
    peer
}

/// Sends bytes with a descriptor, and closes it.
fn send_with(stream: &UnixStream, file: OwnedFd) {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(stream, &[IoSlice::new(&[0; 16])], &mut control, SendFlags::empty()).unwrap();
}

/// A socket that lingers, in the receive queue of a connection that is closed.
pub(crate) fn by_what_was_not_read() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let attacker = Attacker::new(&stage.socket(0), 64, None);
    // This connection waits until the first one ends, so its messages have arrived by the time it is accepted.
    let next = UnixStream::connect(stage.socket(0)).unwrap();
    let _peer = leave_behind(&next);
    drop(attacker);
    std::thread::sleep(Duration::from_millis(100));
    let mut control = stage.control();
    assert!(ends(move || drop(control.get("d.0/state").unwrap())), "the control tree hangs");
    goes_on(&mut stage, &mut neighbour);
}

/// The same in a connection that was never accepted.
pub(crate) fn by_what_was_not_accepted() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let next = UnixStream::connect(stage.socket(0)).unwrap();
    let _peer = leave_behind(&next);
    goes_on(&mut stage, &mut neighbour);
}

/// The same in the connection for the back-end's own requests, which is given up when it is full.
pub(crate) fn by_the_back_ends_connection() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let (theirs, mine) = UnixStream::pair().unwrap();
    let (lingers, _peer) = lingering_socket();
    send_with(&mine, lingers.into());
    let filler = theirs.try_clone().unwrap();
    while rustix::net::send(&filler, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
    while rustix::net::send(&filler, &[0], SendFlags::DONTWAIT).is_ok() {}
    drop(filler);
    attacker.front.send_closed(21, &[], theirs.into()).unwrap();
    assert!(attacker.front.ask(1).is_ok(), "it was taken");
    for size in ["2147483648", "3221225472"] {
        let mut control = stage.control();
        assert!(ends(move || drop(control.set("d.0/size", size))), "a change of the size hangs");
    }
    goes_on(&mut stage, &mut neighbour);
}
