//! The trait that each tool implements, and helpers for scripts and parsers.

use guests::shell;
use load::LoadResult;
use std::net::IpAddr;
use std::time::Duration;

use super::{
    MetricDescription, NotUnderstood, Output, Outputs, Place, Program, Scene, Step, Steps, WorkUnit,
};
use crate::Metric;

/// The most characters of an output in a message.
const SHOWN: usize = 200;

/// The time for which a client waits for its server, in seconds.
const SERVER_WAIT: u32 = 60;

/// The settings of one tool, and its scripts and parser.
pub(super) trait Adapter {
    /// Its name in messages.
    fn tool(&self) -> &'static str;

    /// Checks the settings.
    fn check(&self) -> Result<(), Unfit>;

    /// The default time limit of the measured step.
    fn limit(&self) -> Duration;

    /// The approximate duration of the measured step on hardware.
    fn typical(&self) -> Duration;

    fn needs(&self) -> Vec<Program>;

    fn metrics(&self) -> Vec<MetricDescription>;

    fn steps(&self, setting: &Setting<'_>) -> Steps;

    /// Parses the figures. Called only if all steps except servers have exited with status 0.
    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood>;

    /// The unit of the tool's work; `None` if its figures are already for each operation, or if only the plan knows it.
    fn work_unit(&self) -> Option<WorkUnit> {
        None
    }

    /// The reason why the tool cannot report its work with these settings.
    fn why_no_work(&self) -> Option<&'static str> {
        None
    }

    /// The amount of work of the measured step.
    fn work(&self, _printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        Ok(0.0)
    }
}

/// A setting that is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) field: &'static str,
    pub(super) why: String,
}

/// Fails with `why` if `fits` is false.
pub(super) fn demand(fits: bool, field: &'static str, why: &str) -> Result<(), Unfit> {
    if fits { Ok(()) } else { Err(Unfit { field, why: why.to_owned() }) }
}

/// The context of the steps.
pub(super) struct Setting<'a> {
    /// The workload's name, which has only letters, digits and hyphens.
    pub(super) name: &'a str,
    pub(super) limit: Duration,
    pub(super) scene: &'a Scene,
}

impl Setting<'_> {
    /// The first lines of a script that works in its own folder; one for each guest, because several guests may be one
    /// machine. Other users may put links into `$TMPDIR` and `/var/tmp`, so the folder above must belong to this user.
    /// It is readable by all, for servers that drop root.
    pub(super) fn enter_folder(&self) -> String {
        let own = format!("{}-{}", self.name, self.scene.guest);
        format!(
            "all=\"${{TMPDIR:-/var/tmp}}/exitless-study-$(id -u)\"; mkdir -p -m 755 \"$all\" || exit\n\
             if [ -L \"$all\" ] || ! [ -O \"$all\" ]; then \
             echo \"$all belongs to another user; remove it, or set TMPDIR\" >&2; exit 73; fi\n\
             mkdir -p \"$all/{own}\" && cd \"$all/{own}\" || exit\n"
        )
    }

    /// A port for this guest's server. No other guest uses it, because several guests may be one machine.
    pub(super) fn port(&self, first: u16) -> u16 {
        let guest = u16::try_from(self.scene.guest).unwrap_or(u16::MAX);
        first.checked_add(guest).unwrap_or(first)
    }

    /// The address at which a client at `place` reaches this guest's servers.
    pub(super) fn guest_address(&self, place: Place) -> String {
        match place {
            Place::Guest => LOOPBACK.to_owned(),
            Place::Host => address(self.scene.address),
        }
    }

    /// The address at which this guest reaches the host's servers.
    pub(super) fn host_address(&self) -> String {
        address(self.scene.host_address)
    }

    pub(super) fn step(&self, name: &'static str, place: Place, script: String) -> Step {
        Step { name, place, script, limit: self.limit }
    }

    /// A step that is short, or runs during the measured step.
    pub(super) fn short_step(&self, name: &'static str, place: Place, script: String) -> Step {
        Step { name, place, script, limit: self.limit.max(Duration::from_secs(120)) }
    }
}

const LOOPBACK: &str = "127.0.0.1";

/// The address, or loopback for a guest without one: it is this machine, or its workloads do not use the network.
fn address(address: Option<IpAddr>) -> String {
    address.map_or_else(|| LOOPBACK.to_owned(), |address| address.to_string())
}

