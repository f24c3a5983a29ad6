//! The front-end of rust-vmm's crate `vhost`, which cloud-hypervisor uses: an independent implementation of the protocol.
//!
//! The order of the messages is cloud-hypervisor's (virtio-devices/src/vhost_user/vu_common_ctrl.rs).

use super::hostile::stage::{SPLIT, Stage};
use super::killed::{Connection, SIZE, under_load};
use super::machine::within;
use iocm::ring::RingLayout;
use iocm::testing::{BlockDriver, Driver, USER, memory_file};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vhost::vhost_user::{
    Frontend, FrontendReqHandler, HandlerResult, VhostUserFrontend as _, VhostUserFrontendReqHandler,
};
use vhost::{VhostBackend as _, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// A device with one queue, as cloud-hypervisor uses it.
struct Vmm {
    back_end: Frontend,
    features: u64,
    /// The protocol features that the back-end offers.
    offered: VhostUserProtocolFeatures,
    kick: EventFd,
    call: EventFd,
}

/// The protocol features that cloud-hypervisor's vhost-user-blk asks for.
const WANTED: VhostUserProtocolFeatures = VhostUserProtocolFeatures::from_bits_truncate(
    VhostUserProtocolFeatures::CONFIG.bits()
        | VhostUserProtocolFeatures::MQ.bits()
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS.bits()
        | VhostUserProtocolFeatures::REPLY_ACK.bits()
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD.bits()
        | VhostUserProtocolFeatures::LOG_SHMFD.bits(),
);

/// The time for which cloud-hypervisor tries to connect, and the limit for everything that is waited for here.
const MINUTE: Duration = Duration::from_secs(60);

impl Vmm {
    /// Connects, for at most a minute, and negotiates.
    fn connect(socket: &Path, driver: &Driver, wanted: VhostUserProtocolFeatures) -> Self {
        let mut connected = None;
        within(MINUTE, "the daemon listens", || {
            connected = Frontend::connect(socket, 1).ok();
            connected.is_some()
        });
        let mut back_end = connected.unwrap();
        back_end.set_owner().unwrap();
        // With VIRTIO_BLK_F_FLUSH: without it each write would have to reach the disk first.
        let mut features = 1 << 32 | 1 << 9 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        features |= u64::from(driver.features.indirect) << 28 | u64::from(driver.features.event_index) << 29;
        let features = features & back_end.get_features().unwrap();
        let offered = back_end.get_protocol_features().unwrap();
        assert!(offered.contains(wanted), "all of it is offered: {offered:?}");
        back_end.set_protocol_features(wanted).unwrap();
        // From now on each message is answered.
        back_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let [kick, call] = [(); 2].map(|()| EventFd::new(EFD_NONBLOCK).unwrap());
        Self { back_end, features, offered, kick, call }
    }

    fn memory(driver: &Driver, guest: u64, size: u64, offset: u64) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: guest,
            memory_size: size,
            userspace_addr: USER + guest,
            mmap_offset: offset,
            mmap_handle: driver.file.as_raw_fd(),
        }
    }

    /// Sets the inflight memory: that of an earlier back-end, or a new one from this back-end.
    fn track(&mut self, kept: Option<(VhostUserInflight, File)>) -> (VhostUserInflight, File) {
        let (record, file) = kept.unwrap_or_else(|| {
            let wanted =
                VhostUserInflight { num_queues: 1, queue_size: SIZE, ..VhostUserInflight::default() };
            self.back_end.get_inflight_fd(&wanted).unwrap()
        });
        self.back_end.set_inflight_fd(&record, file.as_raw_fd()).unwrap();
        (record, file)
    }

    fn addresses(layout: &RingLayout) -> VringConfigData {
        VringConfigData {
            queue_max_size: SIZE,
            queue_size: SIZE,
            flags: u32::from(layout.logged.is_some()),
            desc_table_addr: layout.descriptors,
            used_ring_addr: layout.device,
            avail_ring_addr: layout.driver,
            log_addr: layout.logged,
        }
    }

    /// Starts the ring at `base`.
    fn serve(&mut self, layout: &RingLayout, base: u16) {
        self.back_end.set_vring_addr(0, &Self::addresses(layout)).unwrap();
        self.back_end.set_vring_base(0, base).unwrap();
        self.back_end.set_vring_call(0, &self.call).unwrap();
        self.back_end.set_vring_kick(0, &self.kick).unwrap();
        self.back_end.set_vring_enable(0, true).unwrap();
    }
}

impl Connection for Vmm {
    type Kept = (VhostUserInflight, File);

    fn go_on(socket: &Path, driver: &Driver, kept: Option<Self::Kept>) -> (Self, Self::Kept) {
        let mut vmm = Self::connect(socket, driver, WANTED);
        vmm.back_end.set_features(vmm.features).unwrap();
        vmm.back_end.set_mem_table(&[Self::memory(driver, 0, iocm::testing::SIZE, 0)]).unwrap();
        vmm.back_end.set_vring_num(0, SIZE).unwrap();
        let kept = vmm.track(kept);
        // cloud-hypervisor says that the back-end has seen everything that the guest made available. A back-end that
        // believes this loses what the killed one had not taken yet.
        vmm.serve(&driver.layout(), driver.offered());
        (vmm, kept)
    }

    fn kick(&self) {
        self.kick.write(1).unwrap();
    }
}

pub(crate) fn killed() {
    under_load::<Vmm>(false);
}

/// Counts the notifications of a changed configuration.
#[derive(Default)]
struct Notices(AtomicU64);

