//! The handling of each request.

use super::vring::{copy, eventfd};
use super::{Reply, Session, pool_error};
use crate::memory::{DirtyLog, GuestMemory};
use crate::protocol::{
    Connection, InflightDescription, MAX_REGIONS, ProtocolFeatures, Request, RequestError, RingAddresses,
    RingState, VirtioFeatures,
};
use crate::queue::Queue;
use crate::queue::inflight::InflightMemory;
use crate::ring::{LARGEST, RingLayout};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn invalid(error: impl std::fmt::Display) -> RequestError {
    RequestError::Invalid(error.to_string())
}

fn number(value: u64) -> Reply {
    Reply::Payload(value.to_ne_bytes().to_vec())
}

impl Session {
    pub(super) fn reply(&mut self, request: Request) -> Result<Reply, RequestError> {
        match request {
            Request::GetFeatures => Ok(number(self.offered())),
            Request::GetProtocolFeatures => Ok(number(self.offered_protocol())),
            Request::GetQueueNum => Ok(number(u64::from(self.backend.device.queues()))),
            Request::GetMaxMemSlots => Ok(number(MAX_REGIONS)),
            Request::GetStatus => Ok(number(self.status)),
            Request::GetConfig { offset, size } => {
                let mut payload: Vec<u8> =
                    [offset, size, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
                // Before it is read: of a change in the meantime the front-end is told.
                self.backend.untold.store(false, Ordering::SeqCst);
                payload.extend(self.backend.device.config(offset, size));
                Ok(Reply::Payload(payload))
            }
            Request::GetVringBase(index) => {
                self.vring(index)?;
                let value = self.hand_over(index as usize);
                Ok(Reply::Payload(RingState { ring: index, value }.bytes()))
            }
            Request::SetLogBase { size, offset, file } => {
                let log = DirtyLog::of_file(&File::from(file), offset, size).map_err(invalid)?;
                self.log = Some(Arc::new(log));
                self.with_queues_paused(Self::mark_writes)?;
                // The reply repeats the payload of the request.
                let payload = [size, offset].iter().flat_map(|word| word.to_ne_bytes()).collect();
                Ok(Reply::Payload(payload))
            }
            Request::GetInflightFd(wanted) => self.make_inflight(wanted),
            other => self.apply(other).map(|()| Reply::Done),
        }
    }

    fn apply(&mut self, request: Request) -> Result<(), RequestError> {
        match request {
            Request::SetFeatures(features) => self.set_features(features),
            Request::SetProtocolFeatures(features) => {
                let unknown = features & !self.offered_protocol();
                if unknown != 0 {
                    return Err(invalid(format!("protocol features {unknown:#x} were not offered")));
                }
                self.protocol = ProtocolFeatures(features);
                Ok(())
            }
            Request::SetOwner => Ok(()),
            Request::ResetOwner | Request::ResetDevice => {
                for index in 0..self.vrings.len() {
                    self.stop(index);
                    // "disable all rings" (vhost-user, VHOST_USER_RESET_DEVICE).
                    self.vrings[index].enabled = false;
                }
                self.status = 0;
                Ok(())
            }
            Request::SetMemTable(regions) => {
                let regions = regions.into_iter().map(|(description, file)| (description, File::from(file)));
                let memory = GuestMemory::map(regions).map_err(invalid)?;
                self.duplicate_regions.clear();
                self.with_queues_paused(|session| session.use_memory(memory))
            }
            Request::AddMemReg(description, _) if self.memory.has(&description) => {
                if self.duplicate_regions.len() as u64 >= MAX_REGIONS * self.vrings.len() as u64 {
                    return Err(invalid("a region was added more often than there are queues"));
                }
                self.duplicate_regions.push(description);
                Ok(())
            }
            Request::AddMemReg(description, file) => {
                if self.memory.regions() as u64 >= MAX_REGIONS {
                    return Err(invalid(format!("there are {MAX_REGIONS} regions already")));
                }
                let memory = self.memory.with(description, &File::from(file)).map_err(invalid)?;
                self.use_memory_at_once(memory)
            }
            Request::RemMemReg(description) => {
                if let Some(at) = self.duplicate_regions.iter().position(|again| again.is(&description)) {
                    self.duplicate_regions.swap_remove(at);
                    return Ok(());
                }
                let memory = self.memory.without(&description).map_err(invalid)?;
                // Requests in flight may use it.
                (0..self.vrings.len()).for_each(|index| self.pause(index));
                let changed = self.use_memory(memory);
                let started = self.start_all();
                changed.and(started)
            }
            Request::SetLogFd(_) => Ok(()),
            Request::SetInflightFd(description, file) => {
                self.inflight = Some(self.map_inflight(&description, &File::from(file))?);
                Ok(())
            }
            Request::SetVringNum(RingState { ring, value }) => {
                self.stopped(ring)?.size = value;
                Ok(())
            }
            Request::SetVringBase(RingState { ring, value }) => {
                self.stopped(ring)?.base = value;
                Ok(())
            }
            Request::SetVringAddr(addresses) => self.set_addresses(addresses),
            Request::SetVringKick(index, file) => {
                let file = eventfd("kick", file)?;
                let ring = self.vring(index)?;
                (ring.kick, ring.started) = (file, true);
                self.pause(index as usize);
                self.start(index as usize)
            }
            Request::SetVringCall(index, file) => self.set_call(index, eventfd("call", file)?),
            Request::SetVringErr(index, file) => self.set_error(index, eventfd("error", file)?),
            Request::SetVringEnable(RingState { ring, value }) => {
                self.vring(ring)?.enabled = value != 0;
                let key = self.vrings[ring as usize].key;
                let enabled = self.is_enabled(ring as usize);
                let Some(key) = key else { return Ok(()) };
                let (device, index) = (&self.backend.device, ring as u16);
                // The worker may use the queue only while the device has set it up.
                if enabled {
                    device.enable(index, true);
                }
                let told = self.pool.with(key, move |queue| queue.set_enabled(enabled));
                if !enabled {
                    device.enable(index, false);
                }
                told.map_err(|error| pool_error(&error))
            }
            Request::SetBackendReqFd(file) => {
                use rustix::net::{AddressFamily, SocketType, sockopt};
                let is_stream = sockopt::socket_domain(&file) == Ok(AddressFamily::UNIX)
                    && sockopt::socket_type(&file) == Ok(SocketType::STREAM);
                if !is_stream {
                    return Err(invalid(
                        "the descriptor for the back-end's requests is not a UNIX stream socket",
                    ));
                }
                self.backend.replace_requests(Some(Connection::new(UnixStream::from(file))));
                Ok(())
            }
            Request::SetConfig { offset, bytes, .. } => {
                self.backend.device.set_config(offset, &bytes).map_err(RequestError::Invalid)
            }
            Request::SetStatus(status) => {
                self.status = status;
                // The driver has reset the device.
                if status == 0 {
                    (0..self.vrings.len()).for_each(|index| self.stop(index));
                }
                Ok(())
            }
            Request::NetSetMtu(mtu) => self.backend.device.set_mtu(Some(mtu)).map_err(RequestError::Invalid),
            Request::SendRarp(mac) => self.backend.device.announce(mac).map_err(RequestError::Invalid),
            _ => Err(RequestError::Unsupported("this request")),
        }
    }

    fn offered(&self) -> u64 {
        VirtioFeatures::OFFERED | self.backend.device.features()
    }

    fn offered_protocol(&self) -> u64 {
        ProtocolFeatures::OFFERED | self.backend.device.protocol_features()
    }

    fn set_features(&mut self, features: u64) -> Result<(), RequestError> {
        let unknown = features & !(self.offered() | self.backend.device.accepted_features());
        self.refused = unknown;
        if unknown != 0 {
            return Err(invalid(format!("features {unknown:#x} were not offered")));
        }
        let before = std::mem::replace(&mut self.features, VirtioFeatures(features));
        // While the guest runs, only `VHOST_F_LOG_ALL` need take effect.
        match before.has(VirtioFeatures::LOG_ALL) == self.features.has(VirtioFeatures::LOG_ALL) {
            true => Ok(()),
            false => self.with_queues_paused(Self::mark_writes),
        }
    }

    /// Makes inflight memory, which the front-end keeps, with a reserve for the largest rings: QEMU asks for `queue-size`
    /// descriptors (hw/block/vhost-user-blk.c), and a ring can have more.
    fn make_inflight(&mut self, wanted: InflightDescription) -> Result<Reply, RequestError> {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let size = InflightMemory::bytes_with_reserve(wanted.queues, wanted.queue_size);
        let file = memfd_create("inflight", MemfdFlags::CLOEXEC).map_err(invalid)?;
        ftruncate(&file, size).map_err(invalid)?;
        let file = File::from(file);
        let description = InflightDescription { size, offset: 0, ..wanted };
        self.inflight = Some(self.map_inflight(&description, &file)?);
        Ok(Reply::File(description.bytes(), OwnedFd::from(file)))
    }

    fn map_inflight(
        &self,
        description: &InflightDescription,
        file: &File,
    ) -> Result<InflightMemory, RequestError> {
        if self.offered_protocol() & ProtocolFeatures::INFLIGHT == 0 {
            return Err(RequestError::Unsupported("inflight tracking of a network device"));
        }
        let InflightDescription { queues, queue_size, offset, size } = *description;
        if usize::from(queues) > self.vrings.len() || queue_size > LARGEST {
            let what =
                format!("{queues} queues of {queue_size} descriptors, of {} at most", self.vrings.len());
            return Err(RequestError::Invalid(what));
        }
        InflightMemory::map_bytes(file, offset, queues, queue_size, size).map_err(invalid)
    }

    /// Starts or stops logging writes, as was negotiated.
    fn mark_writes(&mut self) -> Result<(), RequestError> {
        let log = self.log.clone().filter(|_| self.features.has(VirtioFeatures::LOG_ALL));
        self.memory = Arc::new(self.memory.logged(log));
        Ok(())
    }

    fn use_memory(&mut self, memory: GuestMemory) -> Result<(), RequestError> {
        self.memory = Arc::new(memory);
        self.mark_writes()
    }

    /// Switches to memory that still has all earlier regions, without pausing the queues, and starts those that lacked the
    /// new one.
    fn use_memory_at_once(&mut self, memory: GuestMemory) -> Result<(), RequestError> {
        self.use_memory(memory)?;
        for key in self.vrings.iter().filter_map(|ring| ring.key) {
            let memory = Arc::clone(&self.memory);
            let used = self.pool.with(key, move |queue| queue.use_memory(&memory));
            used.map_err(|error| pool_error(&error))?;
        }
        self.start_all()
    }

    /// A queue that is not served: its ring cannot change while a worker uses it.
    fn stopped(&mut self, index: u32) -> Result<&mut super::Vring, RequestError> {
        let ring = self.vring(index)?;
        match ring.key {
            None => Ok(ring),
            Some(_) => Err(invalid(format!("queue {index} is being served"))),
        }
    }

    fn set_addresses(&mut self, addresses: RingAddresses) -> Result<(), RequestError> {
        /// `VHOST_VRING_F_LOG`.
        const LOG: u32 = 1;
        let layout = RingLayout {
            descriptors: addresses.descriptors,
            driver: addresses.available,
            device: addresses.used,
            logged: (addresses.flags & LOG != 0).then_some(addresses.log),
        };
        let index = addresses.ring as usize;
        self.vring(addresses.ring)?.layout = Some(layout);
        // The front-end switches the logging of a ring that is served, or its memory is elsewhere now.
        self.pause(index);
        self.start(index)
    }

    fn set_call(&mut self, index: u32, file: Option<OwnedFd>) -> Result<(), RequestError> {
        let copy = copy(file.as_ref())?;
        self.vring(index)?.call = file;
        self.tell_served(index, move |queue| queue.virtqueue.set_call(copy))
    }

    fn set_error(&mut self, index: u32, file: Option<OwnedFd>) -> Result<(), RequestError> {
        let copy = copy(file.as_ref())?;
        self.vring(index)?.error = file;
        self.tell_served(index, move |queue| queue.set_error(copy))
    }

    /// Calls a function on a queue if it is being served.
    fn tell_served(
        &mut self,
        index: u32,
        act: impl FnOnce(&mut Queue) + Send + 'static,
    ) -> Result<(), RequestError> {
        match self.vring(index)?.key {
            Some(key) => self.pool.with(key, act).map_err(|error| pool_error(&error)),
            None => Ok(()),
        }
    }
}
