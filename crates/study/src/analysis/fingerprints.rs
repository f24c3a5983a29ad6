//! Comparison of hosts and guests of runs: facts that must be equal, and facts that differ between arms.

use std::collections::{BTreeMap, BTreeSet};

use host::Fingerprint;
use serde::Serialize;

use super::facts::{Arm, StoredRun};

/// A fact in which runs differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unlike {
    /// Its dotted name, as in a host's fingerprint; a guest's facts begin with `guest.`.
    pub field: String,
    /// Its values, in the order of runs; `None` if unknown.
    pub values: Vec<Option<String>>,
}

/// A fact that differs with the arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArmFact {
    /// Its dotted name.
    pub field: String,
    /// Its value in each arm, in the order of arms.
    pub values: Vec<Option<String>>,
}

/// The comparison of a study's fingerprints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Likeness {
    /// Facts that differ among runs of one arm: the runs are not repeats of each other.
    pub(super) unlike: Vec<Unlike>,
    /// Facts that are the same in all runs of an arm and differ between arms: changed by the factor, or
    /// together with it.
    pub(super) of_arms: Vec<ArmFact>,
}

/// Compares the hosts and guests of all runs.
pub(super) fn likeness(runs: &[StoredRun], arms: &[Arm]) -> Likeness {
    let mut by_field: BTreeMap<String, BTreeMap<usize, Vec<Option<String>>>> = BTreeMap::new();
    let facts: Vec<(usize, BTreeMap<String, String>)> = runs
        .iter()
        .filter_map(|stored| {
            let arm = arms.iter().position(|arm| arm.levels == stored.run.cell.arm)?;
            Some((arm, facts(stored)))
        })
        .collect();
    let fields: BTreeSet<&String> = facts.iter().flat_map(|(_, facts)| facts.keys()).collect();
    for field in fields {
        for (arm, facts) in &facts {
            // Runs with fewer guests have fewer facts, which is not a difference.
            if field.starts_with("guest.") && !facts.contains_key(field) {
                continue;
            }
            let values = by_field.entry(field.clone()).or_default().entry(*arm).or_default();
            let value = facts.get(field).cloned();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    let mut likeness = Likeness::default();
    for (field, of_arms) in by_field {
        if let Some(values) = of_arms.values().find(|values| values.len() > 1) {
            likeness.unlike.push(Unlike { field, values: values.clone() });
            continue;
        }
        let values: Vec<Option<String>> = (0..arms.len())
            .map(|arm| of_arms.get(&arm).and_then(|values| values.first().cloned()).flatten())
            .collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            likeness.of_arms.push(ArmFact { field, values });
        }
    }
    likeness
}

/// The differences between two hosts and their guests, from the first run of each arm and number of guests that both
/// have. Facts may differ between arms, and runs with fewer guests have fewer.
pub(super) fn between(before: &[StoredRun], after: &[StoredRun]) -> Vec<Unlike> {
    type First<'a> = BTreeMap<(&'a BTreeMap<String, String>, u32), &'a StoredRun>;
    fn first(runs: &[StoredRun]) -> First<'_> {
        let each = runs.iter().rev();
        each.map(|stored| ((&stored.run.cell.arm, stored.run.cell.guests), stored)).collect()
    }
    let (before, after) = (first(before), first(after));
    let mut unlike: BTreeMap<String, Unlike> = BTreeMap::new();
    for (before, after) in before.iter().filter_map(|(place, before)| Some((before, after.get(place)?))) {
        let (before, after) = (facts(before), facts(after));
        for field in before.keys().chain(after.keys()) {
            let values = [&before, &after].map(|facts| facts.get(field).cloned());
            if values[0] != values[1] {
                let differs = || Unlike { field: field.clone(), values: values.to_vec() };
                unlike.entry(field.clone()).or_insert_with(differs);
            }
        }
    }
    unlike.into_values().collect()
}

/// All facts of a run's host and guests by name.
fn facts(stored: &StoredRun) -> BTreeMap<String, String> {
    // All fields that are known differ from the default fingerprint.
    let host = Fingerprint::default().differences(&stored.run.fingerprint);
    let host = host.into_iter().filter_map(|(field, _, value)| Some((field, value?)));
    let guests = stored.run.guest_facts.iter().enumerate().flat_map(|(number, facts)| {
        facts.iter().map(move |(name, value)| (format!("guest.{number}.{name}"), value.clone()))
    });
    host.chain(guests).collect()
}
