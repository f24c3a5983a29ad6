//! The exits of one vCPU during counting, in rows that are found quickly.

use exits::{Access, ExitReason, Exits, Profile, SeriesIndex, Slice, Timeline, Vcpu, VcpuExits, counted};
use rustc_hash::FxHashMap;

use crate::bounded::{AccessRoom, MOST_REASONS, ReasonRoom};
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
    /// The index of this reason's row; `None` if it has none and there is no `room`. `series` creates the timeline's series
    /// for a new one.
    pub(crate) fn find(
        &mut self,
        reason: ExitReason,
        room: &mut ReasonRoom,
        series: impl FnOnce() -> SeriesIndex,
    ) -> Option<u16> {
        if let Some(&row) = self.direct.get(reason.code as usize)
            && self.rows.get(usize::from(row)).is_some_and(|row| row.reason == reason)
        {
            return Some(row);
        }
        self.find_elsewhere(reason, room, series)
    }

    /// The index of this reason's row if rows get no times, so that they are small and need no room. Reasons beyond those
    /// that 16 bits can count share the last row.
    #[cold]
    pub(crate) fn find_without_times(
        &mut self,
        reason: ExitReason,
        series: impl FnOnce() -> SeriesIndex,
    ) -> u16 {
        self.find(reason, &mut ReasonRoom(1), series).unwrap_or(NONE - 1)
    }

    #[cold]
    fn find_elsewhere(
        &mut self,
        reason: ExitReason,
        room: &mut ReasonRoom,
        series: impl FnOnce() -> SeriesIndex,
    ) -> Option<u16> {
        let row = match self.others.get(&reason) {
            Some(&row) => row,
            None => {
                // Only a corrupt file has more reasons than 16 bits can count.
                let next = u16::try_from(self.rows.len()).ok().filter(|&next| next < NONE && room.take())?;
                self.rows.push(ReasonRow { reason, exits: Exits::default(), series: series() });
                self.others.insert(reason, next);
                next
            }
        };
        if self.direct.is_empty() && self.rows.len() > 1 {
            self.direct = vec![NONE; DIRECT];
        }
        if let Some(direct) = self.direct.get_mut(reason.code as usize).filter(|direct| **direct == NONE) {
            *direct = row;
        }
        Some(row)
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

/// Adds the exits of vCPUs and reasons that got no row for lack of room to a vCPU that is not known, and a warning.
pub(crate) fn add_beyond(profile: &mut Profile, beyond: &ReasonRows, warnings: &mut Vec<String>) {
    if beyond.is_empty() {
        return;
    }
    add_to(profile.vcpu(Vcpu::default()), beyond, &AccessRows::default());
    warnings.push(format!(
        "It has more than {MOST_REASONS} pairs of a vCPU and an exit reason; {} of further ones count for no VM and have no \
         times: make shorter recordings",
        counted(beyond.count(), "exit")
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::SeriesKey;

    #[test]
    fn reasons_of_the_same_code_stay_apart() {
        let mut timeline = Timeline::default();
        let mut rows = ReasonRows::default();
        let mut room = ReasonRoom(4);
        let reasons = [
            ExitReason::vmx(0x20),
            ExitReason::svm(0x20),
            ExitReason::svm(u32::MAX),
            ExitReason::vmx(0x8000_0021),
        ];
        for _ in 0..2 {
            for reason in reasons {
                let series = || timeline.series(SeriesKey { vm: None, reason });
                let number = rows.find(reason, &mut room, series).unwrap();
                rows.row(number).add(1, Some(5), &mut timeline);
            }
        }
        let found: Vec<_> = rows.rows.iter().map(|row| (row.reason, row.exits.count)).collect();
        assert_eq!(found, reasons.map(|reason| (reason, 2)));
        let further = ExitReason::vmx(1);
        let series = || -> SeriesIndex { unreachable!("there is no room") };
        assert_eq!((rows.find(further, &mut room, series), room.0), (None, 0));
    }

    #[test]
    fn more_reasons_than_a_row_can_number_share_the_last_row() {
        let mut timeline = Timeline::default();
        let mut rows = ReasonRows::default();
        for code in 0..u32::from(NONE) + 10 {
            let reason = ExitReason::vmx(code);
            let row = rows.find_without_times(reason, || timeline.series(SeriesKey { vm: None, reason }));
            rows.row(row).exits.count += 1;
        }
        assert_eq!((rows.rows.len(), rows.others.len()), (NONE.into(), NONE.into()));
        assert_eq!((rows.row(NONE - 2).exits.count, rows.row(NONE - 1).exits.count), (1, 11));
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
