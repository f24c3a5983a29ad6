//! The table applied to a profile.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use conclusions::prediction::{Part, split};
use exits::{Access, AccessKind, Direction, ExitReason, Exits, Isa, Profile, VcpuExits};

use host::pci::Bar;

use crate::seen::Seen;
use crate::{Cure, Device, Effect, Facts, Suspect, Table};

/// The causes of the exits of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice<'a> {
    /// For how long exits were seen, nanoseconds.
    pub observed_ns: u64,
    /// The VMs, those first in which most time can be saved.
    pub vms: Vec<VmAdvice<'a>>,
}

/// The causes of the exits of a VM.
#[derive(Debug, Clone, PartialEq)]
pub struct VmAdvice<'a> {
    /// Its number: process or domain; `None` where the source does not say.
    pub vm: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// True if its definition was at hand.
    pub has_definition: bool,
    /// vCPUs that had exits.
    pub vcpus: usize,
    /// All its exits.
    pub exits: u64,
    /// The time for which the host took over them, nanoseconds, without sleep.
    pub time_ns: u64,
    /// The time for which vCPUs slept, nanoseconds.
    pub sleep_ns: u64,
    /// The causes: those with an open cure first, then by time.
    pub rows: Vec<DeviceExits<'a>>,
    /// Costs without exits, by the definition.
    pub suspects: Vec<&'a Suspect>,
}

/// The subject of exits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Of<'a> {
    /// A device that is known.
    Device(&'a Device),
    /// A port, address or register of no device that is known.
    UnknownAccess(Access),
    /// A reason that the table does not know.
    UnknownReason(ExitReason),
}

/// A cure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cured<'a> {
    /// The cure.
    pub cure: &'a Cure,
    /// True if the VM has it already, by its definition or by its exits.
    pub there: bool,
}

/// The exits of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceExits<'a> {
    /// The device.
    pub of: Of<'a>,
    /// The number of exits.
    pub exits: u64,
    /// The time for which the host took over them, nanoseconds. An estimate where exits of a reason are told apart by accesses.
    pub time_ns: u64,
    /// By reason and access, the most time first.
    pub parts: Vec<(ExitReason, Part, u64, u64)>,
    /// The PCI devices' regions that accesses among them were to, where the VMM said where those are.
    pub bars: Vec<Bar>,
    /// Its cures.
    pub cures: Vec<Cured<'a>>,
}

impl DeviceExits<'_> {
    /// Tests whether the vCPU sleeps in them, so that their time is no cost.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        matches!(self.of, Of::Device(device) if device.sleeps)
    }

    /// Cures that the VM does not have.
    pub fn open(&self) -> impl Iterator<Item = &Cure> {
        self.cures.iter().filter(|cured| !cured.there).map(|cured| cured.cure)
    }

    /// The most that open cures can do to the exits; `None` where there is none that saves time.
    #[must_use]
    pub fn best(&self) -> Option<Effect> {
        self.open().map(|cure| cure.effect).filter(|&effect| effect != Effect::Stay).min()
    }

    /// The most handling time that can be saved, nanoseconds: all of it where a cure is open. What the processor itself
    /// needs to leave the guest and to enter it again is in no handling time, so a little more may be.
    #[must_use]
    pub fn at_most_ns(&self) -> u64 {
        if self.sleeps() || self.best().is_none() { 0 } else { self.time_ns }
    }
}

impl VmAdvice<'_> {
    /// The most handling time that can be saved, nanoseconds.
    #[must_use]
    pub fn at_most_ns(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.at_most_ns()))
    }
}

/// Names the devices of a profile that was observed for `observed_ns`, with what `facts` knows of VMs by number.
#[must_use]
pub fn advise<'a>(
    table: &'a Table,
    profile: &Profile,
    observed_ns: u64,
    facts: &BTreeMap<u32, Facts>,
) -> Advice<'a> {
    let mut vms: BTreeMap<Option<u32>, Vec<&VcpuExits>> = BTreeMap::new();
    for vcpu in profile.vcpus().iter().filter(|vcpu| !vcpu.reasons.is_empty()) {
        vms.entry(vcpu.vcpu.vm).or_default().push(vcpu);
    }
    let mut vms: Vec<_> = vms
        .into_iter()
        .map(|(vm, vcpus)| {
            let facts = vm.and_then(|vm| facts.get(&vm));
            let name = vm.and_then(|vm| profile.names.get(&vm)).cloned();
            of_vm(table, vm, name, &vcpus, facts)
        })
        .collect();
    vms.sort_by_key(|vm| (Reverse(vm.at_most_ns()), Reverse(vm.exits), vm.vm));
    Advice { observed_ns, vms }
}

