//! Suites: several studies, each shown beside figures that others have published.

mod outcome;

pub use outcome::{
    Agreement, FigureOutcome, MadeStudy, Measured, SUITE_FORMAT, StudyOutcome, SuiteFolder, SuiteOutcome,
    outcome, read,
};

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::plan::{Arm, BadPlan, Plan, Problem, Shipped, Until, from_toml, not_a_name};
use crate::target::Target;

/// A suite as one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Short name, in lower-case letters, digits and hyphens.
    pub name: String,
    /// Its subject in one line.
    pub title: String,
    /// The studies, in the order in which they are made.
    pub studies: Vec<SuiteStudy>,
}

/// A study of a suite: a shipped plan on one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteStudy {
    /// Its name, and that of its folder in the result.
    pub name: String,
    /// The shipped plan.
    pub plan: String,
    /// The target, as in `experiment run --target`.
    pub target: String,
    /// The number of blocks in place of the plan's.
    pub repeats: Option<u32>,
    /// The stop rule in place of the plan's.
    pub until: Option<Until>,
    /// Settings of the guests that are merged over the plan's, as in a level of a factor.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub guests: toml::Table,
    /// An earlier study of the suite with the same plan and guests; the figures are then changes from that study to
    /// this one.
    pub against: Option<String>,
    /// The publication: author, title, year.
    #[serde(default)]
    pub source: String,
    /// The published setup.
    #[serde(default)]
    pub setup: String,
    /// Reasons why the figures may differ.
    #[serde(default)]
    pub differs: String,
    /// The figures.
    #[serde(default)]
    pub figures: Vec<Published>,
}

/// A published figure, and the one of the study that it is compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The figure in words.
    pub figure: String,
    /// The study's workload.
    pub workload: String,
    /// The study's metric.
    pub metric: String,
    /// The number of guests. If not given, the change over all numbers, which studies with `against` do not have.
    pub guests: Option<u32>,
    /// The arm. May be omitted if only one differs from the baseline, or without factors.
    #[serde(default)]
    pub arm: BTreeMap<String, String>,
    /// The published change in percent of the baseline, or in points for percentages: one value, or the lowest and the
    /// highest. Empty if there is no published value.
    #[serde(default)]
    pub published: Vec<f64>,
}

/// A suite that is built into the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShippedSuite {
    /// Its name.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

/// All shipped suites.
pub const SUITES: [ShippedSuite; 2] = [
    ShippedSuite { name: "seeds", text: include_str!("../../../plans/suites/seeds.toml") },
    ShippedSuite { name: "switch-cost", text: include_str!("../../../plans/suites/switch-cost.toml") },
];

impl ShippedSuite {
    /// The suite with this name.
    pub fn find(name: &str) -> Option<Self> {
        SUITES.into_iter().find(|suite| suite.name == name)
    }

    /// Parses the suite.
    ///
    /// # Errors
    /// None for those in [`SUITES`], which a test reads.
    pub fn suite(self) -> Result<Suite, BadPlan> {
        Suite::read(self.text, self.name)
    }
}

impl Suite {
    /// Reads and checks a suite; `file` is its name in messages.
    ///
    /// # Errors
    /// Every problem with its field and the expectation; only the first one if the text is not TOML or a value
    /// has the wrong type.
    pub fn read(text: &str, file: &str) -> Result<Self, BadPlan> {
        let bad = |problems| BadPlan { file: file.to_owned(), problems };
        let suite: Self = from_toml(text).map_err(|problem| bad(vec![problem]))?;
        let problems = suite.check();
        if problems.is_empty() { Ok(suite) } else { Err(bad(problems)) }
    }

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |field: String, what: String| problems.push(Problem { line: None, field, what });
        let mut earlier: BTreeMap<&str, &SuiteStudy> = BTreeMap::new();
        // It becomes part of the result's folder and of a comment in each study's plan.
        if let Some(what) = not_a_name(&self.name) {
            add("name".to_owned(), what);
        }
        if self.studies.is_empty() {
            add("studies".to_owned(), "expected at least one, found none".to_owned());
        }
        for (index, study) in self.studies.iter().enumerate() {
            let at = |field: &str| format!("studies[{index}].{field}");
            if let Some(what) = not_a_name(&study.name) {
                add(at("name"), what);
            }
            if earlier.insert(&study.name, study).is_some() {
                add(at("name"), format!("expected another name, found a second {:?}", study.name));
            }
            if let Err(error) = study.target.parse::<Target>() {
                add(at("target"), error.to_string());
            }
            if let Some(name) = &study.against {
                match earlier.get(name.as_str()) {
                    Some(other)
                        if *name != study.name
                            && (&other.plan, &other.guests) == (&study.plan, &study.guests) => {}
                    _ => add(
                        at("against"),
                        format!(
                            "expected an earlier study with the plan {:?} and the same guests, found {name:?}",
                            study.plan
                        ),
                    ),
                }
            }
            match study.plan() {
                Ok(plan) => study.check_figures(&plan, &mut |number, field, what| {
                    add(at(&format!("figures[{number}].{field}")), what);
                }),
                Err(what) => add(at("plan"), what),
            }
        }
        problems
    }
}

