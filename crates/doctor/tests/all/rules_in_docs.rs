//! The tables of rules in `docs/vm.md` match the code.

use std::fmt::Write as _;

use doctor::lint::{Group, rules, rules_of};

use crate::check;

const BY: &str = "written by crates/doctor/tests/all/rules_in_docs.rs";

fn table(groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        let _ = write!(text, "### {}\n\n| rule | why | source |\n|---|---|---|\n", group.title());
        for rule in group.rules() {
            let mark = if rule.guest_follows { " \\*" } else { "" };
            let _ = writeln!(text, "| `{}`{mark} | {} | {} |", rule.name, rule.why, rule.source);
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_tables_of_rules_are_those_of_the_rules() {
    // Not in parallel: with WRITE_DOCS both write the same file.
    check("vm.md", BY, "rules", &table(Group::ALL));
    check("vm.md", BY, "rules of xl", &table(Group::OF_XL));
}

#[test]
fn rules_fit_into_a_table() {
    for rule in rules().chain(rules_of(domain::Form::Xl)) {
        let cells = [rule.name, rule.why, rule.source];
        assert!(cells.iter().all(|cell| !cell.contains(['|', '\n', '<'])), "{}", rule.name);
    }
}
