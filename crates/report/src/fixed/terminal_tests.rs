use super::*;
use crate::findings::{self, FindingsView};
use doctor::fix::{Chosen, fix};
use doctor::lint::HostSide;
use domain::{NoFiles, Text};
use exits::Isa;

const XML: &str = include_str!("domain.xml");
const PAGE: &str = include_str!("../../../../docs/vm.md");
const XML_OF_PAGE: &str = include_str!("page.xml");

fn view(xml: &str, chosen: &Chosen, show: impl Fn(FixedView<'_>) -> String) -> String {
    let text = Text::new("web.xml", xml);
    let host = HostSide::of_vendor(Isa::Svm);
    let fixed = fix(&text, Form::Libvirt, &NoFiles, &host, chosen).unwrap();
    show(FixedView {
        name: "web.xml",
        form: Form::Libvirt,
        old: xml.as_bytes(),
        fixed: &fixed,
        ending: "Nothing was written; --apply writes it.",
        width: 80,
        colour: false,
    })
}

#[test]
fn the_diff_the_rules_and_what_is_left() {
    insta::assert_snapshot!(view(XML, &Chosen::Safe, terminal));
}

#[test]
fn the_same_for_programs() {
    let said = view(XML, &Chosen::Safe, |view| {
        let document = crate::fixed::json(view.name, view.old, view.fixed, false);
        serde_json::to_string_pretty(&document).unwrap()
    });
    insta::assert_snapshot!(said);
}

#[test]
fn colour_adds_escape_sequences_alone() {
    let plain = view(XML, &Chosen::All, terminal);
    let coloured = view(XML, &Chosen::All, |view| terminal(FixedView { colour: true, ..view }));
    let stripped = ["\u{1b}[32m", "\u{1b}[31m", "\u{1b}[36m", "\u{1b}[0m"];
    let stripped = stripped.iter().fold(coloured.clone(), |text, code| text.replace(code, ""));
    assert_ne!(coloured, plain);
    assert_eq!(stripped, plain);
}

#[test]
fn a_command_at_the_end_stays_on_one_line() {
    let command = format!("  mv '{0}.orig' '{0}'", "/vms of/some user/".repeat(5));
    let ending = format!("Written:\n{command}");
    let said = view(XML, &Chosen::Safe, |view| terminal(FixedView { ending: &ending, ..view }));
    assert!(said.contains(&format!("\nWritten:\n{command}\n")), "{said}");
}

#[test]
fn the_examples_of_the_manual_are_real_output() {
    let view_of = FindingsView { width: 80, colour: false, passes: false, verbose: false };
    let lint = view(XML_OF_PAGE, &Chosen::Safe, |view| {
        let tally = Tally::of(view.fixed.before.iter().flat_map(|section| &section.findings));
        findings::terminal(&view.fixed.before, &[], tally, view_of)
    });
    for (command, said) in [("lint", lint), ("fix", view(XML_OF_PAGE, &Chosen::Safe, terminal))] {
        let block = format!("```text\n$ exitless vm {command} web.xml --for amd\n{said}```\n");
        assert!(PAGE.contains(&block), "docs/vm.md lacks\n{block}");
    }
}
