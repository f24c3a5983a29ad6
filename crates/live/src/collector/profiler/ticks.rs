//! The BPF programs' records of samples and of times off the CPU, counted by stack.

use std::collections::HashMap;

use exits::{ExitReason, Isa};
use hotspots::{Activity, Away};

/// `KERNEL_FRAMES` and `USER_FRAMES` of the programs.
const KERNEL_FRAMES: usize = 64;
const USER_FRAMES: usize = 96;
/// The most different stacks, each of up to 1.3 KB. Another set of this size is kept without user frames, which a
/// device model can vary at will. Beyond that, samples are lost.
const MOST_STACKS: usize = 1 << 16;
/// The most threads that are followed at the same time while they are off the CPU.
const MOST_AWAY: usize = 1 << 16;
/// Offsets in `struct stacks`, which begins with `struct tick`.
const KERNEL_BYTES_AT: usize = 32;
const USER_BYTES_AT: usize = 36;
const KERNEL_AT: usize = 40;
const USER_AT: usize = KERNEL_AT + 8 * KERNEL_FRAMES;

/// A stack of addresses, with its thread and activity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Met {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) activity: Activity,
    /// Innermost first.
    pub(super) kernel: Box<[u64]>,
    pub(super) user: Box<[u64]>,
    pub(super) cut: bool,
    /// The user stack could not be read, or was dropped.
    pub(super) no_user: bool,
}

/// The counts for a stack.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) samples: u64,
    pub(super) away: Away,
}

/// All stacks so far, with their counts.
#[derive(Debug)]
pub(super) struct Ticks {
    met: HashMap<Met, Times>,
    /// The stacks of threads that are off the CPU.
    away: HashMap<u32, Met>,
    /// Samples and times off the CPU that were counted without user frames, and those that were lost.
    folded: u64,
    lost: u64,
    /// [`MOST_STACKS`], except in tests.
    most: usize,
}

impl Default for Ticks {
    fn default() -> Self {
        Self::with_room(MOST_STACKS)
    }
}

impl Ticks {
    fn with_room(most: usize) -> Self {
        Self { met: HashMap::new(), away: HashMap::new(), folded: 0, lost: 0, most }
    }

    /// Takes a record from the ring, and returns its process. Invalid records are ignored.
    pub(super) fn take(&mut self, bytes: &[u8], isa: Isa) -> Option<u32> {
        let (process, thread, reason) = (u32_at(bytes, 16)?, u32_at(bytes, 20)?, u32_at(bytes, 24)?);
        let kind = u16::from_ne_bytes(bytes.get(28..30)?.try_into().ok()?);
        let in_exit = Activity::Exit(ExitReason { isa, code: reason });
        let met = |activity| stacks(bytes, process, thread, activity);
        match kind {
            0 => self.sample(met(Activity::Guest)),
            1 => self.sample(met(in_exit)),
            2 => self.sample(met(Activity::Monitor)),
            3 if self.away.len() >= MOST_AWAY && !self.away.contains_key(&thread) => self.lost += 1,
            3 => drop(self.away.insert(thread, met(in_exit))),
            4 => {
                let at = self.away.remove(&thread)?;
                let (away_ns, waited_ns) = (u64_at(bytes, 0)?, u64_at(bytes, 8)?);
                self.add(at, Times { samples: 0, away: Away { times: 1, away_ns, waited_ns } });
            }
            _ => return None,
        }
        Some(process)
    }

    fn sample(&mut self, met: Met) {
        self.add(met, Times { samples: 1, away: Away::default() });
    }

    fn add(&mut self, mut met: Met, times: Times) {
        if self.met.len() >= self.most && !self.met.contains_key(&met) {
            let folds = !met.user.is_empty();
            if folds {
                met = Met { user: Box::default(), cut: true, no_user: true, ..met };
            }
            if self.met.len() >= 2 * self.most && !self.met.contains_key(&met) {
                self.lost += 1;
                return;
            }
            self.folded += u64::from(folds);
        }
        let known = self.met.entry(met).or_default();
        known.samples += times.samples;
        known.away.add(times.away);
    }

    /// Samples and times off the CPU that were counted without user frames, because there were too many different
    /// stacks.
    pub(super) const fn folded(&self) -> u64 {
        self.folded
    }

    /// Samples and times off the CPU that were lost, for the same reason.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// All stacks with their counts, in a deterministic order.
    pub(super) fn into_sorted(self) -> Vec<(Met, Times)> {
        let mut all: Vec<_> = self.met.into_iter().collect();
        all.sort_by(|(a, _), (b, _)| {
            let key = |met: &Met| (met.process, met.thread, met.activity);
            (key(a), &a.kernel, &a.user).cmp(&(key(b), &b.kernel, &b.user))
        });
        all
    }
}

