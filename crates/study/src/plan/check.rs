//! Checks of a plan beyond the types of its fields.

use std::collections::HashSet;

use super::order::{MOST_BLOCKS, MOST_RUNS};
use super::{Factor, LEAST_FOR_WIDTH, Plan, Problem, Until};
use crate::sampling::{SAMPLED, is_sampled};
use crate::workload::{MetricDescription, Place, Scene, exits_of_which_work};
use guests::GuestPlan;

const MOST_ARMS: usize = 256;
const LONGEST_NAME: usize = 48;
/// The largest seed: programs that store numbers as 64-bit floating point could not represent a larger one.
const LARGEST_SEED: u64 = (1 << 53) - 1;

impl Plan {
    /// All faults that can be found without a machine.
    pub fn check(&self) -> Vec<Problem> {
        let mut found = Found::default();
        found.name("name", &self.name);
        found.text("title", &self.title);
        found.text("question", &self.question);
        self.check_order(&mut found);
        self.check_factors(&mut found);
        self.check_workloads(&mut found);
        for problem in self.guests.problems() {
            found.add("guests", problem);
        }
        if let Err(bad) = self.samples.check() {
            found.add("samples", bad.to_string());
        }
        self.check_arms(&mut found);
        found.problems
    }

    /// Factors with only one level. This is an error in a file, but not in general: the baseline of a tuning is a study
    /// of one arm.
    pub(super) fn check_choices(&self) -> Vec<Problem> {
        let mut found = Found::default();
        for (index, factor) in self.factors.iter().enumerate().filter(|(_, factor)| factor.levels.len() == 1)
        {
            let what = format!("expected at least two levels, found {}", factor.levels.len());
            found.add(&format!("factors[{index}].levels"), what);
        }
        found.problems
    }

    fn check_order(&self, found: &mut Found) {
        let order = &self.order;
        found.within("order.repeats", order.repeats, 1, MOST_BLOCKS);
        found.within("order.warm_up", order.warm_up, 0, 100);
        found.within("order.attempts", order.attempts, 1, 20);
        if let Some(seed) = order.seed.filter(|&seed| seed > LARGEST_SEED) {
            found.add("order.seed", format!("expected a number up to {LARGEST_SEED}, found {seed}"));
        }
        if let Some(until) = &order.until {
            check_until(until, order.repeats, found);
            self.check_metrics("order.until.metrics", &until.metrics, found);
            self.check_default(until, found);
        }
    }

    /// The problems of figures' names, as used in findings, in a list that `field` names.
    pub(crate) fn unknown_metrics(&self, field: &str, names: &[String]) -> Vec<Problem> {
        let mut found = Found::default();
        self.check_metrics(field, names, &mut found);
        found.problems
    }

    /// Checks that runs can have the figures: the interval of a figure that no run has would never become narrow
    /// enough.
    fn check_metrics(&self, field: &str, names: &[String], found: &mut Found) {
        // Exits for each unit of work are derived from other figures.
        let is_of_work = |name: &str, known: &[MetricDescription]| {
            let unit = exits_of_which_work(name).map(|(unit, _)| unit.metric());
            unit.is_some_and(|metric| known.iter().any(|known| known.name == metric))
        };
        let of_workloads = self.described();
        for (index, name) in names.iter().enumerate() {
            let is_known = is_sampled(name) || of_workloads.iter().any(|known| known.covers(name));
            if is_known || is_of_work(name, &of_workloads) {
                continue;
            }
            let mut known: Vec<&str> = of_workloads.iter().map(|known| known.name.as_str()).collect();
            known.sort_unstable();
            known.dedup();
            let what = format!(
                "expected a figure of the workloads ({}) or of the host ({}), found {name:?}",
                known.join(", "),
                SAMPLED.join(", ")
            );
            found.add(&format!("{field}[{index}]"), what);
        }
    }

    /// The figures of the valid workloads.
    fn described(&self) -> Vec<MetricDescription> {
        let valid = self.workloads.iter().filter(|workload| workload.check().is_ok());
        valid.flat_map(|workload| workload.metrics()).collect()
    }

    /// Checks that the stop rule has figures if it names none.
    fn check_default(&self, until: &Until, found: &mut Found) {
        let known = self.described();
        let has_speed = known.iter().any(|figure| figure.unit.is_of_speed(figure.better));
        if until.interval_percent.is_some() && until.metrics.is_empty() && !known.is_empty() && !has_speed {
            let what =
                "expected names of figures, because no workload has a throughput or a latency, found none";
            found.add("order.until.metrics", what.to_owned());
        }
    }

    fn check_factors(&self, found: &mut Found) {
        if self.factors.is_empty() {
            found.add("factors", "expected one [[factors]] table or more, found none".to_owned());
        }
        found.distinct("factors", self.factors.iter().map(|factor| factor.name.as_str()));
        for (index, factor) in self.factors.iter().enumerate() {
            check_factor(factor, &format!("factors[{index}]"), found);
        }
    }

    fn check_workloads(&self, found: &mut Found) {
        if self.workloads.is_empty() {
            found.add("workloads", "expected one [[workloads]] table or more, found none".to_owned());
        }
        found.distinct("workloads", self.workloads.iter().map(|workload| workload.name.as_str()));
        for (index, workload) in self.workloads.iter().enumerate() {
            let at = |field: &str| format!("workloads[{index}].{field}");
            found.name(&at("name"), &workload.name);
            match workload.check() {
                Err(bad) => found.add(&at(bad.field), format!("{} {}", bad.field, bad.why)),
                Ok(()) if matches!(self.guests, GuestPlan::None(_)) => {
                    let steps = workload.steps(&Scene::default());
                    let all = [steps.prepare, steps.serve, steps.run];
                    if all.iter().flatten().any(|step| step.place == Place::Guest) {
                        let what = "expected a workload of the host alone, for [guests] has kind \"none\"";
                        found.add(&at("tool"), what.to_owned());
                    }
                }
                Ok(()) => {}
            }
        }
    }

