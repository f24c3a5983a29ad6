use super::*;
use crate::memory::DirtyLog;
use crate::testing::{DATA, Driver, Piece, SIZE, USER, memory_file};
use proptest::prelude::*;
use std::os::unix::fs::FileExt as _;

const PLAIN: RingFeatures = RingFeatures { packed: false, event_index: false, indirect: true };

fn all_features() -> impl Iterator<Item = RingFeatures> {
    (0..8).map(|bits| RingFeatures {
        packed: bits & 1 != 0,
        event_index: bits & 2 != 0,
        indirect: bits & 4 != 0,
    })
}

fn echo(driver: &mut Driver, ring: &mut Ring, chain: &mut Chain, pieces: &[Piece], indirect: bool) {
    let text = b"sixteen bytes ok";
    driver.write(DATA, text);
    let id = if indirect { driver.add_indirect(pieces) } else { driver.add(pieces) }.unwrap();
    assert!(ring.has_more());
    assert!(ring.pop(chain).unwrap());
    assert_eq!(chain.id, id);
    assert!(!ring.has_more());
    let mut bytes = [0; 16];
    assert_eq!(chain.read(0, &mut bytes), 16);
    assert_eq!((chain.array(0), chain.array(8)), (*text, *b"bytes ok"));
    assert_eq!((chain.array(12), chain.array(16)), (*b"s ok\0\0", [0; 2]), "zeroes beyond the end");
    bytes.reverse();
    assert_eq!(chain.write(0, &bytes), 16);
    ring.push(id, 16);
    assert_eq!(driver.take(), None, "not before it is published");
    ring.publish();
    assert_eq!(driver.take(), Some((id, 16)));
    let mut expected = *text;
    expected.reverse();
    assert_eq!(driver.read(DATA + 0x1000, 16), expected);
}

#[test]
fn buffers_go_round_in_every_layout() {
    let pieces =
        [(DATA, 10, false), (DATA + 10, 6, false), (DATA + 0x1000, 4, true), (DATA + 0x1004, 12, true)];
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let mut ring = driver.ring().unwrap();
        let mut chain = Chain::new();
        // Many laps round a ring of eight, with chains that do not divide it.
        for turn in 0..100 {
            let pieces =
                if turn % 3 == 0 { &pieces[..] } else { &[(DATA, 16, false), (DATA + 0x1000, 16, true)] };
            echo(&mut driver, &mut ring, &mut chain, pieces, features.indirect && turn % 2 == 0);
        }
    }
}

#[test]
fn indexes_wrap() {
    let mut driver = Driver::new(4, PLAIN);
    driver.begin_at(u16::MAX - 1);
    let mut ring =
        Ring::new(&driver.memory, &driver.layout(), 4, u32::from(u16::MAX - 1), driver.features).unwrap();
    let mut chain = Chain::new();
    for _ in 0..5 {
        echo(&mut driver, &mut ring, &mut chain, &[(DATA, 16, false), (DATA + 0x1000, 16, true)], false);
    }
    assert_eq!(ring.base(), 3);
}

#[test]
fn buffers_come_back_in_another_order_and_in_batches() {
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let mut ring = driver.ring().unwrap();
        let mut chain = Chain::new();
        for _ in 0..50 {
            let ids: Vec<u16> =
                (0..3).map(|_| driver.add(&[(DATA, 4, false), (DATA, 4, true)]).unwrap()).collect();
            let mut taken = Vec::new();
            while ring.pop(&mut chain).unwrap() {
                taken.push(chain.id);
            }
            assert_eq!(taken, ids);
            ring.push(ids[2], 2);
            ring.push(ids[0], 0);
            ring.push(ids[1], 1);
            assert_eq!(driver.take(), None);
            ring.publish();
            let back: Vec<_> = std::iter::from_fn(|| driver.take()).collect();
            assert_eq!(back, [(ids[2], 2), (ids[0], 0), (ids[1], 1)]);
        }
    }
}

#[test]
fn a_ring_goes_on_where_another_ended() {
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let mut chain = Chain::new();
        let mut ring = driver.ring().unwrap();
        for _ in 0..21 {
            echo(&mut driver, &mut ring, &mut chain, &[(DATA, 16, false), (DATA + 0x1000, 16, true)], false);
            let base = ring.base();
            ring = Ring::new(&driver.memory, &driver.layout(), 8, base, features).unwrap();
        }
    }
}

