//! One step as a study: the best configuration so far, without and with one more change.

use serde::Deserialize as _;

use crate::factor::{Inhibit, Level};
use crate::plan::{Factor, Plan};
use guests::{GuestPlan, merged};

/// The name of the arm that a change is compared with.
pub(super) const BEFORE: &str = "before";
/// The name of the arm of all kept changes, when they are compared with the baseline.
pub(super) const TUNED: &str = "tuned";
/// The name of the factor of each step.
pub(super) const FACTOR: &str = "change";

/// The best configuration so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Best {
    /// The guests with the kept changes.
    pub guests: GuestPlan,
    /// The host's settings of all kept changes.
    pub host: Level,
}

impl Best {
    /// The baseline.
    #[must_use]
    pub(super) fn of(base: &Plan) -> Self {
        Self { guests: base.guests.clone(), host: empty(BEFORE) }
    }

    /// The configuration with one more change. An earlier `inhibit` is in force until a change gives the guests other
    /// values of its settings, or sets the module's switch to another value than on.
    ///
    /// # Errors
    /// If the guests or the host's settings are not valid with it.
    pub(super) fn with(&self, change: &Level) -> Result<Self, String> {
        let over = change.guest_settings();
        let base = toml::Table::try_from(&self.guests).map_err(|error| error.to_string())?;
        let after = merged(&base, [&over]);
        let stays = |way: &Inhibit| {
            way.guest_settings().keys().all(|key| after.get(key) == base.get(key))
                && change.module_switch().is_none_or(|value| value.is("Y"))
        };
        let inhibit = change.inhibit.or(self.host.inhibit.filter(stays));
        let guests = GuestPlan::deserialize(after).map_err(|error| error.message().replace('\n', "; "))?;
        if let Some(problem) = guests.problems().into_iter().next() {
            return Err(problem);
        }
        Ok(Self { guests, host: Level { inhibit, ..both(&self.host, change)? } })
    }

    /// A level with all settings of the guests, so that it does not depend on those of the plan.
    fn level(&self, name: &str) -> Result<Level, String> {
        let guests = toml::Table::try_from(&self.guests).map_err(|error| error.to_string())?;
        Ok(Level { name: name.to_owned(), guests, ..self.host.clone() })
    }
}

/// The study of one more change of the best configuration so far.
///
/// # Errors
/// If the change conflicts with earlier ones.
pub(super) fn step(base: &Plan, best: &Best, change: &Level) -> Result<Plan, String> {
    let after = best.with(change)?;
    study(base, best, after.level(&change.name)?, &change.name)
}

/// The study of all kept changes together against the baseline.
///
/// # Errors
/// If the guests cannot be converted to a table.
pub(super) fn confirmation(base: &Plan, best: &Best) -> Result<Plan, String> {
    study(base, &Best::of(base), best.level(TUNED)?, TUNED)
}

/// A study of the baseline alone, with one run of each workload, for the exits that advice needs before the first
/// comparison.
pub(super) fn baseline(base: &Plan) -> Plan {
    let mut study = base.clone();
    study.title = format!("{}: baseline", study.title);
    study.order.repeats = 1;
    study.order.warm_up = 0;
    study.order.until = None;
    study.factors =
        vec![Factor { name: FACTOR.to_owned(), baseline: BEFORE.to_owned(), levels: vec![empty(BEFORE)] }];
    study
}

fn study(base: &Plan, before: &Best, after: Level, name: &str) -> Result<Plan, String> {
    // The study's guests are those of the first arm. Its level needs `guests` only to override those of `inhibit`.
    let first = match before.host.inhibit {
        Some(_) => before.level(BEFORE)?,
        None => Level { name: BEFORE.to_owned(), ..before.host.clone() },
    };
    let mut study = base.clone();
    study.title = format!("{}: {name}", study.title);
    study.guests = before.guests.clone();
    study.factors =
        vec![Factor { name: FACTOR.to_owned(), baseline: BEFORE.to_owned(), levels: vec![first, after] }];
    Ok(study)
}

/// A level without changes.
pub(super) fn empty(name: &str) -> Level {
    Level {
        name: name.to_owned(),
        module_parameters: Default::default(),
        files: Default::default(),
        kernel_settings: Default::default(),
        frequency: None,
        commands: Vec::new(),
        interrupt_virtualization: None,
        inhibit: None,
        guests: toml::Table::new(),
    }
}

/// The host's settings of both levels, the second overriding the first.
///
/// # Errors
/// If both set frequencies that do not go together.
fn both(first: &Level, second: &Level) -> Result<Level, String> {
    let mut level = first.clone();
    for (module, parameters) in &second.module_parameters {
        level.module_parameters.entry(module.clone()).or_default().extend(parameters.clone());
    }
    level.files.extend(second.files.clone());
    level.kernel_settings.extend(second.kernel_settings.clone());
    level.commands.extend(second.commands.iter().cloned());
    level.frequency = match (&second.frequency, level.frequency) {
        (Some(later), Some(earlier)) => {
            let frequency = Some(later.over(&earlier)?);
            let together = Level { frequency: frequency.clone(), ..empty(&second.name) };
            together.check().map_err(|bad| bad.to_string())?;
            frequency
        }
        (later, earlier) => later.clone().or(earlier),
    };
    level.interrupt_virtualization = second.interrupt_virtualization.or(level.interrupt_virtualization);
    Ok(level)
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
