use super::*;
use crate::queue::{QueueState, Virtqueue};
use crate::ring::{Chain, Ring, RingError, RingFeatures};
use crate::testing::{DATA, Driver};
use proptest::prelude::*;
use std::cell::Cell;

const SIZE: u16 = 8;

thread_local! {
    /// The number of stores to inflight memory after which the back-end is killed.
    static STORES_LEFT: Cell<u16> = const { Cell::new(u16::MAX) };
}

/// Counts a store to inflight memory. Tests whether the back-end was killed before it.
pub(super) fn is_killed() -> bool {
    let left = STORES_LEFT.get();
    if left < u16::MAX {
        STORES_LEFT.set(left.saturating_sub(1));
    }
    left == 0
}

/// Publishes used buffers, and is killed after this many stores to the inflight memory that follow.
fn publish_and_die(mut queue: Virtqueue, stores: u16) {
    queue.settle();
    STORES_LEFT.set(stores);
    queue.publish();
    STORES_LEFT.set(u16::MAX);
}

fn memory() -> (File, InflightMemory) {
    let file = crate::testing::memory_file(InflightMemory::bytes(2, SIZE));
    let memory = InflightMemory::map(&file, 0, 2, SIZE).unwrap();
    (file, memory)
}

#[test]
fn memory_whose_numbers_would_not_be_aligned_is_refused() {
    let file = crate::testing::memory_file(2 * InflightMemory::bytes(2, SIZE));
    for (offset, is_fine) in [(0, true), (8, true), (64, true), (1, false), (4, false), (4097, false)] {
        assert_eq!(InflightMemory::map(&file, offset, 2, SIZE).is_ok(), is_fine, "{offset}");
    }
}

/// A back-end that starts at `base`, which the front-end passes: it only knows what was given back.
fn back_end(driver: &Driver, memory: &InflightMemory, base: u32) -> Virtqueue {
    let packed = driver.features.packed;
    let ring = Ring::new(&driver.memory, &driver.layout(), u32::from(SIZE), base, driver.features).unwrap();
    let mut queue = Virtqueue::new(ring, None, Arc::<QueueState>::default());
    queue.track_inflight(memory.queue(1, SIZE, packed).unwrap()).unwrap();
    queue
}

fn features(packed: bool) -> RingFeatures {
    RingFeatures { packed, event_index: false, indirect: true }
}

#[test]
fn there_is_room_for_what_the_size_was_computed_for_and_for_the_largest_rings_behind_it() {
    for (queues, size, packed) in [(1, 1, false), (2, 128, false), (2, 128, true), (3, 100, true)] {
        let bytes = InflightMemory::bytes_with_reserve(queues, size);
        let file = crate::testing::memory_file(bytes);
        let memory = InflightMemory::map_bytes(&file, 0, queues, size, bytes).unwrap();
        for size in [1, size, LARGEST] {
            assert!((0..queues).all(|index| memory.queue(index, size, packed).is_some()), "{queues} {size}");
        }
    }
    let file = crate::testing::memory_file(4096);
    assert!(InflightMemory::map_bytes(&file, 0, 1, 128, 2063).is_err());
    assert!(InflightMemory::map_bytes(&file, 0, 0, 0, 0).unwrap().queue(0, 1, false).is_none());
}

#[test]
fn memory_of_other_back_ends_and_ours_have_the_layout_of_the_specification() {
    use std::os::unix::fs::FileExt as _;
    // libvhost-user allocates this much for one split ring of 128 descriptors.
    let file = crate::testing::memory_file(2112);
    let memory = InflightMemory::map_bytes(&file, 0, 1, 128, 2112).unwrap();
    assert!(memory.queue(0, 128, false).is_some());
    assert!(memory.queue(0, 128, true).is_none() && memory.queue(0, 256, false).is_none());
    let bytes = InflightMemory::bytes_with_reserve(2, 128);
    let file = crate::testing::memory_file(bytes);
    let memory = InflightMemory::map_bytes(&file, 0, 2, 128, bytes).unwrap();
    let mut large = memory.queue(0, 1024, false).unwrap();
    (0..1024).for_each(|id| large.set_tries(id, 7));
    memory.queue(1, 128, false).unwrap().set_tries(0, 5);
    let mut has = vec![0; 2 * 2112];
    file.read_exact_at(&mut has, 0).unwrap();
    assert_eq!(has[2112 + 16 + 1], 5);
    assert!(!has.contains(&7), "larger rings lie behind");
    assert_eq!(InflightMemory::bytes_a_queue(128, true), 4160);
}

