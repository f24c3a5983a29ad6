//! A real Xen, with real guests and real recordings of its trace buffers.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::command::{Said, run};

/// Domain and reason, with the exits.
type Counts = BTreeMap<(u64, String), u64>;

/// Runs a shell's words in dom0, and brings files out.
fn dom0(script: &str, files: &[&str], output: &str) -> Said {
    let mut arguments =
        vec!["lab", "run", "xen", "--boot-timeout", "150", "--timeout", "240", "--output", output];
    if !files.is_empty() {
        arguments.push("--get");
        arguments.extend(files);
    }
    arguments.extend(["--", "sh", "-c", script]);
    run(&arguments)
}

/// The table of `exitless report --json --by vm,reason` or the like.
fn counts(document: &Value) -> Counts {
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let reason = row["reason"].as_str().expect("a reason").to_owned();
        ((row["vm"].as_u64().expect("a domain"), reason), row["exits"].as_u64().expect("exits"))
    })
    .collect()
}

/// What `xenalyze --summary` counts, by domain and reason, in our names for reasons.
fn xenalyze(summary: &str) -> Counts {
    let mut counts = Counts::new();
    let mut domain = None;
    for line in summary.lines() {
        if let Some(rest) = line.strip_prefix("|-- Domain ") {
            domain = rest.split(' ').next().and_then(|number| number.parse().ok());
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(count)) = (words.next(), words.next()) else { continue };
        let (Some(reason), Ok(count), Some(domain)) =
            (name.strip_prefix("VMEXIT_"), count.parse::<u64>(), domain)
        else {
            continue;
        };
        if line.contains(" cyc {") {
            *counts.entry((domain, reason.to_ascii_lowercase())).or_default() += count;
        }
    }
    counts
}

/// xenalyze's names for those of KVM, which are ours.
fn renamed(counts: Counts) -> Counts {
    let name = |reason: &str| match (reason.split_once('_'), reason) {
        (_, "intr") => "interrupt".to_owned(),
        (_, "vmmcall") => "hypercall".to_owned(),
        (_, "ioio") => "io".to_owned(),
        (Some(("exception", vector)), _) => format!("{} excp", vector.to_ascii_uppercase()),
        (Some((register, access)), _) => format!("{access}_{register}"),
        (None, other) => other.to_owned(),
    };
    counts.into_iter().map(|((domain, reason), count)| ((domain, name(&reason)), count)).collect()
}

/// Starts a guest that waits for its first instruction, so that a recording sees it from its beginning on, and holds it
/// again before the recording ends.
const RECORDED: &str = "xl create -p -q /opt/exitless/guest/pvh.cfg && \
    { xentrace -D -e 0xaf000 pvh.trace & TRACE=$!; sleep 1; xl unpause pvh; sleep 8; xl pause pvh; sleep 1; \
    kill -TERM $TRACE; wait $TRACE; xl list > list.txt; \
    xenalyze --summary --cpu-hz 2.1G pvh.trace > summary.txt 2> xenalyze.txt; \
    exitless report --json --tsc-hz 2.1G --by vm,reason pvh.trace > report.json; }";

#[test]
fn a_guest_of_xen_runs_and_its_exits_are_those_of_xenalyze() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["list.txt", "summary.txt", "xenalyze.txt", "report.json"];
    let said = dom0(RECORDED, &files, folder.path().to_str().unwrap());
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert_eq!(said.status, 0, "{}{}{}", said.out, said.err, text("xenalyze.txt"));
    let list = text("list.txt");
    assert!(list.lines().any(|line| line.starts_with("pvh ")), "{list}");
    assert!(list.lines().any(|line| line.starts_with("Domain-0 ")), "{list}");

    let report: Value = serde_json::from_str(&text("report.json")).unwrap();
    assert_eq!(report["losses"]["lost_events"], 0, "{}", report["losses"]);
    let (ours, theirs) = (counts(&report), renamed(xenalyze(&text("summary.txt"))));
    let total = |counts: &Counts| counts.values().sum::<u64>();
    assert!(total(&ours) > 1000, "{ours:?}");
    // xenalyze leaves the exit out in which the vCPU was held.
    let open = report["losses"]["exits_at_the_end"].as_u64().unwrap();
    let more: u64 = ours.iter().map(|(key, count)| count - theirs.get(key).copied().unwrap_or(0)).sum();
    assert!(theirs.keys().all(|key| ours.contains_key(key)), "{theirs:?}\n{ours:?}");
    assert!(more <= open, "{more} more than xenalyze, {open} open\n{theirs:?}\n{ours:?}");
}

#[test]
fn exits_are_counted_and_recorded_live_with_the_names_of_their_domains() {
    let script = "xl create -q /opt/exitless/guest/pvh.cfg; \
        exitless stat --json --by vm,reason -- sleep 5 | sed 's/^/stat /'; \
        exitless record -o own.exits --duration 4s; \
        echo \"report $(exitless report --json --by vm,reason own.exits | tr -d '\\n')\"; xl destroy pvh";
    let folder = tempfile::tempdir().unwrap();
    let said = dom0(script, &[], folder.path().to_str().unwrap());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    for word in ["stat ", "report "] {
        let line = said.out.lines().find_map(|line| line.strip_prefix(word));
        let line = line.unwrap_or_else(|| panic!("no {word}: {}{}", said.out, said.err));
        let document: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(document["losses"]["lost_events"], 0, "{word}{document}");
        let counts = counts(&document);
        assert!(counts.keys().all(|(domain, _)| *domain > 0), "{word}{counts:?}");
        assert!(counts.values().sum::<u64>() > 100, "{word}{counts:?}");
        assert!(document.to_string().contains("\"pvh\""), "{word}{document}");
    }
}

#[test]
fn a_host_of_xen_gives_the_status_of_the_command_and_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let script = "xl info > info.txt; xenpm get-cpu-topology > topology.txt; uname -r; exit 7";
    let said = dom0(script, &["info.txt", "topology.txt"], folder.path().to_str().unwrap());
    assert_eq!(said.status, 7, "{}", said.err);
    let info = fs::read_to_string(folder.path().join("info.txt")).unwrap();
    assert!(info.contains("xen_major") && info.contains("hvm"), "{info}");
    assert!(folder.path().join("topology.txt").metadata().unwrap().len() > 0);
}
