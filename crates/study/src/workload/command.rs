//! Any shell script, with figures parsed from its output.

mod output;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit, demand};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps};
use crate::{Better, Combine, Metric, Span, Unit};

const PREPARE: &str = "prepare";
const SERVE: &str = "serve";
const RUN: &str = "command";

/// Settings of a workload that is a script of the user. Every script is run by `sh -c` in the workload's own
/// folder below `$TMPDIR`, or /var/tmp.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The measured script, whose standard output is parsed.
    pub script: String,
    /// The machine on which it runs.
    #[serde(default)]
    pub place: Place,
    /// A script that runs once after the guest has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// A script that runs during the measured one, and is ended after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<String>,
    /// The machine on which the previous two run, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_place: Option<Place>,
    /// The approximate duration of the script: its limit is twice that plus two minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// The figures in the output.
    pub metrics: Vec<CommandMetric>,
}

/// A figure in the output of a script, found by either `regex` or `pointer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandMetric {
    /// Its name: words of small letters, digits and hyphens, joined by dots.
    pub name: String,
    /// The unit after the multiplication by `scale`.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// The way of combining the figures of several guests into that of the run.
    pub combine: Combine,
    /// A description in one line; the name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// A regular expression for one line, whose group `value`, or whose only group, is the number. The first
    /// matching line counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// A JSON pointer (RFC 6901) into the output, which is one JSON document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The factor by which the number in the output is multiplied.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: f64,
}

fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_one(scale: &f64) -> bool {
    *scale == 1.0
}

impl Command {
    fn serving(&self) -> Place {
        self.serve_place.unwrap_or(self.place)
    }
}

impl Adapter for Command {
    fn tool(&self) -> &'static str {
        "command"
    }

    fn check(&self) -> Result<(), Unfit> {
        demand(!self.script.trim().is_empty(), "script", "must not be empty")?;
        demand(!self.metrics.is_empty(), "metrics", "must name at least one figure")?;
        let scripts = [Some(&self.script), self.prepare.as_ref(), self.serve.as_ref()];
        let whole = scripts.into_iter().flatten().all(|script| !script.contains('\0'));
        demand(whole, "script", "must not hold a zero byte")?;
        for (index, metric) in self.metrics.iter().enumerate() {
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            let named = metric.name.chars().all(letters)
                && metric.name.split('.').all(|word| !word.is_empty())
                && metric.name.len() <= 64;
            let why =
                format!("names a figure {:?}; use small letters, digits, hyphens and dots", metric.name);
            demand(named, "metrics", &why)?;
            let twice = self.metrics[..index].iter().any(|other| other.name == metric.name);
            demand(!twice, "metrics", &format!("name {} more than once", metric.name))?;
            let why = format!("scale {} by {}", metric.name, metric.scale);
            demand(metric.scale.is_finite() && metric.scale != 0.0, "metrics", &why)?;
            output::check(metric).map_err(|why| Unfit { field: "metrics", why })?;
        }
        Ok(())
    }

    fn limit(&self) -> Duration {
        self.duration.map_or(Duration::from_secs(3600), |span| span.duration() * 2 + Duration::from_secs(120))
    }

    fn typical(&self) -> Duration {
        self.duration.map_or(Duration::from_secs(10), Span::duration)
    }

    fn needs(&self) -> Vec<Program> {
        vec![Program { place: self.place, name: "sh", package: "dash" }]
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let described = |metric: &CommandMetric| {
            let meaning = metric.meaning.clone().unwrap_or_else(|| metric.name.clone());
            MetricDescription::new(&metric.name, metric.unit, metric.better, metric.combine, meaning)
        };
        self.metrics.iter().map(described).collect()
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let folder = setting.enter_folder();
        let script = |text: &String| format!("{folder}{text}\n");
        let beside = |name: &'static str, text: &Option<String>| {
            text.as_ref().map(|text| setting.short_step(name, self.serving(), script(text)))
        };
        Steps {
            prepare: beside(PREPARE, &self.prepare).into_iter().collect(),
            serve: beside(SERVE, &self.serve).into_iter().collect(),
            run: vec![setting.step(RUN, self.place, script(&self.script))],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        output::parse(self, &printed.step(RUN)?)
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
