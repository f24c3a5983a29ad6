//! The tables of exit reasons and inhibit reasons equal those in the code.

use std::fmt::Write as _;

use exits::{
    CurePlace, ExitReason, InhibitNumbering, InhibitReason, Isa, KernelVersion, UnknownReason, Virtualized,
};
use host::vms::{Management, Manager};

use super::pages::top;
use crate::command::{out, run};

const BY: &str = "written by crates/exitless/tests/commands/docs/reference.rs";

/// Compares the table between two markers of a page with the code's, or replaces it if `WRITE_DOCS` is set.
fn check(page: &str, what: &str, table: &str) {
    let path = top().join(page);
    let (begin, end) = (format!("<!-- {what}: {BY} -->\n"), format!("<!-- end of {what} -->\n"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} lacks {begin}"));
    let (written, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{page} lacks {end}"));
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        assert_eq!(written, table, "run the test again with WRITE_DOCS=1");
    }
}

fn number(reason: ExitReason) -> String {
    match reason.isa {
        Isa::Vmx => reason.code.to_string(),
        Isa::Svm => format!("{:#x}", reason.code),
    }
}

fn effect(virtualized: Virtualized) -> &'static str {
    match virtualized {
        Virtualized::Gone => "gone",
        Virtualized::Partly => "some go",
        Virtualized::Appears => "occurs only with it",
        Virtualized::Unchanged => "stays",
    }
}

fn of_interrupts() -> String {
    let mut text = "| reason | number | with APICv or AVIC | meaning |\n|---|---|---|---|\n".to_owned();
    for reason in ExitReason::known() {
        if let (Some(about), Some(virtualized)) = (reason.about(), reason.under_interrupt_virtualization()) {
            let _ = writeln!(text, "| `{reason}` | {} | {} | {about} |", number(reason), effect(virtualized));
        }
    }
    text
}

fn of_isa(isa: Isa) -> String {
    let mut text = "| number | reason |\n|---|---|\n".to_owned();
    for reason in ExitReason::known().filter(|reason| reason.isa == isa) {
        let _ = writeln!(text, "| {} | `{reason}` |", number(reason));
    }
    text
}

fn of_inhibits() -> String {
    let mut text = String::new();
    for reason in InhibitReason::all() {
        let _ = write!(text, "### {reason}\n\nSet when {}.", reason.set_by());
        if reason.cures().is_empty() {
            let _ = writeln!(text, " Nothing clears it: {}.", reason.cure());
        } else {
            let _ = write!(text, "\n\n| where | fix | source |\n|---|---|---|\n");
        }
        for fix in reason.cures() {
            // Format what a user types as code; other fixes are prose.
            let is_code = ["-", "<", "options "].iter().any(|start| fix.change.starts_with(start));
            let code = if is_code { "`" } else { "" };
            let _ = writeln!(text, "| {} | {code}{}{code} | {} |", fix.place.name(), fix.change, fix.source);
        }
        text.push('\n');
    }
    text
}

/// Tests whether users of a program can clear a reason that a definition of the VM can clear.
fn clears(manager: Manager, reason: InhibitReason) -> bool {
    let management = Management { manager, ..Management::default() };
    let said = doctor::managed::of_reason(reason, "NAME", &management);
    !doctor::managed::has_words(manager) || said.iter().any(|one| !one.changes.is_empty())
}

fn of_programs() -> String {
    let programs = || Manager::ALL.iter().copied().filter(|manager| *manager != Manager::Other);
    let names: Vec<&str> = programs().map(Manager::name).collect();
    let mut text = format!("| reason | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let in_definition =
        |reason: &InhibitReason| reason.cures().iter().any(|fix| fix.place == CurePlace::Libvirt);
    for reason in InhibitReason::all().filter(in_definition) {
        let cells = programs().map(|manager| if clears(manager, reason) { "yes" } else { "no" });
        let _ = writeln!(text, "| `{reason}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

fn of_numbers() -> String {
    let kernels = [(5, 6), (5, 19), (6, 0), (6, 3)].map(|(major, minor)| KernelVersion::new(major, minor));
    let numberings = kernels.map(InhibitNumbering::of_kernel);
    let mut text =
        "| reason | 5.6 to 5.18 | 5.19 | 6.0 to 6.2 | from 6.3 |\n|---|---|---|---|---|\n".to_owned();
    for reason in InhibitReason::all() {
        let cells = numberings.each_ref().map(|one| one.number(reason));
        let cells = cells.map(|number| number.map_or("–".to_owned(), |number| number.to_string()));
        let _ = writeln!(text, "| `{reason}` | {} |", cells.join(" | "));
    }
    text
}

#[test]
fn every_command_is_in_the_list_of_commands() {
    let page = std::fs::read_to_string(top().join("docs/commands.md")).unwrap();
    let help = out(&run(&["--help"]));
    let list = help.split_once("\nCommands:\n").unwrap().1.split("\n\n").next().unwrap();
    let names = list
        .lines()
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    let missing: Vec<&str> = names
        .filter(|name| *name != "help")
        .filter(|name| !page.contains(&format!("`exitless {name}")) && !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/commands.md lacks {missing:?}");
}

#[test]
fn numbers_as_examples_of_reasons_without_a_name_have_none() {
    let mut texts = vec![("the error's text".to_owned(), UnknownReason(String::new()).to_string())];
    for entry in std::fs::read_dir(top().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            texts.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    let mut seen = 0;
    for (name, text) in &texts {
        for word in text.split(|character: char| !character.is_ascii_alphanumeric() && character != ':') {
            let number = word.strip_prefix("vmx:").or_else(|| word.strip_prefix("svm:"));
            if number.is_some_and(|number| number.starts_with(|first: char| first.is_ascii_digit())) {
                let reason: ExitReason = word.parse().unwrap();
                assert_eq!(reason.name(), None, "{word} in {name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 2);
}

#[test]
fn tables_of_exit_reasons_and_inhibit_reasons_are_those_of_the_code() {
    // In one test: with `WRITE_DOCS` these write the same files.
    check("docs/exit-reasons.md", "interrupts", &of_interrupts());
    check("docs/exit-reasons.md", "vmx", &of_isa(Isa::Vmx));
    check("docs/exit-reasons.md", "svm", &of_isa(Isa::Svm));
    check("docs/inhibit-reasons.md", "reasons", &of_inhibits());
    check("docs/inhibit-reasons.md", "programs", &of_programs());
    check("docs/inhibit-reasons.md", "numbers", &of_numbers());
}