    /// The problem of a plan with so many arms or runs that its schedule could take all memory.
    pub(crate) fn too_large(&self) -> Option<Problem> {
        let mut found = Found::default();
        let arms = self.factors.iter().try_fold(1usize, |arms, factor| arms.checked_mul(factor.levels.len()));
        if arms.is_none_or(|arms| arms > MOST_ARMS) {
            found.add("factors", format!("expected at most {MOST_ARMS} combinations of levels, found more"));
            return found.problems.pop();
        }
        let counts: usize = self.arms().iter().map(|arm| self.counts_of(arm).len()).sum();
        let per_block = counts.saturating_mul(self.workloads.len()) as u64;
        // A stop rule without a number of blocks allows as many as this number of runs does.
        let blocks = self.order.until.as_ref().and_then(|until| until.blocks).unwrap_or(0);
        let runs = per_block.saturating_mul(u64::from(blocks.max(self.order.repeats)));
        if runs > u64::from(MOST_RUNS) {
            found.add("order", format!("expected at most {MOST_RUNS} runs in all, found {runs}"));
        }
        found.problems.pop()
    }

    fn check_arms(&self, found: &mut Found) {
        if let Some(problem) = self.too_large() {
            found.problems.push(problem);
            return;
        }
        let mut seen = HashSet::new();
        for arm in self.arms() {
            if let Err((field, what)) = self.guests_of(&arm)
                && seen.insert(field.clone())
            {
                found.add(&field, what);
            }
        }
    }
}

fn check_until(until: &Until, repeats: u32, found: &mut Found) {
    let at = |field: &str| format!("order.until.{field}");
    if let Some(percent) = until.interval_percent
        && !(percent.is_finite() && percent > 0.0)
    {
        found.add(&at("interval_percent"), format!("expected a number above 0, found {percent}"));
    }
    if until.budget.is_none() && until.blocks.is_none() {
        let what = "expected budget (\"6h\") or blocks (20): an interval may never become narrow enough";
        found.add("order.until", what.to_owned());
    }
    if let Some(blocks) = until.blocks {
        found.within(&at("blocks"), blocks, repeats, MOST_BLOCKS);
    }
    if let (Some(_), Some(blocks)) = (until.interval_percent, until.blocks)
        && blocks < LEAST_FOR_WIDTH
    {
        let what =
            format!("expected at least {LEAST_FOR_WIDTH}, from which widths are looked at, found {blocks}");
        found.add(&at("blocks"), what);
    }
    if until.interval_percent.is_none() && !until.metrics.is_empty() {
        found.add(&at("metrics"), "expected interval_percent beside it, found none".to_owned());
    }
}

fn check_factor(factor: &Factor, at: &str, found: &mut Found) {
    found.name(&format!("{at}.name"), &factor.name);
    let names: Vec<_> = factor.levels.iter().map(|level| level.name.as_str()).collect();
    if names.is_empty() {
        found.add(&format!("{at}.levels"), "expected at least two levels, found 0".to_owned());
    }
    if !names.contains(&factor.baseline.as_str()) {
        let what =
            format!("expected the name of a level ({}), found {:?}", names.join(", "), factor.baseline);
        found.add(&format!("{at}.baseline"), what);
    }
    found.distinct(&format!("{at}.levels"), names.iter().copied());
    for (index, name) in names.iter().enumerate() {
        found.name(&format!("{at}.levels[{index}].name"), name);
    }
    for (index, level) in factor.levels.iter().enumerate() {
        if let Err(bad) = level.check() {
            found.add(&format!("{at}.levels[{index}]"), bad.to_string());
        }
    }
}

/// The rule that a name violates, if any. Names become parts of file names and of figures' names.
pub(crate) fn not_a_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edges = name.starts_with('-') || name.ends_with('-');
    let wrong = name.is_empty() || name.len() > LONGEST_NAME || edges || !name.chars().all(plain);
    wrong.then(|| {
        format!("expected lower-case letters, digits and hyphens between them, {LONGEST_NAME} at most, found {name:?}")
    })
}

#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
}

impl Found {
    fn add(&mut self, field: &str, what: String) {
        self.problems.push(Problem { line: None, field: field.to_owned(), what });
    }

    fn name(&mut self, field: &str, name: &str) {
        if let Some(what) = not_a_name(name) {
            self.add(field, what);
        }
    }

    fn text(&mut self, field: &str, text: &str) {
        if text.trim().is_empty() {
            self.add(field, "expected words, found nothing".to_owned());
        }
    }

    fn within(&mut self, field: &str, value: u32, low: u32, high: u32) {
        if !(low..=high).contains(&value) {
            self.add(field, format!("expected a number from {low} to {high}, found {value}"));
        }
    }

    fn distinct<'a>(&mut self, list: &str, names: impl Iterator<Item = &'a str>) {
        let mut seen = HashSet::new();
        for (index, name) in names.enumerate() {
            if !seen.insert(name) {
                let what = format!("expected a name that is unique in {list}, found {name:?} again");
                self.add(&format!("{list}[{index}].name"), what);
            }
        }
    }
}
