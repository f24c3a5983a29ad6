//! Hash maps that are read many elements at a time.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use aya::Pod;
use aya::maps::{HashMap, Map, MapData, MapError};

/// `BPF_MAP_LOOKUP_BATCH` of include/uapi/linux/bpf.h (Linux 5.6), and its part of `union bpf_attr`.
const LOOKUP_BATCH: i32 = 24;
#[repr(C)]
struct LookupBatch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// The number of elements read at a time.
const BATCH: u32 = 1_024;

/// A hash map. Reading each element on its own takes two system calls for each.
pub(super) struct Batches<K, V> {
    pub(super) map: HashMap<MapData, K, V>,
    /// `map` does not give its own.
    descriptor: Option<OwnedFd>,
}

impl<K: Pod, V: Pod> TryFrom<Map> for Batches<K, V> {
    type Error = MapError;

    fn try_from(map: Map) -> Result<Self, MapError> {
        let descriptor = match &map {
            Map::HashMap(data) => data.fd().as_fd().try_clone_to_owned().ok(),
            _ => None,
        };
        Ok(Self { map: HashMap::try_from(map)?, descriptor })
    }
}

impl<K: Pod, V: Pod> Batches<K, V> {
    /// Passes on each element. Those that programs insert meanwhile may be left out.
    pub(super) fn each(&self, mut take: impl FnMut(K, V)) -> Result<(), MapError> {
        if self.in_batches(&mut take)? {
            return Ok(());
        }
        self.map.iter().try_for_each(|element| element.map(|(key, value)| take(key, value)))
    }

    /// The same with few system calls. False, and nothing was passed on, if the kernel does not support that.
    fn in_batches(&self, take: &mut impl FnMut(K, V)) -> io::Result<bool> {
        let Some(descriptor) = &self.descriptor else { return Ok(false) };
        let mut keys: Vec<K> = Vec::with_capacity(BATCH as usize);
        let mut values: Vec<V> = Vec::with_capacity(BATCH as usize);
        let mut position = 0_u32;
        let mut from = 0;
        loop {
            let mut batch = LookupBatch {
                from,
                to: (&raw mut position) as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: BATCH,
                map: descriptor.as_raw_fd().cast_unsigned(),
                element_flags: 0,
                flags: 0,
            };
            // SAFETY: the position, and the room for `count` keys and values, live until the call returns; aya has
            // compared the types' sizes with the map's.
            let outcome = unsafe {
                libc::syscall(libc::SYS_bpf, LOOKUP_BATCH, &raw mut batch, size_of::<LookupBatch>())
            };
            let error = (outcome != 0).then(io::Error::last_os_error);
            let is_last = match error {
                None => false,
                Some(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Some(_) if from == 0 => return Ok(false),
                Some(error) => return Err(error),
            };
            let count = batch.count.min(BATCH) as usize;
            // SAFETY: the kernel has written this number of keys.
            unsafe { keys.set_len(count) };
            // SAFETY: and of values.
            unsafe { values.set_len(count) };
            keys.drain(..).zip(values.drain(..)).for_each(|(key, value)| take(key, value));
            if is_last {
                return Ok(true);
            }
            from = (&raw mut position) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use exits::{Isa, KernelVersion};

    use super::super::Watch;
    use super::super::programs::{Pair, Purpose, Wanted, load, take_map};
    use super::*;

    #[test]
    fn every_element_is_read_once_in_batches_and_one_by_one() {
        let watch = Watch::default();
        let wanted = Wanted { pair: Pair::SystemCalls, ..watch.wanted(Purpose::Count, Isa::Vmx) };
        let mut attached = match load(Path::new("/"), &wanted) {
            Ok(attached) => attached,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        // Not attached, so that nothing else changes it.
        let mut keys: Batches<u32, u64> = take_map(&mut attached.ebpf, "keys").unwrap();
        for many in [0, 1, 3 * BATCH + 7] {
            (0..many).for_each(|key| keys.map.insert(key, u64::from(key) << 32, 0).unwrap());
            let expected: BTreeMap<u32, u64> = (0..many).map(|key| (key, u64::from(key) << 32)).collect();
            let descriptor = keys.descriptor.take();
            for descriptor in [None, descriptor] {
                keys.descriptor = descriptor;
                let mut read = Vec::new();
                keys.each(|key, value| read.push((key, value))).unwrap();
                assert_eq!(read.len(), expected.len());
                assert_eq!(read.into_iter().collect::<BTreeMap<_, _>>(), expected);
            }
        }
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        if kernel.parse::<KernelVersion>().unwrap() >= KernelVersion::new(5, 6) {
            assert!(keys.in_batches(&mut |_, _| ()).unwrap(), "{kernel}");
        }
    }
}
