//! The method of the figures, and how to read them.

use maud::{Markup, html};
use prove::Proof;

use crate::format::{self, counted};
use crate::prove::words;

pub(crate) fn render(outcome: &Proof) -> Markup {
    let plan = &outcome.plan;
    let both = words::only_arm(&outcome.arms).is_none();
    html! {
        section {
            h2 { "How this was measured" }
            @if both {
                p {
                    "A micro VM of " (plan.vcpus) " vCPUs ran every operation with interrupt virtualization on and, inhibited "
                    "for this VM alone"
                    @if let Some(reason) = &outcome.evidence.reason { " (reason " (reason) ")" }
                    ", with it off. No module was reloaded and no other VM was touched. Runs of "
                    (counted(plan.samples.into(), "sample")) " followed each other in blocks of off, on, on, off, so that a "
                    "steady drift of the machine cancels. Exits were counted in separate runs, whose times enter no figure here."
                }
                h3 { "How to read an interval" }
                p {
                    "The samples of one run resemble each other, so a run counts once: by its median. Each pair of neighbouring "
                    "runs, one of each arm, gives one ratio. The change is the mean of those ratios (of their logarithms), the "
                    "interval Student's t interval about it. An interval made this way holds the true change 95 times in 100, "
                    "so of " (counted(outcome.measures.len() as u64, "operation")) " one may well miss. An interval that holds 0 means no significant "
                    "difference in this experiment; it does not mean that the arms are equal. A change below "
                    (outcome.method.negligible_percent) " % is called negligible, however certain it is. The interval speaks of this one "
                    "experiment: what is drawn once in it, such as where things lie in memory, is the same in all its runs. Repeat "
                    "the proof before you lean on the last digit."
                }
                p {
                    "p answers another question: if interrupt virtualization did nothing, how often would dealing the names of the "
                    "arms by chance within each block give a difference at least as large? With few blocks it cannot be small."
                }
            } @else {
                p {
                    "A micro VM of " (plan.vcpus) " vCPUs ran every operation in runs of " (format::count(plan.samples.into()))
                    " samples. There is only one arm here, so no difference and no interval can be given."
                }
            }
            @if !outcome.evidence.notes.is_empty() {
                h3 { "What the checks of the arms said" }
                ul { @for note in &outcome.evidence.notes { li { (note) } } }
            }
        }
    }
}
