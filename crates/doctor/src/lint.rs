//! Rules over a VM's definition: settings that inhibit interrupt virtualization, and settings that cost
//! exits.
//!
//! A rule is a function and a row of a table. It judges a [`Definition`] by the [`HostSide`] on which the VM is to
//! run. Facts that are unknown there count as if the host had interrupt virtualization.

mod apic;
mod assigned;
#[cfg(test)]
mod cases;
mod cpu;
mod cpu_list;
mod disks;
mod enlightenments;
mod host_side;
mod interrupts;
mod legacy;
mod network;
mod placement;
mod rule;
mod subject;
mod timers;
mod topology;
mod vhost_user;
mod virtio;
mod xl;

pub use self::host_side::{HostSide, Technology};
pub use self::rule::{Group, Rule};
pub use self::topology::{Topology, highest_apic_id};

use crate::{Finding, Section, State};
use domain::{Accelerator, Definition, Form};

use self::subject::Subject;

/// The rules over QEMU's and libvirt's definitions, in the order of display.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    Group::ALL.iter().flat_map(|group| group.rules())
}

/// The rules over definitions in one form, in the order of display.
pub fn rules_of(form: Form) -> impl Iterator<Item = &'static Rule> {
    Group::of(form).iter().flat_map(|group| group.rules())
}

/// The findings of all rules for the definition's form, in the order of [`rules_of`].
#[must_use]
pub fn lint(definition: &Definition, host: &HostSide) -> Vec<Finding> {
    let subject = Subject { vm: definition, host };
    rules_of(definition.form).map(|rule| judge(rule, &subject)).collect()
}

/// The findings of [`lint`], with a section for each group of rules.
#[must_use]
pub fn lint_by_group(definition: &Definition, host: &HostSide) -> Vec<Section> {
    let subject = Subject { vm: definition, host };
    Group::of(definition.form)
        .iter()
        .map(|group| Section {
            name: group.name().to_owned(),
            title: group.title().to_owned(),
            form: Some(definition.form),
            findings: group.rules().iter().map(|rule| judge(rule, &subject)).collect(),
        })
        .collect()
}

fn judge(rule: &Rule, subject: &Subject<'_>) -> Finding {
    if let Some(why) = not_judged(subject.vm) {
        return rule.skipped(&why);
    }
    if rule.needs_kvm && !subject.is_kvm() {
        return rule.skipped("the VM does not run on KVM");
    }
    let verdict = (rule.check)(subject);
    rule.finding(if subject.catches_up_ticks() { verdict.without_split() } else { verdict })
}

/// The reason why the rules do not apply to a definition: it is for another architecture or hypervisor.
fn not_judged(definition: &Definition) -> Option<String> {
    if definition.form == Form::Xl {
        return None;
    }
    if let Some(other) = &definition.other_architecture {
        return Some(format!("the guest's architecture is {}, and the rules are for x86", other.value));
    }
    if let Some(why) = unread_machine(definition) {
        return Some(why);
    }
    let other = definition.machine.accelerator.as_ref()?;
    let judged = matches!(other.value, Accelerator::Kvm | Accelerator::Tcg);
    (!judged)
        .then(|| format!("the rules are for KVM, and the VM is for another hypervisor: {}", other.place.text))
}

/// The reason why the machine is unknown: no accelerator was found, and part of the definition was not read. Incus and LXD
/// have machine and accelerator only in the file of `-readconfig`.
pub(crate) fn unread_machine(definition: &Definition) -> Option<String> {
    let file = definition.unread_file.as_ref()?;
    let is_unset =
        definition.machine.accelerator.is_none() && definition.accelerator_in_force() == Accelerator::Tcg;
    is_unset.then(|| format!("{file}, which was not read, may set the machine"))
}

impl Rule {
    fn skipped(&self, why: &str) -> Finding {
        self.finding(rule::Verdict::of(State::Skip(why.to_owned()), ""))
    }
}

#[cfg(test)]
#[path = "lint/lint_tests.rs"]
mod tests;