fn stacks(bytes: &[u8], process: u32, thread: u32, activity: Activity) -> Met {
    let frames = |size_at, at, most: usize| -> (Box<[u64]>, bool, bool) {
        let size = u32_at(bytes, size_at).map_or(-1, u32::cast_signed);
        let count = usize::try_from(size).unwrap_or(0) / 8;
        let frames = (0..count.min(most)).filter_map(|frame| u64_at(bytes, at + 8 * frame));
        // The kernel appends zeros if it could not unwind further.
        (frames.take_while(|&address| address != 0).collect(), count >= most, size < 0)
    };
    let (kernel, kernel_cut, _) = frames(KERNEL_BYTES_AT, KERNEL_AT, KERNEL_FRAMES);
    let (user, user_cut, no_user) = frames(USER_BYTES_AT, USER_AT, USER_FRAMES);
    // Samples of guests have no stacks.
    let no_user = no_user && activity != Activity::Guest;
    Met { process, thread, activity, kernel, user, cut: kernel_cut || user_cut, no_user }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, reason: u32, kernel: &[u64], user: i32) -> Vec<u8> {
        let mut bytes = vec![0; USER_AT + 8 * USER_FRAMES];
        bytes[0..8].copy_from_slice(&70u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&30u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&5u32.to_ne_bytes());
        bytes[20..24].copy_from_slice(&6u32.to_ne_bytes());
        bytes[24..28].copy_from_slice(&reason.to_ne_bytes());
        bytes[28..30].copy_from_slice(&kind.to_ne_bytes());
        bytes[32..36].copy_from_slice(&(8 * kernel.len() as u32).to_ne_bytes());
        bytes[36..40].copy_from_slice(&user.to_ne_bytes());
        for (at, address) in kernel.iter().enumerate() {
            bytes[KERNEL_AT + 8 * at..][..8].copy_from_slice(&address.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn an_absence_is_counted_where_it_began() {
        let mut ticks = Ticks::default();
        for bytes in [record(1, 30, &[1, 2], -14), record(3, 30, &[9], 0), record(4, 30, &[], 0)] {
            assert_eq!(ticks.take(&bytes, Isa::Vmx), Some(5));
        }
        // The return of a thread whose leaving was not seen, and a record that is too short.
        assert_eq!(ticks.take(&record(4, 30, &[], 0), Isa::Vmx), None);
        assert_eq!(ticks.take(&[0; 20], Isa::Vmx), None);
        let all = ticks.into_sorted();
        let shown: Vec<_> =
            all.iter().map(|(met, times)| (&met.kernel[..], met.no_user, times.samples)).collect();
        assert_eq!(shown, [(&[1, 2][..], true, 1), (&[9][..], false, 0)]);
        assert_eq!(all[1].1.away, Away { times: 1, away_ns: 70, waited_ns: 30 });
    }

    /// A record with one user frame.
    fn of_program(kind: u16, address: u64) -> Vec<u8> {
        let mut bytes = record(kind, 30, &[1], 8);
        bytes[USER_AT..USER_AT + 8].copy_from_slice(&address.to_ne_bytes());
        bytes
    }

    #[test]
    fn stacks_of_a_program_that_makes_ever_new_ones_are_folded() {
        let mut ticks = Ticks::with_room(3);
        for address in 1..=10 {
            ticks.take(&of_program(1, address), Isa::Vmx);
            ticks.take(&of_program(3, address), Isa::Vmx);
            ticks.take(&of_program(4, 0), Isa::Vmx);
        }
        assert_eq!((ticks.folded(), ticks.lost()), (2 * 7, 0));
        let all = ticks.into_sorted();
        let shown: Vec<_> =
            all.iter().map(|(met, times)| (met.user.to_vec(), met.cut, met.no_user, times.samples)).collect();
        assert_eq!(
            shown,
            [
                (vec![], true, true, 7),
                (vec![1], false, false, 1),
                (vec![2], false, false, 1),
                (vec![3], false, false, 1)
            ]
        );
        assert_eq!(all.iter().map(|(_, times)| times.away.times).sum::<u64>(), 10);
    }

    #[test]
    fn what_has_no_place_at_all_is_lost_and_told() {
        let mut ticks = Ticks::with_room(3);
        for address in 1..=10 {
            ticks.take(&record(1, 30, &[address], 0), Isa::Vmx);
        }
        ticks.take(&record(1, 30, &[1], 0), Isa::Vmx);
        assert_eq!((ticks.folded(), ticks.lost()), (0, 4));
        assert_eq!(ticks.into_sorted().iter().map(|(_, times)| times.samples).sum::<u64>(), 7);
    }

    #[test]
    fn a_full_stack_may_be_cut() {
        let mut ticks = Ticks::default();
        ticks.take(&record(2, 0, &[7; KERNEL_FRAMES], 0), Isa::Svm);
        ticks.take(&record(2, 0, &[7; KERNEL_FRAMES - 1], 0), Isa::Svm);
        let cut: Vec<_> = ticks.into_sorted().iter().map(|(met, _)| (met.kernel.len(), met.cut)).collect();
        assert_eq!(cut, [(KERNEL_FRAMES - 1, false), (KERNEL_FRAMES, true)]);
    }
}
