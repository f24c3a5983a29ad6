//! The answers as text for a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table};
use exits::{counted, printable};

use super::{Change, Report};
use crate::output::plain;

/// The most rows of an answer that are shown; JSON has all.
const SHOWN: usize = 20;

impl Report {
    /// The whole report. No line is wider than `width` columns.
    #[must_use]
    pub fn text(&self, width: u16) -> String {
        let mut page = Page { text: String::new(), width };
        page.line(&format!("{} with {}", counted(self.hosts as u64, "host"), counted(self.vms as u64, "VM")));

        page.title("Hosts that could run guests without interrupt exits, and do not", self.idle_hosts.len());
        page.table(
            &["host", "CPU has", "kernel", "next step"],
            &[],
            self.idle_hosts.iter().map(|one| {
                let next = or_dash(one.next_step.as_deref());
                vec![
                    one.host.clone(),
                    or_dash(one.mechanism.as_deref()),
                    or_dash(one.kernel.as_deref()),
                    next,
                ]
            }),
        );

        page.title("VMs for which it is inhibited", self.inhibited_vms.len());
        page.table(
            &["host", "VM", "state", "reasons", "fix"],
            &[],
            self.inhibited_vms.iter().map(|one| {
                let reasons = one.inhibit_reasons.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
                let fix = one.fixes.iter().flatten().next().map(String::as_str);
                vec![one.host.clone(), one.vm.clone(), one.state.clone(), reasons, or_dash(fix)]
            }),
        );

        page.title("Exit reasons by the CPU time of their handling, without idle time", self.reasons.len());
        page.table(
            &["reason", "hosts", "exits", "CPU time", "share"],
            &[1, 2, 3, 4],
            self.reasons.iter().map(|one| {
                let share = one.percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %"));
                let (hosts, exits) = (one.hosts.to_string(), one.exits.to_string());
                vec![one.reason.clone(), hosts, exits, format!("{:.3} s", one.handling_s), share]
            }),
        );

        let baseline = self.baseline.as_deref().unwrap_or("the most frequent values");
        page.title(&format!("Module parameters that differ from {}", printable(baseline)), self.drift.len());
        page.table(
            &["host", "parameter", "value", "baseline"],
            &[],
            self.drift.iter().map(|one| {
                let name = format!("{}.{}", one.module, one.parameter);
                vec![one.host.clone(), name, one.value.clone(), one.baseline.clone()]
            }),
        );

        page.title("Exits after a change of the kernel, by the hour", self.kernels.len());
        page.table(
            &["host", "before", "after", "hours", "exits/s", "change (95 % interval)"],
            &[3, 4],
            self.kernels.iter().map(|one| {
                let hours = format!("{}, {}", one.hours[0], one.hours[1]);
                let rates = format!("{:.0}, {:.0}", one.exits_per_second[0], one.exits_per_second[1]);
                vec![
                    one.host.clone(),
                    one.before.clone(),
                    one.after.clone(),
                    hours,
                    rates,
                    told(one.exits.as_ref()),
                ]
            }),
        );
        page.text
    }
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

fn told(change: Option<&Change>) -> String {
    let Some(change) = change else { return "-".to_owned() };
    match (change.finding, change.low, change.high) {
        ("too-few", _, _) => format!("{:+.1} % (too few hours)", change.percent),
        (finding, Some(low), Some(high)) => {
            let doubt = if finding == "not-seen" { ", not seen" } else { "" };
            format!("{:+.1} % ({low:+.1} to {high:+.1} %{doubt})", change.percent)
        }
        (finding, _, _) => format!("{:+.1} % ({finding})", change.percent),
    }
}

struct Page {
    text: String,
    width: u16,
}

impl Page {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    fn title(&mut self, title: &str, number: usize) {
        let mut table = plain(self.width);
        table.add_row([format!("{title}: {number}")]);
        let _ = writeln!(self.text, "\n{}", trimmed(&table));
    }

    /// Adds a table; nothing without rows. Notes how many rows are not shown. `right` are the columns with
    /// numbers.
    fn table(&mut self, header: &[&str], right: &[usize], rows: impl ExactSizeIterator<Item = Vec<String>>) {
        let number = rows.len();
        if number == 0 {
            return;
        }
        let mut table = plain(self.width);
        table.set_header(header);
        for row in rows.take(SHOWN) {
            table.add_row(row.iter().map(|cell| printable(cell)));
        }
        for column in right {
            if let Some(column) = table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.line(&trimmed(&table));
        if number > SHOWN {
            self.line(&format!(" … and {} more; --json has all", number - SHOWN));
        }
    }
}

/// The table without trailing spaces.
fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
