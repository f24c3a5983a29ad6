//! A real Xen with real guests, and real recordings of its trace buffers.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::command::Dom0;
use crate::doctor::found;

/// Domain and reason, with the exits.
pub(crate) type Counts = BTreeMap<(u64, String), u64>;

/// The rows of `exitless report --json`, grouped by domain and reason.
pub(crate) fn counts(document: &Value) -> Counts {
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.map(|row| {
        let reason = row["reason"].as_str().expect("a reason").to_owned();
        ((row["vm"].as_u64().expect("a domain"), reason), row["exits"].as_u64().expect("exits"))
    })
    .collect()
}

/// The counts of `xenalyze --summary` by domain and reason, with KVM's names of the reasons.
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

/// Translates xenalyze's names of reasons to KVM's, which exitless uses.
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

/// A script that creates a paused guest, so that the recording has it from its start, lets it boot and work for a second,
/// pauses it again, ends the recording, asks for `facts` of the host, and counts with xenalyze and with exitless. The
/// recording stays in the laboratory, because copying 3 MiB out takes a minute.
pub(crate) fn recorded(tsc_hz: &str, facts: &str) -> String {
    format!(
        "xl create -p -q /opt/exitless/guest/pvh.cfg && \
         {{ xentrace -D -e 0xaf000 pvh.trace & TRACE=$!; sleep 1; xl unpause pvh; waited=0; \
         until grep 'guest up' /var/log/xen/console/guest-pvh.log || [ $waited = 90 ]; do \
         sleep 1; waited=$((waited + 1)); done; \
         sleep 1; xl pause pvh; sleep 1; kill -TERM $TRACE; wait $TRACE; {facts}; \
         xenalyze --summary --cpu-hz {tsc_hz} pvh.trace > summary.txt 2> xenalyze.txt; \
         exitless report --json --tsc-hz {tsc_hz} --by vm,reason pvh.trace > report.json; }}"
    )
}

#[test]
fn a_guest_of_xen_runs_and_its_exits_are_those_of_xenalyze() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["list.txt", "summary.txt", "xenalyze.txt", "report.json"];
    let script = recorded("2.1G", "xl list > list.txt");
    let said = Dom0::default().run(&script, &files, folder.path().to_str().unwrap());
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert_eq!(said.status, 0, "{}{}{}", said.out, said.err, text("xenalyze.txt"));
    assert!(said.out.contains("exitless guest up"), "{}{}", said.out, said.err);
    let list = text("list.txt");
    assert!(list.lines().any(|line| line.starts_with("pvh ")), "{list}");
    assert!(list.lines().any(|line| line.starts_with("Domain-0 ")), "{list}");

    let report: Value = serde_json::from_str(&text("report.json")).unwrap();
    assert_eq!(report["losses"]["lost_events"], 0, "{}", report["losses"]);
    let (ours, theirs) = (counts(&report), renamed(xenalyze(&text("summary.txt"))));
    let total = |counts: &Counts| counts.values().sum::<u64>();
    assert!(total(&ours) > 1000, "{ours:?}");
    // xenalyze omits the exit in which the vCPU was paused.
    let open = report["losses"]["exits_at_the_end"].as_u64().unwrap();
    let more: u64 = ours.iter().map(|(key, count)| count - theirs.get(key).copied().unwrap_or(0)).sum();
    assert!(theirs.keys().all(|key| ours.contains_key(key)), "{theirs:?}\n{ours:?}");
    assert!(more <= open, "{more} more than xenalyze, {open} open\n{theirs:?}\n{ours:?}");
}

