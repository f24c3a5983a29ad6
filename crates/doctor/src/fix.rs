//! Fixes a VM's definition: selects the changes that rules ask for, applies them to the text, and lists the
//! remaining findings.

use crate::lint::{self, HostSide, Rule};
use crate::{Finding, Fix, Section, State};
use domain::{Definition, DefinitionChange, Edited, Error, FeatureState, Files, Form, Refusal, Text};
use serde::{Deserialize, Serialize};
use std::mem::discriminant;

/// The rules whose changes are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// Rules whose changes neither need a change in the guest nor prevent migration.
    Safe,
    /// All rules.
    All,
    /// Only these rules.
    Rules(Vec<String>),
}

/// There is no rule with this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("No rule is called {name:?}; the rules are {}", names())]
pub struct UnknownRule {
    name: String,
}

fn names() -> String {
    lint::rules().map(|rule| rule.name).collect::<Vec<_>>().join(", ")
}

impl Chosen {
    /// The rules with these names; [`Chosen::Safe`] if there are no names.
    ///
    /// # Errors
    ///
    /// The first name that no rule has.
    pub fn rules(names: &[String]) -> Result<Self, UnknownRule> {
        match names.iter().find(|name| !lint::rules().any(|rule| rule.name == name.as_str())) {
            Some(name) => Err(UnknownRule { name: name.clone() }),
            None if names.is_empty() => Ok(Self::Safe),
            None => Ok(Self::Rules(names.to_vec())),
        }
    }

    fn takes(&self, rule: &Rule) -> bool {
        match self {
            Self::Safe => !rule.guest_follows,
            Self::All => true,
            Self::Rules(names) => names.iter().any(|name| name == rule.name),
        }
    }
}

/// The changes that a rule asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChanges {
    /// The rule.
    pub rule: String,
    /// Its changes, including those that another rule asked for first.
    pub changes: Vec<DefinitionChange>,
}

/// The reason why a finding is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// The change needs a change in the guest, so its rule must be named.
    GuestFollows,
    /// The change prevents migration, so its rule must be named.
    PreventsMigration,
    /// Its rule was not named.
    NotNamed,
    /// No change of the definition fixes it; people must.
    Advice,
    /// It contradicts an earlier change.
    Contradicts,
}

/// A finding that is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFinding {
    /// Its rule.
    pub rule: String,
    /// Why.
    pub why: Left,
}

/// The changes that fix findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The changes, each once.
    pub changes: Vec<DefinitionChange>,
    /// The rules with the changes that each asks for.
    pub rules: Vec<RuleChanges>,
    /// The findings that are left.
    pub left: Vec<LeftFinding>,
}

impl Plan {
    /// Selects the changes for findings. Of alternative fixes the first one is taken, or none if the first one is for
    /// people.
    #[must_use]
    pub fn of(findings: &[Finding], chosen: &Chosen) -> Self {
        let mut plan = Self::default();
        for finding in findings.iter().filter(|one| matches!(one.state, State::Warn | State::Fail)) {
            let rule = lint::rules().find(|rule| rule.name == finding.rule);
            let why = match (&finding.fixes.first(), rule) {
                (Some(Fix::Definition(changes)), Some(rule)) if !chosen.takes(rule) => match chosen {
                    Chosen::Safe if prevents_migration(changes) => Left::PreventsMigration,
                    Chosen::Safe => Left::GuestFollows,
                    _ => Left::NotNamed,
                },
                (Some(Fix::Definition(changes)), Some(_)) => {
                    if plan.take(&finding.rule, changes) {
                        continue;
                    }
                    Left::Contradicts
                }
                _ => Left::Advice,
            };
            plan.left.push(LeftFinding { rule: finding.rule.clone(), why });
        }
        plan
    }

    /// Adds all of a rule's changes, or none if one contradicts an earlier change.
    fn take(&mut self, rule: &str, changes: &[DefinitionChange]) -> bool {
        if changes.iter().any(|new| self.changes.iter().any(|old| old != new && same_thing(old, new))) {
            return false;
        }
        let new = changes.iter().filter(|change| !self.changes.contains(change)).cloned();
        let new: Vec<_> = new.collect();
        self.changes.extend(new);
        self.rules.push(RuleChanges { rule: rule.to_owned(), changes: changes.to_vec() });
        true
    }

    /// Drops the rules of which a change of the machine or the CPU was refused: the rest would make another machine without
    /// a fix. Changes of devices are independent of each other. Returns true if there was such a rule.
    fn drop_halves(&mut self, refused: &[Refusal]) -> bool {
        let is_half = |rule: &RuleChanges| {
            let mut lost =
                refused.iter().map(|refusal| &refusal.change).filter(|change| !is_of_device(change));
            lost.any(|change| rule.changes.contains(change))
        };
        let all = self.rules.len();
        self.rules.retain(|rule| !is_half(rule));
        let asked = |change: &DefinitionChange| self.rules.iter().any(|rule| rule.changes.contains(change));
        self.changes.retain(asked);
        self.rules.len() < all
    }
}

/// Tests whether QEMU does not migrate a VM with these changes (`kvm_arch_init_vcpu` in `target/i386/kvm/kvm.c`).
fn prevents_migration(changes: &[DefinitionChange]) -> bool {
    let invtsc = DefinitionChange::CpuFeature("invtsc".to_owned(), FeatureState::On);
    changes.contains(&invtsc)
}

