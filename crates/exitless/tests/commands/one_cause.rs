//! All commands give the same reason and the same advice for a host whose CPU has neither AVIC nor APICv.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use doctor::enable::{Arm, Part, Plan, Wish};
use doctor::{Finding, Fix, State, examine};
use host::vms::Vms;
use host::{Inspection, Root};
use verify::{Verify, verify};

/// The reason and the advice of `doctor`, `enable` and `verify`.
fn told(cpuinfo: &str, module: &str) -> [(String, String); 3] {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/cpuinfo", cpuinfo);
    let switch = if module == "kvm_amd" { "avic" } else { "enable_apicv" };
    write(&format!("sys/module/{module}/parameters/{switch}"), "N\n");
    let inspection = Inspection::read(&Root::directory(root.path())).unwrap();
    [by_doctor(&inspection), by_enable(root.path(), &inspection), by_verify(root.path())]
}

fn by_doctor(inspection: &Inspection) -> (String, String) {
    let examination = examine(inspection, &[], &[]);
    let all = examination.sections.iter().flat_map(|section| &section.findings).flat_map(flat);
    let mut ours = all.filter(|finding| ["cpu-avic", "cpu-apicv"].contains(&finding.rule.as_str()));
    let finding = ours.find(|finding| finding.state == State::Fail).unwrap();
    let [Fix::Advice(next)] = &finding.fixes[..] else { panic!("{finding:?}") };
    (finding.found.clone(), next.clone())
}

fn flat(finding: &Finding) -> Vec<&Finding> {
    std::iter::once(finding).chain(finding.children.iter().flat_map(flat)).collect()
}

fn by_enable(root: &Path, inspection: &Inspection) -> (String, String) {
    let plan =
        Plan::new(root, inspection, Wish { arm: Arm::On, part: Part::Whole, persist: true, reload: true });
    let refusal = plan.refusals.iter().find(|one| one.name == "cpu").unwrap();
    (refusal.why.clone(), refusal.next.clone())
}

fn by_verify(root: &Path) -> (String, String) {
    let wanted = Verify { root, found: &Vms::default(), vms: &[], chosen: false, duration: Duration::ZERO };
    let seen = verify(&wanted, &AtomicBool::new(false));
    let lack = seen.host.lack().unwrap();
    (lack.why, lack.next)
}

#[test]
fn doctor_enable_and_verify_tell_the_same_of_a_cpu_without_it() {
    let amd = "processor : 0\nvendor_id : AuthenticAMD\ncpu family : 25\nflags : svm npt";
    let intel = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nflags : vmx";
    let vmx = "vmx flags : vtpr vapic_reg vid";
    for (cpuinfo, module) in [
        (format!("{amd}\n"), "kvm_amd"),
        (format!("{amd} hypervisor\n"), "kvm_amd"),
        (format!("{intel}\n{vmx}\n"), "kvm_intel"),
        (format!("{intel} hypervisor\n{vmx}\n"), "kvm_intel"),
    ] {
        let [doctor, enable, verify] = told(&cpuinfo, module);
        assert_eq!(doctor, enable, "{cpuinfo}");
        assert_eq!(doctor, verify, "{cpuinfo}");
    }
}
