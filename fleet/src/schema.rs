//! The tables of the data set: names, columns, types and units. A test writes the same into `docs/fleet.md`.
//!
//! Within one [`VERSION`], columns may be added, with nulls allowed, but never changed. The types are those
//! that all readers of Parquet support: signed integers, because some lack unsigned ones; times in
//! microseconds of UTC; lists whose element is called `element`, as Parquet's specification requires.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

/// The version of the schema, recorded in each file's metadata under [`VERSION_KEY`].
pub const VERSION: &str = "1";
/// The key of the schema's version in a file's metadata.
pub const VERSION_KEY: &str = "exitless.schema";
/// The key of the table's name in a file's metadata.
pub const TABLE_KEY: &str = "exitless.table";
/// The metadata key of the names that a compacted file replaces, one per line.
pub const REPLACES_KEY: &str = "exitless.replaces";

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// UTF-8 text.
    Text,
    /// A list of UTF-8 texts, without nulls.
    Texts,
    /// A signed 64-bit integer.
    Integer,
    /// A 64-bit floating-point number.
    Float,
    /// A Boolean.
    Flag,
    /// Microseconds since 1970-01-01 UTC.
    Time,
}

impl Type {
    fn arrow(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Texts => DataType::List(Arc::new(Field::new("element", DataType::Utf8, false))),
            Self::Integer => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Flag => DataType::Boolean,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// The name of Arrow's type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "Utf8",
            Self::Texts => "List<Utf8>",
            Self::Integer => "Int64",
            Self::Float => "Float64",
            Self::Flag => "Boolean",
            Self::Time => "Timestamp(µs, UTC)",
        }
    }
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub of: Type,
    /// Nulls are allowed.
    pub nullable: bool,
    /// Its meaning, with the unit.
    pub about: &'static str,
}

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The name of the table and of its folder.
    pub name: &'static str,
    /// The meaning of a row.
    pub about: &'static str,
    /// The columns after [`COMMON`].
    columns: &'static [Column],
}

impl Table {
    /// Finds a table by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TABLES.iter().find(|table| table.name == name)
    }

    /// All columns, including [`COMMON`].
    pub fn columns(&self) -> impl Iterator<Item = &'static Column> + use<> {
        COMMON.iter().chain(self.columns)
    }

    /// The schema in Arrow's types.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(column.name, column.of.arrow(), column.nullable);
        Arc::new(Schema::new(self.columns().map(field).collect::<Fields>()))
    }
}

const fn some(name: &'static str, of: Type, about: &'static str) -> Column {
    Column { name, of, nullable: false, about }
}

const fn maybe(name: &'static str, of: Type, about: &'static str) -> Column {
    Column { name, of, nullable: true, about }
}

use Type::{Flag, Float, Integer, Text, Texts, Time};

/// The columns with which every table begins.
pub const COMMON: &[Column] = &[
    some("host_name", Text, "the host, as it was given"),
    some(
        "time",
        Time,
        "when it was observed; of exits the end of the interval. The day of the path is this one's",
    ),
    some(
        "source",
        Text,
        "the command whose output it is: `doctor`, `verify`, `vms`, `stat`, `report`, `probe`, `prove`, `experiment`, `agent`",
    ),
    some(
        "document",
        Text,
        "the first 16 hex digits of the SHA-256 of that output: rows with the same document, host and time are duplicates, and are stored once",
    ),
    maybe("tool_version", Text, "the version of exitless that wrote it"),
];

