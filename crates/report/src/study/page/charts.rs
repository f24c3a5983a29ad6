//! The figures that are drawn, by section.

use maud::{Markup, html};
use study::analysis::{ATTAINED, Figure, Findings, Source};
use study::{Better, Unit};

use super::marks::legend;
use super::{bars, lines, requested};

/// Figures of the host's CPUs that are drawn: utilization and iowait.
const CPU: [&str; 2] = ["cpu.busy", "cpu.iowait"];
/// The note on exits per unit of work.
const OF_WORK: &str = "Of all guests together, all reasons, over the whole run: where both arms do the same work in unlike times, these \
                       compare the work, and those a second the times.";
/// The latency that is drawn if it exists.
const TAIL: &str = "latency.p99";

pub(super) fn render(findings: &Findings) -> Markup {
    let main = findings.main_and_alike();
    let (throughput, other): (Vec<&Figure>, Vec<&Figure>) =
        main.into_iter().partition(|figure| figure.better == Better::Higher);
    let latency: Vec<&Figure> = of_each_workload(findings, |figures| {
        let latencies =
            || figures.iter().filter(|figure| figure.unit == Unit::Seconds && figure.better == Better::Lower);
        latencies().find(|figure| figure.metric == TAIL).or_else(|| latencies().next()).copied()
    });
    let others =
        other.into_iter().filter(|figure| !latency.iter().any(|drawn| std::ptr::eq(*drawn, *figure)));
    let latency: Vec<&Figure> = latency.iter().copied().chain(others).collect();
    let attained: Vec<&Figure> = findings
        .figures
        .iter()
        .filter(|figure| figure.source == Source::Workload && figure.metric == ATTAINED)
        .collect();
    let host = |metric: &str| -> Vec<&Figure> {
        findings
            .figures
            .iter()
            .filter(|figure| figure.source == Source::Host && figure.metric == metric)
            .collect()
    };
    let totals: Vec<&Figure> = findings.figures.iter().filter(|figure| figure.is_exit_total()).collect();
    let totals_of_work: Vec<&Figure> =
        findings.figures.iter().filter(|figure| figure.is_exit_total_of_work()).collect();
    html! {
        (section(findings, "Throughput", "The sum over all guests that ran at once.", &throughput))
        (section(findings, "Latency", "Of all guests that ran at once the slowest counts.", &latency))
        (requested::section(findings))
        (section(findings, "Attained of what was asked for", "Loads of a fixed rate: what was answered of what was due.", &attained))
        @for (metric, title, note) in [
            (CPU[0], "CPU of the host", "Time that is neither idle nor waiting for I/O. More of it may be more work done, or waste."),
            (CPU[1], "Waiting for I/O", "Time in which a CPU of the host was idle while a request to a disk was under way (iowait)."),
        ] { (section(findings, title, note, &host(metric))) }
        (section(findings, "VM exits a second", "Of all guests together, all reasons.", &totals))
        (section(findings, "VM exits for each unit of work", OF_WORK, &totals_of_work))
        (bars::section(findings))
        (bars::section_of_work(findings))
    }
}

/// One figure of each workload, chosen by `choose` among those that the workload measured.
fn of_each_workload<'a>(
    findings: &'a Findings,
    choose: impl Fn(&[&'a Figure]) -> Option<&'a Figure>,
) -> Vec<&'a Figure> {
    let workloads = findings.study.workloads.iter().filter_map(|workload| {
        let of = |figure: &&Figure| figure.source == Source::Workload && figure.workload == workload.name;
        choose(&findings.figures.iter().filter(of).collect::<Vec<_>>())
    });
    workloads.collect()
}

fn section(findings: &Findings, title: &str, note: &str, figures: &[&Figure]) -> Markup {
    html! {
        @if !figures.is_empty() {
            section {
                h2 { (title) }
                p.muted {
                    (note) " Marks are means with their 95 % intervals, small dots the single runs. Where changes are in percent the "
                    "means are geometric, so that their ratio is the change."
                }
                (legend(findings))
                div.charts { @for (figure, axes) in lines::with_axes(figures) { (lines::figure(findings, figure, &axes)) } }
            }
        }
    }
}