#[test]
fn memory_that_was_not_made_for_a_queue() {
    let (_file, memory) = memory();
    assert!(memory.queue(2, SIZE, false).is_none());
    assert!(memory.queue(0, SIZE + 1, true).is_none());
    assert!(memory.queue(1, SIZE, true).is_some());
}

/// Without a status, the guest would take that of an earlier request for its own.
#[test]
fn a_request_that_ended_three_back_ends_is_not_given_back_and_breaks_its_queue() {
    for packed in [false, true] {
        let (_file, memory) = memory();
        let mut driver = Driver::new(SIZE, features(packed));
        let start = if packed { 0x8000_8000 } else { 0 };
        let mut chain = Chain::new();
        let id = driver.add(&[(DATA, 8, false), (DATA + 8, 1, true)]).unwrap();
        for is_suspect in [false, false, true] {
            let mut queue = back_end(&driver, &memory, start);
            assert!(queue.pop(&mut chain) && chain.id == id && queue.is_suspect() == is_suspect);
        }
        // It stays so, whoever comes.
        for _ in 0..3 {
            let mut queue = back_end(&driver, &memory, start);
            assert!(!queue.pop(&mut chain));
            assert_eq!(queue.broken(), Some(RingError::Fatal(id)), "packed {packed}");
            queue.publish();
            assert_eq!(driver.take(), None);
        }
    }
}

/// The guest runs on after a back-end was killed: it gets the batch that it sees, and may fill the ring again.
fn batch_is_seen(packed: bool, length: usize, earlier: u16, batch: usize, stores: u16, is_full: bool) {
    let at = format!(
        "packed {packed}: {earlier} and {batch} requests of {length}, full {is_full}, killed at {stores}"
    );
    let (_file, memory) = memory();
    let mut driver = Driver::new(SIZE, features(packed));
    let start = if packed { 0x8000_8000 } else { 0 };
    let mut queue = back_end(&driver, &memory, start);
    let mut chain = Chain::new();
    let pieces = [(DATA, 8, false); SIZE as usize];
    let add = |driver: &mut Driver| driver.add(&pieces[..length]);
    let mut all = |queue: &mut Virtqueue| {
        std::iter::from_fn(|| queue.pop(&mut chain).then_some(chain.id)).collect::<Vec<_>>()
    };
    let taken =
        |driver: &mut Driver| std::iter::from_fn(|| driver.take()).map(|(id, _)| id).collect::<Vec<_>>();
    for _ in 0..earlier {
        add(&mut driver).unwrap();
        all(&mut queue).into_iter().for_each(|id| queue.push(id, 0, 0));
        queue.publish();
        assert_eq!(taken(&mut driver).len(), 1);
    }
    let count = if is_full { usize::from(SIZE) / length } else { batch };
    (0..count).for_each(|_| assert!(add(&mut driver).is_some()));
    let mut left = all(&mut queue);
    let done: Vec<_> = left.drain(..batch).collect();
    done.iter().for_each(|id| queue.push(*id, 0, 0));
    publish_and_die(queue, stores);
    assert_eq!(taken(&mut driver), done, "{at}");
    if is_full {
        left.extend((0..batch).map(|_| add(&mut driver).unwrap()));
    }
    let base = u32::from(driver.given_back());
    let mut queue = back_end(&driver, &memory, if packed { base | base << 16 } else { base });
    if !is_full {
        left.extend(add(&mut driver));
    }
    assert_eq!(all(&mut queue), left, "{at}");
    left.iter().for_each(|id| queue.push(*id, 0, 0));
    queue.publish();
    assert_eq!(taken(&mut driver), left, "{at}");
}