/// All tables.
pub const TABLES: &[Table] = &[
    Table {
        name: "hosts",
        about: "An observation of a host. Each command sees a part; what it does not see is null",
        columns: &[
            maybe(
                "outcome",
                Text,
                "`doctor`'s conclusion in one word: `ready`, `switched-off`, `unavailable`, …",
            ),
            maybe("sentence", Text, "the same in a sentence"),
            maybe("next_step", Text, "the next step that `doctor` names"),
            maybe("fail", Integer, "failed checks"),
            maybe("warn", Integer, "warnings"),
            maybe("pass", Integer, "passed checks"),
            maybe("skip", Integer, "checks that could not be made"),
            maybe("kernel", Text, "kernel release, as `uname -r`"),
            maybe("cpu_vendor", Text, "vendor of CPUID: `GenuineIntel`, `AuthenticAMD`"),
            maybe("cpu_model", Text, "the CPU's name"),
            maybe("isa", Text, "`vmx` or `svm`"),
            maybe("module", Text, "the loaded module of KVM: `kvm_intel`, `kvm_amd`"),
            maybe("mechanism", Text, "`APICv`, `AVIC` or `x2AVIC`"),
            maybe("capable", Flag, "the CPU has it"),
            maybe("enabled", Flag, "the module has it switched on"),
            maybe("ipi_virtualization", Flag, "the module's `enable_ipiv`"),
            maybe("online_cpus", Integer, "processors online"),
            maybe("memory_bytes", Integer, "memory that the kernel manages, in bytes"),
        ],
    },
    Table {
        name: "parameters",
        about: "A parameter of a kernel module on a host",
        columns: &[
            some("module", Text, "`kvm`, `kvm_intel`, `kvm_amd`"),
            some("parameter", Text, "its name"),
            some("value", Text, "its value, as the kernel shows it"),
        ],
    },
    Table {
        name: "findings",
        about: "A check of `doctor`",
        columns: &[
            some("section", Text, "`cpu`, `kernel`, `kvm`, `iommu`, …, or the name of a VM"),
            some("section_title", Text, "the section's title"),
            some("rule", Text, "the rule's stable name"),
            some("title", Text, "its subject"),
            some("state", Text, "`pass`, `warn`, `fail` or `skip`"),
            maybe("reason", Text, "why it was skipped"),
            some("found", Text, "the finding in one line"),
            some("why", Text, "why it matters"),
            some("evidence", Texts, "each as `place: value`"),
            some("fixes", Texts, "what fixes it; each is enough alone"),
        ],
    },
    Table {
        name: "vms",
        about: "An observation of a VM",
        columns: &[
            some("vm_name", Text, "its name, as it was given"),
            maybe("vm_uuid", Text, "its UUID"),
            maybe("pid", Integer, "its process"),
            maybe(
                "which",
                Integer,
                "the number of the VM in its process, from 1, if the process has several",
            ),
            maybe("vmm", Text, "its VMM"),
            maybe("state", Text, "`active`, `partly`, `inhibited` or `unknown`"),
            maybe(
                "mode",
                Text,
                "what delivers interrupts: `apicv`, `avic`, `x2avic`, `hybrid-avic` or `none`",
            ),
            maybe(
                "inhibit_reasons",
                Texts,
                "the [inhibit reasons](inhibit-reasons.md) in force; a number where the kernel's has no name",
            ),
            maybe("fixes", Texts, "what removes them"),
            maybe("vcpus", Integer, "vCPUs whose state was read"),
            maybe("active_vcpus", Integer, "those for which it is active"),
            maybe("ipi_state", Text, "IPI virtualization: `on`, `off`, `not-available` or `unknown`"),
            maybe("ipi_why", Text, "why it is not on"),
            maybe("devices", Integer, "assigned devices"),
            maybe("devices_posted", Integer, "those whose interrupts are posted"),
            maybe("watched_ns", Integer, "how long it was watched, in nanoseconds"),
        ],
    },
    Table { name: "intervals", about: "An interval over which exits were counted", columns: INTERVAL },
    Table {
        name: "exits",
        about: "Exits of one reason (or VM, or vCPU) in an interval. Rows of one interval do not overlap",
        columns: &[
            some("interval_start", Time, "start of the interval"),
            some("interval_end", Time, "its end"),
            maybe("kernel", Text, "kernel release of the host"),
            maybe("vm_name", Text, "the VM; null if they are of all VMs"),
            maybe("vm_pid", Integer, "its process"),
            maybe("vcpu", Integer, "the vCPU; null if they are of all"),
            maybe("isa", Text, "`vmx`, `svm` or `xen`"),
            maybe(
                "reason",
                Text,
                "the [exit reason](exit-reasons.md); null for the rest that `--top` left out",
            ),
            maybe("reason_code", Integer, "its number"),
            some("exits", Integer, "how many"),
            some("samples", Integer, "those with a handling time"),
            some(
                "handling_ns",
                Integer,
                "sum of the handling times, in nanoseconds; of HLT it is the guest's idle time",
            ),
            maybe("min_ns", Integer, "the shortest"),
            maybe("max_ns", Integer, "the longest"),
            maybe("mean_ns", Float, "their mean"),
            maybe("p50_ns", Integer, "their median"),
            maybe("p99_ns", Integer, "their 99th percentile"),
            maybe("p999_ns", Integer, "their 99.9th percentile"),
        ],
    },
    Table {
        name: "costs",
        about: "The cost of an operation in a micro VM, with interrupt virtualization on or off",
        columns: &[
            some("measure", Text, "the operation: `self-ipi`, `ipi`, `cpuid`, …"),
            some("arm", Text, "`on` or `off`"),
            maybe("kernel", Text, "kernel release of the host"),
            maybe("emulated", Text, "the emulator below the host; cycles are then not time on hardware"),
            maybe("switch_cycles", Integer, "instructions that the emulator charged for an exit and entry"),
            maybe(
                "tsc_khz",
                Integer,
                "frequency of the TSC in kHz: cycles × 1,000,000 / this is nanoseconds",
            ),
            some("runs", Integer, "timed runs"),
            some("samples", Integer, "samples of all runs"),
            some("median_cycles", Float, "median of the medians of the runs"),
            some("mean_cycles", Float, "mean of all samples"),
            some("p99_cycles", Float, "99th percentile of all samples"),
            some("min_cycles", Float, "the smallest sample"),
            some("max_cycles", Float, "the largest sample"),
            maybe("exits_per_operation", Float, "VM exits for each operation"),
            maybe("change_percent", Float, "of `on`: its difference from `off`"),
            maybe("change_low", Float, "lower end of the difference's 95 % interval, in percent"),
            maybe("change_high", Float, "its upper end"),
            maybe("effect", Text, "`fewer`, `more`, `negligible`, `indistinguishable` or `unknown`"),
        ],
    },
    Table {
        name: "experiments",
        about: "A figure of a study: one metric of one arm with one number of guests",
        columns: &[
            some("study", Text, "the plan's name"),
            some("target", Text, "`local`, `ssh://HOST`, `lab:NAME`"),
            maybe("emulated", Text, "the emulator of the target's processors; times then mean nothing"),
            maybe("kernel", Text, "kernel release of the target"),
            some("workload", Text, "the workload's name in the plan"),
            some("metric", Text, "the metric"),
            some("metric_source", Text, "`workload` or `host`"),
            some("unit", Text, "its unit: `per-second`, `seconds`, …"),
            some("better", Text, "`higher`, `lower` or `neither`"),
            some("guests", Integer, "guests at once"),
            some("arm", Text, "the arm, with the level of each factor"),
            some("is_baseline", Flag, "it is what the others are compared with"),
            some("runs", Integer, "runs that gave a value"),
            some("mean", Float, "their mean"),
            some("median", Float, "their median"),
            maybe("low", Float, "lower end of the mean's 95 % interval"),
            maybe("high", Float, "its upper end"),
            maybe("change", Float, "the difference from the baseline: percent of ratios, else in `unit`"),
            maybe("change_low", Float, "lower end of its 95 % interval"),
            maybe("change_high", Float, "its upper end"),
            maybe("change_scale", Text, "`ratio` or `difference`"),
            maybe("p_value", Float, "its p value"),
            maybe("p_holm", Float, "the same, adjusted for the number of comparisons"),
            maybe("finding", Text, "the verdict of `experiment report`"),
        ],
    },
    Table {
        name: "losses",
        about: "What an agent could not keep",
        columns: &[
            some("ticks", Integer, "collections that were dropped"),
            some("bytes", Integer, "their size in the spool, in bytes"),
            some("first", Time, "the oldest of them"),
            some("last", Time, "the newest"),
            some("reason", Text, "`spool-full`, `no-space`, `refused`"),
        ],
    },
];

