//! The tables of rules and kernels in `docs/doctor.md` are those of the code.

use std::fmt::Write as _;

use doctor::examination::{Asked, Category, KERNELS, KernelRow, Kind, rules};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
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

fn check(what: &str, table: &str) {
    let (begin, end) = (format!("<!-- {what}: {BY} -->\n"), format!("<!-- end of {what} -->\n"));
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(&begin).expect("docs/doctor.md has the mark before the table");
    let (written, after) = rest.split_once(&end).expect("docs/doctor.md has the mark after the table");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(PAGE, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(written, table, "run the test again with WRITE_DOCS=1");
}

#[test]
fn both_tables_are_those_of_the_code() {
    // Not in parallel: with WRITE_DOCS both write the same file.
    check("rules", &of_rules());
    check("kernels", &of_kernels());
}

#[test]
fn rules_fit_into_a_table() {
    for rule in rules() {
        let cells = [rule.name, rule.title, rule.why, rule.source];
        assert!(cells.iter().all(|cell| !cell.contains(['|', '\n', '<'])), "{}", rule.name);
    }
}
