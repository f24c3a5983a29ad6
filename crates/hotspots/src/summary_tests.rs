use super::*;
use crate::{Away, Event, Head, Node, NodeName, Weight, folded, tree};

fn recording() -> Recording {
    let mut recording = Recording::new(Head {
        kernel: None,
        event: Event::Cycles,
        frequency_hz: 1000,
        cpus: 1,
        duration_ns: 1_000_000_000,
        away: true,
        notes: Vec::new(),
    });
    let mut frame = |space, symbol: &str, object: &str| {
        recording.number(Frame {
            space,
            symbol: Some(symbol.to_owned()),
            object: object.to_owned(),
            address: None,
        })
    };
    let run = frame(Space::Kernel, "kvm_arch_vcpu_ioctl_run", "kvm");
    let emulate = frame(Space::Kernel, "emulator_pio_in_out", "kvm");
    let write = frame(Space::Kernel, "vfs_write", "kernel");
    let model = frame(Space::User, "address_space_rw", "qemu");
    let sleep = frame(Space::Kernel, "schedule", "kernel");
    let lock = frame(Space::Kernel, "futex_wait", "kernel");
    let io = Activity::Exit(ExitReason::vmx(30));
    let none = Away::default();
    let slept = Away { times: 4, away_ns: 4000, waited_ns: 1000 };
    for (vm, activity, frames, samples, away) in [
        (1, io, vec![emulate, run, run, model], 60, none),
        (1, io, vec![run, model], 10, none),
        (1, io, vec![write, model], 10, none),
        (2, io, vec![model], 20, none),
        (2, Activity::Monitor, vec![write], 5, none),
        (2, Activity::Guest, vec![], 400, none),
        (1, io, vec![sleep, lock, model], 0, slept),
    ] {
        let (vm, thread, cut) = (Some(vm), None, vm == 2);
        recording.stacks.push(Stack { vm, thread, activity, frames, samples, away, cut });
    }
    let away = Away { times: 5, away_ns: 20_000_000, waited_ns: 5_000_000 };
    let measured = Measured { exits: 1000, handling_ns: 120_000_000, away };
    recording.measured.insert((Some(1), ExitReason::vmx(30)), measured);
    recording
}

#[test]
fn samples_are_told_apart_by_part_and_symbol() {
    let summary = Summary::of(&recording(), &Selection::default());
    assert_eq!((summary.in_exits, summary.in_guests, summary.in_monitors, summary.cut), (100, 400, 5, 425));
    let row = &summary.reasons[0];
    assert_eq!((row.samples, row.exits, row.on_cpu_ns), (100, 1000, 100_000_000));
    let parts: Vec<_> = row.parts.iter().map(|(&part, &samples)| (part, samples)).collect();
    assert_eq!(parts, [(Part::Kvm, 70), (Part::Kernel, 10), (Part::Monitor, 20)]);
    let own: Vec<_> = row.by_own.iter().map(|row| (row.frame.to_string(), row.own, row.total)).collect();
    let expected = [
        ("emulator_pio_in_out", 60, 60),
        ("address_space_rw", 20, 100),
        // Twice in one stack, but counted once.
        ("kvm_arch_vcpu_ioctl_run", 10, 70),
        ("vfs_write", 10, 10),
    ];
    assert_eq!(own, expected.map(|(name, own, total)| (name.to_owned(), own, total)));
    assert_eq!(row.by_total[0].frame.to_string(), "address_space_rw");
    // 100 samples of 1 ms each.
    assert!(row.sampled_ns.low < 100e6 && 100e6 < row.sampled_ns.high);
    assert!((row.sampled_ns.value - 100e6).abs() < 1.0);
    // Shares count only stacks whose innermost frame is in the kernel.
    assert!((summary.kernel[0].share.value - 60.0 / 80.0).abs() < 1e-9);
    assert_eq!(summary.monitors[0].own, 20);
}

