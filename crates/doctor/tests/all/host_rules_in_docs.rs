//! The tables of rules and kernels in `docs/doctor.md` are those of the code.

use std::fmt::Write as _;

use doctor::examination::{Asked, Category, KERNELS, KernelRow, Kind, rules};

use crate::check;

const BY: &str = "written by crates/doctor/tests/all/host_rules_in_docs.rs";

fn of_rules() -> String {
    let rules = rules();
    let mut text = String::new();
    for category in Category::OF_HOST.iter().chain(&[Category::Vm]) {
        let _ = write!(
            text,
            "### {}\n\n| rule | looks at | why | source |\n|---|---|---|---|\n",
            category.title()
        );
        for rule in rules.iter().filter(|rule| rule.category == *category) {
            let after =
                if rule.parent.is_empty() { String::new() } else { format!(" (after `{}`)", rule.parent) };
            let _ = writeln!(
                text,
                "| `{}` | {}{after} | {} | {} |",
                rule.name, rule.title, rule.why, rule.source
            );
        }
        text.push('\n');
    }
    text
}

fn of_kernels() -> String {
    let mut text =
        "| rule | first release | also in | the kernel shows it by | without it | source |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for row in KERNELS {
        let first = match row.kind {
            Kind::Bug => format!("fixed in {}", row.first()),
            Kind::Feature | Kind::Extra => row.first(),
        };
        let (also, shown) = (also(row), shown(row));
        let _ = writeln!(
            text,
            "| `{}` | {first} | {also} | {shown} | {} | {} |",
            row.rule, row.without, row.source
        );
    }
    text
}

fn shown(row: &KernelRow) -> String {
    let one = |asked: &Asked| match asked {
        Asked::Types(question) => format!("type information, `{question}`"),
        Asked::Parameter(module, name) => format!("parameter `{name}` of {module}"),
        Asked::Option(name) => format!("`CONFIG_{name}`"),
    };
    let all: Vec<String> = row.asked.iter().map(one).collect();
    if all.is_empty() { "–".to_owned() } else { all.join(", ") }
}

fn also(row: &KernelRow) -> String {
    let stable = row.stable.iter().map(|((major, minor), patch)| format!("{major}.{minor}.{patch}"));
    let uek = row.uek.iter().map(|((major, minor), build)| {
        let build: Vec<String> = build.iter().map(u32::to_string).collect();
        format!("UEK {major}.{minor}-{}", build.join("."))
    });
    let all: Vec<String> = stable.chain(uek).collect();
    let all = if all.is_empty() { "–".to_owned() } else { all.join(", ") };
    if row.looked_in.is_empty() { all } else { format!("{all} *") }
}

#[test]
fn both_tables_are_those_of_the_code() {
    // Not in parallel: with WRITE_DOCS both write the same file.
    check("doctor.md", BY, "rules", &of_rules());
    check("doctor.md", BY, "kernels", &of_kernels());
}

#[test]
fn rules_fit_into_a_table() {
    for rule in rules() {
        let cells = [rule.name, rule.title, rule.why, rule.source];
        assert!(cells.iter().all(|cell| !cell.contains(['|', '\n', '<'])), "{}", rule.name);
    }
}