#[test]
fn a_packed_ring_begins_where_dpdk_says_that_it_does() {
    for features in all_features().filter(|features| features.packed) {
        let mut driver = Driver::new(8, features);
        let mut ring = Ring::new(&driver.memory, &driver.layout(), 8, 0x8000, features).unwrap();
        assert_eq!(ring.base(), 0x8000_8000);
        let pieces = [(DATA, 16, false), (DATA + 0x1000, 16, true)];
        echo(&mut driver, &mut ring, &mut Chain::new(), &pieces, false);
    }
}

#[test]
fn the_driver_is_called_when_it_wants_to_be() {
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let mut ring = driver.ring().unwrap();
        let mut chain = Chain::new();
        for turn in 0..60 {
            let wanted = turn % 3 != 0;
            driver.enable_calls(wanted);
            for _ in 0..2 {
                driver.add(&[(DATA, 4, true)]).unwrap();
                ring.pop(&mut chain).unwrap();
                ring.push(chain.id, 4);
            }
            assert_eq!(ring.publish(), wanted, "{features:?}, turn {turn}");
            assert!(!ring.publish(), "nothing new to be called for");
            while driver.take().is_some() {}
        }
    }
}

#[test]
fn kicks_are_wanted_once_and_spared() {
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let mut ring = driver.ring().unwrap();
        let mut chain = Chain::new();
        for turn in 0..40 {
            assert!(!ring.enable_kicks());
            let before = driver.offered();
            driver.add(&[(DATA, 4, true)]).unwrap();
            assert!(driver.must_kick(before), "{features:?}, turn {turn}");
            ring.disable_kicks();
            let before = driver.offered();
            driver.add(&[(DATA, 4, true)]).unwrap();
            assert!(!driver.must_kick(before), "{features:?}, turn {turn}");
            assert!(ring.enable_kicks(), "what is there already is told, not kicked for");
            while ring.pop(&mut chain).unwrap() {
                ring.push(chain.id, 4);
            }
            ring.publish();
            while driver.take().is_some() {}
        }
    }
}

fn popped(driver: &Driver) -> Result<bool, RingError> {
    driver.ring().unwrap().pop(&mut Chain::new())
}

#[test]
fn a_hostile_split_ring_is_given_up() {
    let hostile = |set: &dyn Fn(&mut Driver)| {
        let mut driver = Driver::new(8, PLAIN);
        set(&mut driver);
        popped(&driver).unwrap_err()
    };
    let slot = Driver::slot;
    assert_eq!(hostile(&|driver| driver.offer(8)), RingError::Index(8));
    assert_eq!(hostile(&|driver| (0..9).for_each(|_| driver.offer(0))), RingError::TooManyAvailable(9, 8));
    let looped = hostile(&|driver| {
        driver.descriptor(slot(0), DATA, 4, [NEXT, 1]);
        driver.descriptor(slot(1), DATA, 4, [NEXT, 0]);
        driver.offer(0);
    });
    assert_eq!(looped, RingError::TooLong(8));
    let beyond = hostile(&|driver| {
        driver.descriptor(slot(0), DATA, 4, [NEXT, 99]);
        driver.offer(0);
    });
    assert_eq!(beyond, RingError::Index(99));
    for (guest, size) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 2), (u64::MAX - 1, u32::MAX)] {
        let outside = hostile(&|driver| {
            driver.descriptor(slot(0), guest, size, [0, 0]);
            driver.offer(0);
        });
        assert_eq!(outside, RingError::OutOfMemory { guest, size });
    }
    let mixed = hostile(&|driver| {
        driver.add(&[(DATA, 4, true), (DATA, 4, false)]);
    });
    assert_eq!(mixed, RingError::Order);
    for (size, flags) in [(0, INDIRECT), (17, INDIRECT), (16, INDIRECT | NEXT), (!15, INDIRECT)] {
        let table = hostile(&|driver| {
            driver.descriptor(slot(0), DATA, size, [flags, 0]);
            driver.offer(0);
        });
        assert_eq!(table, RingError::Indirect, "{size}");
    }
    let nested = hostile(&|driver| {
        driver.descriptor(DATA, DATA, 16, [INDIRECT, 0]);
        driver.descriptor(slot(0), DATA, 16, [INDIRECT, 0]);
        driver.offer(0);
    });
    assert_eq!(nested, RingError::Indirect);
    let looped = hostile(&|driver| {
        driver.descriptor(DATA, DATA, 4, [NEXT, 0]);
        driver.descriptor(slot(0), DATA, 16, [INDIRECT, 0]);
        driver.offer(0);
    });
    assert_eq!(looped, RingError::TooLong(1));
    let refused = RingFeatures { indirect: false, ..PLAIN };
    let mut driver = Driver::new(8, refused);
    driver.add_indirect(&[(DATA, 4, true)]);
    assert_eq!(popped(&driver).unwrap_err(), RingError::Indirect, "it was not negotiated");
}

