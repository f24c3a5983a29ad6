use exits::{Access, Direction, ExitReason, Exits, HandlingTime, Span};
use traces::exitless::{Header, Packing, write_profile};

use super::*;
use crate::analysis::synthetic::{Made, write};

pub(in crate::tuning) fn profile(process: u32, port: u16, count: u64, each_ns: u64) -> Profile {
    let mut handling = HandlingTime::new();
    (0..count).for_each(|_| handling.add(each_ns));
    let exits = Exits { count, handling };
    let mut profile = Profile::new();
    profile.span = Some(Span { first_ns: 1_000_000_000, last_ns: 2_000_000_000 });
    let vcpu = profile.vcpu(Vcpu { vm: Some(process), number: Some(0), thread: Some(process + 1) });
    vcpu.reasons.insert(ExitReason::vmx(30), exits.clone());
    vcpu.accesses.insert(Access::Port { port, direction: Direction::Write }, exits);
    profile
}

#[test]
fn runs_of_one_arm_are_one_vm_whatever_their_processes_were() {
    let mut all = Recorded::default();
    all.add(&profile(100, 0x1f7, 10, 1000));
    all.add(&profile(200, 0x1f7, 20, 1000));
    assert_eq!(all.observed_ns, 2_000_000_000);
    let [vcpu] = all.profile.vcpus() else { panic!("{:?}", all.profile.vcpus()) };
    assert_eq!(vcpu.vcpu.vm, Some(GUESTS));
    assert_eq!(vcpu.reasons[&ExitReason::vmx(30)].count, 30);
    assert_eq!(vcpu.accesses.values().next().unwrap().count, 30);
}

#[test]
fn the_exits_of_a_study_are_those_of_the_arm_alone() {
    let folder = tempfile::tempdir().unwrap();
    let made = Made { blocks: 2, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
    write(folder.path(), &made).unwrap();
    let study = StudyFolder::open(folder.path()).unwrap();
    // Nothing has been recorded.
    let none = recorded(folder.path(), "before").unwrap_err().to_string();
    assert!(none.contains("recorded its exits"), "{none}");
    let factor = &study.study.plan.factors[0];
    for (number, kept) in study.runs.iter().enumerate() {
        let is_baseline = kept.run.cell.arm[&factor.name] == factor.baseline;
        let port = if is_baseline { 0x1f7 } else { 0x3f8 };
        let of_run = profile(100 + number as u32, port, 5, 1000);
        let place = if number % 2 == 0 { kept.folder.clone() } else { kept.folder.join(REPETITION) };
        std::fs::create_dir_all(&place).unwrap();
        let file = std::fs::File::create(place.join(PROFILE)).unwrap();
        write_profile(file, &Header::default(), &of_run, Packing::None).unwrap();
        // Give the factor the name that it has in a tuning.
        let path = kept.folder.join("run.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(&format!("\"{}\"", factor.name), "\"change\"")).unwrap();
    }
    let path = folder.path().join("study.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&format!("\"name\": \"{}\"", factor.name), "\"name\": \"change\""))
        .unwrap();
    let all = recorded(folder.path(), &factor.baseline).unwrap();
    assert_eq!(all.profile.total(), 2 * 5);
    let ports: Vec<_> = all.profile.accesses().into_keys().collect();
    assert_eq!(ports, [Access::Port { port: 0x1f7, direction: Direction::Write }]);
}
