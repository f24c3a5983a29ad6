//! The lines of a page with their figures.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use exits::{ExitReason, Exits, Key, Profile, Vcpu, What, Whose};

use super::accesses::Accesses;
use super::course::Courses;
use super::names;
use super::page::{Page, View};
use super::sort::Sort;
use super::vms::Vms;

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) exits: Exits,
    /// The number of vCPUs of whose time it is a share.
    pub(super) vcpus: usize,
    /// Sleep included in the handling time, in nanoseconds.
    sleep_ns: u64,
    /// The most frequent exit reason.
    pub(super) most: Option<ExitReason>,
    /// True if its VM has ended.
    pub(super) has_ended: bool,
    /// True if all its time is sleep.
    pub(super) is_sleep: bool,
    most_count: u64,
}

impl Row {
    fn new(key: Key, name: String, vcpus: usize, has_ended: bool) -> Self {
        let is_sleep = key.what.reason().is_some_and(ExitReason::is_sleep);
        Self {
            key,
            name,
            exits: Exits::default(),
            vcpus,
            sleep_ns: 0,
            most: None,
            has_ended,
            is_sleep,
            most_count: 0,
        }
    }

    fn add(&mut self, reason: ExitReason, exits: &Exits) {
        self.exits.merge(exits);
        if reason.is_sleep() {
            self.sleep_ns = self.sleep_ns.saturating_add(exits.handling.total_ns());
        }
    }

    /// Host time without sleep, in percent of the vCPUs' time in `ns` nanoseconds.
    pub(super) fn host_percent(&self, ns: u64) -> f64 {
        self.percent(self.exits.handling.total_ns().saturating_sub(self.sleep_ns), ns)
    }

    /// Sleep, in percent of the vCPUs' time in `ns` nanoseconds.
    pub(super) fn halted_percent(&self, ns: u64) -> f64 {
        self.percent(self.sleep_ns, ns)
    }

    /// Host time including sleep, in percent of the vCPUs' time in `ns` nanoseconds.
    pub(super) fn time_percent(&self, ns: u64) -> f64 {
        self.percent(self.exits.handling.total_ns(), ns)
    }

    fn percent(&self, part_ns: u64, ns: u64) -> f64 {
        part_ns as f64 / (ns.max(1) as f64 * self.vcpus.max(1) as f64) * 100.0
    }

    fn figure(&self, sort: Sort) -> f64 {
        let times = &self.exits.handling;
        match sort {
            Sort::Exits | Sort::Name => self.exits.count as f64,
            // Exits with the same reason are either all work or all sleep.
            Sort::Time if self.key.what != What::Everything => times.total_ns() as f64,
            Sort::Time => self.host_percent(1),
            Sort::Halted => self.halted_percent(1),
            Sort::Mean => times.mean_ns().unwrap_or(-1.0),
            Sort::P99 => times.quantile_ns(0.99).map_or(-1.0, |ns| ns as f64),
            Sort::Max => times.max_ns().map_or(-1.0, |ns| ns as f64),
        }
    }
}

/// The sources of lines.
pub(super) struct Figures<'a> {
    pub(super) profile: &'a Profile,
    pub(super) courses: &'a Courses,
    pub(super) vms: &'a Vms,
}