#[test]
fn exits_are_counted_and_recorded_live_with_the_names_of_their_domains() {
    let script = "xl create -q /opt/exitless/guest/pvh.cfg; \
        exitless stat --json --by vm,reason -- sleep 2 | sed 's/^/stat /'; \
        exitless record -o own.exits --duration 1500ms; \
        echo \"report $(exitless report --json --by vm,reason own.exits | tr -d '\\n')\"; xl destroy pvh";
    let folder = tempfile::tempdir().unwrap();
    let said = Dom0::default().run(script, &[], folder.path().to_str().unwrap());
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

/// The domains are paused, because only their end matters here, and an idle emulator is faster.
#[test]
fn whoever_counts_the_exits_of_a_domain_is_told_of_its_end() {
    let script = "watch() { word=$1; shift; xl create -p -q /opt/exitless/guest/pvh.cfg; (sleep 2; xl destroy pvh) & \
        exitless stat --vm pvh \"$@\" >out 2>log; \
        echo $word $? $(grep -c 'given by --vm has ended: pvh' log); wait; }; \
        watch early --interval 4s --count 100; watch last --interval 8s --count 1; \
        xl create -p -q /opt/exitless/guest/pvh.cfg; exitless stat --vm pvh --interval 1s --count 2 >out 2>log; \
        echo there $? $(grep -c ended log); xl destroy pvh";
    let folder = tempfile::tempdir().unwrap();
    let said = Dom0::default().run(script, &[], folder.path().to_str().unwrap());
    for line in ["early 1 1", "last 1 1", "there 0 0"] {
        assert!(said.out.lines().any(|one| one == line), "no {line}: {}{}", said.out, said.err);
    }
}

/// A study that sets a frequency with xenpm.
const FREQUENCY: &str = "name = 'frequency'\ntitle = 'A frequency'\nquestion = 'Can it be set?'\n\
    [guests]\nkind = 'none'\n\
    [[factors]]\nname = 'frequency'\nbaseline = 'low'\n\
    [[factors.levels]]\nname = 'low'\nfrequency = { cpus = '1', minimum = '1200MHz', maximum = '1200MHz' }\n\
    [[factors.levels]]\nname = 'high'\nfrequency = { cpus = '1', minimum = '2GHz', maximum = '2GHz' }\n\
    [[workloads]]\nname = 'echo'\ntool = 'command'\nplace = 'host'\nscript = 'echo 1'\n\
    metrics = [{ name = 'one', unit = 'per-second', better = 'higher', combine = 'single', regex = '([0-9]+)' }]\n";

#[test]
fn a_host_of_xen_is_judged_with_its_guest_and_gives_status_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let script = "xenpm get-cpu-topology > topology.txt; xl create -q -p /opt/exitless/guest/pvh.cfg; \
        exitless doctor --json > doctor.json; exitless vm lint --json /opt/exitless/guest/pvh.cfg > pvh.json; \
        { cat /opt/exitless/guest/hvm.cfg; echo 'type = \"pv\"; tsc_mode = 1'; echo 'pci = [ \"03:10.0\" ]'; } > pv.cfg; \
        exitless vm lint --json pv.cfg > pv.json; \
        exitless experiment run frequency.toml --output frequency > frequency.txt 2>&1; \
        echo status=$? >> frequency.txt; exit 7";
    let files = ["topology.txt", "doctor.json", "pvh.json", "pv.json", "frequency.txt"];
    let plan = folder.path().join("frequency.toml");
    fs::write(&plan, FREQUENCY).unwrap();
    let put = [plan.to_str().unwrap()];
    let dom0 = Dom0 { put: &put, ..Dom0::default() };
    let said = dom0.run(script, &files, folder.path().to_str().unwrap());
    assert_eq!(said.status, 7, "{}", said.err);
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let json =
        |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap_or_else(|error| panic!("{error}"));
    assert!(!text("topology.txt").is_empty());
    // An emulated processor has no settable frequency.
    let frequency = text("frequency.txt");
    assert!(frequency.contains("`xenpm get-cpufreq-para` shows no CPU with limits"), "{frequency}");
    assert!(frequency.ends_with("status=125\n"), "{frequency}");

    let doctor = json("doctor.json");
    assert_eq!(found(&doctor, "xen-control").0, "pass");
    assert_eq!(found(&doctor, "xen-nested-paging").0, "pass");
    assert_eq!(found(&doctor, "xen-avic"), ("warn", "Xen uses no AVIC"));
    assert_eq!(found(&doctor, "xen-guest-types"), ("pass", "Xen uses no AVIC for any type: pvh (PVH)"));
    assert_eq!(found(&doctor, "xen-iommu").0, "warn");
    assert_eq!(found(&doctor, "xen-scheduler"), ("pass", "credit2"));
    assert_eq!(found(&doctor, "xen-vcpu-places").0, "pass");
    assert_eq!(found(&doctor, "xen-frequency").0, "skip");
    assert_eq!(doctor["conclusion"]["outcome"], "unavailable", "{}", doctor["conclusion"]);

    let pvh = json("pvh.json");
    assert!(pvh.get("doubts").is_none(), "{pvh}");
    assert_eq!((&pvh["summary"]["fail"], &pvh["summary"]["warn"]), (&0.into(), &0.into()), "{pvh}");
    assert_eq!(found(&pvh, "xl-type"), ("pass", "PVH; Xen uses no AVIC"));
    let pv = json("pv.json");
    assert_eq!(
        found(&pv, "xl-type"),
        ("pass", "PV: Xen delivers its interrupts as events; on AMD Xen has no AVIC for other types either")
    );
    assert_eq!(found(&pv, "xl-time-stamps"), ("warn", "always emulated"));
    assert_eq!(found(&pv, "xl-pass-through"), ("fail", "Xen uses no IOMMU on this host"));
}
