//! Real exits, counted in the kernel.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command::{Said, bare, run};

/// One table of `exitless stat --json`.
fn table(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The exits by reason, and their total.
fn exits(table: &Value) -> (BTreeMap<String, u64>, u64) {
    let rows = table["rows"].as_array().expect("rows").iter();
    let rows: BTreeMap<String, u64> = rows
        .map(|row| (row["reason"].as_str().unwrap().to_owned(), row["exits"].as_u64().unwrap()))
        .collect();
    let all = rows.values().sum();
    (rows, all)
}

/// The rest of the line that begins with `word`.
fn after<'a>(said: &'a Said, word: &str) -> &'a str {
    let found = said.out.lines().find_map(|line| line.strip_prefix(word));
    found.unwrap_or_else(|| panic!("no line with {word}: {}\n{}", said.out, said.err)).trim()
}

const PROBE: &str = "exitless probe --samples 200 --warm-up 5 --blocks 1";

/// Two collectors, one on raw tracepoints and one on their records, observe a VM along with `perf stat`. All
/// exits of the VM fall into the time of each observer.
#[test]
fn every_exit_is_counted_as_perf_counts_it_whichever_way_the_events_come() {
    let script = format!(
        "exec 3>&1; perf stat -x, -o perf.txt -a -e kvm:kvm_exit -e kvm:kvm_msr -- \
         exitless stat --json --by msr -- sh -c \
         \"exitless stat --no-raw-tracepoints --json -- {PROBE} --measure eoi --measure pio-user --measure mmio-user \
         >inner.txt\" | grep '^{{' >outer.txt; \
         grep '^{{' inner.txt | sed 's/^/inner /'; sed 's/^/outer /' outer.txt; sed 's/^/perf /' perf.txt"
    );
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", &script]);
    assert_eq!(said.status, 0, "{}", said.err);
    let (inner, outer) = (table(after(&said, "inner ")), table(after(&said, "outer ")));

    let (by_reason, all) = exits(&inner);
    assert!(by_reason["msr"] >= 1600 && by_reason["npf"] >= 400 && by_reason["io"] >= 400, "{by_reason:?}");
    let perf = |event: &str| -> u64 {
        let lines = said.out.lines().filter(|line| line.starts_with("perf ") && line.contains(event));
        let mut counts = lines.filter_map(|line| line[5..].split(',').next()?.parse::<u64>().ok());
        counts.next().unwrap_or_else(|| panic!("perf counted no {event}: {}", said.out))
    };
    assert_eq!(all, perf("kvm:kvm_exit"));
    assert_eq!(inner["losses"]["lost_events"], 0);

    // Each MSR has a row, with as many exits as perf counted.
    assert_eq!(outer["totals"]["exits"], all);
    let accesses = outer["accesses"].as_array().expect("accesses");
    let msrs = accesses.iter().filter(|row| row["access_kind"] == "msr");
    let counted: u64 = msrs.clone().map(|row| row["exits"].as_u64().unwrap()).sum();
    assert_eq!(counted, perf("kvm:kvm_msr"));
    assert!(msrs.clone().any(|row| row["access"] == "EOI:W"), "{accesses:?}");
}

/// Each table is complete: every exit has a time or is counted as one without, and the interval is the
/// requested one, although an emulated kernel takes seconds to detach the programs one by one.
#[test]
fn an_interval_is_as_long_as_asked_for_and_ends_at_one_moment() {
    let script = |count: u32, more: &str| {
        format!(
            "exitless probe --measure cpuid --samples 1000000 --blocks 1 >/dev/null & load=$!; \
             until [ \"$(cat /sys/kernel/debug/kvm/*/exits 2>/dev/null || echo 0)\" -gt 1000 ]; do sleep 0.1; done; \
             exitless stat --by msr --interval 1s --count {count} --json {more} >tables.txt; \
             kill $load; grep '^{{' tables.txt"
        )
    };
    for (count, more) in [(2, ""), (1, ""), (1, "--no-raw-tracepoints")] {
        let said = bare("amd-svm", &script(count, more));
        assert_eq!(said.status, 0, "{}", said.err);
        let tables: Vec<Value> = said.out.lines().map(table).collect();
        assert_eq!(tables.len(), count as usize, "{}", said.out);
        for table in tables {
            let (totals, losses) = (&table["totals"], &table["losses"]);
            let number = |value: &Value| value.as_u64().unwrap();
            let untimed = number(&losses["exits_without_entry"]) + number(&losses["exits_at_the_end"]);
            assert!(number(&totals["exits"]) > 500, "{totals}");
            assert_eq!(number(&totals["exits"]), number(&totals["samples"]) + untimed, "{totals} {losses}");
            assert!(number(&losses["exits_at_the_end"]) <= 2, "{losses}");
            assert_eq!(number(&losses["exits_without_entry"]), 0, "{losses}");
            let observed = number(&totals["observed_ns"]);
            assert!((995_000_000..1_010_000_000).contains(&observed), "{observed} ns, {more}");
        }
    }
}

