//! The plan of a tuning: a study's plan with candidate changes instead of factors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::step::{BEFORE, Best, TUNED, baseline, step};
use crate::factor::Level;
use crate::plan::{BadPlan, Plan, Problem};
use guests::{Accelerator, GuestPlan};

/// The changes that a tuning tries, its guests and its workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningPlan {
    /// The plan without the changes and factors.
    pub base: Plan,
    /// The rules of the decision.
    pub rules: Rules,
    /// The candidate changes, in this order.
    pub changes: Vec<Candidate>,
}

/// The rules of the decision to keep a change: `[tune]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Figures of which one must improve and none get worse; the main figure of each workload if none are
    /// named. If figures are named, no main figure may get worse either.
    pub judge: Vec<String>,
    /// All kept changes together are compared with the baseline at the end, if they were selected from several
    /// changes or by several figures.
    pub confirm: bool,
    /// If given, further changes are advised by the guests' exits, after those that the plan lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advised: Option<Advised>,
}

/// The limits of advice: `[tune.advised]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Advised {
    /// The most advised changes that are tried.
    pub steps: u32,
    /// Changes are tried for devices whose exits take at least this much of the host's time, in percent of
    /// one CPU.
    pub worth: f64,
}

impl Default for Advised {
    fn default() -> Self {
        Self { steps: 6, worth: 1.0 }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self { judge: Vec::new(), confirm: true, advised: None }
    }
}

/// A candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The reason why it may help, in a sentence.
    pub why: String,
    /// The change, as a level with the change's name.
    pub level: Level,
}

impl TuningPlan {
    /// Reads and checks a plan; `file` is its name in messages.
    ///
    /// # Errors
    /// Every problem with its field, or with its line if the text is not TOML.
    pub fn read(text: &str, file: &str) -> Result<Self, BadPlan> {
        let bad = |problems: Vec<Problem>| BadPlan { file: file.to_owned(), problems };
        let one = |field: &str, what: String| {
            bad(vec![Problem { line: None, field: field.to_owned(), what: what.replace('\n', "; ") }])
        };
        let mut table: Table = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| {
                1 + text.as_bytes()[..span.start.min(text.len())]
                    .iter()
                    .filter(|&&byte| byte == b'\n')
                    .count()
            });
            bad(vec![Problem { line, field: String::new(), what: error.message().replace('\n', "; ") }])
        })?;
        if table.contains_key("factors") {
            let what = "expected [[changes]], which are tried one after the other; a plan with factors is for `exitless \
                        experiment run`";
            return Err(one("factors", what.to_owned()));
        }
        let changes = table.remove("changes");
        let rules: Rules = match table.remove("tune") {
            Some(rules) => {
                rules.try_into().map_err(|error: toml::de::Error| one("tune", error.message().to_owned()))?
            }
            None => Rules::default(),
        };
        let changes = match changes {
            Some(toml::Value::Array(changes)) if !changes.is_empty() => changes,
            None if rules.advised.is_some() => Vec::new(),
            _ => {
                let what = "expected one [[changes]] table or more, or [tune.advised], found none";
                return Err(one("changes", what.to_owned()));
            }
        };
        table.insert("factors".to_owned(), toml::Value::Array(Vec::new()));
        let base: Plan = Plan::deserialize(table).map_err(|error| one("", error.message().to_owned()))?;
        let mut read = Vec::new();
        for (index, change) in changes.into_iter().enumerate() {
            let change = Candidate::read(change).map_err(|what| one(&format!("changes[{index}]"), what))?;
            read.push(change);
        }
        let plan = Self { base, rules, changes: read };
        let problems = plan.check();
        if problems.is_empty() { Ok(plan) } else { Err(bad(problems)) }
    }

    /// The most changes that are tried.
    pub(super) fn most_changes(&self) -> usize {
        self.changes.len() + self.rules.advised.as_ref().map_or(0, |advised| advised.steps as usize)
    }

    /// All problems that can be found without a machine. Each change is checked alone: conflicts with kept changes show
    /// only when it is tried.
    pub(super) fn check(&self) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        let mut add = |field: String, what: String| {
            let problem = Problem { line: None, field, what };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        };
        for problem in self.base.unknown_metrics("tune.judge", &self.rules.judge) {
            add(problem.field, problem.what);
        }
        for (field, what) in self.advice_problems() {
            add(field.to_owned(), what);
        }
        if self.changes.is_empty() {
            for problem in baseline(&self.base).check() {
                add(problem.field, problem.what);
            }
        }
        let best = Best::of(&self.base);
        for (index, change) in self.changes.iter().enumerate() {
            let at = format!("changes[{index}]");
            let name = &change.level.name;
            if change.why.trim().is_empty() {
                add(format!("{at}.why"), "expected a reason why it may help, found nothing".to_owned());
            }
            if [BEFORE, TUNED].contains(&name.as_str()) {
                add(
                    format!("{at}.name"),
                    format!("expected another name, because {name:?} is the other arm"),
                );
            }
            if self.changes[..index].iter().any(|other| other.level.name == *name) {
                add(
                    format!("{at}.name"),
                    format!("expected a name that no other change has, found {name:?} again"),
                );
            }
            match step(&self.base, &best, &change.level) {
                Err(what) => add(at, what),
                Ok(plan) => {
                    for problem in plan.check() {
                        let of_change = problem.field.starts_with("factors");
                        add(if of_change { at.clone() } else { problem.field }, problem.what);
                    }
                }
            }
        }
        problems
    }

    /// Problems with the requirements of advice: exits must be sampled with ports and addresses, and the guests need a
    /// definition that can be changed.
    fn advice_problems(&self) -> Vec<(&'static str, String)> {
        let Some(advised) = &self.rules.advised else { return Vec::new() };
        let mut problems = Vec::new();
        if !(1..=100).contains(&advised.steps) {
            problems.push(("tune.advised.steps", format!("expected 1 to 100, found {}", advised.steps)));
        }
        if !(advised.worth.is_finite() && advised.worth >= 0.0) {
            let what = format!("expected a percentage of one CPU, 0 or more, found {}", advised.worth);
            problems.push(("tune.advised.worth", what));
        }
        if !matches!(&self.base.guests, GuestPlan::Qemu(plan) if plan.accel == Accelerator::Kvm) {
            let what = "expected guests of kind \"qemu\" with accel = \"kvm\": of others no definition can be changed";
            problems.push(("tune.advised", what.to_owned()));
        }
        if !(self.base.samples.exits.is_on() && self.base.samples.accesses) {
            let what = "expected samples.exits and samples.accesses = true: without ports and addresses no device is known";
            problems.push(("tune.advised", what.to_owned()));
        }
        problems
    }
}

impl Candidate {
    /// Reads a level with a reason.
    fn read(value: toml::Value) -> Result<Self, String> {
        let toml::Value::Table(mut table) = value else {
            return Err(format!("expected a table, found {value}"));
        };
        let why = match table.remove("why") {
            Some(toml::Value::String(why)) => why,
            Some(other) => return Err(format!("why: expected a text, found {other}")),
            None => return Err("expected why, a sentence on why it may help".to_owned()),
        };
        let level = Level::deserialize(table).map_err(|error| error.message().to_owned())?;
        Ok(Self { why, level })
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