/// The script that waits until a server listens. It needs bash, because dash cannot open sockets.
pub(super) fn wait_for(address: &str, port: u16) -> String {
    let probe = format!("exec 3<>/dev/tcp/{address}/{port}");
    let rounds = SERVER_WAIT * 10;
    format!(
        "n=0; until bash -c {probe} 2>/dev/null; do n=$((n + 1)); [ $n -lt {rounds} ] || \
         {{ echo 'Nothing listens on {address} port {port}' >&2; exit 69; }}; sleep 0.1; done\n",
        probe = shell::quoted(&probe),
    )
}

/// This program's path as a shell word, for steps on the host.
pub(super) fn own_program() -> String {
    let path = guests::own_program();
    format!("\"${{EXITLESS:-{}}}\"", path.display().to_string().replace(['"', '$', '`', '\\', '}'], "?"))
}

/// The command that runs `exitless load` with these arguments. Its status 1 means lost requests, which are a figure and
/// not a failure.
pub(super) fn load(arguments: &[String]) -> String {
    let line = shell::line(arguments.iter().map(String::as_str));
    format!("{} {line} || [ $? -eq 1 ]", own_program())
}

/// The outputs of one guest's steps.
pub(super) struct Printed<'a> {
    pub(super) tool: &'static str,
    pub(super) outputs: &'a Outputs,
}

impl<'a> Printed<'a> {
    /// The output of the step `name`.
    pub(super) fn step(&self, name: &str) -> Result<Text<'a>, NotUnderstood> {
        let Some((step, output)) = self.outputs.steps.get_key_value(name) else {
            let step = name.to_owned();
            let expected = "the step to have run".to_owned();
            return Err(NotUnderstood { tool: self.tool, step, expected, found: String::new() });
        };
        Ok(Text { tool: self.tool, step, output })
    }
}

/// The output of one step, with its tool and name.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    tool: &'static str,
    step: &'a str,
    pub(super) output: &'a Output,
}

impl<'a> Text<'a> {
    pub(super) fn stdout(&self) -> &'a str {
        &self.output.stdout
    }

    /// The error that `expected` is missing, with the line that was found instead.
    pub(super) fn not_understood(&self, expected: impl Into<String>, found: &str) -> NotUnderstood {
        NotUnderstood {
            tool: self.tool,
            step: self.step.to_owned(),
            expected: expected.into(),
            found: shown(found),
        }
    }

    /// The error that `expected` is missing from the whole output; shows the last line, where the tool stopped.
    pub(super) fn missing(&self, expected: impl Into<String>) -> NotUnderstood {
        let last = |text: &'a str| programs::last_lines(text, 1).pop();
        let found = last(self.stdout()).or_else(|| last(&self.output.stderr)).unwrap_or_default();
        self.not_understood(expected, found)
    }

    /// The result that `exitless load` printed.
    pub(super) fn load_result(&self) -> Result<LoadResult, NotUnderstood> {
        LoadResult::read(self.stdout()).map_err(|error| {
            self.not_understood(format!("the JSON of `exitless load` ({error})"), self.stdout())
        })
    }

    /// Parses a finite number that is not negative.
    pub(super) fn number(&self, text: &str, what: &str, line: &str) -> Result<f64, NotUnderstood> {
        let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let value = text.parse::<f64>().ok().filter(|value| plain && value.is_finite());
        value.ok_or_else(|| self.not_understood(format!("{what} as a number"), line))
    }
}

fn shown(found: &str) -> String {
    let line = found.trim_end();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// Figures that are checked against their descriptions.
pub(super) struct Figures {
    described: Vec<MetricDescription>,
    found: Vec<Metric>,
}

impl Figures {
    pub(super) fn new(described: Vec<MetricDescription>) -> Self {
        Self { described, found: Vec::new() }
    }

    /// Tests whether a figure of this name is described.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.described.iter().any(|description| description.covers(name))
    }

    /// Adds a figure if it is described and not yet known.
    pub(super) fn add(&mut self, name: &str, value: f64) {
        let known = self.found.iter().any(|metric| metric.name == name);
        if let Some(description) = self.described.iter().find(|described| described.covers(name))
            && !known
        {
            self.found.push(description.metric(name, value));
        }
    }

    /// All figures in the order of their descriptions; an error if one is missing.
    pub(super) fn all(mut self, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        let place = |name: &str| self.described.iter().position(|described| described.covers(name));
        self.found.sort_by_key(|metric| place(&metric.name));
        for described in self.described.iter().filter(|described| !described.name.ends_with('*')) {
            if !self.found.iter().any(|metric| metric.name == described.name) {
                return Err(text.missing(format!("a figure for {}", described.name)));
            }
        }
        Ok(self.found)
    }
}
