//! The result of `exitless doctor`: the tree of checks, their tally, one sentence, and the next command.

use doctor::{Examination, HostState};
use host::Inspection;

use crate::findings::tree::{FindingsView, findings, findings_summary};
use crate::terminal::{NARROWEST, emphasised, wrapped};
use crate::text::printable;

/// All checks by category and VM, with the conclusion last, next to the prompt.
#[must_use]
pub fn terminal(host: &Inspection, found: &Examination, view: FindingsView) -> String {
    let width = view.width.max(NARROWEST);
    let mut text = wrapped(&of(host), width, "", "  ");
    text.push('\n');
    text += &findings(&found.sections, view);
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

/// The kernel and the processor.
fn of(host: &Inspection) -> String {
    let kernel =
        host.kernel.release.get().map_or("a kernel without a name".to_owned(), |one| format!("Linux {one}"));
    let cpu = host.processor.first.get().and_then(|cpu| cpu.name.clone());
    let system = host.kernel.distribution.get().and_then(|one| one.name.clone());
    let parts = [Some(kernel), system, cpu];
    printable(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}