fn of_vm<'a>(
    table: &'a Table,
    vm: Option<u32>,
    name: Option<String>,
    vcpus: &[&VcpuExits],
    facts: Option<&Facts>,
) -> VmAdvice<'a> {
    let mut rows = Rows { table, facts, seen: Seen::of(vcpus), rows: Vec::new() };
    for vcpu in vcpus {
        for (&reason, exits) in &vcpu.reasons {
            let accesses = accesses_of(vcpu, reason);
            for piece in split(exits, &accesses, true) {
                rows.add(reason.basic(), piece.part, piece.exits, piece.time_ns);
            }
        }
    }
    let mut rows = rows.rows;
    for row in &mut rows {
        row.parts.sort_by_key(|&(reason, part, exits, time)| (Reverse(time), Reverse(exits), reason, part));
    }
    rows.sort_by_key(|row| {
        (Reverse(row.at_most_ns()), row.sleeps(), Reverse(row.time_ns), Reverse(row.exits))
    });
    let sum = |sleeps: bool| {
        rows.iter()
            .filter(|row| row.sleeps() == sleeps)
            .fold(0u64, |sum, row| sum.saturating_add(row.time_ns))
    };
    let suspects = table.suspects.iter().filter(|one| facts.is_some_and(|facts| facts.all(&one.when)));
    VmAdvice {
        vm,
        name,
        has_definition: facts.is_some(),
        vcpus: vcpus.len(),
        exits: rows.iter().fold(0, |sum, row| sum.saturating_add(row.exits)),
        time_ns: sum(false),
        sleep_ns: sum(true),
        suspects: suspects.collect(),
        rows,
    }
}

/// The accesses that exits of this reason may be about.
fn accesses_of(vcpu: &VcpuExits, reason: ExitReason) -> Vec<(Access, &Exits)> {
    let reason = reason.basic();
    let wanted = |access: &Access| match (reason.isa, reason.code, access) {
        (Isa::Vmx, 30, _) | (Isa::Svm, 0x7b, _) => access.kind() == AccessKind::Port,
        (Isa::Vmx, 31, Access::Msr { direction, .. }) => *direction == Direction::Read,
        (Isa::Vmx, 32, Access::Msr { direction, .. }) => *direction == Direction::Write,
        (Isa::Svm, 0x7c, _) => access.kind() == AccessKind::Msr,
        (Isa::Svm, 0x400, _) => access.kind() == AccessKind::Mmio,
        // The first access to a page is a violation; all others are misconfigurations. Which ones an event was of, the
        // event does not say, and the latter are nearly all.
        (Isa::Vmx, 49, _) => access.kind() == AccessKind::Mmio,
        (Isa::Vmx, 48, _) => access.kind() == AccessKind::Mmio && !has(vcpu, ExitReason::vmx(49)),
        _ => false,
    };
    vcpu.accesses
        .iter()
        .filter(|(access, _)| wanted(access))
        .map(|(&access, exits)| (access, exits))
        .collect()
}

fn has(vcpu: &VcpuExits, reason: ExitReason) -> bool {
    vcpu.reasons.keys().any(|one| one.basic() == reason)
}

struct Rows<'a, 'f> {
    table: &'a Table,
    facts: Option<&'f Facts>,
    seen: Seen,
    rows: Vec<DeviceExits<'a>>,
}

impl<'a> Rows<'a, '_> {
    fn add(&mut self, reason: ExitReason, part: Part, exits: u64, time_ns: u64) {
        let of = match part {
            Part::Access(access) => match self.table.of_access(access, self.facts) {
                Some(device) => Of::Device(device),
                None => Of::UnknownAccess(without_direction(access)),
            },
            Part::Whole | Part::Nested | Part::Rest => match self.table.of_reason(reason) {
                Some(device) => Of::Device(device),
                None => Of::UnknownReason(reason),
            },
        };
        let row = match self.rows.iter().position(|row| row.of == of) {
            Some(at) => &mut self.rows[at],
            None => {
                let cures = self.cures(of);
                self.rows.push(DeviceExits {
                    of,
                    exits: 0,
                    time_ns: 0,
                    parts: Vec::new(),
                    bars: Vec::new(),
                    cures,
                });
                let last = self.rows.len() - 1;
                &mut self.rows[last]
            }
        };
        if let (Part::Access(access), Some(facts)) = (part, self.facts) {
            let bar = facts.bar(access).filter(|bar| !row.bars.contains(bar));
            row.bars.extend(bar.cloned());
        }
        row.exits = row.exits.saturating_add(exits);
        row.time_ns = row.time_ns.saturating_add(time_ns);
        match row.parts.iter_mut().find(|(one, other, ..)| (*one, *other) == (reason, part)) {
            Some((_, _, count, time)) => {
                *count = count.saturating_add(exits);
                *time = time.saturating_add(time_ns);
            }
            None => row.parts.push((reason, part, exits, time_ns)),
        }
    }

    fn cures(&self, of: Of<'a>) -> Vec<Cured<'a>> {
        let Of::Device(device) = of else { return Vec::new() };
        let fitting = device.cures.iter().filter(|cure| cure.fits(self.facts, &self.seen));
        fitting.map(|cure| Cured { cure, there: cure.is_there(self.facts, &self.seen) }).collect()
    }
}

/// Reads and writes of one unknown place are one row.
const fn without_direction(access: Access) -> Access {
    let direction = Direction::Read;
    match access {
        Access::Port { port, .. } => Access::Port { port, direction },
        Access::Mmio { address, .. } => Access::Mmio { address, direction },
        Access::Msr { number, .. } => Access::Msr { number, direction },
        other => other,
    }
}

#[cfg(test)]
#[path = "advise_tests.rs"]
mod tests;
