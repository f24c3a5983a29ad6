//! The readiness of each command for this user on this host, and the reasons why some do not work.
//!
//! Each [`Part`] is tried, not guessed: its check runs the code with which the commands that need it start. Nothing on the
//! host is changed, and everything that a check creates is removed after it.

mod commands;
mod part;

use serde::Serialize;

pub use commands::{COMMANDS, Needs};
pub use part::Part;

/// The outcome of one part's check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The part.
    pub part: Part,
    /// Its title for people.
    pub title: &'static str,
    /// True if it works.
    pub works: bool,
    /// The reason why it does not, with the next step.
    pub why: Option<String>,
}

/// The readiness of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// All parts that it uses work.
    Works,
    /// It runs, but its result is incomplete.
    Limited,
    /// A part that it needs does not work.
    Fails,
}

/// A command, and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandReadiness {
    /// The command: the words after `exitless`.
    pub command: &'static str,
    /// Its readiness.
    pub state: State,
    /// The parts that do not work, needed ones first.
    pub lacks: Vec<Part>,
    /// The smallest set of capabilities with which it works fully for a user other than root.
    pub capabilities: Vec<&'static str>,
    /// True if it needs root, because its changes and its journal do.
    pub needs_root: bool,
}

/// All parts and commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// The effective user.
    pub user: u32,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The checked parts.
    pub parts: Vec<Checked>,
    /// The commands.
    pub commands: Vec<CommandReadiness>,
}

impl Readiness {
    /// Tries the parts that these commands need, on this host.
    #[must_use]
    pub fn check(commands: &[&Needs]) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let kernel = kernel.map(|text| text.trim().to_owned());
        Self::of(commands, kernel, Part::check)
    }

    fn of(commands: &[&Needs], kernel: Option<String>, check: impl Fn(Part) -> Result<(), String>) -> Self {
        let needed = Part::ALL.iter().copied().filter(|part| commands.iter().any(|one| one.uses(*part)));
        let parts: Vec<Checked> = needed
            .map(|part| {
                let why = check(part).err();
                Checked { part, title: part.title(), works: why.is_none(), why }
            })
            .collect();
        let fails = |part: &Part| parts.iter().any(|one| one.part == *part && !one.works);
        let commands = commands.iter().map(|needs| needs.judge(fails)).collect();
        Self { user: rustix::process::geteuid().as_raw(), kernel, parts, commands }
    }

    /// The capabilities that limited or failing commands need, without commands that need root.
    #[must_use]
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        let lacking = self.commands.iter().filter(|one| one.state != State::Works && !one.needs_root);
        let parts = lacking.flat_map(|one| &one.lacks);
        let mut wanted: Vec<&str> = parts.flat_map(|part| part.capabilities()).copied().collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str, lacking: &[Part]) -> CommandReadiness {
        let needs = COMMANDS.iter().find(|one| one.is_named(command)).unwrap();
        let check = |part| if lacking.contains(&part) { Err("because".to_owned()) } else { Ok(()) };
        Readiness::of(&[needs], None, check).commands.remove(0)
    }

    #[test]
    fn a_command_fails_without_what_it_needs_and_is_limited_without_the_rest() {
        assert_eq!(of("stat", &[]).state, State::Works);
        assert_eq!(of("stat", &[Part::Processes]).state, State::Limited);
        let without = of("stat", &[Part::Processes, Part::Exits]);
        assert_eq!((without.state, &without.lacks[..]), (State::Fails, &[Part::Exits, Part::Processes][..]));
        assert_eq!(of("report", Part::ALL).state, State::Works);
    }

    #[test]
    fn capabilities_are_those_of_its_parts() {
        let stat = of("stat", &[]);
        assert!(stat.capabilities.contains(&"CAP_BPF") && !stat.capabilities.contains(&"CAP_SYS_ADMIN"));
        assert!(of("report", &[]).capabilities.is_empty());
        assert!(of("enable", &[]).needs_root);
        let needs: Vec<&Needs> = COMMANDS.iter().collect();
        let nothing = Readiness::of(&needs, None, |_| Ok(()));
        assert_eq!(nothing.missing_capabilities(), [""; 0]);
        let ebpf = Readiness::of(&needs, None, |part| {
            if part == Part::Programs { Err("because".to_owned()) } else { Ok(()) }
        });
        assert_eq!(ebpf.missing_capabilities(), ["CAP_BPF", "CAP_PERFMON"]);
    }

    #[test]
    fn only_parts_that_are_needed_are_tried() {
        let report = COMMANDS.iter().find(|one| one.command == "report").unwrap();
        let readiness = Readiness::of(&[report], None, |part| panic!("{part:?} was tried"));
        assert!(readiness.parts.is_empty());
    }

    #[test]
    fn this_host_is_checked_without_a_failure_of_the_check_itself() {
        let needs: Vec<&Needs> = COMMANDS.iter().collect();
        let readiness = Readiness::check(&needs);
        assert_eq!(readiness.commands.len(), COMMANDS.len());
        for part in readiness.parts {
            assert_eq!(part.works, part.why.is_none());
            assert!(part.why.is_none_or(|why| why.len() > 10));
        }
    }
}
