//! The texts around the lines.

use exits::{ExitReason, What, Whose};

use super::cells::share;
use super::course::{SHOWN, intervals_a_column};
use super::names;
use super::page::Page;
use super::state::Top;
use super::vms::SHOWN_AFTER_END;
use crate::format::{count, counted, per_second, rate_over, share as percent, time, time_of, whole_time};
use crate::text::printable;

/// The most important keys, for the last line.
pub(super) const fn keys(width: usize) -> &'static str {
    if width >= 78 {
        "arrows select  Enter open  Esc back  v vCPUs  s sort  p pause  ? help  q quit"
    } else {
        "Enter open  Esc back  s sort  ? help  q quit"
    }
}

/// The rate of exits of all VMs.
pub(super) fn pace(top: &Top) -> String {
    let vms = counted(top.vms.running() as u64, "VM");
    match top.pace() {
        (_, 0) => "counting".to_owned(),
        (exits, ns) => format!("exits {} of {vms}", rate_over(exits, ns)),
    }
}

/// Losses since the reset.
pub(super) fn lost(top: &Top) -> String {
    let lost = match top.lost() {
        0 => "lost nothing".to_owned(),
        lost => format!("LOST {}", count(lost)),
    };
    match top.without_vcpu() {
        0 => lost,
        exits => format!("{lost}, {} WITHOUT VM", count(exits)),
    }
}

/// The mechanism of counting and its cost.
pub(super) fn source(top: &Top) -> String {
    let mut said = vec![format!("by {}", top.source.mechanism)];
    if let Some(ns) = top.cost_ns_per_exit {
        let (exits, interval_ns) = top.pace();
        let of_one = exits as f64 * ns / interval_ns.max(1) as f64 * 100.0;
        said.push(format!("costs {} an exit, {} of a CPU", time(ns), percent(of_one)));
    }
    said.extend(top.source.missing.iter().cloned());
    printable(&said.join("; "))
}

/// The heading of the page.
pub(super) fn place(top: &Top) -> String {
    let view = top.view();
    let mut text = match view.page {
        Page::Vms => "All VMs".to_owned(),
        Page::Reasons(whose) => format!("{}: exits by reason", names::whole(whose, &top.vms)),
        Page::Vcpus(vm) => format!("{}: vCPUs", names::whole(Whose::Vm(vm), &top.vms)),
        Page::Reason(whose, reason) => format!("{}: {reason}", names::whole(whose, &top.vms)),
    };
    if view.page.vm().is_some_and(|vm| top.vms.get(vm).is_none_or(|vm| vm.has_ended())) {
        text += " (ended)";
    }
    text + ", sorted by " + view.sort().name() + if view.is_reversed { ", reversed" } else { "" }
}

/// The period of the figures.
pub(super) fn when(top: &Top) -> String {
    let paused = if top.is_paused { "PAUSED, " } else { "" };
    let shown = match top.shown_ns() {
        0 => format!("every {}", whole_time(top.interval_ns())),
        ns if top.sums_up => format!("{} since reset", whole_time(ns)),
        ns => format!("last {}", whole_time(ns)),
    };
    format!("{paused}{shown}")
}

/// The title of curves with this many columns: the time that they show.
pub(super) fn curve_title(top: &Top, columns: usize) -> String {
    let intervals = intervals_a_column(columns) * columns.min(SHOWN);
    let seconds = intervals as f64 * top.interval_ns() as f64 / 1e9;
    let (number, unit) = match seconds {
        seconds if seconds < 99.5 => (seconds, "s"),
        seconds if seconds < 99.5 * 60.0 => (seconds / 60.0, "min"),
        seconds => (seconds / 3600.0, "h"),
    };
    let number = format!("{number:.1}");
    let whole = format!("last {} {unit}", number.trim_end_matches(".0"));
    if whole.len() <= columns { whole } else { whole.replace("last ", "") }
}

/// The figures of the page's reason.
pub(super) fn reason(top: &Top, whose: Whose, reason: ExitReason) -> String {
    let figures = top.figures();
    let row = figures.of_reason(whose, reason);
    let (ns, all) = (top.shown_ns(), figures.count_of(whose));
    let times = &row.exits.handling;
    let mut text = rate_over(row.exits.count, ns);
    if all > 0 {
        text += &format!(", {} of all", percent(row.exits.count as f64 / all as f64 * 100.0));
    }
    text += &format!(", {} of vCPU", share(row.time_percent(ns)));
    if times.count() > 0 {
        text += &format!(
            "; p50 {}, p99 {}, max {}",
            time_of(times.quantile_ns(0.5)),
            time_of(times.quantile_ns(0.99)),
            time_of(times.max_ns())
        );
    }
    text
}

/// The peak of a curve.
pub(super) fn peak(rates: &[f64]) -> String {
    format!("peak {}", per_second(rates.iter().copied().fold(0.0, f64::max)))
}

/// The text of a page without lines.
pub(super) fn nothing(top: &Top) -> String {
    if top.shown_ns() == 0 {
        return format!("Counting for the first {}.", whole_time(top.interval_ns()));
    }
    match top.view().page {
        Page::Vms => "No VM has had an exit yet. This page waits for one.".to_owned(),
        page if page.vm().is_some_and(|vm| top.vms.get(vm).is_none()) => {
            "This VM has ended. Esc leads back.".to_owned()
        }
        Page::Reason(..) if top.wants_accesses() => "No access has been counted yet.".to_owned(),
        _ => "No exits in the last minutes.".to_owned(),
    }
}

/// The key of a reason's curve.
pub(super) const fn of_reason(whose: Whose, reason: ExitReason) -> exits::Key {
    exits::Key { whose, what: What::Reason(reason) }
}

/// The help, line by line.
pub(super) fn help() -> Vec<String> {
    let lines = [
        "arrows, j, k      select a line; PgUp, PgDn, Home, End likewise",
        "Enter, Esc        open the line: VM, reason, accesses; and back",
        "v                 vCPUs of the VM, or its reasons again",
        "s, S              order by the next figure; the other way round",
        "i                 I/O cores and the monitor's decisions; and back",
        "t                 sums since the reset, or the last interval",
        "p, Space          pause; what is counted meanwhile comes after it",
        "r                 begin sums, curves and losses anew",
        "+, -              a longer or a shorter interval",
        "q, Ctrl-C         end;  Ctrl-Z  stop until `fg`",
        "",
        "host    time from exits to entries without sleep, of the vCPUs' time",
        "halted  the same of HLT: sleep, not work",
        "of vCPU the same of the line alone",
        ">100 %  a sleep counts where it ends, and began before the interval",
        "curves  exits/s, each line on its own scale, the latest on the right",
    ];
    let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    lines.push(format!("ended   VMs that ended stay for {SHOWN_AFTER_END} intervals"));
    lines
}