impl SuiteStudy {
    /// The plan, with the suite's repeats, stop rule and guests.
    ///
    /// # Errors
    /// As text, if no shipped plan has this name, or the stop rule or the guests are not valid.
    pub fn plan(&self) -> Result<Plan, String> {
        let shipped = Shipped::find(&self.plan)
            .ok_or_else(|| format!("expected the name of a shipped plan, found {:?}", self.plan))?;
        let mut plan = shipped.plan().map_err(|bad| bad.to_string())?;
        if let Some(repeats) = self.repeats {
            plan.order.repeats = repeats;
        }
        if self.until.is_some() {
            plan.order.until.clone_from(&self.until);
        }
        if !self.guests.is_empty() {
            let merged = plan.guests.with([&self.guests]);
            plan.guests = merged.map_err(|error| format!("guests: {}", error.to_string().trim_end()))?;
        }
        let problems = plan.check();
        match problems.first() {
            None => Ok(plan),
            Some(problem) => Err(format!("{}: {}", problem.field, problem.what)),
        }
    }

    fn check_figures(&self, plan: &Plan, add: &mut impl FnMut(usize, &str, String)) {
        let workloads: BTreeSet<&str> =
            plan.workloads.iter().map(|workload| workload.name.as_str()).collect();
        let arms = plan.arms();
        for (number, figure) in self.figures.iter().enumerate() {
            if !workloads.contains(figure.workload.as_str()) {
                let names: Vec<&str> = workloads.iter().copied().collect();
                let what = format!("expected one of {}, found {:?}", names.join(", "), figure.workload);
                add(number, "workload", what);
            }
            let fits = arms.iter().filter(|arm| is_part(&figure.arm, &plan.arm_names(arm)));
            let fitting: Vec<&Arm> =
                fits.filter(|arm| self.against.is_some() || !plan.is_baseline(arm)).collect();
            let others = fitting.len();
            if others != 1 {
                add(number, "arm", format!("expected levels of one arm, found levels of {others}"));
            }
            let numbers: BTreeSet<u32> = fitting.iter().flat_map(|arm| plan.counts_of(arm)).collect();
            if let Some(guests) = figure.guests.filter(|guests| others == 1 && !numbers.contains(guests)) {
                add(number, "guests", format!("expected one of {numbers:?}, found {guests}"));
            }
            for problem in plan.unknown_metrics("metric", std::slice::from_ref(&figure.metric)) {
                add(number, "metric", problem.what);
            }
            if self.against.is_some() && figure.guests.is_none() && numbers.len() > 1 {
                let what =
                    format!("expected one of {numbers:?}, as `against` compares each by itself, found none");
                add(number, "guests", what);
            }
            if figure.published.len() > 2 || figure.published.iter().any(|value| !value.is_finite()) {
                add(number, "published", "expected a value, or the lowest and the highest".to_owned());
            }
        }
    }
}

/// Tests whether an arm has all these levels.
fn is_part(levels: &BTreeMap<String, String>, arm: &BTreeMap<String, String>) -> bool {
    levels.iter().all(|(factor, level)| arm.get(factor) == Some(level))
}

#[cfg(test)]
#[path = "suite/suite_tests.rs"]
mod tests;