#[test]
fn a_batch_that_the_driver_sees_is_not_done_again_wherever_its_record_is_cut_off() {
    for (packed, is_full) in [(false, false), (false, true), (true, false), (true, true)] {
        for length in [1, 3] {
            for earlier in 0..SIZE {
                for batch in 1..=usize::from(SIZE) / length {
                    for stores in 0..=batch as u16 + 2 {
                        batch_is_seen(packed, length, earlier, batch, stores, is_full);
                    }
                }
            }
        }
    }
}

/// Earlier versions stored the index of a batch and its wrap counter one after the other.
#[test]
fn a_wrap_counter_of_the_batch_before_is_set_right() {
    use std::os::unix::fs::FileExt as _;
    let (file, memory) = memory();
    let mut driver = Driver::new(SIZE, features(true));
    let mut queue = back_end(&driver, &memory, 0x8000_8000);
    let mut chain = Chain::new();
    for _ in 0..SIZE {
        let id = driver.add(&[(DATA, 8, false)]).unwrap();
        assert!(queue.pop(&mut chain) && chain.id == id);
        queue.push(id, 0, 0);
        queue.publish();
        assert_eq!(driver.take(), Some((id, 0)));
    }
    drop(queue);
    let head = InflightMemory::bytes_a_queue(SIZE, true);
    let mut wraps = [9; 2];
    file.read_exact_at(&mut wraps, head + 20).unwrap();
    assert_eq!(wraps, [0; 2]);
    file.write_all_at(&[1], head + 21).unwrap();
    let mut queue = back_end(&driver, &memory, 0);
    let id = driver.add(&[(DATA, 8, false)]).unwrap();
    assert!(queue.pop(&mut chain) && chain.id == id);
}

/// The driver gets what it sees, of the requests that it waits for.
fn end(driver: &mut Driver, waiting: &mut Vec<(u16, u64)>) -> Result<(), TestCaseError> {
    while let Some((id, _)) = driver.take() {
        let place = waiting.iter().position(|(waits, _)| *waits == id);
        prop_assert!(place.is_some(), "given back twice");
        waiting.remove(place.unwrap_or(0));
    }
    Ok(())
}

