//! The table applied to a profile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use conclusions::prediction::{Part, split};
use exits::{Access, AccessKind, Direction, ExitLevels, ExitReason, Exits, Isa, Profile, VcpuExits};

use host::pci::Bar;

use crate::seen::Seen;
use crate::{Cure, Device, Effect, Facts, Suspect, Table};

/// The causes of the exits of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice<'a> {
    /// The observed time in nanoseconds.
    pub observed_ns: u64,
    /// The VMs, those in which the most time can be saved first.
    pub vms: Vec<VmAdvice<'a>>,
}

/// The causes of the exits of a VM.
#[derive(Debug, Clone, PartialEq)]
pub struct VmAdvice<'a> {
    /// Its process ID or domain ID; `None` if the source does not have it.
    pub vm: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// True if its definition was available.
    pub has_definition: bool,
    /// True if another VMM than QEMU runs it, so that its devices were named with the table for others.
    pub is_of_other_vmm: bool,
    /// vCPUs that had exits.
    pub vcpus: usize,
    /// All its exits.
    pub exits: u64,
    /// The handling time in nanoseconds, without sleep.
    pub time_ns: u64,
    /// The time for which vCPUs slept, in nanoseconds.
    pub sleep_ns: u64,
    /// The causes, by the time that can be saved, then by time.
    pub rows: Vec<DeviceExits<'a>>,
    /// Costs without exits that the definition suggests.
    pub suspects: Vec<&'a Suspect>,
}

/// The cause of exits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Of<'a> {
    /// A device of the table.
    Device(&'a Device),
    /// A port, address or register of an unknown device.
    UnknownAccess(Access),
    /// A reason that is not in the table.
    UnknownReason(ExitReason),
}

/// A cure of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cured<'a> {
    /// The cure.
    pub cure: &'a Cure,
    /// True if the VM already has it, as its definition or its exits show.
    pub there: bool,
}

/// The exits of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceExits<'a> {
    /// The device.
    pub of: Of<'a>,
    /// The number of exits.
    pub exits: u64,
    /// The handling time in nanoseconds. An estimate if the exits of a reason were divided by accesses.
    pub time_ns: u64,
    /// The exits and nanoseconds by reason and access, those with the most time first.
    pub parts: Vec<(ExitReason, Part, u64, u64)>,
    /// The BARs of PCI devices that the accesses were to, if the VMM reported their addresses.
    pub bars: Vec<Bar>,
    /// Its cures.
    pub cures: Vec<Cured<'a>>,
}

impl DeviceExits<'_> {
    /// Tests whether the vCPU sleeps in these exits, so that their time is no cost.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        matches!(self.of, Of::Device(device) if device.sleeps)
    }

    /// The cures that the VM does not have yet.
    pub fn open(&self) -> impl Iterator<Item = &Cure> {
        self.cures.iter().filter(|cured| !cured.there).map(|cured| cured.cure)
    }

    /// The strongest effect of the open cures; `None` if no open cure saves time.
    #[must_use]
    pub fn best(&self) -> Option<Effect> {
        self.open().map(|cure| cure.effect).filter(|&effect| effect != Effect::Stay).min()
    }

    /// An upper bound of the handling time that can be saved, in nanoseconds: all of it if a cure is open. Handling times
    /// do not include the processor's own cost of the exit and the entry, so slightly more may be saved.
    #[must_use]
    pub fn at_most_ns(&self) -> u64 {
        if self.sleeps() || self.best().is_none() { 0 } else { self.time_ns }
    }
}

impl VmAdvice<'_> {
    /// Tests whether handling times of its exits are known: a recording of `kvm_exit` alone has none.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        self.time_ns > 0 || self.sleep_ns > 0
    }

    /// An upper bound of the handling time that can be saved, in nanoseconds.
    #[must_use]
    pub fn at_most_ns(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.at_most_ns()))
    }
}

/// Names the causes of the exits of a profile that was observed for `observed_ns`. `facts` are by process ID or domain ID.
#[must_use]
pub fn advise<'a>(
    table: &'a Table,
    profile: &Profile,
    observed_ns: u64,
    facts: &BTreeMap<u32, Facts>,
) -> Advice<'a> {
    advise_beside(table, Others { table, vms: &BTreeSet::new() }, profile, observed_ns, facts)
}

