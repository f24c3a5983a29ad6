//! The table of rules in `docs/vm.md` is the rules' own.

use std::fmt::Write as _;

use doctor::lint::{Group, rules};

const BEGIN: &str = "<!-- rules: written by crates/doctor/tests/rules_in_docs.rs -->\n";
const END: &str = "<!-- end of rules -->\n";

fn table() -> String {
    let mut text = String::new();
    for group in Group::ALL {
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
fn the_table_of_rules_is_the_one_of_the_rules() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vm.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("docs/vm.md has the mark before the rules");
    let (written, after) = rest.split_once(END).expect("docs/vm.md has the mark after the rules");
    let table = table();
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(written, table, "run the test again with WRITE_DOCS=1");
}

#[test]
fn rules_fit_into_a_table() {
    for rule in rules() {
        let cells = [rule.name, rule.why, rule.source];
        assert!(cells.iter().all(|cell| !cell.contains(['|', '\n', '<'])), "{}", rule.name);
    }
}
