//! The result of `exitless doctor`: the tree of checks, their tally, one sentence, and the next command.

use doctor::examination::{KERNELS, Release};
use doctor::{Examination, Finding, HostState, Section, State};
use host::Inspection;

use crate::findings::tree::{FindingsView, findings, findings_summary};
use crate::format::counted;
use crate::terminal::{NARROWEST, emphasised, wrapped};
use crate::text::printable;

/// All checks by category and VM, with the conclusion last, next to the prompt.
#[must_use]
pub fn terminal(host: &Inspection, found: &Examination, view: FindingsView) -> String {
    let width = view.width.max(NARROWEST);
    let mut text = wrapped(&of(host), width, "", "  ");
    text.push('\n');
    text += &match view.verbose {
        true => findings(&found.sections, view),
        false => findings(&folded(host, &found.sections), view),
    };
    text.push('\n');
    text += &wrapped(&format!("{}.", findings_summary(found.summary)), width, "", "");
    let sentence = printable(&found.conclusion.sentence);
    text.push('\n');
    text += &emphasised(&wrapped(&sentence, width, "", ""), "1", view.colour);
    if let Some(next) = &found.conclusion.next {
        // For a host that cannot run guests, the next command starts a lab, which runs on any machine.
        let anywhere = host.live || found.conclusion.outcome == HostState::NoVirtualization;
        let place = if anywhere { "" } else { ", on that host" };
        text += &format!("next{place}: {}\n", printable(next));
    }
    text
}

/// The sections with one line for all changes of which the number of a vendor's kernel does not tell: there are dozens.
fn folded(host: &Inspection, sections: &[Section]) -> Vec<Section> {
    let mut sections = sections.to_vec();
    let Some(release) = Release::of(&host.kernel) else { return sections };
    let Some(vendor) = release.vendor else { return sections };
    let is_untold = |finding: &Finding| match &finding.state {
        State::Skip(why) => KERNELS.iter().any(|row| row.rule == finding.rule && *why == row.doubt(&release)),
        _ => false,
    };
    for section in &mut sections {
        let (mut untold, told): (Vec<Finding>, Vec<Finding>) =
            section.findings.drain(..).partition(is_untold);
        section.findings = told;
        if untold.len() > 1 {
            let why = format!(
                "the number of {}'s kernel does not tell whether it has them; --verbose lists them, with what to look \
                 for in {}",
                vendor.name(),
                vendor.changes()
            );
            let title = counted(untold.len() as u64, "change");
            untold = vec![Finding { title, state: State::Skip(why), ..untold.swap_remove(0) }];
        }
        section.findings.append(&mut untold);
    }
    sections
}

/// The kernel and the processor.
fn of(host: &Inspection) -> String {
    let kernel =
        host.kernel.release.get().map_or("a kernel without a name".to_owned(), |one| format!("Linux {one}"));
    let cpu = host.processor.first.get().and_then(|cpu| cpu.name.clone());
    let system = host.kernel.distribution.get().and_then(|one| one.name.clone());
    let parts = [Some(kernel), system, cpu];
    printable(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}