impl Figures<'_> {
    /// The lines of a page in its order. Lines without exits now stay while their curve has earlier ones.
    pub(super) fn rows(&self, view: &View) -> Vec<Row> {
        let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
        for key in self.known(view.page) {
            rows.insert(key, self.row(view.page, key));
        }
        for of in self.profile.vcpus() {
            if view.page.accesses().is_some() {
                for (&access, exits) in &of.accesses {
                    if let Some(key) = key(view.page, of.vcpu, What::Access(access)) {
                        rows.entry(key).or_insert_with(|| self.row(view.page, key)).exits.merge(exits);
                    }
                }
                continue;
            }
            for (&reason, exits) in &of.reasons {
                if let Some(key) = key(view.page, of.vcpu, What::Reason(reason)) {
                    rows.entry(key).or_insert_with(|| self.row(view.page, key)).add(reason, exits);
                }
            }
        }
        let mut rows: Vec<Row> = rows.into_values().collect();
        self.find_most(view.page, &mut rows);
        let sort = view.sort();
        rows.sort_by(|one, other| {
            let by_figure = match sort {
                Sort::Name if matches!(one.key.whose, Whose::Vcpu(_)) && one.key.what == other.key.what => {
                    Ordering::Equal
                }
                Sort::Name => one.name.cmp(&other.name),
                sort => other.figure(sort).total_cmp(&one.figure(sort)),
            };
            by_figure.then_with(|| one.key.cmp(&other.key))
        });
        if view.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// All exits of one reason; `whose` is a VM or a vCPU.
    pub(super) fn of_reason(&self, whose: Whose, reason: ExitReason) -> Row {
        let key = Key { whose, what: What::Reason(reason) };
        let mut row = self.row(Page::Reasons(whose), key);
        for of in self.profile.vcpus().iter().filter(|of| is_of(of.vcpu, whose)) {
            of.reasons.get(&reason).into_iter().for_each(|exits| row.add(reason, exits));
        }
        row
    }

    /// The number of exits of a VM, a vCPU, or all VMs.
    pub(super) fn count_of(&self, whose: Whose) -> u64 {
        let theirs = self.profile.vcpus().iter().filter(|of| is_of(of.vcpu, whose));
        theirs.flat_map(|of| of.reasons.values()).map(|exits| exits.count).sum()
    }

    fn row(&self, page: Page, key: Key) -> Row {
        let vm = self.vms.get(key.whose.vm());
        let vcpus = match key.whose {
            Whose::Vcpu(_) => 1,
            _ => vm.map_or(1, |vm| vm.vcpus.len()),
        };
        let name = match (page, key.whose) {
            (Page::Reason(..), Whose::Vcpu(vcpu)) if page.accesses().is_none() => names::vcpu(vcpu),
            _ => names::line(key, self.vms),
        };
        Row::new(key, name, vcpus, vm.is_none_or(|vm| vm.has_ended()))
    }

    fn known(&self, page: Page) -> Vec<Key> {
        let everything = |whose| Key { whose, what: What::Everything };
        match page {
            Page::Vms => self.vms.iter().map(|(vm, _)| everything(Whose::Vm(vm))).collect(),
            Page::Vcpus(vm) => {
                let vcpus = self.vms.get(vm).into_iter().flat_map(|vm| &vm.vcpus);
                vcpus.map(|&vcpu| everything(Whose::Vcpu(vcpu))).collect()
            }
            Page::Reasons(whose) => {
                let is_line = |key: &Key| key.whose == whose && key.what.reason().is_some();
                self.courses.keys().filter(is_line).collect()
            }
            Page::Reason(whose, reason) => {
                let accesses = Accesses::of(reason);
                let is_line = |key: &Key| match accesses {
                    Some(accesses) => {
                        key.whose == whose && key.what.access().is_some_and(|what| accesses.include(what))
                    }
                    None => {
                        key.what == What::Reason(reason)
                            && key.whose.vcpu().is_some_and(|vcpu| is_of(vcpu, whose))
                    }
                };
                self.courses.keys().filter(is_line).collect()
            }
        }
    }

    fn find_most(&self, page: Page, rows: &mut [Row]) {
        if !matches!(page, Page::Vms | Page::Vcpus(_)) {
            return;
        }
        let mut counts: BTreeMap<(Key, ExitReason), u64> = BTreeMap::new();
        for of in self.profile.vcpus() {
            for (&reason, exits) in &of.reasons {
                if let Some(key) = key(page, of.vcpu, What::Reason(reason)) {
                    *counts.entry((key, reason)).or_default() += exits.count;
                }
            }
        }
        for row in rows {
            let from = (row.key, ExitReason::vmx(0));
            for (&(_, reason), &count) in counts.range(from..).take_while(|((key, _), _)| *key == row.key) {
                if count > row.most_count {
                    (row.most, row.most_count) = (Some(reason), count);
                }
            }
        }
    }
}

/// The line of the page to which exits or accesses of a vCPU belong; `None` if they are not on the page.
fn key(page: Page, vcpu: Vcpu, what: What) -> Option<Key> {
    let (whose, what) = match page {
        Page::Vms => (Whose::Vm(vcpu.vm), What::Everything),
        Page::Vcpus(vm) if vcpu.vm == vm => (Whose::Vcpu(vcpu), What::Everything),
        Page::Reasons(whose) if is_of(vcpu, whose) => (whose, what),
        Page::Reason(whose, reason) if is_of(vcpu, whose) => match (Accesses::of(reason), what) {
            (Some(accesses), What::Access(access)) if accesses.include(access) => (whose, what),
            (None, What::Reason(this)) if this == reason => (Whose::Vcpu(vcpu), what),
            _ => return None,
        },
        _ => return None,
    };
    Some(Key { whose, what })
}

fn is_of(vcpu: Vcpu, whose: Whose) -> bool {
    match whose {
        Whose::Everyone => true,
        Whose::Vm(vm) => vcpu.vm == vm,
        Whose::Vcpu(this) => vcpu == this,
    }
}
