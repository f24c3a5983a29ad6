//! The exits of one vCPU during counting, in rows that are found quickly.

use exits::{Access, ExitReason, Exits, SeriesIndex, Slice, Timeline, VcpuExits};
use rustc_hash::FxHashMap;

use crate::bounded::AccessRoom;
use crate::event::{Event, Kind};

/// Exit codes below this are looked up in a table; the highest common ones, AVIC's, end at 0x403.
const DIRECT: usize = 0x410;
/// No row yet.
const NONE: u16 = u16::MAX;

/// The exits of one reason.
#[derive(Debug)]
pub(crate) struct ReasonRow {
    pub(crate) reason: ExitReason,
    pub(crate) exits: Exits,
    series: SeriesIndex,
}

impl ReasonRow {
    /// Counts an exit that began at `time_ns`, with its handling time if there is one.
    #[inline]
    pub(crate) fn add(&mut self, time_ns: u64, handling_ns: Option<u64>, timeline: &mut Timeline) {
        self.exits.count += 1;
        if let Some(handling_ns) = handling_ns {
            self.exits.handling.add(handling_ns);
        }
        let slice = Slice { count: 1, handling_ns: handling_ns.unwrap_or(0) };
        timeline.add(self.series, time_ns, slice);
    }
}

/// Rows by reason. VMX and SVM codes share the table, because a recording usually has only one kind.
#[derive(Debug, Default)]
pub(crate) struct ReasonRows {
    /// Empty until there is a second reason: threads that were seen only once do not need it.
    direct: Vec<u16>,
    others: FxHashMap<ExitReason, u16>,
    rows: Vec<ReasonRow>,
}

impl ReasonRows {
    /// The index of this reason's row; `series` creates the timeline's series for a new one.
    pub(crate) fn find(&mut self, reason: ExitReason, series: impl FnOnce() -> SeriesIndex) -> u16 {
        if let Some(&row) = self.direct.get(reason.code as usize) {
            if self.rows.get(usize::from(row)).is_some_and(|row| row.reason == reason) {
                return row;
            }
        }
        self.find_elsewhere(reason, series)
    }

    #[cold]
    fn find_elsewhere(&mut self, reason: ExitReason, series: impl FnOnce() -> SeriesIndex) -> u16 {
        let row = self.others.get(&reason).copied().unwrap_or_else(|| {
            // Only a corrupt file has more reasons than 16 bits can count; they are counted in the last row.
            let next = self.rows.len().min(usize::from(NONE) - 1) as u16;
            if usize::from(next) == self.rows.len() {
                self.rows.push(ReasonRow { reason, exits: Exits::default(), series: series() });
            }
            self.others.insert(reason, next);
            next
        });
        if self.direct.is_empty() && self.rows.len() > 1 {
            self.direct = vec![NONE; DIRECT];
        }
        if let Some(direct) = self.direct.get_mut(reason.code as usize).filter(|direct| **direct == NONE) {
            *direct = row;
        }
        row
    }

    /// The number of exits of all reasons.
    pub(crate) fn count(&self) -> u64 {
        self.rows.iter().map(|row| row.exits.count).sum()
    }

