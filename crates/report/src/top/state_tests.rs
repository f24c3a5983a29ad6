use super::*;
use crate::top::sort::Sort;
use crate::top::vms::SHOWN_AFTER_END;
use crate::top::{Source, VmFacts};
use exits::{Access, Direction, ExitReason, Isa, Span, Vcpu, What};

const SECOND: u64 = 1_000_000_000;
const HALT: ExitReason = ExitReason::svm(0x78);
const MSR: ExitReason = ExitReason::svm(0x7c);
const CPUID: ExitReason = ExitReason::svm(0x72);

fn source() -> Source {
    Source { isa: Isa::Svm, mechanism: "raw tracepoints".to_owned(), missing: Vec::new() }
}

/// An observation of a second with these exits: VM, vCPU, reason, count, and handling time of each in microseconds.
fn second(exits: &[(u32, u32, ExitReason, u64, u64)]) -> Observation {
    let mut observation = Observation::default();
    for &(vm, number, reason, count, us) in exits {
        let vcpu =
            observation.profile.vcpu(Vcpu { vm: Some(vm), number: Some(number), thread: Some(vm + number) });
        let exits = vcpu.reasons.entry(reason).or_default();
        exits.count += count;
        (0..count).for_each(|_| exits.handling.add(us * 1000));
        if reason == MSR {
            let icr = Access::Msr { number: 0x830, direction: Direction::Write };
            vcpu.accesses.entry(icr).or_default().count += count;
        }
    }
    observation.profile.span = Some(Span { first_ns: 0, last_ns: SECOND });
    observation
}

fn gone(mut observation: Observation, vm: u32) -> Observation {
    observation.facts.insert(vm, VmFacts { is_gone: true, ..VmFacts::default() });
    observation
}

/// A second in which VM 100 has the most exits, 300 the most host time, and 200 the most sleep.
fn three() -> Observation {
    second(&[
        (100, 0, MSR, 900, 10),
        (100, 0, CPUID, 50, 20),
        (100, 1, CPUID, 100, 1),
        (200, 0, HALT, 9, 100_000),
        (300, 0, CPUID, 100, 1_000),
    ])
}

fn top() -> Top {
    let mut top = Top::new(source(), SECOND);
    top.observe(three());
    top
}

fn after(actions: &[Action]) -> Top {
    let mut top = top();
    actions.iter().for_each(|&action| top.act(action));
    top
}

fn vms(top: &Top) -> Vec<u32> {
    top.rows().iter().map(|row| row.key.whose.vm().unwrap()).collect()
}

fn names(top: &Top) -> Vec<String> {
    top.rows().iter().map(|row| row.name.clone()).collect()
}

fn cursor(top: &Top) -> String {
    let rows = top.rows();
    let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
    rows[top.view().cursor(&keys)].name.clone()
}

#[test]
fn sort_goes_through_the_figures_of_the_page_and_begins_anew() {
    let mut top = top();
    let mut seen = Vec::new();
    for _ in Sort::OF_VMS {
        seen.push((top.view().sort(), vms(&top)));
        top.act(Action::Sort);
    }
    let wanted = [
        (Sort::Exits, vec![100, 300, 200]),
        (Sort::Time, vec![300, 100, 200]),
        (Sort::Halted, vec![200, 100, 300]),
        (Sort::Name, vec![100, 200, 300]),
    ];
    assert_eq!(seen, wanted);
    assert_eq!(top.view().sort(), Sort::Exits);
    top.act(Action::Reverse);
    assert_eq!(vms(&top), [200, 300, 100]);
    // The next order starts with the largest figure again.
    top.act(Action::Sort);
    assert_eq!(vms(&top), [300, 100, 200]);
}

#[test]
fn work_and_sleep_are_apart() {
    let top = top();
    let rows = top.rows();
    let shares = |vm: u32| {
        let row = rows.iter().find(|row| row.key.whose.vm() == Some(vm)).unwrap();
        (row.host_percent(SECOND).round(), row.halted_percent(SECOND).round(), row.most)
    };
    // 10.1 ms of two vCPUs; 900 ms asleep; 100 ms of work.
    assert_eq!(shares(100), (1.0, 0.0, Some(MSR)));
    assert_eq!(shares(200), (0.0, 90.0, Some(HALT)));
    assert_eq!(shares(300), (10.0, 0.0, Some(CPUID)));
}

