//! A real Xen with VMX: xentrace records the same guest with and without APICv.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::command::{Dom0, Said};
use crate::doctor::found;
use crate::xen::{Counts, counts, recorded};

const FILES: [&str; 4] = ["summary.txt", "xenalyze.txt", "report.json", "doctor.json"];

struct Arm {
    said: Said,
    folder: tempfile::TempDir,
}

impl Arm {
    fn run(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dom0 = Dom0 { lab: "xen-apicv", options: arguments, ..Dom0::default() };
        let script = recorded("50M", "exitless doctor --json > doctor.json");
        let said = dom0.run(&script, &FILES, folder.path().to_str().unwrap());
        Self { said, folder }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap_or_else(|error| {
            panic!("{name}: {error}: {}{}{}", self.said.out, self.said.err, self.text("xenalyze.txt"))
        })
    }
}

/// The counts of `xenalyze --summary` on a VMX host by domain and reason, with KVM's names of the reasons.
fn xenalyze(summary: &str) -> Counts {
    let mut counts = Counts::new();
    let mut domain = None;
    for line in summary.lines() {
        if let Some(rest) = line.strip_prefix("|-- Domain ") {
            domain = rest.split(' ').next().and_then(|number| number.parse().ok());
        }
        // Reasons are indented by one space, their details by more.
        let Some(rest) =
            line.strip_prefix(' ').filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        else {
            continue;
        };
        let mut words = rest.split_whitespace();
        if let (Some(name), Some(Ok(count)), Some(domain)) =
            (words.next(), words.next().map(str::parse::<u64>), domain)
        {
            let reason = if name == "PENDING_VIRT_INTR" { "INTERRUPT_WINDOW" } else { name };
            *counts.entry((domain, reason.to_owned())).or_default() += count;
        }
    }
    counts
}

fn of_guest(counts: &Counts) -> BTreeMap<&str, u64> {
    counts.iter().map(|((_, reason), count)| (reason.as_str(), *count)).collect()
}

#[test]
fn apicv_takes_the_exits_for_the_local_apic_from_a_guest_of_xen() {
    let (off, on) = std::thread::scope(|scope| {
        // No other test could use the snapshot.
        let off = scope.spawn(|| Arm::run(&["--boot", "--hypervisor-argument", "apicv=0"]));
        let on = scope.spawn(|| Arm::run(&[]));
        (off.join().unwrap(), on.join().unwrap())
    });
    let counted = [&off, &on].map(|arm| {
        assert!(arm.said.out.contains("exitless guest up"), "{}{}", arm.said.out, arm.said.err);
        let report = arm.json("report.json");
        assert_eq!(report["losses"]["lost_events"], 0, "{}", report["losses"]);
        let (ours, theirs) = (counts(&report), xenalyze(&arm.text("summary.txt")));
        assert!(ours.values().sum::<u64>() > 1000, "{ours:?}");
        // xenalyze omits the exit in which the vCPU was paused.
        let open = report["losses"]["exits_at_the_end"].as_u64().unwrap();
        let of_theirs = |key| theirs.get(key).copied().unwrap_or(0);
        let more: u64 = ours.iter().map(|(key, count)| count.abs_diff(of_theirs(key))).sum();
        assert!(more <= open, "{more} differ from xenalyze, {open} open\n{theirs:?}\n{ours:?}");
        ours
    });
    let [without, with] = counted.each_ref().map(of_guest);
    // An EOI is a write to an x2APIC MSR: an exit each, unless the processor handles it.
    let writes = |counts: &BTreeMap<&str, u64>| counts.get("MSR_WRITE").copied().unwrap_or(0);
    assert!(writes(&without) > 200, "{without:?}");
    assert!(writes(&with) * 5 < writes(&without), "{with:?}\n{without:?}");

    let [without, with] = [&off, &on].map(|arm| arm.json("doctor.json"));
    assert_eq!(found(&without, "xen-apicv-argument"), ("fail", "Xen's arguments disable APICv"));
    assert_eq!(without["conclusion"]["outcome"], "switched-off", "{}", without["conclusion"]);
    assert_eq!(found(&with, "xen-apicv"), ("pass", "Xen uses APICv"));
    assert_eq!(with["conclusion"]["outcome"], "ready", "{}", with["conclusion"]);
}

#[test]
fn arguments_of_xen_are_refused_where_there_is_none() {
    let said =
        crate::command::run(&["lab", "run", "intel-apicv", "--hypervisor-argument", "apicv=0", "--", "true"]);
    assert_eq!(said.status, 2, "{}", said.err);
    assert!(said.err.contains("intel-apicv has no Xen"), "{}", said.err);
}
