//! Reads and changes a running daemon through its control socket.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use exits::printable;
use iocm::config::SOCKET;
use iocm::control::client::Client;
use iocm::control::rates::Rates;
use iocm::control::{WATCH_INTERVALS_MS, flat, plain};
use serde_json::{Value, json};

use crate::commands::quantity;
use crate::console;
use crate::status::Usage;

/// The daemon.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// The control socket of the daemon.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

impl At {
    fn connect(&self) -> anyhow::Result<Client> {
        Ok(Client::connect(&self.socket)?)
    }
}

/// Arguments of `iocm ls`.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// A directory of the tree, such as workers, d.0 or queues/vq.0.0; the root by default.
    #[arg(default_value = "", hide_default_value = true)]
    path: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

/// Lists a directory.
pub(crate) fn list(arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let entries = arguments.at.connect()?.list(&arguments.path)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        crate::json::write_pretty(&mut out, &entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    listed(&mut out, &entries)?;
    Ok(ExitCode::SUCCESS)
}

fn listed(out: &mut impl std::io::Write, entries: &[Value]) -> std::io::Result<()> {
    entries.iter().try_for_each(|entry| {
        let slash = if entry["kind"] == "directory" { "/" } else { "" };
        writeln!(out, "{}{slash}", printable(&plain(&entry["name"])))
    })
}

/// Arguments of `iocm get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// Attributes, or directories with all attributes below them: w.0/load, d.0, configuration.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// Print JSON: an object with a field for each path.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

/// Reads attributes.
pub(crate) fn get(arguments: &GetArguments) -> anyhow::Result<ExitCode> {
    let mut client = arguments.at.connect()?;
    let mut all = Vec::new();
    for path in &arguments.paths {
        all.push((path.clone(), client.get(path)?));
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let all: Value = Value::Object(all.into_iter().collect());
        crate::json::write_pretty(&mut out, &all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_alone = |value: &Value| arguments.paths.len() == 1 && !value.is_object();
    for (path, value) in &all {
        match is_alone(value) {
            true => written(&mut out, &plain(value))?,
            false => told(&mut out, path, value)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn written(out: &mut impl std::io::Write, text: &str) -> std::io::Result<()> {
    if text.is_empty() { Ok(()) } else { writeln!(out, "{}", console::harmless(text)) }
}

/// Writes a line for each attribute: its path, a space, and its value with line breaks replaced.
fn told(out: &mut impl std::io::Write, path: &str, value: &Value) -> std::io::Result<()> {
    for (path, value) in flat(path, value) {
        let text = plain(&value).replace('\n', if value.is_array() { "," } else { "\\n" });
        writeln!(out, "{} {}", printable(&path), printable(&text))?;
    }
    Ok(())
}

/// Arguments of `iocm set`.
#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// The attribute: w.0/cpu, d.0/size, vq.0.0/weight.
    path: String,
    /// The new value.
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    at: At,
}

/// Writes an attribute.
pub(crate) fn set(arguments: &SetArguments) -> anyhow::Result<ExitCode> {
    arguments.at.connect()?.set(&arguments.path, &arguments.value)?;
    Ok(ExitCode::SUCCESS)
}

/// The collections in which something can be created.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Collection {
    /// An I/O worker.
    Workers,
    /// A device.
    Devices,
}

/// Arguments of `iocm create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The collection.
    collection: Collection,
    /// The settings of the worker or device, as a TOML table or a JSON object: '{ cpus = "3" }', or a
    /// `[[device]]` of the configuration; - reads them from standard input.
    #[arg(default_value = "", hide_default_value = true)]
    line: String,
    #[command(flatten)]
    at: At,
}

/// Creates a worker or a device, and prints its name.
pub(crate) fn create(arguments: &CreateArguments) -> anyhow::Result<ExitCode> {
    let mut line = arguments.line.clone();
    if line == "-" {
        line.clear();
        std::io::stdin().read_to_string(&mut line).context("Cannot read standard input")?;
    }
    let collection = match arguments.collection {
        Collection::Workers => "workers",
        Collection::Devices => "devices",
    };
    let name = arguments.at.connect()?.create(collection, &line)?;
    writeln!(std::io::stdout(), "{}", printable(&name))?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `iocm remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    /// The worker or device: w.1, d.0.
    path: String,
    #[command(flatten)]
    at: At,
}

/// Removes a worker or a device.
pub(crate) fn remove(arguments: &RemoveArguments) -> anyhow::Result<ExitCode> {
    arguments.at.connect()?.remove(&arguments.path)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `iocm move`.
#[derive(Debug, Args)]
pub(crate) struct MoveArguments {
    /// Queues, or devices whose queues are all moved: vq.0.0, d.0.
    #[arg(required = true)]
    paths: Vec<String>,
    /// The worker that serves them then: w.1.
    to: String,
    #[command(flatten)]
    at: At,
}

/// Moves queues to a worker.
pub(crate) fn move_to(arguments: &MoveArguments) -> anyhow::Result<ExitCode> {
    arguments.at.connect()?.move_to(&arguments.paths, &arguments.to)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of `iocm watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// An attribute or a directory to print each time; by default the rates of all workers, devices and queues.
    path: Option<String>,
    /// The interval, from 10ms to 24h: 1s, 200ms; a number alone is in seconds.
    #[arg(long, visible_alias = "interval", value_name = "TIME", value_parser = quantity::wait,
        default_value = "1s")]
    every: u64,
    /// Stop after this many times.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print a line of JSON each time.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

/// Prints rates, or attributes, repeatedly.
pub(crate) fn watch(arguments: &WatchArguments) -> anyhow::Result<ExitCode> {
    let every = Duration::from_nanos(arguments.every);
    if !u64::try_from(every.as_millis()).is_ok_and(|interval| WATCH_INTERVALS_MS.contains(&interval)) {
        return Err(Usage("--every expects a time from 10ms to 24h".to_owned()).into());
    }
    let mut client = arguments.at.connect()?;
    // A rate needs two readings.
    let extra = u64::from(arguments.path.is_none());
    let count = arguments.count.map(|count| count.saturating_add(extra));
    let path = arguments.path.as_deref().unwrap_or_default();
    client.watch(path, every, count)?;
    let mut before = None;
    let mut told_times = 0;
    while count.is_none_or(|count| told_times < count) {
        let now = client.sample()?;
        told_times += 1;
        let mut out = std::io::stdout().lock();
        match (&arguments.path, before.replace(now.clone())) {
            (Some(path), _) if arguments.json => {
                let sample = json!({ "time_ns": now.time_ns, "path": path, "value": now.value });
                crate::json::write(&mut out, &sample)?;
            }
            (Some(path), _) => told(&mut out, path, &now.value)?,
            (None, None) => {}
            (None, Some(before)) => {
                let rates = Rates::between(&before, &now);
                if arguments.json {
                    crate::json::write(&mut out, &rates)?;
                } else {
                    let text = console::shown(report::iocm::rates::terminal(
                        &rates,
                        console::width(),
                        console::colour(),
                    ));
                    writeln!(out, "{text}")?;
                }
            }
        }
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_cannot_control_the_terminal() {
        let hostile = "a\u{9b}2J\u{202e}\u{1b}\nb";
        let mut out = Vec::new();
        listed(&mut out, &[json!({ "name": hostile, "kind": "directory" })]).unwrap();
        written(&mut out, &plain(&json!(hostile))).unwrap();
        told(&mut out, "", &json!({ hostile: [hostile] })).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(!out.contains(|one: char| one != '\n' && exits::is_harmful(one)), "{out:?}");
        assert_eq!(out.lines().count(), 4, "only a value has lines: {out:?}");
        assert!(out.contains("\nb\n"), "{out:?}");
    }
}
