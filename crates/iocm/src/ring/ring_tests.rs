use super::*;
use crate::memory::DirtyLog;
use crate::testing::{DATA, Driver, Piece, SIZE, USER, marked_pages, memory_file};
use proptest::prelude::*;

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

/// The next back-end of a device that has no buffers between its turns, with what QEMU says after a kill, or cloud-hypervisor.
fn next_back_end(driver: &Driver) -> Ring {
    let stale = if driver.features.packed { 0x8000_8000 } else { u32::from(driver.offered()) };
    let mut ring = Ring::new(&driver.memory, &driver.layout(), 8, stale, driver.features).unwrap();
    assert!(ring.rest(), "{:?}", driver.features);
    ring
}

#[test]
fn a_ring_at_rest_goes_on_where_another_was_killed() {
    let whole = [(DATA, 16, false), (DATA + 0x1000, 16, true)];
    let pieces =
        [(DATA, 10, false), (DATA + 10, 6, false), (DATA + 0x1000, 4, true), (DATA + 0x1004, 12, true)];
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        for turn in 0..100 {
            // Killed while it waited for kicks, or while it was at work.
            let mut ring = next_back_end(&driver);
            let pieces = if turn % 3 == 0 { &pieces[..] } else { &whole };
            let indirect = features.indirect && turn % 4 != 0;
            echo(&mut driver, &mut ring, &mut Chain::new(), pieces, indirect);
            if turn % 2 == 0 {
                assert!(!ring.enable_kicks());
            }
        }
    }
}

#[test]
fn a_full_ring_at_rest_goes_on_with_the_buffers_that_are_there() {
    for features in all_features() {
        let mut driver = Driver::new(8, features);
        let mut waiting: std::collections::VecDeque<_> =
            (0..8).map(|_| driver.add(&[(DATA, 16, true)]).unwrap()).collect();
        for turn in 0..100 {
            let mut ring = next_back_end(&driver);
            let mut chain = Chain::new();
            for _ in 0..turn % 5 {
                assert!(ring.pop(&mut chain).unwrap());
                assert_eq!(Some(chain.id), waiting.pop_front());
                ring.push(chain.id, 3);
            }
            ring.publish();
            // As for packets that need more buffers than there are.
            while ring.pop(&mut chain).unwrap() {}
            assert!(!ring.enable_kicks());
            let before = driver.offered();
            while driver.take().is_some() {
                waiting.push_back(driver.add(&[(DATA, 16, true)]).unwrap());
            }
            assert!(turn % 5 == 0 || driver.must_kick(before), "{features:?}, turn {turn}");
        }
    }
}

#[test]
fn used_entries_that_a_killed_back_end_did_not_publish_are_not_used_again() {
    for features in all_features().filter(|features| features.packed) {
        let mut driver = Driver::new(8, features);
        for turn in 0..60 {
            let mut ring = next_back_end(&driver);
            let ids: Vec<u16> = (0..5).map(|_| driver.add(&[(DATA, 16, true)]).unwrap()).collect();
            let mut chain = Chain::new();
            for _ in 0..4 {
                assert!(ring.pop(&mut chain).unwrap());
            }
            let count = 1 + turn % 4;
            let written = turn as u32 % 3;
            ids[..count].iter().for_each(|id| ring.push(*id, written));
            assert_eq!(driver.take(), None);
            let mut ring = next_back_end(&driver);
            for id in &ids[..count] {
                assert_eq!(driver.take(), Some((*id, written)), "{features:?}, turn {turn}");
            }
            for id in &ids[count..] {
                assert!(ring.pop(&mut chain).unwrap() && chain.id == *id, "{features:?}, turn {turn}");
                ring.push(*id, 0);
            }
            ring.publish();
            assert_eq!(std::iter::from_fn(|| driver.take()).count(), 5 - count);
        }
    }
}

/// The words that a front-end or the event suppression structure may have for a ring of eight.
fn all_places() -> impl Iterator<Item = u16> {
    (0..8).flat_map(|at| [at, at | 1 << 15])
}

#[test]
fn a_full_packed_ring_goes_on_by_the_valid_one_of_both_places() {
    for features in all_features().filter(|features| features.packed) {
        for [old, stale] in all_places().flat_map(|old| [[old, 0], [old, 1]]) {
            let mut driver = Driver::new(8, features);
            let mut ring = driver.ring().unwrap();
            let mut chain = Chain::new();
            while driver.add(&[(DATA, 16, true)]).is_some() {}
            for turn in 0..40 {
                let base = ring.base();
                let place = (base >> 16) as u16;
                let kept = driver.word(driver.layout().device - USER);
                let (base, word) =
                    if stale == 0 { (base, old) } else { (u32::from(old) << 16 | u32::from(old), place) };
                kept.store(word, std::sync::atomic::Ordering::Relaxed);
                ring = Ring::new(&driver.memory, &driver.layout(), 8, base, features).unwrap();
                assert!(ring.rest(), "{features:?}, turn {turn}, old {old:#x}");
                assert_eq!(ring.base() >> 16, u32::from(place), "{features:?}, turn {turn}, old {old:#x}");
                assert!(ring.pop(&mut chain).unwrap());
                ring.push(chain.id, 3);
                ring.publish();
                assert!(driver.take().is_some() && driver.add(&[(DATA, 16, true)]).is_some());
            }
        }
    }
}

