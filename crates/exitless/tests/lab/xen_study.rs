//! A study on a host of Xen: domains that are created for it, and exits that xentrace counts.

use std::path::{Path, PathBuf};

use crate::experiment::{figure, study};

/// The shipped plan with one guest and large messages: the rest are the same steps again, and take an emulator ten minutes.
fn shortened(folder: &Path) -> PathBuf {
    let plan = include_str!("../../../../plans/netperf-xen-lab.toml");
    let (plan, _) = plan.rsplit_once("[[workloads]]").unwrap();
    let shortened = plan.replace("counts = [1, 2]", "counts = [1]");
    assert!(shortened.contains("large") && shortened != plan);
    let path = folder.join("shortened.toml");
    std::fs::write(&path, shortened).unwrap();
    path
}

#[test]
fn netperf_in_a_domain_with_all_of_a_cpu_and_a_third_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let findings = study(shortened(folder.path()).to_str().unwrap(), "xen", 2, folder.path());
    for arm in ["full", "low"] {
        let of = |metric: &str| figure(&findings, "large", metric, arm, 1);
        let throughput = of("throughput");
        assert!(throughput.is_some_and(|rate| rate > 1e4), "{arm}: {throughput:?}");
        let exits = of("exits.total");
        assert!(exits.is_some_and(|rate| rate > 10.0), "{arm}: {exits:?}");
    }
    let runs = std::fs::read_dir(folder.path().join("result/runs")).unwrap();
    let has_exits = |run: &Path| run.join("exits.json").is_file();
    assert!(runs.map(|run| run.unwrap().path()).all(|run| has_exits(&run)), "a run without exits.json");
}
