use super::*;
use crate::tuning::TuningPlan;
use guests::{DiskBus, GuestPlan};

fn plan() -> TuningPlan {
    let text = r#"
name = "small"
title = "A small tuning"
question = "What helps?"
[guests]
kind = "qemu"
machine = "pc"
disk = { bus = "ide" }
[[workloads]]
name = "compute"
tool = "sysbench"
test = "cpu"
[[changes]]
name = "virtio"
why = "Its requests need one exit."
guests = { disk = { bus = "virtio-blk" } }
files = { "/sys/module/kvm/parameters/halt_poll_ns" = 0 }
[[changes]]
name = "thread"
why = "QEMU's main loop does not wait."
guests = { disk = { iothread = true, bus = "virtio-blk" } }
kernel_settings = { "kernel.numa_balancing" = 0 }
"#;
    TuningPlan::read(text, "small.toml").unwrap()
}

fn disks(plan: &Plan) -> Vec<(DiskBus, bool)> {
    let of = |arm| match plan.guests_of(&arm).unwrap() {
        GuestPlan::Qemu(guests) => guests.disk().map(|disk| (disk.bus, disk.iothread)).unwrap(),
        _ => panic!("not QEMU"),
    };
    plan.arms().into_iter().map(of).collect()
}

#[test]
fn a_step_has_what_was_kept_in_both_arms() {
    let plan = plan();
    let best = Best::of(&plan.base).with(&plan.changes[0].level).unwrap();
    let step = step(&plan.base, &best, &plan.changes[1].level).unwrap();
    assert!(step.check().is_empty(), "{:?}", step.check());
    assert_eq!(disks(&step), [(DiskBus::VirtioBlk, false), (DiskBus::VirtioBlk, true)]);
    let [before, after] = &step.factors[0].levels[..] else { panic!("not two arms") };
    assert_eq!((before.name.as_str(), after.name.as_str()), ("before", "thread"));
    assert_eq!(before.files, after.files);
    assert_eq!(before.files.len(), 1);
    assert_eq!((before.kernel_settings.len(), after.kernel_settings.len()), (0, 1));
}

#[test]
fn at_the_end_the_baseline_stands_beside_all_that_was_kept() {
    let plan = plan();
    let best =
        Best::of(&plan.base).with(&plan.changes[0].level).unwrap().with(&plan.changes[1].level).unwrap();
    let last = confirmation(&plan.base, &best).unwrap();
    assert!(last.check().is_empty(), "{:?}", last.check());
    assert_eq!(disks(&last), [(DiskBus::Ide, false), (DiskBus::VirtioBlk, true)]);
    assert!(last.factors[0].levels[0].files.is_empty());
}

#[test]
fn a_steps_study_can_be_written_as_a_plan_and_read_again() {
    let plan = plan();
    let step = step(&plan.base, &Best::of(&plan.base), &plan.changes[0].level).unwrap();
    let text = toml::to_string(&step).unwrap();
    assert_eq!(Plan::read(&text, "step").unwrap(), step, "{text}");
}

fn level(text: &str) -> Level {
    toml::from_str(text).unwrap()
}

#[test]
fn a_kept_inhibit_is_expected_of_both_arms_of_later_steps() {
    let plan = plan();
    let avic = |value| {
        level(&format!("name = \"switch\"\nmodule_parameters = {{ kvm_amd = {{ avic = {value} }} }}"))
    };
    let best = Best::of(&plan.base).with(&avic(true)).unwrap();
    let best = best.with(&level("name = \"pit\"\ninhibit = \"pit-reinject\"")).unwrap();
    let inhibits = |change: &Level| {
        let step = step(&plan.base, &best, change).unwrap();
        assert!(step.check().is_empty(), "{:?}", step.check());
        [0, 1].map(|arm| step.factors[0].levels[arm].inhibit)
    };
    let pit = Some(Inhibit::PitReinject);
    assert_eq!(inhibits(&plan.changes[0].level), [pit, pit]);
    assert_eq!(inhibits(&avic(true)), [pit, pit]);
    assert_eq!(inhibits(&avic(false)), [pit, None]);
    assert_eq!(inhibits(&level("name = \"same\"\nguests = { pit = \"on\" }")), [pit, pit]);
    assert_eq!(inhibits(&level("name = \"discard\"\nguests = { pit = \"discard\" }")), [pit, None]);
    assert_eq!(inhibits(&level("name = \"none\"\ninhibit = \"none\"")), [pit, Some(Inhibit::None)]);
    let last = confirmation(&plan.base, &best).unwrap();
    assert_eq!([0, 1].map(|arm| last.factors[0].levels[arm].inhibit), [None, pit]);
}

#[test]
fn a_second_change_of_frequencies_keeps_the_rest_of_the_first() {
    let plan = plan();
    let of = |frequency: &str| level(&format!("name = \"cap\"\nfrequency = {{ {frequency} }}"));
    let best = Best::of(&plan.base).with(&of("governor = \"performance\", maximum = \"2GHz\"")).unwrap();
    let both = best.with(&of("minimum = \"1GHz\"")).unwrap();
    let merged = of("governor = \"performance\", minimum = \"1GHz\", maximum = \"2GHz\"").frequency;
    assert_eq!(both.host.frequency, merged);
    assert_eq!(both.with(&plan.changes[1].level).unwrap().host.frequency, merged);
    for (conflict, told) in [
        ("minimum = \"3GHz\"", "expected no more than the maximum"),
        ("cpus = \"1\", minimum = \"1GHz\"", "frequency.cpus is \"1\", and \"all\" in what was kept"),
    ] {
        let error = step(&plan.base, &best, &of(conflict)).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn guests_that_override_inhibit_do_so_in_later_steps_too() {
    let plan = plan();
    let change =
        "name = \"synic\"\ninhibit = \"hyperv-auto-eoi\"\nguests = { cpu = \"host,hv-synic=on,hv-time=on\" }";
    let best = Best::of(&plan.base).with(&level(change)).unwrap();
    let step = step(&plan.base, &best, &plan.changes[0].level).unwrap();
    for arm in step.arms() {
        let guests = toml::Table::try_from(step.guests_of(&arm).unwrap()).unwrap();
        assert_eq!(guests["cpu"].as_str(), Some("host,hv-synic=on,hv-time=on"));
    }
    assert_eq!([0, 1].map(|arm| step.factors[0].levels[arm].inhibit), [Some(Inhibit::HypervAutoEoi); 2]);
}

#[test]
fn a_later_change_of_what_inhibit_has_set_stays_in_force() {
    let plan = plan();
    let best = Best::of(&plan.base)
        .with(&level("name = \"first\"\ninhibit = \"none\""))
        .unwrap()
        .with(&level("name = \"second\"\nguests = { pit = \"on\" }"))
        .unwrap();
    let step = step(&plan.base, &best, &plan.changes[0].level).unwrap();
    let arms = [step, confirmation(&plan.base, &best).unwrap()].map(|study| {
        let of = |arm| toml::Table::try_from(study.guests_of(&arm).unwrap()).unwrap().get("pit").cloned();
        assert!(study.factors[0].levels.iter().all(|level| level.inhibit.is_none()));
        study.arms().into_iter().map(of).collect::<Vec<_>>()
    });
    let on = Some(toml::Value::from("on"));
    assert_eq!(arms[0], [on.clone(), on.clone()]);
    assert_eq!(arms[1][1], on);
}
