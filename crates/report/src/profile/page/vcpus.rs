//! The time of each vCPU and each VM: handling exits, asleep, and the rest.

use std::collections::BTreeMap;

use exits::{Profile, VcpuExits};
use maud::{Markup, html};
use traces::Recordings;

use crate::format::{count, per_second, share, whole_time};
use crate::page::axis::percent;
use crate::page::table::{Cell, Column, render};
use crate::recordings::words::{vcpu, vm};

/// The time of some vCPUs, by its use.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    vcpus: u32,
    exits: u64,
    handled_ns: u64,
    asleep_ns: u64,
}

impl Spent {
    fn of(exits: &VcpuExits) -> Self {
        let mut spent = Self { vcpus: 1, ..Self::default() };
        for (&reason, exits) in &exits.reasons {
            spent.exits = spent.exits.saturating_add(exits.count);
            let ns = if reason.is_sleep() { &mut spent.asleep_ns } else { &mut spent.handled_ns };
            *ns = ns.saturating_add(exits.handling.total_ns());
        }
        spent
    }

    fn add(&mut self, other: Self) {
        self.vcpus += other.vcpus;
        self.exits = self.exits.saturating_add(other.exits);
        self.handled_ns = self.handled_ns.saturating_add(other.handled_ns);
        self.asleep_ns = self.asleep_ns.saturating_add(other.asleep_ns);
    }
}

/// Tables of VMs if there are several, and of vCPUs.
pub(crate) fn section(recordings: &Recordings) -> Markup {
    let profile = &recordings.profile;
    let observed_ns = recordings.observed_ns();
    let vcpus: Vec<(String, String, Spent)> = profile
        .vcpus()
        .iter()
        .map(|exits| {
            (vm(exits.vcpu.vm, profile), vcpu(exits.vcpu.number, exits.vcpu.thread), Spent::of(exits))
        })
        .collect();
    let vms = vms(profile);
    html! {
        section {
            h2 { "VMs and vCPUs" }
            p.muted {
                "Exits, and what the time of the recording went to: " span.key.handled { "handling exits" } ", "
                span.key.asleep { "asleep in HLT" } ", and the rest, in the guest or off the CPU."
            }
            @if vms.len() > 1 {
                h3 { "VMs" }
                @let names = vms.iter().map(|(vm, spent)| vec![vm.clone(), count(spent.vcpus.into())]).collect();
                (table("VMs", &["VM", "vCPUs"], names, &vms.iter().map(|vm| vm.1).collect::<Vec<_>>(), observed_ns))
                h3 { "vCPUs" }
            }
            @let names = vcpus.iter().map(|(vm, vcpu, _)| vec![vm.clone(), vcpu.clone()]).collect();
            (table("vCPUs", &["VM", "vCPU"], names, &vcpus.iter().map(|vcpu| vcpu.2).collect::<Vec<_>>(), observed_ns))
        }
    }
}

fn vms(profile: &Profile) -> Vec<(String, Spent)> {
    let mut vms: BTreeMap<Option<u32>, Spent> = BTreeMap::new();
    for exits in profile.vcpus() {
        vms.entry(exits.vcpu.vm).or_default().add(Spent::of(exits));
    }
    vms.into_iter().map(|(number, spent)| (vm(number, profile), spent)).collect()
}

fn table(
    caption: &str,
    titles: &[&str; 2],
    names: Vec<Vec<String>>,
    rows: &[Spent],
    observed_ns: u64,
) -> Markup {
    let mut columns: Vec<Column> = titles
        .iter()
        .enumerate()
        .map(|(at, title)| Column::names(title, names.iter().map(|names| Cell::name(&names[at])).collect()))
        .collect();
    let figures =
        |title: &str, cell: &dyn Fn(&Spent) -> Cell| Column::figures(title, rows.iter().map(cell).collect());
    columns.push(figures("Exits", &|row| Cell::figure(&count(row.exits), Some(row.exits as f64))));
    if observed_ns > 0 {
        columns.push(figures("A second", &|row| {
            let rate = row.exits as f64 / observed_ns as f64 * 1e9;
            Cell::figure(&per_second(rate), Some(rate))
        }));
    }
    let time = |ns: u64| Cell::figure(&whole_time(ns), Some(ns as f64));
    columns.push(figures("Handling", &|row| time(row.handled_ns)));
    columns.push(figures("Asleep", &|row| time(row.asleep_ns)));
    if observed_ns > 0 {
        let part = |row: &Spent, ns: u64| ns as f64 / observed_ns as f64 / f64::from(row.vcpus.max(1));
        columns.push(figures("Handling, %", &|row| {
            let percent = part(row, row.handled_ns) * 100.0;
            Cell::figure(share(percent).trim_end_matches(" %"), Some(percent))
        }));
        let bars = rows.iter().map(|row| bar(part(row, row.handled_ns), part(row, row.asleep_ns)));
        columns.push(Column::drawings(html! { "Of its time" }, bars.collect()));
    }
    render(caption, &columns, 0)
}

fn bar(handled: f64, asleep: f64) -> Cell {
    let handled = handled.clamp(0.0, 1.0);
    let asleep = asleep.clamp(0.0, 1.0 - handled);
    let label = format!("handling {}, asleep {}", share(handled * 100.0), share(asleep * 100.0));
    Cell::drawing(html! {
        svg role="img" width="100%" height="14" aria-label=(label) {
            title { (label) }
            rect.track x="0" y="2" width="100%" height="10" {}
            rect.handled x="0" y="2" width=(percent(handled)) height="10" {}
            rect.asleep x=(percent(handled)) y="2" width=(percent(asleep)) height="10" {}
        }
    })
}
