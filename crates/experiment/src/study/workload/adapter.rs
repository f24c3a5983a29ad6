//! What each tool implements, and what their scripts and parsers share.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{
    MetricDescription, NotUnderstood, Output, Outputs, Place, Program, Scene, Step, Steps, WorkUnit, shell,
};
use crate::study::Metric;

/// Longest part of an output that a message shows, in characters.
const SHOWN: usize = 200;

/// How long a client waits for its server, in seconds.
const SERVER_WAIT: u32 = 60;

/// The settings of one tool, and what is made of them.
pub(super) trait Adapter {
    /// As messages call it.
    fn tool(&self) -> &'static str;

    /// What cannot work in the settings.
    fn check(&self) -> Result<(), Unfit>;

    /// How long the measured step may take where the plan does not say.
    fn limit(&self) -> Duration;

    /// How long the measured step takes on hardware, more or less.
    fn typical(&self) -> Duration;

    fn needs(&self) -> Vec<Program>;

    fn metrics(&self) -> Vec<MetricDescription>;

    fn steps(&self, setting: &Setting<'_>) -> Steps;

    /// The figures; every step has ended with status 0.
    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood>;

    /// What its work is counted in; `None` where its figures are of each operation as they are, or where only the plan
    /// knows.
    fn work_unit(&self) -> Option<WorkUnit> {
        None
    }

    /// How much of it the measured step did.
    fn work(&self, _printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        Ok(0.0)
    }
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) field: &'static str,
    pub(super) why: String,
}

/// Fails with `why` where `fits` is false.
pub(super) fn demand(fits: bool, field: &'static str, why: &str) -> Result<(), Unfit> {
    if fits { Ok(()) } else { Err(Unfit { field, why: why.to_owned() }) }
}

/// Where the steps run.
pub(super) struct Setting<'a> {
    /// The workload's name, of letters, digits and hyphens only.
    pub(super) name: &'a str,
    pub(super) limit: Duration,
    pub(super) scene: &'a Scene,
}

impl Setting<'_> {
    /// First line of a script that works in a folder of its own. Guests may be one machine, so each has its own.
    pub(super) fn enter_folder(&self) -> String {
        let folder = format!("\"${{TMPDIR:-/var/tmp}}/exitless-study/{}-{}\"", self.name, self.scene.guest);
        format!("mkdir -p {folder} && cd {folder} || exit\n")
    }

    /// A port that no other guest uses, for guests may be one machine.
    pub(super) fn port(&self, first: u16) -> u16 {
        let guest = u16::try_from(self.scene.guest).unwrap_or(u16::MAX);
        first.checked_add(guest).unwrap_or(first)
    }

    /// Where a client at `place` finds what this guest serves.
    pub(super) fn guest_address(&self, place: Place) -> String {
        match place {
            Place::Guest => LOOPBACK.to_owned(),
            Place::Host => address(self.scene.address),
        }
    }

    /// Where this guest finds what the host serves.
    pub(super) fn host_address(&self) -> String {
        address(self.scene.host_address)
    }

    pub(super) fn step(&self, name: &'static str, place: Place, script: String) -> Step {
        Step { name, place, script, limit: self.limit }
    }

    /// One that is quick, or lasts as long as the measured one does.
    pub(super) fn short_step(&self, name: &'static str, place: Place, script: String) -> Step {
        Step { name, place, script, limit: self.limit.max(Duration::from_secs(120)) }
    }
}

const LOOPBACK: &str = "127.0.0.1";

/// A guest without a network address is this machine, or reached in ways that TCP is not.
fn address(address: Option<IpAddr>) -> String {
    address.map_or_else(|| LOOPBACK.to_owned(), |address| address.to_string())
}

/// Waits until something listens. bash, because dash knows no sockets.
pub(super) fn wait_for(address: &str, port: u16) -> String {
    let probe = format!("exec 3<>/dev/tcp/{address}/{port}");
    let rounds = SERVER_WAIT * 10;
    format!(
        "n=0; until bash -c {probe} 2>/dev/null; do n=$((n + 1)); [ $n -lt {rounds} ] || \
         {{ echo 'Nothing listens on {address} port {port}' >&2; exit 69; }}; sleep 0.1; done\n",
        probe = shell::quoted(&probe),
    )
}

/// This program, for steps on the host: the engine runs there.
pub(super) fn own_program() -> String {
    let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("exitless"));
    format!("\"${{EXITLESS:-{}}}\"", path.display().to_string().replace(['"', '$', '`', '\\', '}'], "?"))
}

/// `exitless load` with these arguments. Status 1 says that something was lost, which is a figure and no failure.
pub(super) fn load(arguments: &[String]) -> String {
    let line = shell::line(arguments.iter().map(String::as_str));
    format!("{} {line} || [ $? -eq 1 ]", own_program())
}

/// What one guest's steps printed.
pub(super) struct Printed<'a> {
    pub(super) tool: &'static str,
    pub(super) outputs: &'a Outputs,
}

impl<'a> Printed<'a> {
    /// What the step called `name` printed.
    pub(super) fn step(&self, name: &str) -> Result<Text<'a>, NotUnderstood> {
        let Some((step, output)) = self.outputs.steps.get_key_value(name) else {
            let step = name.to_owned();
            let expected = "the step to have run".to_owned();
            return Err(NotUnderstood { tool: self.tool, step, expected, found: String::new() });
        };
        Ok(Text { tool: self.tool, step, output })
    }
}

/// What one step printed, and whose it is.
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

    /// The failure to find `expected`, with the line that is there instead.
    pub(super) fn not_understood(&self, expected: impl Into<String>, found: &str) -> NotUnderstood {
        NotUnderstood {
            tool: self.tool,
            step: self.step.to_owned(),
            expected: expected.into(),
            found: shown(found),
        }
    }

    /// The same where no line can be blamed: the last one is what the tool stopped at.
    pub(super) fn missing(&self, expected: impl Into<String>) -> NotUnderstood {
        let last = |text: &'a str| text.lines().rev().find(|line| !line.trim().is_empty());
        let found = last(self.stdout()).or_else(|| last(&self.output.stderr)).unwrap_or_default();
        self.not_understood(expected, found)
    }

    /// A finite number that is not negative.
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

/// Figures by description.
pub(super) struct Figures {
    described: Vec<MetricDescription>,
    found: Vec<Metric>,
}

impl Figures {
    pub(super) fn new(described: Vec<MetricDescription>) -> Self {
        Self { described, found: Vec::new() }
    }

    /// Whether a figure of this name is wanted.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.described.iter().any(|description| description.covers(name))
    }

    /// Keeps a figure that is described, and one of them only.
    pub(super) fn add(&mut self, name: &str, value: f64) {
        let known = self.found.iter().any(|metric| metric.name == name);
        if let Some(description) = self.described.iter().find(|described| described.covers(name)) {
            if !known {
                self.found.push(description.metric(name, value));
            }
        }
    }

    /// All of them, in the order of their descriptions; a described one that is missing is an error.
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
