//! A study on a Xen host: it creates the domains, and xentrace counts their exits.

use std::path::Path;

use crate::experiment::{figure, shortened, study};

#[test]
fn netperf_in_a_domain_with_all_of_a_cpu_and_a_third_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let plan = include_str!("../../../../plans/netperf-xen-lab.toml");
    let (_, small) = plan.rsplit_once("[[workloads]]").unwrap();
    let small = format!("[[workloads]]{small}");
    let plan = shortened(plan, &[("counts = [1, 2]", "counts = [1]"), (&small, "")], folder.path());
    let findings = study(plan.to_str().unwrap(), "xen", 2, folder.path());
    for arm in ["full", "low"] {
        let of = |metric: &str| figure(&findings, "large", metric, arm, 1);
        let throughput = of("throughput");
        assert!(throughput.is_some_and(|rate| rate > 1e4), "{arm}: {throughput:?}");
        let exits = of("exits.total");
        assert!(exits.is_some_and(|rate| rate > 10.0), "{arm}: {exits:?}");
        // xentrace copies a record for each exit, and this program reads it.
        let (busy, sampling) = (of("cpu.busy"), of("sampling.cpu"));
        assert!(sampling > Some(1.0) && sampling < busy, "{arm}: {sampling:?} of {busy:?}");
    }
    let runs = std::fs::read_dir(folder.path().join("result/runs")).unwrap();
    let has_exits = |run: &Path| run.join("exits.json").is_file();
    assert!(runs.map(|run| run.unwrap().path()).all(|run| has_exits(&run)), "a run without exits.json");
}
