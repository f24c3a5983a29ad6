//! The facts of a guest, read once after its start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use crate::workload::{Place, Program, WorkloadPlan};
use guests::{Guest, GuestError};

const LIMIT: Duration = Duration::from_secs(60);

/// The facts of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Facts that the guest reports, and the versions of packages by their names.
    pub(super) known: BTreeMap<String, String>,
    /// Programs that workloads need and that are missing.
    pub(super) missing: BTreeSet<String>,
}

/// Reads the facts of a guest.
pub(super) fn ask(guest: &mut dyn Guest, workloads: &[WorkloadPlan]) -> Result<Facts, GuestError> {
    let programs = workloads.iter().flat_map(|workload| workload.needs());
    let programs: Vec<Program> = programs.filter(|program| program.place == Place::Guest).collect();
    let output = guest.run(&script(&programs), LIMIT)?;
    let mut facts = read(&output.stdout);
    facts.known.extend(guest.facts());
    Ok(facts)
}

/// The script, which prints one `name=value` on each line.
fn script(programs: &[Program]) -> String {
    let mut script = String::new();
    let mut seen = BTreeSet::new();
    for program in programs.iter().filter(|program| seen.insert(program.name)) {
        let (name, package) = (program.name, program.package);
        // Debian has some in /usr/sbin, which is not in the PATH of a shell that is not a login shell.
        let _ = writeln!(
            script,
            "PATH=$PATH:/usr/sbin:/sbin command -v {name} >/dev/null || echo missing={name}"
        );
        let _ = writeln!(script, "dpkg-query -W -f '{package}=${{Version}}\\n' {package} 2>/dev/null");
    }
    // Ignore the status of the last query.
    script + "true\n"
}

fn read(text: &str) -> Facts {
    let mut facts = Facts::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let (name, value) = (name.trim(), value.trim());
        if name == "missing" {
            facts.missing.insert(value.to_owned());
        } else if !value.is_empty() {
            facts.known.insert(name.to_owned(), value.to_owned());
        }
    }
    facts
}

/// A program that a workload lacks in a guest, with its package.
pub(super) fn lacking(workload: &WorkloadPlan, facts: &Facts) -> Option<Program> {
    workload.needs().into_iter().find(|need| need.place == Place::Guest && facts.missing.contains(need.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_lines_and_what_is_missing_is_kept_apart() {
        let facts = read("kernel=6.12.1\ncpu=EPYC = fast\nmissing=iozone\niozone3=3.506-1\nnoise\nempty=\n");
        assert_eq!(facts.known["cpu"], "EPYC = fast");
        assert_eq!(facts.known["iozone3"], "3.506-1");
        assert_eq!((facts.known.len(), facts.missing.contains("iozone")), (3, true));
    }

    #[test]
    fn the_shell_understands_the_questions() {
        let sh = Program { place: Place::Guest, name: "sh", package: "dash" };
        let none = Program { place: Place::Guest, name: "no-such-program", package: "no-such-package" };
        let output = std::process::Command::new("sh").arg("-c").arg(script(&[sh, none])).output().unwrap();
        assert!(output.status.success());
        let facts = read(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(facts.missing, BTreeSet::from(["no-such-program".to_owned()]));
    }
}
