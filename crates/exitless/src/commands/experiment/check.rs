//! `exitless experiment check` and `list`: what can be told about plans without running them.

use exits::counted;
use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use report::json::Document;
use serde::Serialize;
use study::forecast::{Forecast, Host, forecast};
use study::plan::{Plan, Problem, SHIPPED, schema};
use study::suite::SUITES;

use super::given::Given;
use super::suite;
use crate::console::harmless;
use crate::status;

/// Arguments of `experiment check`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file or the name of a shipped plan, or of a suite of studies.
    #[arg(value_name = "PLAN", required_unless_present = "schema")]
    plan: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of plans instead, for editors.
    #[arg(long, conflicts_with = "plan")]
    schema: bool,
}

/// Arguments of `experiment list`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Checked {
    plan: Option<String>,
    problems: Vec<Problem>,
    forecast: Option<Forecast>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    title: String,
    /// The file is a suite of studies, not a plan.
    suite: bool,
}

/// Runs `experiment list`.
pub(crate) fn list(arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let mut listed = Vec::new();
    for shipped in SHIPPED {
        listed.push(Listed { name: shipped.name, title: shipped.plan()?.title, suite: false });
    }
    for shipped in SUITES {
        listed.push(Listed { name: shipped.name, title: shipped.suite()?.title, suite: true });
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        crate::json::write_pretty(&mut out, &listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    for Listed { name, title, suite } in listed {
        writeln!(out, "{name}{}\n    {title}", if suite { " (suite)" } else { "" })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `experiment check`.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.schema {
        crate::output::write(|out| crate::json::write_pretty(out, &schema()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let given = Given::find(arguments.plan.as_deref().unwrap_or_default())?;
    if let Some(suite) = given.suite()? {
        return suite::check(&suite, arguments.json);
    }
    let plan = match given.plan() {
        Ok(plan) => plan,
        Err(bad) if arguments.json => {
            let checked = Checked { plan: None, problems: bad.problems, forecast: None };
            crate::output::write(|out| crate::json::write_pretty(out, &Document::new(&checked)))?;
            return Ok(ExitCode::from(status::USAGE));
        }
        Err(bad) => return Err(bad.into()),
    };
    let forecast = forecast(&plan, &Host::here());
    let lacks = !forecast.missing_programs.is_empty()
        || forecast.rights.iter().any(|right| !right.there && !right.optional)
        || !forecast.obstacles.is_empty();
    crate::output::write(|out| {
        if arguments.json {
            let checked = Checked { plan: Some(plan.name), problems: Vec::new(), forecast: Some(forecast) };
            return crate::json::write_pretty(out, &Document::new(&checked));
        }
        // The plan may be somebody else's.
        let mut text = Vec::new();
        write(&mut text, &plan, &forecast)?;
        writeln!(out, "{}", harmless(&String::from_utf8_lossy(&text)))
    })?;
    Ok(ExitCode::from(if lacks { status::TO_FIX } else { 0 }))
}

fn write(out: &mut impl Write, plan: &Plan, forecast: &Forecast) -> std::io::Result<()> {
    writeln!(out, "{}: {}", plan.name, plan.title)?;
    let at_least = if forecast.more_blocks { " at least" } else { "" };
    writeln!(
        out,
        "{}, {}{at_least}: {}, {}, {}",
        counted(forecast.arms as u64, "arm"),
        counted(u64::from(forecast.blocks), "block"),
        counted(forecast.runs, "run"),
        counted(forecast.warm_up_runs, "warm-up run"),
        counted(forecast.guest_starts, "guest start")
    )?;
    let [about, longest] =
        [forecast.seconds_about, forecast.seconds_at_most].map(|seconds| report::duration(seconds as f64));
    writeln!(
        out,
        "These blocks take about {about} on hardware; {longest} if every step took as long as it may"
    )?;
    for program in &forecast.missing_programs {
        let (name, package, by) = (&program.name, &program.package, &program.needed_by);
        writeln!(out, "Missing here: {name} (Debian package {package}), for {by}")?;
    }
    for right in &forecast.rights {
        let there = match (right.there, right.optional) {
            (true, _) => "Has",
            (false, true) => "Wants",
            (false, false) => "Lacks",
        };
        writeln!(out, "{there} {}, for {}", right.what, right.needed_by)?;
    }
    for obstacle in &forecast.obstacles {
        writeln!(out, "Obstacle here: {obstacle}")?;
    }
    Ok(())
}