/// A step of the life of a ring at rest.
#[derive(Debug, Clone)]
enum Step {
    /// The driver makes a buffer of so many descriptors available, in a table or in the ring.
    Add { pieces: u16, indirect: bool },
    /// The driver takes used buffers back.
    Take(usize),
    /// A turn: buffers are taken, and some of them used.
    Turn { popped: usize, used: usize, written: u32 },
    /// The back-end waits for kicks.
    Wait,
    /// The same as a turn, but the back-end is killed before it publishes them, or while it does.
    Kill { popped: usize, used: usize, written: u32, kept: bool, base: usize },
    /// Another back-end ended orderly, and left an old place behind.
    Other { kept: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let turn = || (0..6_usize, 0..6_usize, 0..3_u32);
    prop_oneof![
        4 => (1..4_u16, any::<bool>()).prop_map(|(pieces, indirect)| Step::Add { pieces, indirect }),
        2 => (0..6_usize).prop_map(Step::Take),
        2 => turn().prop_map(|(popped, used, written)| Step::Turn { popped, used, written }),
        1 => Just(Step::Wait),
        2 => (turn(), any::<bool>(), 0..100_usize).prop_map(|((popped, used, written), kept, base)| {
            Step::Kill { popped, used, written, kept, base }
        }),
        1 => (0..100_usize).prop_map(|kept| Step::Other { kept }),
    ]
}

/// The distance from a place to a later one.
fn ahead(size: u16, place: u16, to: u16) -> u16 {
    let in_two_laps = |place: u16| (place & 0x7fff) + if place >> 15 == 0 { size } else { 0 };
    (in_two_laps(to) + 2 * size - in_two_laps(place)) % (2 * size)
}

/// A ring at rest with its driver, and what each should see next.
struct AtRest {
    driver: Driver,
    ring: Ring,
    available: std::collections::VecDeque<u16>,
    used: std::collections::VecDeque<(u16, u32)>,
    /// The places at which back-ends began.
    begun: Vec<u32>,
}

impl AtRest {
    fn new(size: u16, features: RingFeatures) -> Self {
        let driver = Driver::new(size, features);
        let mut ring = driver.ring().unwrap();
        assert!(ring.rest());
        let begun = vec![ring.base()];
        Self { driver, ring, available: Default::default(), used: Default::default(), begun }
    }

    /// Takes and uses buffers without publishing them.
    fn turn(&mut self, popped: usize, used: usize, written: u32) {
        let (mut chain, mut taken) = (Chain::new(), Vec::new());
        while taken.len() < popped && self.ring.pop(&mut chain).unwrap() {
            taken.push(chain.id);
        }
        assert_eq!(taken.len(), popped.min(self.available.len()));
        assert!(taken.iter().eq(self.available.iter().take(taken.len())));
        let used = used.min(taken.len());
        for id in self.available.drain(..used) {
            self.ring.push(id, written);
            self.used.push_back((id, written));
        }
        taken[used..].iter().rev().for_each(|id| self.ring.put_back(*id));
    }

    fn take(&mut self, count: usize) {
        for _ in 0..count {
            let Some(used) = self.driver.take() else { break };
            assert_eq!(Some(used), self.used.pop_front());
        }
    }

    fn keep(&self, place: u16) {
        let at = self.driver.layout().device - USER;
        self.driver.word(at).store(place, std::sync::atomic::Ordering::Relaxed);
    }

    fn next_back_end(&mut self, size: u16, base: u32) {
        let driver = &self.driver;
        let expected = self.ring.base() >> 16;
        self.ring = Ring::new(&driver.memory, &driver.layout(), size.into(), base, driver.features).unwrap();
        assert!(self.ring.rest(), "{:?} {:?}", self.available, self.used);
        assert_eq!(self.ring.base(), expected << 16 | expected);
        self.begun.push(expected << 16 | expected);
    }

