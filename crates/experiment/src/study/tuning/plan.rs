//! The plan of a tuning: a study's, with candidate changes in the place of factors.

use serde::{Deserialize, Serialize};
use toml::Table;

use super::step::{Best, step};
use crate::study::factor::Level;
use crate::study::plan::{BadPlan, Plan, Problem};

/// What a tuning tries, on which guests, under which loads.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningPlan {
    /// Everything but the changes; without factors.
    pub base: Plan,
    /// What decides.
    pub rules: Rules,
    /// What is tried, in this order.
    pub changes: Vec<Change>,
}

/// What decides whether a change is kept: `[tune]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// Figures of which one must get better, and none worse; the main figure of each workload if none are named. Where
    /// figures are named, no main figure may get worse either.
    pub judge: Vec<String>,
    /// Whether all kept changes together are measured against the baseline at the end, where there are two or more.
    pub confirm: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { judge: Vec::new(), confirm: true }
    }
}

/// A candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Why it may help, in a sentence.
    pub why: String,
    /// What it changes; its name is the change's.
    pub level: Level,
}

impl TuningPlan {
    /// Reads and checks a plan; `file` is how messages name it.
    ///
    /// # Errors
    /// Every problem with its field; with its line where the text is no TOML.
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
        let changes = match table.remove("changes") {
            Some(toml::Value::Array(changes)) if !changes.is_empty() => changes,
            _ => return Err(one("changes", "expected one [[changes]] table or more, found none".to_owned())),
        };
        let rules = match table.remove("tune") {
            Some(rules) => {
                rules.try_into().map_err(|error: toml::de::Error| one("tune", error.message().to_owned()))?
            }
            None => Rules::default(),
        };
        table.insert("factors".to_owned(), toml::Value::Array(Vec::new()));
        let base: Plan = Plan::deserialize(table).map_err(|error| one("", error.message().to_owned()))?;
        let mut read = Vec::new();
        for (index, change) in changes.into_iter().enumerate() {
            let change = Change::read(change).map_err(|what| one(&format!("changes[{index}]"), what))?;
            read.push(change);
        }
        let plan = Self { base, rules, changes: read };
        let problems = plan.check();
        if problems.is_empty() { Ok(plan) } else { Err(bad(problems)) }
    }

    /// Everything that can be known to be wrong without a machine. Each change is looked at alone: whether it goes with
    /// those kept before it is known when it is its turn.
    fn check(&self) -> Vec<Problem> {
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
        let best = Best::of(&self.base);
        for (index, change) in self.changes.iter().enumerate() {
            let at = format!("changes[{index}]");
            let name = &change.level.name;
            if change.why.trim().is_empty() {
                add(format!("{at}.why"), "expected why it may help, found nothing".to_owned());
            }
            if [super::BEFORE, super::TUNED].contains(&name.as_str()) {
                add(
                    format!("{at}.name"),
                    format!("expected another name, for {name:?} is the arm beside it"),
                );
            }
            if self.changes[..index].iter().any(|other| other.level.name == *name) {
                add(
                    format!("{at}.name"),
                    format!("expected a name that no other one of the changes has, found {name:?} again"),
                );
            }
            match step(self, &best, change) {
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
}

impl Change {
    /// A level with a reason beside it.
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