    pub(crate) fn row(&mut self, number: u16) -> &mut ReasonRow {
        &mut self.rows[usize::from(number)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// A recently used row.
#[derive(Debug, Clone, Copy)]
struct Recent {
    value: u64,
    row: u32,
    kind: Kind,
}

/// The size of the table that finds accesses without hashing; a power of two. Devices have a few registers that are
/// used all the time.
const RECENT: usize = 64;

/// Rows by access.
#[derive(Debug, Default)]
pub(crate) struct AccessRows {
    /// Empty until there is an access.
    recent: Vec<Recent>,
    index: FxHashMap<(Kind, u64), u32>,
    other: Option<u32>,
    rows: Vec<(Access, Exits)>,
}

impl AccessRows {
    /// The index of the row for this event's access, or that for [`Access::Other`] if there is no `room`. `None` for
    /// an event without an access.
    #[inline]
    pub(crate) fn find(&mut self, event: &Event, room: &mut AccessRoom) -> Option<u32> {
        match self.recent.get(Self::place(event)) {
            Some(recent)
                if recent.value == event.value && recent.kind == event.kind && event.kind != Kind::Exit =>
            {
                Some(recent.row)
            }
            _ => self.find_elsewhere(event, room),
        }
    }

    /// Registers of one device are adjacent, those of different devices are in different pages.
    fn place(event: &Event) -> usize {
        (event.value ^ event.value >> 12).wrapping_add(event.kind as u64) as usize % RECENT
    }

    #[cold]
    fn find_elsewhere(&mut self, event: &Event, room: &mut AccessRoom) -> Option<u32> {
        let key = (event.kind, event.value);
        if let Some(&row) = self.index.get(&key) {
            if self.recent.is_empty() {
                // A kind that no access has.
                self.recent = vec![Recent { value: 0, row: 0, kind: Kind::Exit }; RECENT];
            }
            self.recent[Self::place(event)] = Recent { value: event.value, row, kind: event.kind };
            return Some(row);
        }
        let access = event.access()?;
        if !room.take() {
            let other = self.other.unwrap_or_else(|| self.add(Access::Other));
            self.other = Some(other);
            return Some(other);
        }
        let row = self.add(access);
        self.index.insert(key, row);
        Some(row)
    }

    fn add(&mut self, access: Access) -> u32 {
        self.rows.push((access, Exits::default()));
        self.rows.len() as u32 - 1
    }

    #[cfg(test)]
    pub(crate) fn get(&self, access: Access) -> Option<&Exits> {
        self.rows.iter().find(|row| row.0 == access).map(|row| &row.1)
    }

    pub(crate) fn row(&mut self, number: u32) -> &mut Exits {
        &mut self.rows[number as usize].1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Adds the counts to a vCPU of a profile.
pub(crate) fn add_to(vcpu: &mut VcpuExits, reasons: &ReasonRows, accesses: &AccessRows) {
    for row in &reasons.rows {
        vcpu.reasons.entry(row.reason).or_default().merge(&row.exits);
    }
    for (access, exits) in &accesses.rows {
        vcpu.accesses.entry(*access).or_default().merge(exits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::SeriesKey;

    #[test]
    fn reasons_of_the_same_code_stay_apart() {
        let mut timeline = Timeline::default();
        let mut rows = ReasonRows::default();
        let reasons = [
            ExitReason::vmx(0x20),
            ExitReason::svm(0x20),
            ExitReason::svm(u32::MAX),
            ExitReason::vmx(0x8000_0021),
        ];
        for _ in 0..2 {
            for reason in reasons {
                let number = rows.find(reason, || timeline.series(SeriesKey { vm: None, reason }));
                rows.row(number).add(1, Some(5), &mut timeline);
            }
        }
        let found: Vec<_> = rows.rows.iter().map(|row| (row.reason, row.exits.count)).collect();
        assert_eq!(found, reasons.map(|reason| (reason, 2)));
    }

    #[test]
    fn accesses_that_share_a_place_stay_apart() {
        let mut rows = AccessRows::default();
        let mut room = AccessRoom::default();
        let numbers = [0, RECENT as u64, 5, u64::MAX, 0, RECENT as u64, 0x1000, 0];
        for kind in [Kind::PortRead, Kind::PortWrite, Kind::MsrWrite] {
            for value in numbers {
                let event = Event { time_ns: 0, value, extra: 0, thread: 0, cpu: 0, kind };
                let row = rows.find(&event, &mut room).unwrap();
                rows.row(row).count += 1;
            }
        }
        let exits = |number| rows.get(Access::Msr { number, direction: exits::Direction::Write }).unwrap();
        assert_eq!([0, RECENT as u32, 5].map(|number| exits(number).count), [3, 2, 1]);
        assert_eq!(rows.rows.iter().map(|row| row.1.count).sum::<u64>(), 3 * numbers.len() as u64);
    }

    #[test]
    fn what_is_no_access_has_no_row() {
        let mut rows = AccessRows::default();
        for kind in [Kind::Exit, Kind::Entry, Kind::Runnable] {
            let event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: 0, kind };
            assert_eq!(rows.find(&event, &mut AccessRoom::default()), None, "{kind:?}");
        }
    }

    #[test]
    fn accesses_beyond_the_limit_are_others() {
        let mut rows = AccessRows::default();
        let mut room = AccessRoom(1);
        for id in [0, 1, 0, 2] {
            let event =
                Event { time_ns: 0, value: id, extra: 0, thread: 0, cpu: 0, kind: Kind::IncompleteIpi };
            let row = rows.find(&event, &mut room).unwrap();
            rows.row(row).count += 1;
        }
        let found: Vec<_> = rows.rows.iter().map(|(access, exits)| (*access, exits.count)).collect();
        assert_eq!(found, [(Access::IncompleteIpi { id: 0 }, 2), (Access::Other, 2)]);
    }
}