#[test]
fn a_vcpu_that_is_plugged_in_again_is_one() {
    let observed = |vcpus: [(Option<u32>, u32); 2], threads: &[u32]| {
        let mut observation = Observation::default();
        for (number, thread) in vcpus {
            let vcpu = Vcpu { vm: Some(7), number, thread: Some(thread) };
            observation.profile.vcpu(vcpu).reasons.entry(CPUID).or_default().count = 1;
        }
        observation.profile.span = Some(Span { first_ns: 0, last_ns: SECOND });
        let threads = Some(threads.iter().copied().collect());
        observation.facts.insert(7, VmFacts { threads, ..VmFacts::default() });
        observation
    };
    let mut top = Top::new(source(), SECOND);
    let mut vcpus = |observation| {
        top.observe(observation);
        top.rows()[0].vcpus
    };
    assert_eq!(vcpus(observed([(Some(0), 70), (None, 71)], &[7, 70, 71])), 2);
    // It is entered for the first time, unplugged, and plugged in again.
    assert_eq!(vcpus(observed([(Some(0), 70), (Some(1), 71)], &[7, 70, 71])), 2);
    assert_eq!(vcpus(observed([(Some(0), 70), (Some(1), 71)], &[7, 70])), 1);
    assert_eq!(vcpus(observed([(Some(0), 70), (Some(1), 99)], &[7, 70, 99])), 2);
    // What it did before does not make it another one.
    assert_eq!(vcpus(observed([(Some(0), 70), (None, 99)], &[7, 70, 99])), 2);
}

#[test]
fn the_cursor_stays_at_the_top_or_follows_its_line() {
    let mut top = top();
    assert_eq!(cursor(&top), "pid 100");
    top.act(Action::Sort);
    assert_eq!(cursor(&top), "pid 300");
    top.act(Action::Down);
    assert_eq!(cursor(&top), "pid 100");
    top.act(Action::Sort);
    assert_eq!((cursor(&top).as_str(), vms(&top)), ("pid 100", vec![200, 100, 300]));
    for (action, wanted) in [
        (Action::Last, "pid 300"),
        (Action::Down, "pid 300"),
        (Action::First, "pid 200"),
        (Action::Up, "pid 200"),
        (Action::PageDown, "pid 300"),
        (Action::PageUp, "pid 200"),
    ] {
        top.act(action);
        assert_eq!(cursor(&top), wanted, "{action:?}");
    }
}

#[test]
fn a_line_that_is_gone_leaves_the_cursor_where_it_was() {
    let mut top = after(&[Action::Down]);
    assert_eq!(cursor(&top), "pid 300");
    for _ in 0..=SHOWN_AFTER_END {
        top.observe(gone(second(&[(100, 0, MSR, 900, 10), (200, 0, HALT, 9, 100)]), 300));
    }
    assert_eq!((cursor(&top).as_str(), vms(&top)), ("pid 200", vec![100, 200]));
}

#[test]
fn enter_leads_from_a_vm_to_a_reason_to_its_accesses_and_escape_back() {
    let mut top = after(&[Action::Open]);
    assert_eq!(names(&top), ["msr", "cpuid"]);
    assert!(!top.wants_accesses());
    top.act(Action::Open);
    assert!(top.wants_accesses());
    assert_eq!(names(&top), ["ICR:W"]);
    // No page opens from an access.
    top.act(Action::Open);
    assert_eq!(top.view().page, Page::Reason(Whose::Vm(Some(100)), MSR));
    top.act(Action::Back);
    assert_eq!(top.view().page, Page::Reasons(Whose::Vm(Some(100))));
    for _ in 0..3 {
        top.act(Action::Back);
        assert_eq!(top.view().page, Page::Vms);
    }
}

#[test]
fn a_reason_that_is_about_nothing_further_is_shown_by_vcpu() {
    let top = after(&[Action::Open, Action::Down, Action::Open]);
    assert!(!top.wants_accesses());
    assert_eq!(names(&top), ["vCPU 1", "vCPU 0"]);
}

