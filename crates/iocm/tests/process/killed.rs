//! A daemon that is killed again and again while a guest writes.

use super::daemon::Daemon;
use super::hostile::stage::connect;
use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, Driver, FrontEnd};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn split() {
    under_load::<FrontEnd>(false);
}

pub(crate) fn packed() {
    under_load::<FrontEnd>(true);
}

/// A front-end that continues with a ring at the next daemon.
pub(crate) trait Connection: Sized {
    /// The inflight memory, which the front-end keeps.
    type Kept;

    /// Connects, and starts the ring. The first daemon creates the inflight memory.
    fn go_on(socket: &Path, driver: &Driver, kept: Option<Self::Kept>) -> (Self, Self::Kept);

    fn kick(&self);
}

impl Connection for FrontEnd {
    type Kept = (Vec<u8>, OwnedFd);

    fn go_on(socket: &Path, driver: &Driver, kept: Option<Self::Kept>) -> (Self, Self::Kept) {
        let mut front = connect(socket);
        // VIRTIO_BLK_F_FLUSH: without it each write would have to reach the disk first.
        front.negotiate(driver, 1 << 9).unwrap();
        let (description, memory) = match kept {
            None => front.inflight(1, SIZE).unwrap(),
            Some((description, memory)) => {
                assert!(front.tell(32, &description, &[memory.as_fd()]).unwrap());
                (description, memory)
            }
        };
        // Like QEMU, start at the last used buffer, because nobody says what the daemon had taken.
        let base = if driver.features.packed { 0x8000_8000 } else { driver.given_back().into() };
        assert!(front.start(0, &driver.layout(), SIZE.into(), base).unwrap());
        (front, (description, memory))
    }

    fn kick(&self) {
        Self::kick(self).unwrap();
    }
}

const BLOCK: usize = 4096;
/// Descriptors of the ring.
pub(crate) const SIZE: u16 = 64;
/// Blocks that are written in turn, so never one with a write in flight.
const BLOCKS: u64 = 512;
const KILLS: u32 = 8;

/// A guest that writes: the block of each request, and the expected content of the blocks.
struct Guest {
    driver: BlockDriver,
    in_flight: HashMap<u16, u64>,
    written: HashMap<u64, u8>,
    next: u64,
    ended: u64,
}

impl Guest {
    /// Handles completed writes, and submits more.
    fn go_on(&mut self, front: &impl Connection) {
        while let Some((id, status, _)) = self.driver.ended() {
            assert_eq!(status, 0);
            assert!(self.in_flight.remove(&id).is_some(), "request {id} ended, and was not in flight");
            self.ended += 1;
        }
        let before = self.driver.driver.offered();
        while self.in_flight.len() < 8 {
            let block = self.next % BLOCKS;
            if self.in_flight.values().any(|busy| *busy == block) {
                break;
            }
            let byte = (self.next / BLOCKS % 250) as u8 + 1;
            let Some(id) = self.driver.submit(1, block * 8, &[byte; BLOCK], 0) else { break };
            self.in_flight.insert(id, block);
            self.written.insert(block, byte);
            self.next += 1;
        }
        if before != self.driver.driver.offered() && self.driver.driver.must_kick(before) {
            front.kick();
        }
    }
}

pub(crate) fn under_load<C: Connection>(packed: bool) {
    let directory = tempfile::tempdir().unwrap();
    let (path, socket) = (directory.path().join("disk"), directory.path().join("disk.sock"));
    File::create(&path).unwrap().set_len(BLOCKS * BLOCK as u64).unwrap();
    let config = format!(
        "[[device]]\nname = \"disk\"\ntype = \"block\"\nsocket = {socket:?}\npath = {path:?}\n\
         [control]\nsocket = \"\"\nmount = \"\"\n"
    );
    let features = RingFeatures { packed, event_index: true, indirect: true };
    let driver = BlockDriver::new(SIZE, features);
    let mut guest = Guest { driver, in_flight: HashMap::new(), written: HashMap::new(), next: 0, ended: 0 };
    let mut kept = None;
    let mut replayed = 0;
    for turn in 0..=KILLS {
        let daemon = Daemon::start(&config);
        let (front, record) = C::go_on(&socket, &guest.driver.driver, kept.take());
        kept = Some(record);
        replayed += guest.in_flight.len();
        front.kick();
        let wanted = guest.ended + 300 + u64::from(turn) * 37;
        let end = Instant::now() + Duration::from_secs(60);
        while guest.ended < wanted {
            guest.go_on(&front);
            assert!(Instant::now() < end, "requests are lost: {:?}", guest.in_flight);
        }
        if turn == KILLS {
            while !guest.in_flight.is_empty() {
                if let Some((id, status, _)) = guest.driver.ended() {
                    assert!(status == 0 && guest.in_flight.remove(&id).is_some());
                    guest.ended += 1;
                }
                assert!(Instant::now() < end, "requests are lost: {:?}", guest.in_flight);
            }
        }
        // Dropping it kills it.
        drop(daemon);
    }
    assert_eq!(guest.ended, guest.next, "each ended once");
    let file = File::open(&path).unwrap();
    for (block, byte) in &guest.written {
        let mut bytes = [0; BLOCK];
        file.read_exact_at(&mut bytes, block * BLOCK as u64).unwrap();
        assert!(bytes.iter().all(|one| one == byte), "block {block}");
    }
    println!("killed {KILLS} times, {} writes, {replayed} of them in flight when it was killed", guest.ended);
    assert!(replayed > 0);
}