impl VhostUserFrontendReqHandler for Notices {
    fn handle_config_change(&self) -> HandlerResult<u64> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(0)
    }
}

/// Waits for the only request. Returns its status and data.
fn end(driver: &mut BlockDriver) -> (u8, Vec<u8>) {
    let mut ended = None;
    within(MINUTE, "the request ends", || {
        ended = driver.ended();
        ended.is_some()
    });
    let (_, status, data) = ended.unwrap();
    (status, data)
}

pub(crate) fn uses_what_is_offered() {
    const DISK: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    File::create(&path).unwrap().set_len(DISK).unwrap();
    let mut stage = Stage::in_directory(directory, &["path = \"HERE/disk\"", "type = \"net\""]);
    let mut driver = BlockDriver::new(SIZE, SPLIT);
    let wanted = WANTED
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::RESET_DEVICE
        | VhostUserProtocolFeatures::STATUS;
    let mut vmm = Vmm::connect(&stage.socket(0), &driver.driver, wanted);
    assert!(!vmm.offered.contains(VhostUserProtocolFeatures::PAGEFAULT), "postcopy is not offered");
    assert!(vmm.back_end.get_queue_num().unwrap() >= 1);
    // A network device of cloud-hypervisor has two virtqueues at least, and does not start if there are fewer here.
    let of_net = WANTED.difference(VhostUserProtocolFeatures::INFLIGHT_SHMFD);
    let mut net = Vmm::connect(&stage.socket(1), &driver.driver, of_net);
    assert_eq!(net.back_end.get_queue_num().unwrap(), 3);
    let capacity = |vmm: &mut Vmm| {
        let (_, bytes) = vmm.back_end.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]).unwrap();
        u64::from_le_bytes(*bytes.first_chunk().unwrap())
    };
    assert_eq!(capacity(&mut vmm), DISK / 512);

    // Add memory region by region, as cloud-hypervisor does for a running guest.
    vmm.back_end.set_features(vmm.features).unwrap();
    assert!(vmm.back_end.get_max_mem_slots().unwrap() >= 8);
    let half = iocm::testing::SIZE / 2;
    let halves = [0, half].map(|begin| Vmm::memory(&driver.driver, begin, half, begin));
    for region in &halves {
        vmm.back_end.add_mem_region(region).unwrap();
    }
    vmm.back_end.set_vring_num(0, SIZE).unwrap();
    let _record = vmm.track(None);
    vmm.serve(&driver.driver.layout(), 0);
    let write = |vmm: &Vmm, driver: &mut BlockDriver, byte: u8| {
        driver.submit(1, 8, &[byte; 4096], 0).unwrap();
        vmm.kick();
    };
    write(&vmm, &mut driver, 1);
    assert_eq!(end(&mut driver), (0, Vec::new()));
    // One call when the queue starts, and one after the request, which the driver may see before the call.
    let mut calls = 0;
    within(MINUTE, "the driver is called", || {
        calls += vmm.call.read().unwrap_or(0);
        calls >= 2
    });
    assert_eq!(calls, 2);

    // A disabled queue takes nothing; then it continues.
    vmm.back_end.set_vring_enable(0, false).unwrap();
    write(&vmm, &mut driver, 2);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(driver.ended(), None, "a ring that is not enabled is not served");
    vmm.back_end.set_vring_enable(0, true).unwrap();
    assert_eq!(end(&mut driver), (0, Vec::new()));

    // A migration: writes to the guest's memory are in the log, including those to the used ring.
    let log = memory_file(4096);
    let region = VhostUserDirtyLogRegion { mmap_size: 4096, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
    vmm.back_end.set_log_base(0, Some(region)).unwrap();
    vmm.back_end.set_features(vmm.features | VhostUserVirtioFeatures::LOG_ALL.bits()).unwrap();
    let layout = driver.driver.layout();
    let logged = RingLayout { logged: Some(layout.device - USER), ..layout };
    vmm.back_end.set_vring_addr(0, &Vmm::addresses(&logged)).unwrap();
    driver.submit(0, 8, &[], 4096).unwrap();
    vmm.kick();
    assert_eq!(end(&mut driver), (0, vec![2; 4096]));
    let used_page = ((layout.device - USER) / 4096) as usize;
    let mut bits = [0_u8; 4096];
    within(MINUTE, "the used ring is in the log", || {
        log.read_exact_at(&mut bits, 0).unwrap();
        bits[used_page / 8] >> (used_page % 8) & 1 == 1
    });
    let pages: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    assert!((3..=4).contains(&pages), "the data, the status, and the used ring: {pages} pages");
    vmm.back_end.set_features(vmm.features).unwrap();

    // The front-end is told that the disk has grown.
    let notices = Arc::new(Notices::default());
    let mut requests = FrontendReqHandler::new(Arc::clone(&notices)).unwrap();
    requests.set_reply_ack_flag(true);
    vmm.back_end.set_backend_request_fd(&requests.get_tx_raw_fd()).unwrap();
    stage.control().set("devices/d.0/size", &(2 * DISK).to_string()).unwrap();
    requests.handle_request().unwrap();
    assert_eq!((notices.0.load(Ordering::Relaxed), capacity(&mut vmm)), (1, 2 * DISK / 512));

    // Stop the ring at its base, and clean up.
    assert_eq!(vmm.back_end.get_vring_base(0).unwrap(), u32::from(driver.driver.offered()));
    for region in &halves {
        vmm.back_end.remove_mem_region(region).unwrap();
    }
    vmm.back_end.reset_device().unwrap();
    assert!(stage.is_alive());
}
