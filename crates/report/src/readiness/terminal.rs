//! The commands that work on a host, for people.

use ::readiness::{Checked, CommandReadiness, Readiness, State};

use super::{missing, setcap, systemd};
use crate::format::NONE;
use crate::terminal::columns::{Column, drawn};
use crate::terminal::{NARROWEST, wrapped};

/// The commands with their states, the reasons, and the commands that give the missing capabilities. With `verbose`, the
/// parts that work are listed too, and the capabilities of each command. `program` is the path of the program that gets
/// capabilities.
///
/// No line is wider than `width` columns if `width` is at least 80, except lines to copy. Without `colour` it has no escape
/// sequences.
#[must_use]
pub fn terminal(readiness: &Readiness, program: &str, width: usize, colour: bool, verbose: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = drawn(commands(readiness, verbose), width, false, colour);
    let shown: Vec<&Checked> = readiness.parts.iter().filter(|part| verbose || !part.works).collect();
    if !shown.is_empty() {
        text += if verbose { "\nParts of this host:\n" } else { "\nWhat does not work:\n" };
    }
    for part in shown {
        let why = part.why.as_deref().unwrap_or("works");
        text += &wrapped(&format!("{}: {why}", part.title), width, "  ", "    ");
    }
    if let Some(capabilities) = missing(readiness).filter(|_| readiness.user != 0) {
        text += "\nTo give these commands what they lack, for all who may execute the program:\n";
        text += &format!("  {}\n", setcap(&capabilities, program));
        text += "or for a unit of systemd:\n";
        for line in systemd(&capabilities) {
            text += &format!("  {line}\n");
        }
    }
    text
}

fn commands(readiness: &Readiness, verbose: bool) -> Vec<Column> {
    let commands = &readiness.commands;
    let cells = |of: &dyn Fn(&CommandReadiness) -> String| commands.iter().map(of).collect::<Vec<String>>();
    let codes = commands.iter().enumerate().filter_map(|(row, one)| match one.state {
        State::Works => None,
        State::Limited => Some((row, "33")),
        State::Fails => Some((row, "31")),
    });
    let title = |one: &CommandReadiness| {
        let parts = one.lacks.iter().map(|part| part.title()).collect::<Vec<_>>();
        if parts.is_empty() { NONE.to_owned() } else { parts.join(", ") }
    };
    let mut columns = vec![
        Column::whole_names("command", cells(&|one| one.command.to_owned())),
        Column::whole_names("state", cells(&|one| said(one.state).to_owned())).coloured(codes),
        Column::names("lacks", cells(&title)),
    ];
    if verbose {
        columns.push(Column::names("capabilities", cells(&capabilities)));
    }
    columns
}

const fn said(state: State) -> &'static str {
    match state {
        State::Works => "works",
        State::Limited => "limited",
        State::Fails => "fails",
    }
}

fn capabilities(one: &CommandReadiness) -> String {
    match (&one.capabilities[..], one.needs_root) {
        (_, true) => "root".to_owned(),
        ([], false) => NONE.to_owned(),
        (all, false) => {
            let names: Vec<_> =
                all.iter().map(|name| name.trim_start_matches("CAP_").to_lowercase()).collect();
            names.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::readiness::Part;

    fn example() -> Readiness {
        Readiness {
            user: 1000,
            kernel: Some("6.12.0".to_owned()),
            parts: vec![
                Checked {
                    part: Part::Programs,
                    title: Part::Programs.title(),
                    works: false,
                    why: Some("the kernel refused program enter; run as root".to_owned()),
                },
                Checked { part: Part::Types, title: Part::Types.title(), works: true, why: None },
            ],
            commands: vec![
                CommandReadiness {
                    command: "stat",
                    state: State::Fails,
                    lacks: vec![Part::Programs],
                    capabilities: vec!["CAP_BPF", "CAP_PERFMON"],
                    needs_root: false,
                },
                CommandReadiness {
                    command: "report",
                    state: State::Works,
                    lacks: Vec::new(),
                    capabilities: Vec::new(),
                    needs_root: false,
                },
            ],
        }
    }

    #[test]
    fn a_failure_has_its_reason_and_the_lines_that_help() {
        let text = terminal(&example(), "/opt/exitless", 80, false, false);
        for line in [
            "stat     fails  eBPF programs",
            "report   works  –",
            "  eBPF programs: the kernel refused program enter; run as root",
            "  setcap cap_bpf,cap_perfmon=ep /opt/exitless",
            "  AmbientCapabilities=CAP_BPF CAP_PERFMON",
        ] {
            assert!(text.lines().any(|own| own.trim_end() == line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("BTF"), "{text}");
        let verbose = terminal(&example(), "/opt/exitless", 80, false, true);
        assert!(verbose.contains("the kernel's BTF: works") && verbose.contains("bpf, perfmon"), "{verbose}");
        assert!(verbose.lines().all(|line| line.chars().count() <= 80), "{verbose}");
    }

    #[test]
    fn root_is_told_of_no_capabilities() {
        let text = terminal(&Readiness { user: 0, ..example() }, "/opt/exitless", 80, false, false);
        assert!(!text.contains("setcap"), "{text}");
    }

    #[test]
    fn the_fields_of_the_document_stay() {
        let value = serde_json::to_value(super::super::json(&example(), "/opt/exitless")).unwrap();
        assert_eq!(value["commands"][0]["state"], "fails");
        assert_eq!(value["commands"][0]["lacks"][0], "programs");
        assert_eq!(value["commands"][0]["setcap"], "setcap cap_bpf,cap_perfmon=ep /opt/exitless");
        assert_eq!(value["commands"][1]["setcap"], serde_json::Value::Null);
        assert_eq!(value["parts"][0]["part"], "programs");
        assert_eq!(value["missing_capabilities"][1], "CAP_PERFMON");
        assert_eq!((value["format"].as_u64(), value["user"].as_u64()), (Some(1), Some(1000)));
    }
}