#[test]
fn v_turns_between_reasons_and_vcpus() {
    let mut top = after(&[Action::Open, Action::Turn]);
    assert_eq!(names(&top), ["vCPU 0", "vCPU 1"]);
    top.act(Action::Down);
    top.act(Action::Open);
    assert_eq!(names(&top), ["cpuid"]);
    // A vCPU has no vCPUs.
    top.act(Action::Turn);
    assert_eq!(names(&top), ["cpuid"]);
    for wanted in [vec!["vCPU 0", "vCPU 1"], vec!["pid 100", "pid 300", "pid 200"]] {
        top.act(Action::Back);
        assert_eq!(names(&top), wanted);
    }
    // Back returns to the page of all VMs if the vCPUs were opened from it.
    top.act(Action::Turn);
    assert_eq!(names(&top), ["vCPU 0", "vCPU 1"]);
    top.act(Action::Turn);
    assert_eq!(names(&top), ["msr", "cpuid"]);
    top.act(Action::Back);
    assert_eq!(top.view().page, Page::Vms);
}

#[test]
fn sums_are_since_the_reset() {
    let mut top = top();
    top.observe(second(&[(100, 0, MSR, 100, 10)]));
    let rate = |top: &Top| {
        let row = top.rows().into_iter().find(|row| row.key.whose.vm() == Some(100)).unwrap();
        (row.exits.count, top.shown_ns() / SECOND)
    };
    assert_eq!(rate(&top), (100, 1));
    top.act(Action::Sum);
    assert_eq!(rate(&top), (1150, 2));
    top.act(Action::Reset);
    assert_eq!((top.shown_ns(), top.courses.keys().count()), (0, 0));
    top.observe(second(&[(100, 0, MSR, 7, 10)]));
    assert_eq!(rate(&top), (7, 1));
}

#[test]
fn sums_of_a_guest_that_touches_ever_other_addresses_stay_small() {
    const EACH: u64 = 6_000;
    let mut top = Top::new(source(), SECOND);
    for round in 0..4 {
        let mut observation = second(&[(100, 0, CPUID, EACH, 1)]);
        let vcpu = Vcpu { vm: Some(100), number: Some(0), thread: Some(100) };
        let accesses = &mut observation.profile.vcpu(vcpu).accesses;
        for address in round * EACH..(round + 1) * EACH {
            accesses.entry(Access::Mmio { address, direction: Direction::Read }).or_default().count += 1;
        }
        top.observe(observation);
    }
    let all = top.since_reset.profile.accesses();
    assert!(all.len() < 20_000, "{}", all.len());
    assert_eq!(all.values().map(|exits| exits.count).sum::<u64>(), 4 * EACH);
}

#[test]
fn losses_are_counted_until_the_reset() {
    let mut top = top();
    for _ in 0..2 {
        let mut lossy = three();
        lossy.profile.losses.lost_events = 5;
        lossy.profile.losses.exits_without_vcpu = 7;
        top.observe(lossy);
        top.observe(three());
    }
    assert_eq!((top.lost(), top.without_vcpu()), (10, 14));
    assert_eq!(crate::top::texts::lost(&top), "LOST 10, 14 WITHOUT VM");
    top.act(Action::Reset);
    assert_eq!((top.lost(), top.without_vcpu()), (0, 0));
    assert_eq!(crate::top::texts::lost(&top), "lost nothing");
}

#[test]
fn intervals_go_up_and_down_between_their_ends() {
    let mut top = Top::new(source(), 300_000_000);
    top.act(Action::Longer);
    assert_eq!(top.interval_ns(), 500_000_000);
    (0..20).for_each(|_| top.act(Action::Longer));
    assert_eq!(top.interval_ns(), 60 * SECOND);
    (0..20).for_each(|_| top.act(Action::Shorter));
    assert_eq!(top.interval_ns(), 100_000_000);
}