    fn step(&mut self, size: u16, chains: bool, step: Step) {
        match step {
            Step::Add { pieces, indirect } => {
                let pieces = vec![(DATA, 16, true); pieces.into()];
                let indirect = indirect && self.driver.features.indirect;
                let added = match indirect {
                    true => self.driver.add_indirect(&pieces),
                    false => self.driver.add(if chains { &pieces } else { &pieces[..1] }),
                };
                self.available.extend(added);
            }
            Step::Take(count) => self.take(count),
            Step::Turn { popped, used, written } => {
                self.turn(popped, used, written);
                self.ring.publish();
            }
            Step::Wait => {
                assert_eq!(self.ring.enable_kicks(), !self.available.is_empty());
            }
            Step::Kill { popped, used, written, kept, base } => {
                self.turn(popped, used, written);
                if kept {
                    self.keep((self.ring.base() >> 16) as u16);
                }
                let place = self.ring.base() >> 16;
                let old = self.begun[base % self.begun.len()];
                // A place within the last chain can look right.
                let is_near = chains && ahead(size, place as u16, (old >> 16) as u16) >= 2 * size - 2;
                self.next_back_end(size, if is_near { place << 16 | place } else { old });
            }
            Step::Other { kept } => {
                let base = self.ring.base();
                let place = (base >> 16) as u16;
                let old = (self.begun[kept % self.begun.len()] >> 16) as u16;
                // A place after the next buffer can look right.
                let is_near = chains || ahead(size, place, old) == 1;
                self.keep(if is_near { place } else { old });
                self.next_back_end(size, base);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_packed_ring_at_rest_survives_kills_and_other_back_ends(
        features in 0..4_u8,
        size in 3..17_u16,
        chains: bool,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let features = RingFeatures { packed: true, event_index: features & 1 != 0, indirect: features & 2 != 0 };
        let mut at_rest = AtRest::new(size, features);
        for step in steps {
            at_rest.step(size, chains, step);
        }
        let waiting = at_rest.available.len();
        at_rest.turn(waiting, waiting, 1);
        at_rest.ring.publish();
        at_rest.take(usize::MAX);
        prop_assert!(at_rest.used.is_empty() && at_rest.available.is_empty());
    }
}

/// The buffer that is available at the end looks like the rest of the used one before it.
#[test]
fn a_new_buffer_with_the_id_of_the_one_before_is_not_skipped() {
    let add = |pieces| Step::Add { pieces, indirect: false };
    let turn = |count| Step::Turn { popped: count, used: count, written: 0 };
    let kill = |count| Step::Kill { popped: count, used: count, written: 0, kept: false, base: 0 };
    let mut at_rest = AtRest::new(3, RingFeatures { packed: true, ..PLAIN });
    let begin =
        [add(1), turn(1), add(2), Step::Take(1), turn(1), Step::Take(1), add(3), kill(1), Step::Take(1)];
    let kills =
        [add(2), kill(1), Step::Take(1), add(1), turn(1), add(2), kill(1), Step::Take(2), add(2), kill(1)];
    let end = [
        Step::Take(1),
        add(1),
        add(2),
        turn(2),
        Step::Take(1),
        add(1),
        turn(1),
        Step::Take(2),
        add(1),
        kill(0),
    ];
    for step in begin.into_iter().chain(kills).chain(end) {
        at_rest.step(3, true, step);
    }
}

#[test]
fn a_ring_that_tells_no_place_goes_on_where_the_front_end_says() {
    let features = RingFeatures { packed: true, ..PLAIN };
    let mut driver = Driver::new(8, features);
    let mut ring = driver.ring().unwrap();
    for _ in 0..11 {
        echo(
            &mut driver,
            &mut ring,
            &mut Chain::new(),
            &[(DATA, 16, false), (DATA + 0x1000, 16, true)],
            true,
        );
    }
    // Another program wrote nothing there, or anything.
    for word in [0, 0x8000, 7, 0x8007, 0xffff] {
        driver.word(driver.layout().device - USER).store(word, std::sync::atomic::Ordering::Relaxed);
        let mut next = Ring::new(&driver.memory, &driver.layout(), 8, ring.base(), features).unwrap();
        assert!(next.rest(), "{word:#x}");
        assert_eq!(next.base(), ring.base(), "{word:#x}");
    }
    driver.word(driver.layout().device - USER).store(0, std::sync::atomic::Ordering::Relaxed);
    let mut lost = Ring::new(&driver.memory, &driver.layout(), 8, 0x8000_8000, features).unwrap();
    assert!(!lost.rest(), "nobody knows");
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
        let mut chain = Chain::new();
        for _ in 0..2 {
            driver.add(&[(DATA, 4, false)]).unwrap();
            assert!(ring.pop(&mut chain).unwrap());
            ring.push(chain.id, 0);
        }
        ring.publish();
        assert_eq!(marked_pages(&file), [Driver::slot(0)], "answers");
        ring.enable_kicks();
        assert_eq!(marked_pages(&file), [Driver::slot(0), device], "an event structure");
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
        at_rest: bool,
    ) {
        let features = RingFeatures { packed: features & 1 != 0, event_index: features & 2 != 0, indirect: features & 4 != 0 };
        let driver = Driver::new(8, features);
        driver.write(Driver::slot(0), &bytes);
        for (at, word) in available.iter().enumerate() {
            driver.word(0xa_0000 + 2 * at as u64).store(*word, std::sync::atomic::Ordering::Relaxed);
        }
        let mut ring = driver.ring().unwrap();
        if at_rest {
            ring.rest();
        }
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