/// The VMs of VMMs other than QEMU.
#[derive(Debug, Clone, Copy)]
pub struct Others<'a, 'v> {
    /// The table for them: [`Table::without_qemu`].
    pub table: &'a Table,
    /// Their process IDs.
    pub vms: &'v BTreeSet<u32>,
}

/// As [`advise`], for a host that also has VMs of other VMMs than QEMU.
#[must_use]
pub fn advise_beside<'a>(
    table: &'a Table,
    others: Others<'a, '_>,
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
            let is_of_other_vmm = vm.is_some_and(|vm| others.vms.contains(&vm));
            let table = if is_of_other_vmm { others.table } else { table };
            VmAdvice { is_of_other_vmm, ..of_vm(table, vm, name, &vcpus, facts) }
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
        let ExitLevels { l1, l2 } = vcpu.levels();
        for (&reason, exits) in &l1 {
            let accesses = accesses_of(vcpu, &l1, reason);
            for piece in split(exits, &accesses, true) {
                rows.add(reason, piece.part, piece.exits, piece.time_ns);
            }
        }
        for (&reason, exits) in &l2 {
            rows.add(reason, Part::Nested, exits.count, exits.handling.total_ns());
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
        is_of_other_vmm: false,
        vcpus: vcpus.len(),
        exits: rows.iter().fold(0, |sum, row| sum.saturating_add(row.exits)),
        time_ns: sum(false),
        sleep_ns: sum(true),
        suspects: suspects.collect(),
        rows,
    }
}

/// The accesses that may have caused exits of this reason, one of those in `reasons`.
fn accesses_of<'v>(
    vcpu: &'v VcpuExits,
    reasons: &BTreeMap<ExitReason, Exits>,
    reason: ExitReason,
) -> Vec<(Access, &'v Exits)> {
    let has = |other: ExitReason| reasons.contains_key(&other);
    let wanted = |access: &Access| match (reason.isa, reason.code, access) {
        (Isa::Vmx, 30, _) | (Isa::Svm, 0x7b, _) => access.kind() == AccessKind::Port,
        (Isa::Vmx, 31, Access::Msr { direction, .. }) => *direction == Direction::Read,
        (Isa::Vmx, 32, Access::Msr { direction, .. }) => *direction == Direction::Write,
        (Isa::Svm, 0x7c, _) => access.kind() == AccessKind::Msr,
        // A guest with SEV-ES or SEV-SNP calls KVM for each of these accesses, so its nested page faults are none of them.
        (Isa::Svm, 0x403, _) => {
            matches!(access.kind(), AccessKind::Port | AccessKind::Mmio | AccessKind::Msr)
        }
        (Isa::Svm, 0x400, _) => access.kind() == AccessKind::Mmio && !has(ExitReason::svm(0x403)),
        // The first MMIO access to a page is an EPT violation, all others are EPT misconfigurations. The events of accesses
        // do not say which it was, so count them all as misconfigurations, which most of them are.
        (Isa::Vmx, 49, _) => access.kind() == AccessKind::Mmio,
        (Isa::Vmx, 48, _) => access.kind() == AccessKind::Mmio && !has(ExitReason::vmx(49)),
        _ => false,
    };
    vcpu.accesses
        .iter()
        .filter(|(access, _)| wanted(access))
        .map(|(&access, exits)| (access, exits))
        .collect()
}

/// The exit by which a hypervisor in the VM enters its guest: `VMRESUME`, `vmrun`. The exits of its guests are a cost of
/// the same device, and go with it.
const fn entry_of_nested(isa: Isa) -> ExitReason {
    match isa {
        Isa::Vmx => ExitReason::vmx(24),
        Isa::Svm => ExitReason::svm(0x80),
    }
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
            Part::Nested => self.of_reason(entry_of_nested(reason.isa)),
            Part::Whole | Part::Rest => self.of_reason(reason),
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

    fn of_reason(&self, reason: ExitReason) -> Of<'a> {
        self.table.of_reason(reason).map_or(Of::UnknownReason(reason), Of::Device)
    }

    fn cures(&self, of: Of<'a>) -> Vec<Cured<'a>> {
        let Of::Device(device) = of else { return Vec::new() };
        let fitting = device.cures.iter().filter(|cure| cure.fits(self.facts, &self.seen));
        fitting.map(|cure| Cured { cure, there: cure.is_there(self.facts, &self.seen) }).collect()
    }
}

/// Drops the direction, so that reads and writes of an unknown address are one row.
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
