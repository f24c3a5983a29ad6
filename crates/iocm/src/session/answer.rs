//! What follows from each request.

use super::notifier::eventfd;
use super::{Answer, Session, of_pool};
use crate::memory::{DirtyLog, GuestMemory};
use crate::protocol::{
    Connection, Inflight, MOST_REGIONS, ProtocolFeatures, Refusal, Request, RingAddresses, RingState,
    VirtioFeatures,
};
use crate::queue::inflight::InflightMemory;
use crate::ring::{LARGEST, RingPlace};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn nonsense(error: impl std::fmt::Display) -> Refusal {
    Refusal::Nonsense(error.to_string())
}

fn number(value: u64) -> Answer {
    Answer::Payload(value.to_ne_bytes().to_vec())
}

impl Session {
    /// Whether a request is always answered, not only when that was asked for.
    pub(super) const fn has_answer(request: &Request) -> bool {
        matches!(
            request,
            Request::GetFeatures
                | Request::GetVringBase(_)
                | Request::GetProtocolFeatures
                | Request::GetQueueNum
                | Request::GetConfig { .. }
                | Request::GetInflightFd(_)
                | Request::GetMaxMemSlots
                | Request::GetStatus
                | Request::SetLogBase { .. }
        )
    }

    pub(super) fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
        match request {
            Request::GetFeatures => Ok(number(self.offered())),
            Request::GetProtocolFeatures => Ok(number(self.offered_protocol())),
            Request::GetQueueNum => Ok(number(u64::from(self.served.device.queue_number()))),
            Request::GetMaxMemSlots => Ok(number(MOST_REGIONS)),
            Request::GetStatus => Ok(number(self.status)),
            Request::GetConfig { offset, size } => {
                let mut payload: Vec<u8> =
                    [offset, size, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
                payload.extend(self.served.device.config(offset, size));
                Ok(Answer::Payload(payload))
            }
            Request::GetVringBase(index) => {
                self.ring(index)?;
                self.stop(index as usize);
                let value = self.rings[index as usize].base;
                Ok(Answer::Payload(RingState { ring: index, value }.bytes()))
            }
            Request::SetLogBase { size, offset, file } => {
                let log = DirtyLog::of_file(&File::from(file), offset, size).map_err(nonsense)?;
                self.log = Some(Arc::new(log));
                self.paused(Self::mark_writes)?;
                // The answer has the payload of the request.
                let payload = [size, offset].iter().flat_map(|word| word.to_ne_bytes()).collect();
                Ok(Answer::Payload(payload))
            }
            Request::GetInflightFd(wanted) => self.make_inflight(wanted),
            other => self.obey_silently(other).map(|()| Answer::Done),
        }
    }

    fn obey_silently(&mut self, request: Request) -> Result<(), Refusal> {
        match request {
            Request::SetFeatures(features) => self.set_features(features),
            Request::SetProtocolFeatures(features) => {
                let unknown = features & !self.offered_protocol();
                if unknown != 0 {
                    return Err(nonsense(format!("protocol features {unknown:#x} were not offered")));
                }
                self.protocol = ProtocolFeatures(features);
                Ok(())
            }
            Request::SetOwner => Ok(()),
            Request::ResetOwner | Request::ResetDevice => {
                (0..self.rings.len()).for_each(|index| self.stop(index));
                Ok(())
            }
            Request::SetMemTable(regions) => {
                let regions = regions.into_iter().map(|(place, file)| (place, File::from(file)));
                let memory = GuestMemory::map(regions).map_err(nonsense)?;
                self.again.clear();
                self.paused(|session| session.use_memory(memory))
            }
            Request::AddMemReg(place, _) if self.memory.has(&place) => {
                if self.again.len() as u64 >= MOST_REGIONS * self.rings.len() as u64 {
                    return Err(nonsense("a region is added more often than there are queues"));
                }
                self.again.push(place);
                Ok(())
            }
            Request::AddMemReg(place, file) => {
                if self.memory.regions() as u64 >= MOST_REGIONS {
                    return Err(nonsense(format!("there are {MOST_REGIONS} regions already")));
                }
                let memory = self.memory.with(place, &File::from(file)).map_err(nonsense)?;
                self.use_memory_at_once(memory)
            }
            Request::RemMemReg(place) => {
                if let Some(at) = self.again.iter().position(|again| again.is(&place)) {
                    self.again.swap_remove(at);
                    return Ok(());
                }
                let memory = self.memory.without(&place).map_err(nonsense)?;
                // Requests under way may lie in it.
                self.paused(|session| session.use_memory(memory))
            }
            Request::SetLogFd(_) => Ok(()),
            Request::SetInflightFd(place, file) => {
                self.inflight = Some(self.map_inflight(&place, &File::from(file))?);
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
                let ring = self.ring(index)?;
                (ring.kick, ring.started) = (file, true);
                self.pause(index as usize);
                self.start(index as usize)
            }
            Request::SetVringCall(index, file) => self.set_call(index, eventfd("call", file)?),
            Request::SetVringErr(index, file) => {
                self.ring(index)?.error = eventfd("error", file)?;
                Ok(())
            }
            Request::SetVringEnable(RingState { ring, value }) => {
                self.ring(ring)?.enabled = value != 0;
                let key = self.rings[ring as usize].key;
                let enabled = self.is_enabled(ring as usize);
                match key {
                    Some(key) => self
                        .pool
                        .with(key, move |queue| queue.set_enabled(enabled))
                        .map_err(|error| of_pool(&error)),
                    None => Ok(()),
                }
            }
            Request::SetBackendReqFd(file) => {
                use rustix::net::{AddressFamily, SocketType, sockopt};
                let is_stream = sockopt::socket_domain(&file) == Ok(AddressFamily::UNIX)
                    && sockopt::socket_type(&file) == Ok(SocketType::STREAM);
                if !is_stream {
                    return Err(nonsense(
                        "the descriptor for the back-end's requests is no UNIX stream socket",
                    ));
                }
                self.served.replace_requests(Some(Connection::new(UnixStream::from(file))));
                Ok(())
            }
            Request::SetConfig { offset, bytes, .. } => {
                self.served.device.set_config(offset, &bytes).map_err(Refusal::Nonsense)
            }
            Request::SetStatus(status) => {
                self.status = status;
                // The driver has let go of the device.
                if status == 0 {
                    (0..self.rings.len()).for_each(|index| self.stop(index));
                }
                Ok(())
            }
            Request::NetSetMtu(mtu) => {
                self.served.device.set_mtu(mtu);
                Ok(())
            }
            Request::SendRarp(mac) => self.served.device.announce(mac).map_err(Refusal::Nonsense),
            _ => Err(Refusal::Unsupported("this request")),
        }
    }

