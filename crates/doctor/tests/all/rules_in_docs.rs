//! The tables of rules in `docs/vm.md` match the code.

use std::fmt::Write as _;

use doctor::lint::{Group, rules, rules_of};

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

fn check(what: &str, groups: &[Group]) {
    let (begin, end) = (format!("<!-- {what}: {BY} -->\n"), format!("<!-- end of {what} -->\n"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vm.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(&begin).expect("docs/vm.md has the mark before the rules");
    let (written, after) = rest.split_once(&end).expect("docs/vm.md has the mark after the rules");
    let table = table(groups);
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(written, table, "run the test again with WRITE_DOCS=1");
}

#[test]
fn the_tables_of_rules_are_those_of_the_rules() {
    // Not in parallel: with WRITE_DOCS both write the same file.
    check("rules", Group::ALL);
    check("rules of xl", Group::OF_XL);
}

#[test]
fn rules_fit_into_a_table() {
    for rule in rules().chain(rules_of(domain::Form::Xl)) {
        let cells = [rule.name, rule.why, rule.source];
        assert!(cells.iter().all(|cell| !cell.contains(['|', '\n', '<'])), "{}", rule.name);
    }
}
