//! The parts that each command uses.

use crate::{CommandReadiness, Part, State};

/// The parts that a command uses.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// The command: the words after `exitless`.
    pub command: &'static str,
    /// The parts without which it fails.
    pub needed: &'static [Part],
    /// The parts without which its result is incomplete.
    pub wanted: &'static [Part],
}

/// No parts: only files that the user names.
const NONE: &[Part] = &[];

/// The commands, in the order of the help.
pub const COMMANDS: &[Needs] = &[
    needs("doctor", NONE, &[Part::Device, Part::Processes, Part::KernelLog]),
    needs("prove", &[Part::MicroVm], &[Part::PerfEvents]),
    needs("probe", &[Part::MicroVm], &[Part::PerfEvents]),
    needs("stat", &[Part::Programs, Part::Exits], &[Part::Types, Part::Processes]),
    needs("record", &[Part::Programs, Part::Exits], &[Part::Types, Part::Processes]),
    needs("exporter", &[Part::Programs, Part::Exits], &[Part::Types, Part::Processes]),
    needs("top", &[Part::Programs, Part::Exits], &[Part::Types, Part::Processes]),
    needs("verify", NONE, &[Part::Programs, Part::Exits, Part::Types, Part::PerfEvents, Part::Processes]),
    needs("report", NONE, NONE),
    needs("predict", NONE, NONE),
    needs("predict --duration", &[Part::Programs, Part::Exits], &[Part::Types, Part::Processes]),
    needs("advise", NONE, &[Part::Programs, Part::Exits, Part::Types, Part::Processes]),
    needs("profile", &[Part::Sampling, Part::Exits], &[Part::Types, Part::Symbols, Part::Processes]),
    needs("timeline", NONE, NONE),
    needs("diff", NONE, NONE),
    needs("vms", NONE, &[Part::Processes]),
    needs("vm", NONE, NONE),
    needs("enable --apply", &[Part::Root], NONE),
    needs("disable --apply", &[Part::Root], NONE),
    needs("restore", &[Part::Root], NONE),
    needs("snapshot", NONE, &[Part::Processes, Part::KernelLog]),
    needs("collect-script", NONE, NONE),
    needs("trace", &[Part::PerfEvents, Part::Exits], &[Part::Processes]),
    needs("experiment run", &[Part::Device], &[Part::Root]),
    needs("tune", &[Part::Device], &[Part::Root]),
    needs("iocm serve", NONE, &[Part::IoUring, Part::Tree]),
    needs("iocm device", NONE, &[Part::IoUring]),
    needs("iocm monitor", NONE, &[Part::Programs, Part::Exits]),
    needs("iocm monitor --vhost --apply", &[Part::Root], &[Part::Programs, Part::Exits]),
    needs("guest run", &[Part::Device], NONE),
    needs("load", NONE, NONE),
    needs("lab", NONE, NONE),
];

const fn needs(command: &'static str, needed: &'static [Part], wanted: &'static [Part]) -> Needs {
    Needs { command, needed, wanted }
}

impl Needs {
    /// Tests whether a name that a user typed means this command: it is the command, or its first words.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        self.command.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }

    pub(crate) fn uses(&self, part: Part) -> bool {
        self.all().any(|one| one == part)
    }

    fn all(&self) -> impl Iterator<Item = Part> {
        self.needed.iter().chain(self.wanted).copied()
    }

    pub(crate) fn judge(&self, fails: impl Fn(&Part) -> bool) -> CommandReadiness {
        let state = match (self.needed.iter().any(&fails), self.wanted.iter().any(&fails)) {
            (true, _) => State::Fails,
            (false, true) => State::Limited,
            (false, false) => State::Works,
        };
        let mut capabilities: Vec<_> = self.all().flat_map(|part| part.capabilities()).copied().collect();
        capabilities.sort_unstable();
        capabilities.dedup();
        CommandReadiness {
            command: self.command,
            state,
            lacks: self.all().filter(fails).collect(),
            capabilities,
            needs_root: self.uses(Part::Root),
        }
    }
}