#[test]
fn vmx_reasons_are_read_from_kvms_structures_as_its_events_say_them() {
    let script = format!(
        "exitless stat --no-raw-tracepoints --json -- sh -c \
         \"exitless stat --by port --json -- {PROBE} --measure ipi-running --measure pio-user >raw.txt\" >records.txt; \
         grep '^{{' raw.txt | sed 's/^/raw /'; grep '^{{' records.txt | sed 's/^/records /'"
    );
    let said = bare("intel-apicv", &script);
    assert_eq!(said.status, 0, "{}", said.err);
    let (raw, records) = (table(after(&said, "raw ")), table(after(&said, "records ")));
    let by_reason = exits(&records).0;
    assert!(by_reason["MSR_WRITE"] >= 400 && by_reason["IO_INSTRUCTION"] >= 400, "{by_reason:?}");
    assert_eq!(raw["totals"]["exits"], records["totals"]["exits"]);
    let whole = |table: &Value| table["files"][0]["warnings"].as_array().map(Vec::len);
    assert_eq!((whole(&raw), whole(&records)), (Some(0), Some(1)), "{raw}");
}

/// The last exit of a VM that ends has no entry. A later VM may get the memory of its vCPU; with one CPU,
/// usually at once.
#[test]
fn an_exit_of_a_vm_that_ended_is_counted_once_and_not_ended_by_another_vm() {
    let script = "exitless record --output rec >rec.txt 2>&1 & record=$!; \
                  exitless stat --interval 1s --json >tables.txt & stat=$!; \
                  until [ -s tables.txt ] && grep -q Recording rec.txt; do sleep 0.1; done; \
                  for vm in 1 2 3; do \
                      taskset -c 1 exitless probe --samples 60000 --blocks 1 --measure pio-user >/dev/null & vm=$!; \
                      until [ \"$(cat /sys/kernel/debug/kvm/*/exits 2>/dev/null || echo 0)\" -gt 6000 ]; do \
                          kill -0 $vm || exit 9; sleep 0.1; \
                      done; \
                      kill -9 $vm; wait $vm; sleep 0.7; \
                  done; \
                  kill $record $stat; wait $record $stat; grep '^{' tables.txt; exitless report rec --json | tr -d '\\n'";
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", script]);
    let mut tables: Vec<Value> = said.out.lines().filter(|line| line.starts_with('{')).map(table).collect();
    let recorded = tables.pop().expect("a report");
    let number = |table: &Value, at: &str| table.pointer(at).unwrap().as_u64().unwrap();
    let total = |at: &str| tables.iter().map(|table| number(table, at)).sum::<u64>();
    // No exit is as long as the time between the two VMs.
    let longest = |table: &Value| {
        let rows = table["rows"].as_array().unwrap().iter();
        rows.filter_map(|row| row["max_ns"].as_u64()).max().unwrap_or(0)
    };
    assert!(tables.iter().chain([&recorded]).all(|table| longest(table) < 600_000_000), "{}", said.out);
    let untimed = |table: &Value| {
        [number(table, "/losses/exits_without_entry"), number(table, "/losses/exits_at_the_end")]
    };
    let [without_entry, at_the_end] = untimed(&recorded);
    assert_eq!(without_entry + at_the_end, 3, "{recorded:#}");
    assert!(without_entry > 0, "no memory was used again: {recorded:#}");
    assert_eq!(tables.iter().flat_map(untimed).sum::<u64>(), 3, "{}", said.out);
    assert!(total("/totals/exits") > 10_000, "{}", said.out);
    assert_eq!(total("/totals/exits"), number(&recorded, "/totals/exits"));
}