const INTERVAL: &[Column] = &[
    some("interval_start", Time, "start of the interval"),
    some("interval_end", Time, "its end"),
    maybe("kernel", Text, "kernel release of the host"),
    some("format", Text, "where exits come from: `live`, `perf-data`, `trace-dat`, …"),
    some("observed_ns", Integer, "time that was observed, in nanoseconds"),
    some("exits", Integer, "all exits"),
    some("samples", Integer, "those with a handling time"),
    some("handling_ns", Integer, "sum of the handling times, in nanoseconds, with the guests' idle time"),
    some("vms", Integer, "VMs seen"),
    some("vcpus", Integer, "vCPUs seen"),
    some("lost_events", Integer, "events that were lost; exits and times are then too small"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice_and_none_is_a_key_of_the_path() {
        for table in TABLES {
            let mut names: Vec<_> = table.columns().map(|column| column.name).collect();
            assert!(!names.contains(&"host") && !names.contains(&"date"), "{}", table.name);
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{}", table.name);
        }
    }

    fn rows(columns: &[Column]) -> String {
        let mut text = "| column | type | null | meaning |\n|---|---|---|---|\n".to_owned();
        for column in columns {
            let null = if column.nullable { "yes" } else { "" };
            text += &format!("| `{}` | {} | {null} | {} |\n", column.name, column.of.name(), column.about);
        }
        text
    }

    /// The page with the text between two markers replaced.
    fn replaced(page: &str, mark: &str, text: &str) -> String {
        let (before, rest) = page.split_once(mark).unwrap();
        let (_, after) = rest.split_once("<!-- end -->").unwrap();
        format!("{before}{mark}\n{text}<!-- end -->{after}")
    }

    /// With `WRITE_DOCS=1`, the test writes the tables.
    #[test]
    fn the_page_has_all_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/fleet.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mut tables = String::new();
        for table in TABLES {
            tables += &format!("### `{}`\n\n{}.\n\n{}\n", table.name, table.about, rows(table.columns));
        }
        let written = replaced(&page, "<!-- common -->", &rows(COMMON));
        let written = replaced(&written, "<!-- tables -->", &tables);
        if std::env::var_os("WRITE_DOCS").is_some() {
            std::fs::write(path, &written).unwrap();
        } else {
            assert_eq!(written, page, "WRITE_DOCS=1 writes it");
        }
    }
}
