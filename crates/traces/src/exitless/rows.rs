//! Converts the rows of a batch to exits.

use exits::{ExitReason, Vcpu};

use super::batch::{Batch, Column, StringColumn, Wrong};
use super::layout::{Earlier, Layout, Numbers};
use super::texts::{Dictionaries, Meaning, TextColumn, read_if_there};
use crate::{AccessRecord, ExitRecord};

/// The columns of one batch; their memory is reused for the next one.
#[derive(Debug, Default)]
pub(super) struct Rows {
    time: Column,
    vm: Column,
    vcpu: Column,
    thread: Column,
    cpu: Column,
    isa: TextColumn,
    reason: TextColumn,
    reason_code: Column,
    guest_rip: Column,
    access: TextColumn,
    access_handling: Column,
    handling: Column,
    earlier: EarlierColumn,
    /// The accesses of the last requested row.
    accesses: Vec<AccessRecord>,
}

/// The column of accesses before the last one of each exit.
#[derive(Debug, Default)]
struct EarlierColumn {
    is_there: bool,
    offsets: Column,
    access: StringColumn,
    handling: Column,
}

/// A row.
pub(super) struct Row<'r> {
    pub(super) exit: ExitRecord,
    pub(super) accesses: &'r [AccessRecord],
    /// The number of accesses that this version does not know.
    pub(super) unknown: u64,
}

impl Rows {
    /// Reads all columns of a batch.
    pub(super) fn read(
        &mut self,
        layout: &Layout,
        dictionaries: &Dictionaries,
        batch: &mut Batch<'_, '_>,
    ) -> Result<(), Wrong> {
        let numbers = [
            (layout.time, &mut self.time),
            (layout.vm, &mut self.vm),
            (layout.vcpu, &mut self.vcpu),
            (layout.thread, &mut self.thread),
            (layout.cpu, &mut self.cpu),
            (layout.reason_code, &mut self.reason_code),
            (layout.guest_rip, &mut self.guest_rip),
            (layout.access_handling, &mut self.access_handling),
            (layout.handling, &mut self.handling),
        ];
        for (place, column) in numbers {
            read_if_there(place, batch, column)?;
        }
        let texts = [
            (layout.isa, &mut self.isa),
            (layout.reason, &mut self.reason),
            (layout.access, &mut self.access),
        ];
        for (place, column) in texts {
            if let Some(place) = place {
                column.read(place, dictionaries, batch)?;
            }
        }
        self.earlier.read(layout.earlier, batch)
    }

    /// Releases the dictionaries, which may change before the next batch.
    pub(super) fn release(&mut self) {
        [&mut self.isa, &mut self.reason, &mut self.access].into_iter().for_each(TextColumn::release);
    }

    /// One row; `None` if its time or its reason is invalid.
    pub(super) fn get(&mut self, row: usize) -> Option<Row<'_>> {
        let small = |column: &Column| column.get(row).map(|number| number as u32);
        let mut unknown = 0;
        self.accesses.clear();
        self.earlier.get(row, &mut self.accesses, &mut unknown);
        if let Some(last) = self.access.get(row) {
            let handling_ns = self.access_handling.get(row);
            match last.access {
                Some(access) => self.accesses.push(AccessRecord { access, handling_ns }),
                None => unknown += 1,
            }
        }
        let named = self.reason.get(row).and_then(|meaning| meaning.reason);
        // A name that only a later version has, for a number that has none here.
        let numbered = || {
            let isa = self.isa.get(row)?.isa?;
            Some(ExitReason { isa, code: small(&self.reason_code)? })
        };
        let exit = ExitRecord {
            time_ns: self.time.get(row)?,
            vcpu: Vcpu { vm: small(&self.vm), number: small(&self.vcpu), thread: small(&self.thread) },
            cpu: self.cpu.get(row).unwrap_or(0) as u16,
            reason: named.or_else(numbered)?,
            guest_rip: self.guest_rip.get(row).unwrap_or(0),
            access: AccessRecord::last_of_exit(&self.accesses),
            handling_ns: self.handling.get(row),
        };
        Some(Row { exit, accesses: &self.accesses, unknown })
    }
}

impl EarlierColumn {
    fn read(&mut self, place: Option<Earlier>, batch: &mut Batch<'_, '_>) -> Result<(), Wrong> {
        self.is_there = place.is_some();
        let Some(place) = place else { return Ok(()) };
        let rows = batch.rows;
        let offsets = Numbers { node: place.node, buffer: place.buffer, width: 4 };
        let length = batch.offsets(offsets, rows, &mut self.offsets)?;
        // The children may have more elements than the lists use.
        let children = batch.length(place.access.node)?;
        if children < length {
            return Err("a list has more elements than there are".to_owned());
        }
        batch.strings(place.access, children, &mut self.access)?;
        batch.numbers(place.handling, children, &mut self.handling)
    }

    fn get(&self, row: usize, into: &mut Vec<AccessRecord>, unknown: &mut u64) {
        if !self.is_there || !self.offsets.has(row) {
            return;
        }
        let (Some(start), Some(end)) = (self.offsets.offset(row), self.offsets.offset(row + 1)) else {
            return;
        };
        for at in start..end {
            match self.access.get(at).map(Meaning::of).and_then(|meaning| meaning.access) {
                Some(access) => into.push(AccessRecord { access, handling_ns: self.handling.get(at) }),
                None => *unknown += 1,
            }
        }
    }
}