fn is_of_device(change: &DefinitionChange) -> bool {
    matches!(
        change,
        DefinitionChange::DeviceModel { .. }
            | DefinitionChange::Vhost { .. }
            | DefinitionChange::Queues { .. }
            | DefinitionChange::IoThread { .. }
            | DefinitionChange::Reconnect { .. }
            | DefinitionChange::Aio { .. }
    )
}

/// Tests whether two changes concern the same thing.
fn same_thing(one: &DefinitionChange, other: &DefinitionChange) -> bool {
    let part = |change: &DefinitionChange| match change {
        DefinitionChange::CpuFeature(name, _) | DefinitionChange::HyperV(name, _) => (name.clone(), 0),
        DefinitionChange::DeviceModel { device, .. }
        | DefinitionChange::Vhost { device, .. }
        | DefinitionChange::Queues { device, .. }
        | DefinitionChange::IoThread { device, .. }
        | DefinitionChange::Reconnect { device }
        | DefinitionChange::Aio { device, .. } => (String::new(), *device),
        _ => (String::new(), 0),
    };
    discriminant(one) == discriminant(other) && part(one) == part(other)
}

/// The result of fixing a definition's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// The findings in the old text, by group of rules.
    pub before: Vec<Section>,
    /// The changes that were made.
    pub plan: Plan,
    /// The new text; equal to the old one if nothing changed.
    pub bytes: Vec<u8>,
    /// Notes on the changes: whole sentences.
    pub notes: Vec<String>,
    /// Changes that cannot be expressed in the text.
    pub refused: Vec<Refusal>,
    /// The findings in the new text.
    pub after: Vec<Section>,
}

/// The largest number of rounds. A change may make another rule fire (a new virtio interface needs queues), so the
/// rules run again; the limit stops rules that undo each other's changes.
const ROUNDS: usize = 4;

/// Reads a text in this form.
///
/// # Errors
///
/// Those of [`domain::qemu::read`] and [`domain::libvirt::read`]; an error for other forms.
pub fn read(text: &Text, form: Form, files: &dyn Files) -> Result<Definition, Error> {
    match form {
        Form::Qemu => domain::qemu::read(text, files),
        Form::Libvirt => domain::libvirt::read(text, files),
        other => Err(unread(text, other)),
    }
}

/// Fixes a definition in a text.
///
/// # Errors
///
/// Those of [`read`].
pub fn fix(
    text: &Text,
    form: Form,
    files: &dyn Files,
    host: &HostSide,
    chosen: &Chosen,
) -> Result<Fixed, Error> {
    let before = lint::lint_by_group(&read(text, form, files)?, host);
    let mut fixed = Fixed {
        after: before.clone(),
        before,
        plan: Plan::default(),
        bytes: text.bytes.clone(),
        notes: Vec::new(),
        refused: Vec::new(),
    };
    for _ in 0..ROUNDS {
        let findings = fixed.after.iter().flat_map(|section| &section.findings);
        let mut plan = Plan::of(&findings.cloned().collect::<Vec<_>>(), chosen);
        fixed.plan.left.clone_from(&plan.left);
        let text = Text::new(text.name.clone(), fixed.bytes.clone());
        let apply = |changes: &[DefinitionChange]| match form {
            Form::Qemu => domain::qemu::apply_with(&text, files, changes),
            Form::Libvirt => domain::libvirt::apply(&text, changes),
            other => Err(unread(&text, other)),
        };
        let mut edited = apply(&plan.changes)?;
        while plan.drop_halves(&edited.refused) {
            let mut refused = edited.refused;
            // The others are tried again.
            refused.retain(|refusal| !plan.changes.contains(&refusal.change));
            edited = apply(&plan.changes)?;
            refused.append(&mut edited.refused);
            edited.refused = refused;
        }
        let same = edited.bytes == fixed.bytes;
        fixed.refused.clone_from(&edited.refused);
        if same {
            break;
        }
        fixed.take(plan, edited);
        let text = Text::new(text.name, fixed.bytes.clone());
        fixed.after = lint::lint_by_group(&read(&text, form, files)?, host);
    }
    Ok(fixed)
}

impl Fixed {
    fn take(&mut self, plan: Plan, edited: Edited) {
        let made =
            |change: &DefinitionChange| !edited.refused.iter().any(|refusal| refusal.change == *change);
        self.plan.changes.extend(plan.changes.iter().filter(|change| made(change)).cloned());
        for rule in plan.rules.into_iter().filter(|rule| rule.changes.iter().any(made)) {
            if !self.plan.rules.contains(&rule) {
                self.plan.rules.push(rule);
            }
        }
        let new = edited.notes.into_iter().filter(|note| !self.notes.contains(note));
        let new: Vec<_> = new.collect();
        self.notes.extend(new);
        self.bytes = edited.bytes;
    }
}

fn unread(text: &Text, form: Form) -> Error {
    Error::new(
        text.name.clone(),
        format!("its form, {form:?}, is neither QEMU's nor libvirt's"),
        "Name a QEMU command line or libvirt's XML",
    )
}

#[cfg(test)]
#[path = "fix_tests.rs"]
mod tests;