    fn offered(&self) -> u64 {
        VirtioFeatures::OFFERED | self.served.device.features()
    }

    fn offered_protocol(&self) -> u64 {
        ProtocolFeatures::OFFERED | self.served.device.protocol_features()
    }

    fn set_features(&mut self, features: u64) -> Result<(), Refusal> {
        let unknown = features & !self.offered();
        if unknown != 0 {
            return Err(nonsense(format!("features {unknown:#x} were not offered")));
        }
        let before = std::mem::replace(&mut self.features, VirtioFeatures(features));
        // While the guest runs, only the marking of writes is switched.
        if before.0 & !VirtioFeatures::LOG_ALL != features & !VirtioFeatures::LOG_ALL {
            return Ok(());
        }
        match before == self.features {
            true => Ok(()),
            false => self.paused(Self::mark_writes),
        }
    }

    /// Makes memory for requests under way, which the front-end keeps.
    fn make_inflight(&mut self, wanted: Inflight) -> Result<Answer, Refusal> {
        use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
        let size = InflightMemory::bytes(wanted.queues, wanted.queue_size);
        let file = memfd_create("inflight", MemfdFlags::CLOEXEC).map_err(nonsense)?;
        ftruncate(&file, size).map_err(nonsense)?;
        let file = File::from(file);
        let place = Inflight { size, offset: 0, ..wanted };
        self.inflight = Some(self.map_inflight(&place, &file)?);
        Ok(Answer::File(place.bytes(), OwnedFd::from(file)))
    }

    fn map_inflight(&self, place: &Inflight, file: &File) -> Result<InflightMemory, Refusal> {
        if self.offered_protocol() & ProtocolFeatures::INFLIGHT == 0 {
            return Err(Refusal::Unsupported("remembering packets under way"));
        }
        let Inflight { queues, queue_size, offset, .. } = *place;
        if usize::from(queues) > self.rings.len() || queue_size > LARGEST {
            let what =
                format!("{queues} queues of {queue_size} descriptors, of {} at most", self.rings.len());
            return Err(Refusal::Nonsense(what));
        }
        InflightMemory::map(file, offset, queues, queue_size).map_err(nonsense)
    }

    /// Marks writes from now on, or no longer, as was agreed on.
    fn mark_writes(&mut self) -> Result<(), Refusal> {
        let log = self.log.clone().filter(|_| self.features.has(VirtioFeatures::LOG_ALL));
        self.memory = Arc::new(self.memory.logged(log));
        Ok(())
    }

    fn use_memory(&mut self, memory: GuestMemory) -> Result<(), Refusal> {
        self.memory = Arc::new(memory);
        self.mark_writes()
    }

    /// Uses memory in which all that was there still is, without a pause.
    fn use_memory_at_once(&mut self, memory: GuestMemory) -> Result<(), Refusal> {
        self.use_memory(memory)?;
        for key in self.rings.iter().filter_map(|ring| ring.key) {
            let memory = Arc::clone(&self.memory);
            let used = self.pool.with(key, move |queue| queue.use_memory(&memory));
            used.map_err(|error| of_pool(&error))?;
        }
        Ok(())
    }

    /// A queue that is not served: what it is cannot change under a worker's hands.
    fn stopped(&mut self, index: u32) -> Result<&mut super::VirtRing, Refusal> {
        let ring = self.ring(index)?;
        match ring.key {
            None => Ok(ring),
            Some(_) => Err(nonsense(format!("queue {index} is being served"))),
        }
    }

    fn set_addresses(&mut self, addresses: RingAddresses) -> Result<(), Refusal> {
        /// `VHOST_VRING_F_LOG`.
        const LOG: u32 = 1;
        let place = RingPlace {
            descriptors: addresses.descriptors,
            driver: addresses.available,
            device: addresses.used,
            logged: (addresses.flags & LOG != 0).then_some(addresses.log),
        };
        let index = addresses.ring as usize;
        self.ring(addresses.ring)?.place = Some(place);
        match self.rings[index].key {
            None => Ok(()),
            // The front-end switches the marking of writes to the ring.
            Some(_) => {
                self.pause(index);
                self.start(index)
            }
        }
    }

    fn set_call(&mut self, index: u32, file: Option<OwnedFd>) -> Result<(), Refusal> {
        let ring = self.ring(index)?;
        let copy = file.as_ref().map(OwnedFd::try_clone).transpose().map_err(nonsense)?;
        ring.call = file;
        match ring.key {
            Some(key) => {
                self.pool.with(key, move |queue| queue.set_call(copy)).map_err(|error| of_pool(&error))
            }
            None => Ok(()),
        }
    }
}