#[test]
fn a_cpu_that_did_not_tick_makes_samples_of_another_no_longer() {
    let mut recording = recording();
    recording.head.event = Event::CpuClock;
    recording.head.cpus = 64;
    // One of 64 CPUs was busy; the idle ones did not tick.
    recording.losses.ticks = 1000;
    let summary = Summary::of(&recording, &Selection::default());
    assert!((summary.reasons[0].sampled_ns.value - 100e6).abs() < 1.0, "{:?}", summary.reasons[0].sampled_ns);
}

#[test]
fn where_a_thread_slept_is_told_without_the_scheduler() {
    let summary = Summary::of(&recording(), &Selection::default());
    let moment = &summary.reasons[0].moments[0];
    assert_eq!(
        moment.frames.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["futex_wait", "address_space_rw"]
    );
    assert_eq!((moment.away.asleep_ns(), moment.away.waited_ns), (3000, 1000));
}

#[test]
fn a_selection_leaves_out_what_it_does_not_name() {
    let vms = Selection { vms: [2].into(), ..Selection::default() };
    let summary = Summary::of(&recording(), &vms);
    assert_eq!((summary.in_exits, summary.in_monitors), (20, 5));
    let reasons = Selection { reasons: [ExitReason::vmx(12)].into(), ..Selection::default() };
    let summary = Summary::of(&recording(), &reasons);
    assert_eq!((summary.reasons.len(), summary.in_exits, summary.in_guests), (0, 0, 0));
}

/// The code of all nodes below a node.
fn code(node: &Node) -> Vec<&Arc<Frame>> {
    let own = node.children.keys().filter_map(|name| match name {
        NodeName::Code(frame) => Some(frame),
        NodeName::Reason(_) | NodeName::Monitor => None,
    });
    own.chain(node.children.values().flat_map(code)).collect()
}

#[test]
fn sums_and_trees_of_many_reasons_have_no_names_of_their_own() {
    let mut recording = recording();
    for reason in 0..20 {
        let activity = Activity::Exit(ExitReason::vmx(reason));
        let stacks: Vec<Stack> =
            recording.stacks[..7].iter().map(|stack| Stack { activity, ..stack.clone() }).collect();
        recording.stacks.extend(stacks);
    }
    let all = Selection::default();
    let (summary, root) = (Summary::of(&recording, &all), tree(&recording, &all, Weight::Samples));
    let reasons = &summary.reasons;
    let rows = reasons.iter().flat_map(|row| row.by_own.iter().chain(&row.by_total));
    let rows = rows.chain(&summary.kernel).chain(&summary.monitors).map(|row| &row.frame);
    let moments = reasons.iter().flat_map(|row| &row.moments).flat_map(|moment| &moment.frames);
    let found: Vec<&Arc<Frame>> = rows.chain(moments).chain(code(&root)).collect();
    assert!(found.len() > 20 * recording.frames.len(), "{}", found.len());
    for frame in found {
        assert!(recording.frames.iter().any(|own| Arc::ptr_eq(own, frame)), "a copy of {frame}");
    }
}

fn lines(recording: &Recording, weight: Weight) -> String {
    let mut bytes = Vec::new();
    folded(recording, &Selection::default(), weight, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn trees_and_lines_have_the_reason_outermost() {
    let recording = recording();
    let root = tree(&recording, &Selection::default(), Weight::Samples);
    assert_eq!((root.total, root.depth()), (105, 5));
    assert_eq!(root.children[&NodeName::Reason(ExitReason::vmx(30))].total, 100);
    let text = lines(&recording, Weight::Samples);
    assert!(text.contains("IO_INSTRUCTION;address_space_rw;vfs_write_[k] 10\n"), "{text}");
    assert!(text.contains("device model;vfs_write_[k] 5\n"), "{text}");
    let away = lines(&recording, Weight::Away);
    assert_eq!(away, "IO_INSTRUCTION;address_space_rw;futex_wait_[k];schedule_[k] 4000\n");
}