/// A driver with a sequence of back-ends: the driver adds requests, the back-end takes and completes some, and another
/// one replaces it at any moment. Each request is completed exactly once, and none is taken after that, unless one ends
/// three back-ends, which breaks the queue.
fn play(packed: bool, steps: &[(u8, u8)]) -> Result<(), TestCaseError> {
    let (_file, memory) = memory();
    let mut driver = Driver::new(SIZE, features(packed));
    let start = if packed { 0x8000_8000 } else { 0 };
    let mut queue = back_end(&driver, &memory, start);
    let mut chain = Chain::new();
    // The requests that the driver waits for, in order, and those that the present back-end has.
    let (mut waiting, mut has, mut number) = (Vec::<(u16, u64)>::new(), Vec::<u16>::new(), 0_u64);
    // The back-ends that have ended, and how many there were when an address was used.
    let (mut ended, mut ended_before) = (0, Vec::new());
    // Whether the queue is broken by a request that may have ended three back-ends.
    let is_fatal = |queue: &Virtqueue, waiting: &[(u16, u64)], ended: usize, before: &[usize]| {
        let Some(RingError::Fatal(id)) = queue.broken() else { return false };
        let address = waiting.iter().find(|(waits, _)| *waits == id).map(|(_, address)| *address);
        address.is_some_and(|address| ended - before[((address - DATA) / 16) as usize] >= 3)
    };
    for (step, which) in steps {
        match step % 6 {
            0 | 1 => {
                let address = DATA + number * 16;
                let chain = [(address, 8, false), (address + 8, 8, true)];
                let pieces = if which % 2 == 0 { &chain[..1] } else { &chain[..] };
                let id = if which % 3 == 0 { driver.add_indirect(pieces) } else { driver.add(pieces) };
                if let Some(id) = id {
                    waiting.push((id, address));
                    ended_before.push(ended);
                    number += 1;
                }
            }
            2 => {
                if queue.pop(&mut chain) {
                    let found = waiting.iter().find(|(id, _)| *id == chain.id);
                    let place = chain.parts(crate::ring::Side::Readable)[0].guest;
                    prop_assert_eq!(found.map(|(_, place)| *place), Some(place), "each as it was");
                    prop_assert!(!has.contains(&chain.id), "taken twice");
                    has.push(chain.id);
                }
            }
            3 => {
                if !has.is_empty() {
                    let id = has.remove(usize::from(*which) % has.len());
                    queue.push(id, 0, 0);
                    if which % 4 != 0 {
                        queue.publish();
                    }
                }
            }
            dies => {
                // The back-end is killed, at once or while it records a batch that the driver sees; the guest may run on. The
                // front-end knows where the driver's view of the ring is.
                if dies == 5 {
                    has.drain(..has.len().min(usize::from(which % 9))).for_each(|id| queue.push(id, 0, 0));
                    publish_and_die(queue, u16::from(which / 16));
                    end(&mut driver, &mut waiting)?;
                    let room = if which % 2 == 0 { SIZE } else { 0 };
                    for _ in 0..room {
                        let address = DATA + number * 16;
                        if let Some(id) = driver.add(&[(address, 8, false)]) {
                            waiting.push((id, address));
                            ended_before.push(ended + 1);
                            number += 1;
                        }
                    }
                } else {
                    drop(queue);
                }
                let base = u32::from(driver.given_back());
                let base = if packed { base | base << 16 } else { base };
                queue = back_end(&driver, &memory, base);
                has.clear();
                ended += 1;
            }
        }
        end(&mut driver, &mut waiting)?;
        if is_fatal(&queue, &waiting, ended, &ended_before) {
            return Ok(());
        }
        prop_assert!(queue.broken.is_none(), "{:?}", queue.broken);
    }
    // In the end everything comes back.
    queue.publish();
    while queue.pop(&mut chain) {
        has.push(chain.id);
    }
    if is_fatal(&queue, &waiting, ended, &ended_before) {
        return Ok(());
    }
    for id in has {
        queue.push(id, 0, 0);
    }
    queue.publish();
    while let Some((id, _)) = driver.take() {
        waiting.retain(|(waits, _)| *waits != id);
    }
    prop_assert!(waiting.is_empty(), "lost: {:?}", waiting);
    Ok(())
}

proptest! {
    #[test]
    fn no_request_is_lost_or_done_twice_in_a_split_ring(steps in proptest::collection::vec(any::<(u8, u8)>(), 0..200)) {
        play(false, &steps)?;
    }

    #[test]
    fn no_request_is_lost_or_done_twice_in_a_packed_ring(steps in proptest::collection::vec(any::<(u8, u8)>(), 0..200)) {
        play(true, &steps)?;
    }

    #[test]
    fn no_bytes_in_the_memory_do_harm(bytes in proptest::collection::vec(any::<u8>(), 600), packed in any::<bool>()) {
        use std::os::unix::fs::FileExt as _;
        let (file, memory) = memory();
        file.write_all_at(&bytes, 0).unwrap();
        let driver = Driver::new(SIZE, features(packed));
        let mut queue = Virtqueue::new(driver.ring().unwrap(), None, Arc::<QueueState>::default());
        if queue.track_inflight(memory.queue(0, SIZE, packed).unwrap()).is_ok() {
            let mut chain = Chain::new();
            for _ in 0..20 {
                if queue.pop(&mut chain) {
                    queue.push(chain.id, 0, 0);
                    queue.publish();
                }
            }
        }
    }
}
