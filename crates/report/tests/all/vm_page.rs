//! Checks the output shown in `docs/vm.md`.

use doctor::Tally;
use doctor::fix::{Chosen, fix};
use doctor::lint::HostSide;
use domain::{Form, NoFiles, Text};
use exits::Isa;
use report::findings::FindingsView;
use report::fixed::FixedView;

const PAGE: &str = include_str!("../../../../docs/vm.md");
const XML: &str = include_str!("vm_page/web.xml");

#[test]
fn the_examples_are_real_output() {
    let text = Text::new("web.xml", XML);
    let host = HostSide::of_vendor(Isa::Svm);
    let fixed = fix(&text, Form::Libvirt, &NoFiles, &host, &Chosen::Safe).unwrap();
    let view = FindingsView { width: 80, colour: false, passes: false, verbose: false };
    let tally = Tally::of(fixed.before.iter().flat_map(|section| &section.findings));
    let lint = report::findings::terminal(&fixed.before, &[], tally, view);
    let fix = report::fixed::terminal(FixedView {
        name: "web.xml",
        form: Form::Libvirt,
        old: XML.as_bytes(),
        fixed: &fixed,
        ending: "Nothing was written; --apply writes it.",
        width: 80,
        colour: false,
    });
    for (command, said) in [("lint", lint), ("fix", fix)] {
        let block = format!("```text\n$ exitless vm {command} web.xml --for amd\n{said}```\n");
        assert!(PAGE.contains(&block), "docs/vm.md lacks\n{block}");
    }
}