#[test]
fn any_key_closes_the_help_and_does_nothing_else() {
    let mut top = after(&[Action::Help, Action::Open]);
    assert_eq!((top.shows_help, top.view().page), (false, Page::Vms));
    top.act(Action::Help);
    top.act(Action::Quit);
    assert!(top.has_ended());
}

#[test]
fn pause_is_switched() {
    let mut top = after(&[Action::Pause]);
    assert!(top.is_paused());
    top.act(Action::Pause);
    assert!(!top.is_paused());
}

#[test]
fn what_is_said_is_gone_after_some_intervals_or_with_the_next_key() {
    let mut top = after(&[Action::Reset]);
    for _ in 0..SAID_FOR {
        assert!(top.notice().is_some());
        top.observe(three());
    }
    assert_eq!(top.notice(), None);
    top.attached_again(source());
    assert_eq!(top.notice(), Some("Counting without accesses now; exits during the change were not counted"));
    top.act(Action::Down);
    assert_eq!(top.notice(), None);
}

#[test]
fn a_vm_that_ended_stays_for_some_intervals_and_an_idle_one_for_ever() {
    let mut top = top();
    let without = || gone(second(&[(200, 0, HALT, 9, 100)]), 300);
    for _ in 0..SHOWN_AFTER_END {
        top.observe(without());
        let ended: Vec<_> =
            top.rows().iter().filter(|row| row.has_ended).map(|row| row.name.clone()).collect();
        assert_eq!(ended, ["pid 300"]);
        assert_eq!(top.vms.running(), 2);
    }
    top.observe(without());
    assert_eq!(vms(&top), [200, 100]);
    assert!(top.courses.keys().all(|key| key.whose.vm() != Some(300)));
    assert_eq!(top.since_reset.profile.vcpus().iter().filter(|of| of.vcpu.vm == Some(300)).count(), 0);
    assert_eq!(top.processes().into_iter().collect::<Vec<_>>(), [100, 200]);
    // A later process with the same ID is another VM.
    top.observe(three());
    assert_eq!(vms(&top), [100, 300, 200]);
    assert!(top.rows().iter().all(|row| !row.has_ended));
}

#[test]
fn the_page_of_a_vm_that_ended_stays_until_the_user_leaves() {
    let mut top = after(&[Action::Down, Action::Open]);
    for _ in 0..20 {
        top.observe(gone(second(&[(100, 0, MSR, 1, 1)]), 300));
    }
    assert_eq!(names(&top), [""; 0]);
    top.act(Action::Open);
    top.act(Action::Back);
    assert_eq!(vms(&top), [100, 200]);
}

#[test]
fn a_reason_that_pauses_keeps_its_line() {
    let mut top = after(&[Action::Open]);
    top.observe(second(&[(100, 0, CPUID, 5, 1)]));
    assert_eq!(names(&top), ["cpuid", "msr"]);
    let row = &top.rows()[1];
    assert_eq!((row.key.what, row.exits.count), (What::Reason(MSR), 0));
}

#[test]
fn names_come_late_and_stay() {
    let mut top = top();
    let mut named = three();
    named.facts.insert(200, VmFacts { name: Some("web".to_owned()), ..VmFacts::default() });
    top.observe(named);
    let mut unnamed = three();
    unnamed.facts.insert(200, VmFacts::default());
    top.observe(unnamed);
    assert_eq!(names(&top), ["pid 100", "pid 300", "web"]);
}

#[test]
fn the_page_of_io_cores_comes_and_goes_and_says_what_runs() {
    let mut top = after(&[Action::IoCores]);
    assert!(top.shows_io());
    let lines = top.io.lines(80).join("\n");
    assert!(lines.contains("iocm serve") && lines.contains("iocm monitor"), "{lines}");
    let state = iocm_monitor::State { target: "workers".to_owned(), ..iocm_monitor::State::default() };
    let monitor = Some((state, true));
    top.observe_io(crate::top::IoCores { monitor, ..crate::top::IoCores::default() });
    let lines = top.io.lines(80).join("\n");
    assert!(lines.contains("The monitor of workers runs"), "{lines}");
    top.act(Action::Back);
    assert!(!top.shows_io());
    assert_eq!(top.view().page, Page::Vms);
}
