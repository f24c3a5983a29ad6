use super::super::plan::TuningPlan;
use super::super::recorded::tests::profile;
use super::*;

const PLAN: &str = r#"
name = "small"
title = "A small tuning"
question = "What helps?"
[guests]
kind = "qemu"
machine = "pc"
irqchip = "split"
disk = { bus = "ide" }
[[workloads]]
name = "compute"
tool = "sysbench"
test = "cpu"
[samples]
accesses = true
[tune.advised]
"#;

fn best() -> Best {
    Best::of(&TuningPlan::read(PLAN, "small.toml").unwrap().base)
}

/// A recording of exits by port: each port with its exits a second and the handling time of an exit.
fn recorded(ports: &[(u16, u64, u64)]) -> Recorded {
    let mut all = Recorded::default();
    for &(port, count, each_ns) in ports {
        all.add(&profile(1, port, count, each_ns));
    }
    all.observed_ns = 1_000_000_000;
    all
}

fn found(recorded: &Recorded, tried: &Tried) -> Found {
    next(&best(), recorded, &Advised::default(), tried).unwrap()
}

#[test]
fn the_change_for_the_costliest_device_is_tried_first_and_each_once() {
    // The disk takes 10 % of a CPU, the PIC 2 %, and the PIT less than the threshold.
    let exits = recorded(&[(0x1f7, 1000, 100_000), (0x20, 200, 100_000), (0x40, 10, 100_000)]);
    let mut tried = Tried::default();
    let (change, advised) = found(&exits, &tried).next.unwrap();
    assert_eq!(change.level.name, "ide-virtio-blk");
    assert_eq!((advised.device.as_str(), advised.cure.as_str()), ("ide", "virtio-blk"));
    assert!((advised.host_cpu_percent - 10.0).abs() < 0.1, "{advised:?}");
    assert!(change.why.contains("1000 exits a second are of the IDE disk and take 10.0 %"), "{}", change.why);
    let disk = toml::from_str("disk = { bus = \"virtio-blk\" }").unwrap();
    assert_eq!(change.level.guests, disk);
    tried.add(&change, best().with(&change.level).ok().as_ref());
    let (change, _) = found(&exits, &tried).next.unwrap();
    assert_eq!(change.level.name, "pic-irqchip-on");
    tried.add(&change, best().with(&change.level).ok().as_ref());
    // The fix for the PIT is a setting that was tried already, and its exits cost too little.
    assert!(found(&exits, &tried).next.is_none());
}

#[test]
fn a_change_that_gives_guests_of_another_step_is_not_tried_again() {
    let exits = recorded(&[(0x1f7, 1000, 100_000)]);
    let listed =
        "[[changes]]\nname = \"disk\"\nwhy = \"So.\"\nguests = { disk = { bus = \"virtio-blk\" } }\n";
    let plan = TuningPlan::read(&format!("{PLAN}{listed}"), "small.toml").unwrap();
    let mut tried = Tried::default();
    tried.add(&plan.changes[0], best().with(&plan.changes[0].level).ok().as_ref());
    assert!(found(&exits, &tried).next.is_none());
}

#[test]
fn what_only_the_guest_or_the_host_can_change_is_left_with_its_text() {
    let exits = recorded(&[(0x3f8, 1000, 100_000), (0x20, 1000, 100_000)]);
    let left = found(&exits, &Tried::default()).left;
    let of =
        |cure: &str| left.iter().find(|one| one.advised.cure == cure).unwrap_or_else(|| panic!("{left:#?}"));
    assert_eq!(of("quiet").by, LeftTo::Guest);
    assert!(of("quiet").changes[0].starts_with("guest: quiet or loglevel=4"));
    assert_eq!(of("virtio-console").by, LeftTo::Definition);
    assert_eq!(of("apic-in-guest").device, "PIC (i8259)");
    // The tuning can try this fix itself.
    assert!(!left.iter().any(|one| one.advised.cure == "irqchip-on"));
}

#[test]
fn nothing_is_advised_without_exits() {
    let found = found(&Recorded::default(), &Tried::default());
    assert!(found.next.is_none() && found.left.is_empty());
}
