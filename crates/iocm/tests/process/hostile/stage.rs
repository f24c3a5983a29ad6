//! A daemon that front-ends attack: disks, guests, and what is left of the daemon afterwards.

use super::super::daemon::Daemon;
use iocm::control::client::Client;
use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, DATA, Driver, FrontEnd, Piece, SIZE, USER, connect_within};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const SPLIT: RingFeatures = RingFeatures { packed: false, event_index: false, indirect: true };

/// A daemon with disks `d0`, `d1`, ... and one worker.
pub(crate) struct Stage {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) daemon: Daemon,
    config: String,
}

impl Stage {
    /// A daemon with one disk for each of `disks`: the configuration of the device without name, type and socket. If it
    /// has a type, the device need not be a disk.
    pub(crate) fn new(disks: &[&str]) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), disks)
    }

    pub(crate) fn in_directory(directory: tempfile::TempDir, disks: &[&str]) -> Self {
        let at = |name: &str| directory.path().join(name);
        let mut config = format!("[control]\nsocket = {:?}\nmount = \"\"\n", at("control"));
        for (number, more) in disks.iter().enumerate() {
            let socket = at(&format!("d{number}.sock"));
            let kind = if more.contains("type = ") { "" } else { "type = \"block\"" };
            config += &format!(
                "[[device]]\nname = \"d{number}\"\n{kind}\nsocket = {socket:?}\n{}\n",
                more.replace("HERE", &directory.path().to_string_lossy())
            );
        }
        let daemon = Daemon::start(&config);
        Self { directory, daemon, config }
    }

    pub(crate) fn control(&mut self) -> Client {
        self.daemon.client(&self.directory.path().join("control"))
    }

    /// Starts the next daemon after one that died.
    pub(crate) fn again(&mut self) {
        self.daemon = Daemon::start(&self.config);
    }

    pub(crate) fn socket(&self, disk: usize) -> PathBuf {
        self.directory.path().join(format!("d{disk}.sock"))
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.daemon.0.try_wait().unwrap().is_none()
    }

    /// A figure of the daemon from `/proc/PID/status`, KiB.
    pub(crate) fn kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

pub(crate) fn connect(socket: &Path) -> FrontEnd {
    FrontEnd::new(connect_within(Duration::from_secs(60), socket).unwrap()).unwrap()
}

/// An honest guest, which measures the effect of attacks on it.
pub(crate) struct Neighbour {
    pub(crate) driver: BlockDriver,
    pub(crate) front: FrontEnd,
}

impl Neighbour {
    pub(crate) fn new(socket: &Path) -> Self {
        let driver = BlockDriver::new(64, SPLIT);
        let mut front = connect(socket);
        front.negotiate(&driver.driver, 0).unwrap();
        assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
        Self { driver, front }
    }

    /// Measures one read; `None` if it does not end within `limit`.
    pub(crate) fn read(&mut self, limit: Duration) -> Option<Duration> {
        let began = Instant::now();
        let before = self.driver.driver.offered();
        self.driver.driver.enable_calls(true);
        self.driver.submit(0, 0, &[], 4096).unwrap();
        if self.driver.driver.must_kick(before) {
            self.front.kick().unwrap();
        }
        loop {
            if let Some((_, status, _)) = self.driver.ended() {
                assert_eq!(status, 0);
                return Some(began.elapsed());
            }
            let left = limit.checked_sub(began.elapsed())?;
            wait_readable(&self.front.call, left.min(Duration::from_millis(50)));
            let _ = rustix::io::read(&self.front.call, &mut [0; 8]);
        }
    }
}

pub(crate) fn wait_readable(file: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&limit)).is_ok_and(|count| count > 0)
}

/// The guest address of a second region, besides the driver's memory.
pub(crate) const FAR: u64 = 1 << 32;

/// A guest whose front-end is hostile: it makes requests of any shape in memory of any kind.
pub(crate) struct Attacker {
    pub(crate) driver: Driver,
    pub(crate) front: FrontEnd,
    pub(crate) error: OwnedFd,
}

impl Attacker {
    /// An attacker that has not started its queue. It also shares `far`, at [`FAR`].
    pub(crate) fn new(socket: &Path, size: u16, far: Option<(&File, u64)>) -> Self {
        let driver = Driver::new(size, SPLIT);
        let front = connect(socket);
        let error = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let mut attacker = Self { driver, front, error };
        attacker.front.negotiate(&attacker.driver, 0).unwrap();
        if let Some((file, size)) = far {
            assert!(attacker.share(file, size), "the memory is taken");
        }
        attacker
    }

    /// Shares the driver's memory and a second file. `false` if the back-end refuses.
    pub(crate) fn share(&mut self, far: &File, size: u64) -> bool {
        let mut payload = [2_u32, 0].map(u32::to_ne_bytes).concat();
        for word in [0, SIZE, USER, 0, FAR, size, USER + FAR, 0] {
            payload.extend(word.to_ne_bytes());
        }
        self.front.tell(5, &payload, &[self.driver.file.as_fd(), far.as_fd()]).unwrap()
    }

    pub(crate) fn start(&mut self, size: u16) -> bool {
        self.start_queue(0, size)
    }

    pub(crate) fn start_queue(&mut self, index: u32, size: u16) -> bool {
        let number = u64::from(index).to_ne_bytes();
        self.front.tell(14, &number, &[self.error.as_fd()]).unwrap()
            && self.front.start(index, &self.driver.layout(), size.into(), 0).unwrap()
    }

    /// Makes a request available (header, pieces, status), and kicks. Returns its buffer id.
    pub(crate) fn request(&mut self, kind: u32, sector: u64, pieces: &[Piece]) -> u16 {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.driver.write(DATA, &header);
        self.driver.write(STATUS, &[0xff]);
        let mut all = vec![(DATA, 16, false)];
        all.extend(pieces);
        all.push((STATUS, 1, true));
        let id = self.driver.add_indirect(&all).unwrap();
        let _ = self.front.kick();
        id
    }

    /// The status of the request, if it completes within `limit`.
    pub(crate) fn ended(&mut self, limit: Duration) -> Option<u8> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if self.driver.take().is_some() {
                return Some(self.driver.read(STATUS, 1)[0]);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

/// The addresses of an attacker's status byte, and of its data.
pub(crate) const STATUS: u64 = DATA + 0x100;
pub(crate) const PLACE: u64 = DATA + 0x1000;

/// A sparse file in memory.
pub(crate) fn memory(size: u64) -> File {
    let file = rustix::fs::memfd_create("far", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(file);
    file.set_len(size).unwrap();
    file
}

/// A sparse disk of this many bytes, in a directory on a disk or in memory.
pub(crate) fn disk(directory: &Path, name: &str, size: u64) {
    File::create(directory.join(name)).unwrap().set_len(size).unwrap();
}
