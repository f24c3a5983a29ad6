//! The next change to try, from the causes of the exits of the best configuration so far.

use std::collections::BTreeMap;

use advice::{Advice, Cure, Device, Facts, Of, Table, advise};
use domain::Definition;
use serde::Serialize;

use super::overlay::{definition_of, overlay};
use super::plan::{Advised, Candidate};
use super::recorded::{GUESTS, Recorded};
use super::step::{Best, empty};
use crate::factor::Level;
use guests::GuestPlan;

/// The device for which a change is advised, and the cost of its exits at that time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdvisedFor {
    /// The device, by its name in the table of `exitless advise`.
    pub device: String,
    /// The fix, by its name among those of the device.
    pub cure: String,
    /// Exits of the device a second.
    pub exits_per_second: f64,
    /// The time in which the host handled them, in percent of one CPU: the most that can be saved.
    pub host_cpu_percent: f64,
}

/// A fix that a tuning cannot make itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Left {
    /// The advice.
    pub advised: AdvisedFor,
    /// The device in words.
    pub device: String,
    /// The effect of the fix.
    pub does: String,
    /// The place where it must be made.
    pub by: LeftTo,
    /// The changes, a text for each place.
    pub changes: Vec<String>,
}

/// The place of a change that a tuning cannot make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftTo {
    /// In the guest.
    Guest,
    /// On the host.
    Host,
    /// In the definition, by someone who knows the purpose of the VM.
    Definition,
    /// It helps only Windows, and the guests run Linux.
    Windows,
}

/// The changes that were tried, so that none is tried twice.
#[derive(Debug, Default)]
pub(super) struct Tried {
    guests: Vec<GuestPlan>,
    names: Vec<String>,
}

impl Tried {
    pub(super) fn add(&mut self, change: &Candidate, after: Option<&Best>) {
        self.names.push(change.level.name.clone());
        self.guests.extend(after.map(|best| best.guests.clone()));
    }
}

/// The result of advice.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The change to try.
    pub(super) next: Option<(Candidate, AdvisedFor)>,
    /// Changes that must be made elsewhere.
    pub(super) left: Vec<Left>,
}

/// The highest-ranked change that the plan can express and that was not tried, and those that it cannot express.
///
/// # Errors
/// If the guests' definition or the table cannot be read.
pub(super) fn next(
    best: &Best,
    recorded: &Recorded,
    rules: &Advised,
    tried: &Tried,
) -> Result<Found, String> {
    let GuestPlan::Qemu(plan) = &best.guests else {
        return Err("Changes are advised for guests of kind \"qemu\" alone".to_owned());
    };
    let definition = definition_of(plan)?;
    let table = Table::load(exits::Hypervisor::Kvm).map_err(|error| error.to_string())?;
    let facts = BTreeMap::from([(GUESTS, Facts::of(&definition))]);
    let advice = advise(&table, &recorded.profile, recorded.observed_ns, &facts);
    let mut found = Found::default();
    for (device, cure, advised) in ranked(&advice, rules.worth) {
        let name = format!("{}-{}", advised.device, advised.cure);
        if tried.names.contains(&name) {
            continue;
        }
        match made(best, cure, &definition) {
            Some(guests) => {
                let why = format!(
                    "{:.0} exits a second are of the {} and take {:.1} % of a CPU. The change: {}.",
                    advised.exits_per_second, device.name, advised.host_cpu_percent, cure.does
                );
                let change = Candidate { why, level: Level { guests, ..empty(&name) } };
                let after = best.with(&change.level);
                let is_new = after.is_ok_and(|after| !tried.guests.contains(&after.guests));
                if is_new && found.next.is_none() {
                    found.next = Some((change, advised));
                }
            }
            None => found.left.push(left(device, cure, advised)),
        }
    }
    Ok(found)
}

/// The open fixes that save enough time, sorted by cost of the device, then by effect.
fn ranked<'a>(advice: &'a Advice<'a>, worth: f64) -> Vec<(&'a Device, &'a Cure, AdvisedFor)> {
    let observed = advice.observed_ns.max(1) as f64;
    let mut ranked = Vec::new();
    for row in advice.vms.iter().flat_map(|vm| &vm.rows) {
        let Of::Device(device) = row.of else { continue };
        let host_cpu_percent = row.at_most_ns() as f64 / observed * 100.0;
        if row.at_most_ns() == 0 || host_cpu_percent < worth {
            continue;
        }
        let mut cures: Vec<&Cure> = row.open().filter(|cure| cure.effect != advice::Effect::Stay).collect();
        cures.sort_by_key(|cure| cure.effect);
        ranked.extend(cures.into_iter().map(|cure| {
            let advised = AdvisedFor {
                device: device.id.clone(),
                cure: cure.id.clone(),
                exits_per_second: row.exits as f64 / observed * 1e9,
                host_cpu_percent,
            };
            (device, cure, advised)
        }));
    }
    ranked
}

/// The settings of guests that apply a fix, if the plan can express it and it changes the guests.
fn made(best: &Best, cure: &Cure, definition: &Definition) -> Option<toml::Table> {
    let GuestPlan::Qemu(plan) = &best.guests else { return None };
    // The guest image runs Linux.
    if cure.windows {
        return None;
    }
    let changes = cure.changes(definition);
    overlay(plan, &changes).ok().filter(|over| !over.is_empty())
}

fn left(device: &Device, cure: &Cure, advised: AdvisedFor) -> Left {
    let in_definition = cure.qemu.iter().map(|text| format!("QEMU: {text}"));
    let in_definition = in_definition.chain(cure.libvirt.iter().map(|text| format!("libvirt: {text}")));
    let guest = cure.guest.iter().map(|text| format!("guest: {text}"));
    let host = cure.host.iter().map(|text| format!("host: {text}"));
    let by = match () {
        () if cure.windows => LeftTo::Windows,
        () if cure.qemu.is_some() || cure.libvirt.is_some() => LeftTo::Definition,
        () if cure.guest.is_some() => LeftTo::Guest,
        () => LeftTo::Host,
    };
    Left {
        advised,
        device: device.name.clone(),
        does: cure.does.clone(),
        by,
        changes: in_definition.chain(guest).chain(host).collect(),
    }
}

#[cfg(test)]
#[path = "advised_tests.rs"]
mod tests;