#[test]
fn descriptors_of_no_bytes_count_too() {
    for features in all_features().filter(|features| features.indirect) {
        for (count, popped_is) in [(1024, Ok(true)), (1025, Err(RingError::TooLong(1024)))] {
            let mut driver = Driver::new(8, features);
            driver.add_indirect(&vec![(DATA, 0, true); count]).unwrap();
            assert_eq!(popped(&driver), popped_is, "{count} {features:?}");
        }
    }
}

#[test]
fn a_hostile_packed_ring_is_given_up() {
    let features = RingFeatures { packed: true, ..PLAIN };
    let hostile = |descriptors: &[(u64, u32, [u16; 2])]| {
        let driver = Driver::new(4, features);
        for (index, (guest, size, [id, flags])) in descriptors.iter().enumerate() {
            driver.descriptor(Driver::slot(index as u16), *guest, *size, [*id, *flags | 1 << 7]);
        }
        popped(&driver).unwrap_err()
    };
    assert_eq!(hostile(&[(DATA, 4, [4, 0])]), RingError::Index(4));
    assert_eq!(hostile(&[(DATA, 4, [0, NEXT]); 4]), RingError::TooLong(4));
    assert_eq!(hostile(&[(DATA, 4, [0, NEXT]), (DATA, 16, [0, INDIRECT])]), RingError::Indirect);
    let driver = Driver::new(4, features);
    for index in 0..2 {
        driver.descriptor(Driver::slot(index), DATA, 4, [3, 1 << 7]);
    }
    let mut ring = driver.ring().unwrap();
    assert!(ring.pop(&mut Chain::new()).unwrap());
    assert_eq!(ring.pop(&mut Chain::new()).unwrap_err(), RingError::InUse(3));
    ring.push(1, 0);
    assert!(!ring.publish(), "what was never taken is not given back");
}

#[test]
#[cfg_attr(miri, ignore = "66,560 descriptors take it minutes")]
fn a_packed_ring_that_is_made_anew_before_it_is_given_back_does_no_harm() {
    const SIZE: u16 = 1024;
    let features = RingFeatures { packed: true, ..PLAIN };
    let driver = Driver::new(SIZE, features);
    let mut ring = driver.ring().unwrap();
    let mut chain = Chain::new();
    for lap in 0..65 {
        let available = if lap % 2 == 0 { 1 << 7 } else { 1 << 15 };
        for index in 0..SIZE {
            let next = if index + 1 < SIZE { NEXT } else { 0 };
            driver.descriptor(Driver::slot(index), DATA, 1, [lap, next | available]);
        }
        assert!(ring.pop(&mut chain).unwrap(), "{lap}");
    }
    // More entries than a number of 16 bits has room for.
    (0..65).for_each(|id| ring.push(id, 0));
    ring.publish();
}

#[test]
fn writes_to_the_descriptors_and_to_the_event_structure_of_a_packed_ring_are_marked_where_they_are() {
    for event_index in [false, true] {
        let file = memory_file(0x1000);
        let log = Arc::new(DirtyLog::of_file(&file, 0, 0x1000).unwrap());
        let features = RingFeatures { packed: true, event_index, ..PLAIN };
        let mut driver = Driver::new(8, features);
        let memory = Arc::new(driver.memory.logged(Some(log)));
        // As QEMU does it: it only passes the address of the device area.
        let device = driver.layout().device - USER;
        let layout = RingLayout { logged: Some(device), ..driver.layout() };
        let mut ring = Ring::new(&memory, &layout, 8, 0x8000_8000, features).unwrap();
        let marked = || {
            let mut bytes = [0; 0x1000];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let pages = (0..8 * 0x1000_u64).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 != 0);
            pages.map(|page| page << 12).collect::<Vec<_>>()
        };
        let mut chain = Chain::new();
        for _ in 0..2 {
            driver.add(&[(DATA, 4, false)]).unwrap();
            assert!(ring.pop(&mut chain).unwrap());
            ring.push(chain.id, 0);
        }
        ring.publish();
        assert_eq!(marked(), [Driver::slot(0)], "answers");
        ring.enable_kicks();
        assert_eq!(marked(), [Driver::slot(0), device], "an event structure");
    }
}

