//! Recordings of real exits, complete and interrupted.

use serde_json::Value;

use crate::command::{Said, bare, run};

const PROBE: &str = "exitless probe --samples 200 --warm-up 5 --blocks 1";

fn after(said: &Said, word: &str) -> Value {
    let found = said.out.lines().find_map(|line| line.strip_prefix(word));
    let text = found.unwrap_or_else(|| panic!("no line with {word}: {}\n{}", said.out, said.err));
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Rows as (what, exits), without times, which differ between observers.
fn counts(rows: &Value, what: &str) -> Vec<(String, u64)> {
    let rows = rows.as_array().expect("rows").iter().filter(|row| row[what].is_string());
    let mut rows: Vec<_> =
        rows.map(|row| (row[what].as_str().unwrap().to_owned(), row["exits"].as_u64().unwrap())).collect();
    rows.sort();
    rows
}

/// perf, a recording and a profile observe the same VM at the same time. The shell in the laboratory joins
/// the lines of each document, to keep the documents apart.
#[test]
fn a_recording_and_a_profile_hold_the_exits_that_perf_recorded() {
    let events =
        "-e kvm:kvm_exit -e kvm:kvm_entry -e kvm:kvm_msr -e kvm:kvm_pio -e kvm:kvm_mmio -e kvm:kvm_apic";
    let script = format!(
        "perf record -q -a -m 8M {events} -o perf.data exitless record -o own.exits -- \
         exitless record --profile -o own.profile -- \
         {PROBE} --measure eoi --measure pio-user --measure mmio-user --measure hlt >probe.txt; echo status $?; \
         for file in perf.data own.exits own.profile; do \
         echo $file \"$(exitless report --json $file | tr -d '\\n')\"; done"
    );
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", &script]);
    assert!(said.out.starts_with("status 0\n"), "{}\n{}", said.out, said.err);
    let perf = after(&said, "perf.data ");
    assert_eq!(perf["losses"]["lost_events"], 0, "{}", perf["losses"]);
    let by_reason = counts(&perf["rows"], "reason");
    assert!(by_reason.iter().any(|(reason, exits)| reason == "msr" && *exits >= 1600), "{by_reason:?}");
    for file in ["own.exits ", "own.profile "] {
        let own = after(&said, file);
        assert_eq!(counts(&own["rows"], "reason"), by_reason, "{file}");
        let accesses = counts(&own["accesses"], "access");
        assert_eq!(accesses, counts(&perf["accesses"], "access"), "{file}");
        assert!(accesses.iter().any(|(access, exits)| access == "EOI:W" && *exits >= 800), "{accesses:?}");
        assert_eq!(own["losses"]["lost_events"], 0, "{file}");
    }
}

#[test]
fn what_was_recorded_survives_a_kill_a_signal_and_a_full_disk() {
    let script = format!(
        "record() {{ exitless record -o $1 2>$1.log & recorder=$!; until [ -s $1 ]; do sleep 0.2; done; \
         {PROBE} --measure cpuid --measure eoi >/dev/null; sleep 1.5; }}; \
         show() {{ exitless report --json $2 >$1.json; echo $1 $? \"$(tr -d '\\n' <$1.json)\"; }}; \
         record killed; kill -9 $recorder; wait $recorder; show killed killed; \
         record ended; kill -TERM $recorder; wait $recorder; echo ended-with $?; show ended ended; \
         mkdir small; mount -t tmpfs -o size=12k none small; \
         record small/full; kill -TERM $recorder; wait $recorder; echo full-with $?; show full small/full; \
         cat small/full.log >&2"
    );
    let said = bare("amd-svm", &script);
    let shown = |word: &str| -> (u64, Value) {
        let found = said.out.lines().find_map(|line| line.strip_prefix(word));
        let text = found.unwrap_or_else(|| panic!("no line with {word}: {}\n{}", said.out, said.err));
        let (status, document) = text.split_once(' ').expect("a status and a document");
        (status.parse().unwrap(), serde_json::from_str(document).unwrap())
    };
    for word in ["killed ", "ended ", "full "] {
        let (status, report) = shown(word);
        let whole = word == "ended ";
        // 125: not even one exit could be read.
        let expected: &[u64] = match word {
            "killed " => &[4],
            "ended " => &[0],
            _ => &[4, 125],
        };
        assert!(expected.contains(&status), "{word}: {status}, {}", report["files"]);
        assert_eq!(report["files"][0]["damage"].is_null(), whole, "{word}: {}", report["files"]);
        let by_reason = counts(&report["rows"], "reason");
        let cpuid = by_reason.iter().find(|(reason, _)| reason == "cpuid").map_or(0, |(_, exits)| *exits);
        assert!(cpuid >= 200 || word == "full ", "{word}: {by_reason:?}");
    }
    assert!(said.out.contains("ended-with 0\n"), "{}", said.out);
    assert!(said.out.contains("full-with 1\n"), "{}\n{}", said.out, said.err);
    assert!(said.err.contains("Cannot write the recording any further"), "{}", said.err);
}

/// Each CPU has its own buffer, as on hosts with many of them. Tested with system calls, which need no VM.
#[test]
fn a_cpu_that_was_offline_is_recorded_again() {
    let test = "record::a_cpu_that_was_offline_is_recorded_again";
    crate::levels::in_laboratory(test, "amd-svm", record_a_cpu_that_was_offline);
}

fn record_a_cpu_that_was_offline() {
    const GETPPID: exits::ExitReason = exits::ExitReason::vmx(110);
    let processes = Some(vec![std::process::id()]);
    let watch = live::Watch { processes, no_ring_buffer: true, ..live::Watch::default() };
    let mut recorder = live::Recorder::attach_to_system_calls(&watch).unwrap();
    for state in ["0", "1"] {
        std::fs::write("/sys/devices/system/cpu/cpu1/online", state).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
    recorder.drain(&mut |_, _| ());
    let this = std::fs::read_link("/proc/thread-self").unwrap();
    let pin = ["-cp", "1", this.file_name().unwrap().to_str().unwrap()];
    assert!(std::process::Command::new("taskset").args(pin).status().unwrap().success());
    for _ in 0..100 {
        let _ = std::os::unix::process::parent_id();
    }
    let mut recorded = 0;
    let losses = recorder
        .finish(&mut |exit, _| recorded += u32::from((exit.cpu, exit.reason) == (1, GETPPID)))
        .unwrap();
    assert_eq!(recorded, 100, "{losses:?}");
}
