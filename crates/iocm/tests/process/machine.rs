//! A real machine whose disk's daemon is killed: QEMU, whose BIOS drives the disk.

use super::daemon::Daemon;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The boot program: it writes, reads back and compares endlessly, in real mode through the BIOS.
#[rustfmt::skip]
const BOOT: [u8; 134] = [
    // Segments 0, a stack below; ebp counts the turns.
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfc, 0x66, 0x31, 0xed,
    // Fills 4 KiB at 0x8000 with the turn's number.
    0x66, 0x89, 0xe8, 0xbf, 0x00, 0x80, 0xb9, 0x00, 0x04, 0x66, 0xf3, 0xab,
    // Says at 0x500 that 8 sectors, from sector 64 + 8 * (turn % 256) on, are written from there.
    0x66, 0x89, 0xe8, 0x66, 0x25, 0xff, 0x00, 0x00, 0x00, 0x66, 0xc1, 0xe0, 0x03, 0x66, 0x83, 0xc0, 0x40, 0x66, 0xa3, 0x08, 0x05, 0x66, 0xc7, 0x06, 0x00, 0x05, 0x10, 0x00, 0x08, 0x00, 0x66, 0xc7, 0x06, 0x04, 0x05, 0x00, 0x80, 0x00, 0x00, 0x66, 0xc7, 0x06, 0x0c, 0x05, 0x00, 0x00, 0x00, 0x00,
    // Extended write (int 0x13, ah 0x43).
    0xb4, 0x43, 0xe8, 0x21, 0x00,
    // Extended read (ah 0x42) to 0x9000.
    0xc7, 0x06, 0x04, 0x05, 0x00, 0x90, 0xb4, 0x42, 0xe8, 0x16, 0x00,
    // Compares both.
    0xbe, 0x00, 0x80, 0xbf, 0x00, 0x90, 0xb9, 0x00, 0x04, 0x66, 0xf3, 0xa7, 0x75, 0x16,
    // Prints K to the debug console, and begins the next turn.
    0x66, 0x45, 0xb0, 0x4b, 0xe6, 0xe9, 0xeb, 0x9e,
    // The call of the BIOS, with the carry flag for errors.
    0x30, 0xc0, 0xbe, 0x00, 0x05, 0x66, 0x60, 0xcd, 0x13, 0x66, 0x61, 0x72, 0x01, 0xc3,
    // Prints E, and halts.
    0xb0, 0x45, 0xe6, 0xe9, 0xf4, 0xeb, 0xfd,
];

const KILLS: usize = 3;
/// Turns between two kills.
const TURNS: usize = 200;

/// A QEMU that is killed when it is dropped.
pub(crate) struct Machine(pub(crate) Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine that boots from the disk behind `NAME.sock`, and reports its progress in `NAME.told`.
pub(crate) fn machine(directory: &Path, name: &str) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.current_dir(directory).args(["-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none"]);
    command.args(["-object", "memory-backend-memfd,id=memory,size=64M,share=on"]);
    command.args(["-machine", "q35,memory-backend=memory", "-debugcon", &format!("file:{name}.told")]);
    command.arg("-chardev").arg(format!("socket,id=disk,path={name}.sock,reconnect=1"));
    command.args(["-device", "vhost-user-blk-pci,chardev=disk,bootindex=0"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// A disk of 4 MiB with a boot sector.
pub(crate) fn boot_disk(path: &Path, program: &[u8]) -> File {
    let disk = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    disk.set_len(4 << 20).unwrap();
    disk.write_all_at(program, 0).unwrap();
    disk.write_all_at(&[0x55, 0xaa], 510).unwrap();
    disk
}

/// Waits for something that takes less than 100 s.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    within(Duration::from_secs(100), what, is_so);
}

/// Waits for something that takes less than `limit`.
pub(crate) fn within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < end, "waited {} s: {what}", limit.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (path, socket) = (directory.path().join("disk"), directory.path().join("disk.sock"));
    let disk = boot_disk(&path, &BOOT);
    let config = format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n\
         [control]\nsocket = \"\"\nmount = \"\"\n"
    );
    let mut daemon = Some(Daemon::start(&config));
    until("the daemon begins", || socket.exists());
    let Ok(_machine) = machine(directory.path(), "disk").spawn().map(Machine) else {
        println!("not tested: no qemu-system-x86_64 here");
        return;
    };
    let told = || std::fs::read(directory.path().join("disk.told")).unwrap_or_default();
    for kill in 0..=KILLS {
        let wanted = told().len() + TURNS;
        until(&format!("the machine goes on after {kill} kills"), || told().len() >= wanted);
        // Dropping it kills it. After the last time no daemon runs, so nothing changes any more.
        daemon = None;
        if kill < KILLS {
            daemon = Some(Daemon::start(&config));
        }
    }
    assert!(daemon.is_none());
    let told = told();
    assert!(told.iter().all(|letter| *letter == b'K'), "it read what it had not written");
    // What the guest was told is written is on the disk.
    let last = told.len() as u32 - 1;
    for turn in last.saturating_sub(100)..last {
        let mut number = [0; 4];
        disk.read_exact_at(&mut number, (64 + 8 * u64::from(turn % 256)) * 512 + 4092).unwrap();
        assert_eq!(u32::from_le_bytes(number), turn);
    }
    println!("a machine went on over {KILLS} kills: {} blocks written and read back", told.len());
}