#[test]
fn writes_to_a_ring_at_the_end_of_all_addresses_are_marked_nowhere() {
    let log = Arc::new(DirtyLog::of_file(&memory_file(0x1000), 0, 0x1000).unwrap());
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let memory = Arc::new(driver.memory.logged(Some(Arc::clone(&log))));
        let layout = RingLayout { logged: Some(u64::MAX), ..driver.layout() };
        let base = if features.packed { 0x8000_8000 } else { 0 };
        let mut ring = Ring::new(&memory, &layout, 8, base, features).unwrap();
        let mut chain = Chain::new();
        for _ in 0..2 {
            driver.add(&[(DATA, 4, true)]).unwrap();
            assert!(ring.pop(&mut chain).unwrap());
            ring.push(chain.id, 4);
        }
        ring.publish();
        ring.enable_kicks();
        ring.disable_kicks();
        assert!(driver.take().is_some());
    }
}

#[test]
fn rings_that_cannot_be() {
    let driver = Driver::new(8, PLAIN);
    let with = |layout: &RingLayout, size| {
        Ring::new(&driver.memory, layout, size, 0, PLAIN).map(|_| ()).unwrap_err()
    };
    let layout = driver.layout();
    for size in [0, 3, 65536, u32::MAX] {
        assert_eq!(with(&layout, size), RingError::Size(size));
    }
    let odd = RingLayout { descriptors: layout.descriptors + 8, ..layout };
    assert_eq!(with(&odd, 8), RingError::Unmapped("descriptors", odd.descriptors));
    let outside = RingLayout { device: 1, ..layout };
    assert_eq!(with(&outside, 8), RingError::Unmapped("used entries", 1));
    let packed = RingFeatures { packed: true, ..PLAIN };
    let beyond = Ring::new(&driver.memory, &layout, 8, 9, packed).map(|_| ()).unwrap_err();
    assert_eq!(beyond, RingError::Index(9));
}

proptest! {
    #[test]
    fn no_bytes_in_a_ring_do_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0x400),
        available in any::<[u16; 12]>(),
        features in 0..8_u8,
    ) {
        let features = RingFeatures { packed: features & 1 != 0, event_index: features & 2 != 0, indirect: features & 4 != 0 };
        let driver = Driver::new(8, features);
        driver.write(Driver::slot(0), &bytes);
        for (at, word) in available.iter().enumerate() {
            driver.word(0xa_0000 + 2 * at as u64).store(*word, std::sync::atomic::Ordering::Relaxed);
        }
        let mut ring = driver.ring().unwrap();
        let mut chain = Chain::new();
        for _ in 0..20 {
            match ring.pop(&mut chain) {
                Ok(true) => {
                    chain.write(1, b"some");
                    ring.push(chain.id, 1);
                    ring.publish();
                }
                Ok(false) => { ring.enable_kicks(); ring.disable_kicks(); }
                Err(_) => break,
            }
        }
    }
}

proptest! {
    #[test]
    fn the_usual_chains_are_taken_as_any_others_are(
        descriptors in proptest::collection::vec((0..SIZE + 0x2000, 0..0x3000_u32, [0..8_u16, 0..9_u16]), 8),
        heads in proptest::collection::vec(0..9_u16, 0..9),
    ) {
        let mut driver = Driver::new(8, PLAIN);
        for (slot, (guest, size, halves)) in descriptors.into_iter().enumerate() {
            driver.descriptor(Driver::slot(slot as u16), guest, size, halves);
        }
        heads.into_iter().for_each(|head| driver.offer(head));
        let (Ring::Split(mut usual), Ring::Split(mut any)) = (driver.ring().unwrap(), driver.ring().unwrap()) else {
            panic!("it is split");
        };
        let (mut one, mut other) = (Chain::new(), Chain::new());
        loop {
            let outcome = any.pop(&mut other);
            let taken = usual.pop_usual(&mut one).map_or_else(|| usual.pop(&mut one), Ok);
            prop_assert_eq!(taken, outcome);
            if outcome != Ok(true) {
                break;
            }
            let told = |chain: &Chain| {
                let parts = [Side::Readable, Side::Writable].map(|side| chain.parts(side).iter().map(
                    |part| (part.pointer.addr(), part.guest, part.size)).collect::<Vec<_>>());
                (chain.id, parts)
            };
            prop_assert_eq!(told(&one), told(&other));
        }
    }
}

#[test]
fn a_ring_stays_where_it_is_when_its_memory_changes() {
    for packed in [false, true] {
        let features = RingFeatures { packed, event_index: false, indirect: true };
        let driver = Driver::new(8, features);
        let mut ring = driver.ring().unwrap();
        assert!(ring.use_memory(&driver.memory).is_ok());
        assert!(ring.use_memory(&Driver::new(8, features).memory).is_err(), "it is another's");
        assert!(ring.use_memory(&Arc::default()).is_err(), "nothing is there");
        let kept: *const GuestMemory = Arc::as_ptr(ring.memory());
        assert_eq!(kept, Arc::as_ptr(&driver.memory));
    }
}