#[test]
fn nothing_stays_in_the_kernel_when_the_collector_is_killed() {
    // The kernel has a list of all programs: BPF_PROG_GET_NEXT_ID (11) of bpf (system call 321), with the structure
    // {start_id, next_id, open_flags}.
    let script = r#"
count() {
    perl -e '$n = 0; $id = pack("L3", 0, 0, 0);
        while (syscall(321, 11, $id, 12) == 0) { $n++; $id = pack("L3", (unpack("L3", $id))[1], 0, 0) }
        print "$n\n"'
}
echo before $(count); exitless stat >/dev/null & watcher=$!
until ls -l /proc/$watcher/fd | grep -q 'bpf.link'; do kill -0 $watcher || exit 9; sleep 0.3; done
echo during $(count); kill -9 $watcher; wait $watcher; sleep 3; echo after $(count)"#;
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", script]);
    let count = |word: &str| -> u32 { after(&said, word).parse().unwrap() };
    assert!(count("during") > count("before"), "{}\n{}", said.out, said.err);
    assert_eq!(count("after"), count("before"), "{}\n{}", said.out, said.err);
}

#[test]
fn a_kernel_without_kvm_is_said_and_can_be_waited_for() {
    let script = format!(
        "rmmod kvm_amd; exitless stat --count 1; echo status $?; \
         (sleep 2; insmod /exitless/modules/kvm-amd.ko) & \
         exitless stat --wait --json -- {PROBE} --measure cpuid | grep '^{{' | sed 's/^/table /'"
    );
    let said = bare("amd-svm", &script);
    assert_eq!(after(&said, "status"), "125");
    assert!(said.err.contains("kvm_amd") && said.err.contains("--wait"), "{}", said.err);
    let (by_reason, _) = exits(&table(after(&said, "table ")));
    assert!(by_reason["cpuid"] >= 200, "{by_reason:?}");
}

/// The VM ends in the middle of `stat`'s only interval, and long before recordings would end. It must not
/// start before all commands have attached, which takes seconds in an emulator: a recorder creates its file
/// then, `stat` has BPF links. Until then the VM is stopped, because an idle emulator is faster.
#[test]
fn whoever_watches_a_vm_is_told_of_its_end() {
    let script = "mkdir -p /tmp/w; cd /tmp/w; \
         vm() { exitless probe --measure cpuid --samples 1000000 --blocks 1 >/dev/null 2>&1 & vm=$!; \
         until exitless vms 2>/dev/null | grep -q $vm; do kill -0 $vm || exit 9; sleep 0.2; done; kill -STOP $vm; }; \
         watch() { word=$1; sign=$2; shift 2; vm; \
         (until $sign; do sleep 0.2; done; kill -CONT $vm; sleep 0.5; kill -9 $vm) & \
         \"$@\" --vm $vm >out 2>log; echo $word $? $(grep -c 'given by --vm has ended' log); wait; }; \
         attached() { ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q 'bpf.link'; }; \
         watch last attached exitless stat --interval 6s --count 1; \
         watch exits 'test -s exits' exitless record --duration 100s -o exits; \
         watch sums 'test -s sums' exitless record --profile --duration 100s -o sums; \
         vm; exitless record --duration 500ms -o whole --vm $vm >out 2>log; echo there $? $(grep -c ended log); \
         kill -9 $vm; echo recorded $(exitless report exits | grep -c cpuid)";
    let said = bare("amd-svm", script);
    for (word, told) in
        [("last ", "1 1"), ("exits ", "1 1"), ("sums ", "1 1"), ("there ", "0 0"), ("recorded ", "1")]
    {
        assert_eq!(after(&said, word), told, "{word}{}\n{}", said.out, said.err);
    }
}
