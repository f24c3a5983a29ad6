//! Predefined views over the tables, which are in the schema `raw`.

/// The name and query of each view, in the order of their creation.
pub const VIEWS: &[(&str, &str)] = &[
    ("hosts", HOSTS),
    ("parameters", PARAMETERS),
    ("vms", VMS),
    ("findings", FINDINGS),
    ("apicv_state", APICV_STATE),
    ("exits_by_reason", EXITS_BY_REASON),
    ("ipi_cost", IPI_COST),
    ("experiments", EXPERIMENTS),
];

/// The rows of a table up to now, in parentheses. A clock that is ahead for a while gives rows of the future, which would
/// otherwise be the last ones until that time has come. The type is that of the column without its time zone, so that
/// only the limit is converted.
macro_rules! past {
    ($table:literal) => {
        concat!(
            "(SELECT * FROM ",
            $table,
            " WHERE time <= CAST(now() + INTERVAL '5 minutes' AS TIMESTAMP(6)))"
        )
    };
}
pub(crate) use past;

/// The last known value of each column.
macro_rules! last {
    ($($column:literal),*) => {
        concat!($(", last_value(", $column, " ORDER BY time) FILTER (WHERE ", $column, " IS NOT NULL) AS ", $column),*)
    };
}

/// Columns that one command writes together, from its last row. The first column finds its rows: it is null in those of
/// all other commands, and never in its own. A null in another column is an answer: there is no next step any more.
macro_rules! last_row {
    ($first:literal, $($column:literal),*) => {
        concat!(
            last!($first),
            $(", last_value(", $column, " ORDER BY time) FILTER (WHERE ", $first, " IS NOT NULL) AS ", $column),*
        )
    };
}

/// One row per host, with `doctor`'s last conclusion and the last known value of each other fact.
const HOSTS: &str = concat!(
    "SELECT host_name AS host, max(time) AS seen",
    last_row!("outcome", "sentence", "next_step", "fail", "warn", "pass", "skip"),
    last!(
        "kernel",
        "cpu_vendor",
        "cpu_model",
        "isa",
        "module",
        "mechanism",
        "capable",
        "enabled",
        "ipi_virtualization",
        "online_cpus",
        "memory_bytes"
    ),
    " FROM ",
    past!("raw.hosts"),
    " GROUP BY host_name"
);

/// One row per parameter of a host, with its last value.
const PARAMETERS: &str = concat!(
    "SELECT host_name AS host, module, parameter, max(time) AS seen",
    last!("value"),
    " FROM ",
    past!("raw.parameters"),
    " GROUP BY host_name, module, parameter"
);

/// The VMs in the last `verify` of their host. `verify` numbers the VMs of a process that has several; `vms`
/// only knows the process, so its row applies to all of them.
const VMS: &str = concat!(
    "WITH looks AS (SELECT host_name AS look_host, max(time) AS look FROM ",
    past!("raw.hosts"),
    " WHERE source = 'verify' GROUP BY host_name), \
     numbered AS (SELECT DISTINCT host_name AS of_host, vm_name AS of_vm, pid AS of_pid, which AS number FROM raw.vms \
     JOIN looks ON host_name = look_host AND time = look WHERE which IS NOT NULL) \
     SELECT host_name AS host, vm_name AS vm, pid, coalesce(which, number) AS which, max(time) AS seen",
    last!("vm_uuid", "vmm"),
    last_row!(
        "state",
        "mode",
        "inhibit_reasons",
        "fixes",
        "vcpus",
        "active_vcpus",
        "ipi_state",
        "ipi_why",
        "devices",
        "devices_posted"
    ),
    " FROM ",
    past!("raw.vms"),
    " LEFT JOIN looks ON host_name = look_host \
     LEFT JOIN numbered ON source = 'vms' AND host_name = of_host AND vm_name = of_vm AND pid = of_pid \
     GROUP BY host_name, vm_name, pid, coalesce(which, number) \
     HAVING max(time) >= coalesce(max(look), max(time))"
);

/// The findings in the last `doctor` of each host.
const FINDINGS: &str = concat!(
    "SELECT host_name AS host, time AS seen, section, section_title, rule, title, state, reason, found, \
     why, evidence, fixes FROM raw.findings JOIN (SELECT host_name AS look_host, max(time) AS look FROM ",
    past!("raw.findings"),
    " GROUP BY host_name) ON host_name = look_host AND time = look"
);

/// The state of APICv or AVIC for each VM, and for hosts without VMs.
const APICV_STATE: &str = "SELECT hosts.host, vm, state, mode, array_to_string(inhibit_reasons, ' ') AS reasons, \
     mechanism, capable, enabled, vcpus, active_vcpus FROM hosts LEFT JOIN vms ON hosts.host = vms.host";

/// The exit reasons in which a guest sleeps ([`ExitReason::is_sleep`](exits::ExitReason::is_sleep)), for
/// `IN`.
macro_rules! sleep_reasons {
    () => {
        "('HLT', 'hlt', 'idle-halt')"
    };
}
pub(crate) use sleep_reasons;

/// Exits and their handling time by VM and reason, over all intervals; `cpu_percent` is relative to one CPU.
const EXITS_BY_REASON: &str = concat!(
    "SELECT host_name AS host, vm_name AS vm, isa, reason, coalesce(reason, '') IN ",
    sleep_reasons!(),
    " AS is_idle, sum(exits) AS exits, sum(samples) AS samples, sum(handling_ns) AS handling_ns, \
     sum(handling_ns) / 1e9 AS handling_s, max(max_ns) AS max_ns, \
     100.0 * sum(handling_ns) / nullif(max(observed_ns), 0) AS cpu_percent \
     FROM raw.exits LEFT JOIN (SELECT host_name AS watched, sum(observed_ns) AS observed_ns FROM raw.intervals \
     GROUP BY host_name) ON host_name = watched GROUP BY host_name, vm_name, isa, reason"
);

/// The cost of IPIs in cycles; on hardware, also in nanoseconds.
const IPI_COST: &str = "SELECT host_name AS host, time AS seen, kernel, measure, arm, runs, median_cycles, p99_cycles, \
     CASE WHEN emulated IS NULL THEN median_cycles * 1e6 / tsc_khz END AS median_ns, exits_per_operation, \
     change_percent, change_low, change_high, effect, emulated FROM raw.costs WHERE measure LIKE '%ipi%'";

/// All figures of all studies.
const EXPERIMENTS: &str = "SELECT host_name AS host, time AS started, study, target, emulated, kernel, workload, metric, \
     metric_source, unit, better, guests, arm, is_baseline, runs, mean, median, low, high, change, change_low, \
     change_high, change_scale, p_value, p_holm, finding FROM raw.experiments";

#[cfg(test)]
mod tests {
    #[test]
    fn sleep_is_what_all_commands_call_so() {
        let sleep = exits::ExitReason::known().filter(|reason| reason.is_sleep());
        let names: Vec<String> = sleep.map(|reason| format!("'{reason}'")).collect();
        assert_eq!(sleep_reasons!(), format!("({})", names.join(", ")));
    }
}
