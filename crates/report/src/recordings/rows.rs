//! Rows of exits for programs, with the same fields in JSON and CSV.

use exits::{AccessKind, ExitReason, Exits, Isa, Key, Profile, Table};
use serde::Serialize;

/// The names that identify a row; `None` if rows are not grouped by it, or if the recording does not contain
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Names {
    /// The VM: under KVM the process that owns it, under Xen the domain.
    pub vm: Option<u32>,
    /// The VM's name.
    pub vm_name: Option<String>,
    /// The vCPU's number in its VM.
    pub vcpu: Option<u32>,
    /// Under KVM the thread that runs the vCPU.
    pub thread: Option<u32>,
    /// The instruction set that gives `reason_code` its meaning.
    pub isa: Option<Isa>,
    /// The exit reason.
    pub reason: Option<ExitReason>,
    /// Its number in the hardware's encoding.
    pub reason_code: Option<u32>,
    /// The kind of `access`.
    pub access_kind: Option<AccessKind>,
    /// The port, address or register, written as in `perf kvm stat` if that prints it.
    pub access: Option<String>,
}

impl Names {
    /// The names of a row of `profile`.
    pub(crate) fn new(key: Key, profile: &Profile) -> Self {
        let vcpu = key.whose.vcpu();
        let vm = key.whose.vm();
        let reason = key.what.reason();
        let access = key.what.access();
        Self {
            vm,
            vm_name: vm.and_then(|vm| profile.names.get(&vm).cloned()),
            vcpu: vcpu.and_then(|vcpu| vcpu.number),
            thread: vcpu.and_then(|vcpu| vcpu.thread),
            isa: reason.map(|reason| reason.isa),
            reason,
            reason_code: reason.map(|reason| reason.code),
            access_kind: access.map(exits::Access::kind),
            access: access.map(|access| access.to_string()),
        }
    }
}

/// Figures of some exits, or of some accesses, without rounding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// The number of exits.
    pub exits: u64,
    /// The number of exits with a handling time: samples in `perf kvm stat`.
    pub samples: u64,
    /// Their share of the table's samples.
    pub samples_percent: Option<f64>,
    /// The sum of handling times.
    pub time_ns: u64,
    /// Their share of the table's handling time.
    pub time_percent: Option<f64>,
    /// The shortest handling time.
    pub min_ns: Option<u64>,
    /// The longest handling time.
    pub max_ns: Option<u64>,
    /// The mean.
    pub mean_ns: Option<f64>,
    /// The sample standard deviation.
    pub deviation_ns: Option<f64>,
    /// The standard error of the mean relative to the mean: the `+-` of `perf kvm stat`.
    pub error_percent: Option<f64>,
    /// The median. This and the other quantiles are at most 3.2 % too high.
    pub p50_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// Exits that took at least as long as the table's bound, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_threshold: Option<u64>,
}

impl Figures {
    /// The figures of `exits`, with their shares of `table`.
    pub(crate) fn new(exits: &Exits, table: &Table) -> Self {
        let times = &exits.handling;
        Self {
            exits: exits.count,
            samples: times.count(),
            samples_percent: table.samples_percent(exits),
            time_ns: times.total_ns(),
            time_percent: table.time_percent(exits),
            min_ns: times.min_ns(),
            max_ns: times.max_ns(),
            mean_ns: times.mean_ns(),
            deviation_ns: times.standard_deviation_ns(),
            error_percent: times.relative_error_percent(),
            p50_ns: times.quantile_ns(0.5),
            p99_ns: times.quantile_ns(0.99),
            p999_ns: times.quantile_ns(0.999),
            over_threshold: table.threshold_ns().map(|ns| times.at_least(ns)),
        }
    }
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TableRow {
    /// The names that identify it.
    #[serde(flatten)]
    pub names: Names,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The rows that were left out, as one row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RestRow {
    /// The number of these rows.
    pub rows: usize,
    /// Their figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The rows of `table`, which was made from `profile`.
pub(crate) fn table_rows(table: &Table, profile: &Profile) -> Vec<TableRow> {
    let row = |row: &exits::Row| TableRow {
        names: Names::new(row.key, profile),
        figures: Figures::new(&row.exits, table),
    };
    table.rows().iter().map(row).collect()
}

/// The rows that the table leaves out.
pub(crate) fn rest_row(table: &Table) -> Option<RestRow> {
    table.rest().map(|rest| RestRow { rows: rest.rows, figures: Figures::new(&rest.exits, table) })
}
