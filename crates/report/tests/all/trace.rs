//! Tests of the output of single events, against snapshots and limits of width.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use exits::{Direction, ExitReason, Inhibit, InhibitReason, Inhibits};
use live::InhibitChange;
use live::trace::{
    DeliveryMode, Event, EventKind, InhibitReport, InhibitState, Ipi, IrteUpdate, Loss, Missing, Occurrence,
    Owner, Summary, What,
};
use report::trace::json;
use report::trace::terminal::{Lines, beginning, summary};

fn occurrence(nth: u64, owner: Option<Owner>, what: What) -> Occurrence {
    let time_ns = 3_600_000_000_000 + nth * 1_234_567;
    let wall = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_000 + nth * 1_234_567);
    let in_interrupt = owner.is_none();
    Occurrence { event: Event { time_ns, cpu: 3, pid: 4711, tid: 4720, in_interrupt, what }, wall, owner }
}

fn owner(vm: Option<&str>) -> Option<Owner> {
    Some(Owner {
        pid: 4711,
        vm: vm.map(str::to_owned),
        process: "qemu-system-x86".to_owned(),
        management: Default::default(),
    })
}

fn inhibit(set: bool, reason: InhibitReason, by: &[InhibitReason], changed: Option<bool>) -> What {
    let change = InhibitChange {
        time_ns: 0,
        thread: 4720,
        set,
        number: 9,
        reason: Some(reason),
        mask: Some(Inhibits(0)),
    };
    let state = match by {
        [] => InhibitState::Active,
        by => {
            InhibitState::Inhibited { by: by.iter().copied().map(Inhibit::Named).collect(), complete: true }
        }
    };
    What::InhibitReport(InhibitReport { change, reason: Inhibit::Named(reason), state, changed })
}

fn incomplete(high: u32, low: u32, cause: u32) -> What {
    What::IncompleteIpi { vcpu: 1, ipi: Ipi::from_register(high, low), cause, index: 3 }
}

/// Typical events of several hosts.
fn usual() -> Vec<Occurrence> {
    use InhibitReason::{IrqWindow, PitReinject};
    let window = |reason| What::IrqWindow { vcpu: Some(1), reason, rip: 0xffff_ffff_8123_4567 };
    let irte = IrteUpdate {
        posted: true,
        host_irq: 145,
        vcpu: Some(1),
        gsi: 24,
        vector: 0x31,
        descriptor: Some(0x1_0000_0040),
    };
    let whats = [
        inhibit(true, PitReinject, &[PitReinject], None),
        inhibit(true, IrqWindow, &[IrqWindow, PitReinject], Some(true)),
        inhibit(false, IrqWindow, &[PitReinject], Some(true)),
        inhibit(false, IrqWindow, &[PitReinject], Some(false)),
        inhibit(false, PitReinject, &[], Some(true)),
        inhibit(true, PitReinject, &[PitReinject], Some(true)),
        window(ExitReason::svm(0x64)),
        window(ExitReason::vmx(7)),
        What::PostedInterrupt(irte),
        What::PostedInterrupt(IrteUpdate { posted: false, vcpu: None, descriptor: None, ..irte }),
        incomplete(0x0200_0000, 0x8fd, 1),
        incomplete(2, 0xfd, 1),
        incomplete(0, 0xc_0400, 0),
        incomplete(5, 0x69a, 77),
        What::Unaccelerated {
            vcpu: 1,
            register: 0xb0,
            direction: Direction::Write,
            trap: true,
            vector: 0x51,
        },
        What::Unaccelerated { vcpu: 1, register: 0x7f0, direction: Direction::Read, trap: false, vector: 0 },
        What::Kick { ipi: Ipi::from_register(0x0300_0000, 0x8fd), index: 2 },
        What::AcceptIrq { vcpu: 1, mode: DeliveryMode::LowestPriority, level: false, vector: 0xec },
        What::PvEoi { apic_id: 1, vector: 0xec },
    ];
    let mut all: Vec<_> =
        (0..).zip(whats).map(|(nth, what)| occurrence(nth, owner(Some("web-01")), what)).collect();
    all.push(occurrence(100, None, What::GaLog { avic_vm: 7, tag_vcpu: 1 }));
    all
}

/// Names that are long, missing or hostile.
fn strange() -> Vec<Occurrence> {
    let halt = || What::IrqWindow { vcpu: Some(1), reason: ExitReason::svm(0x64), rip: 0 };
    let unknown = |set, by: &[u32], complete| {
        let change = InhibitChange { time_ns: 0, thread: 1, set, number: 40, reason: None, mask: None };
        let by: Vec<_> = by.iter().copied().map(Inhibit::Number).collect();
        let state =
            if by.is_empty() { InhibitState::Unknown } else { InhibitState::Inhibited { by, complete } };
        What::InhibitReport(InhibitReport { change, reason: Inhibit::Number(40), state, changed: None })
    };
    vec![
        occurrence(0, owner(None), halt()),
        occurrence(1, owner(Some("a-very-long-name-of-a-machine")), halt()),
        occurrence(2, owner(Some("\u{1b}[31mred")), halt()),
        occurrence(3, owner(Some("old")), unknown(true, &[40], false)),
        occurrence(4, owner(Some("old")), unknown(false, &[], false)),
    ]
}

fn loss() -> Loss {
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001);
    Loss { time_ns: 3_601_000_000_000, wall, cpu: Some(3), events: 12_345 }
}

fn lines(occurrences: &[Occurrence], colour: bool) -> String {
    let mut lines = Lines::new(colour);
    let text: String = occurrences.iter().map(|occurrence| lines.event(occurrence)).collect();
    text + &lines.lost(&loss()) + &lines.lost(&Loss { cpu: None, events: 1, ..loss() })
}

#[test]
fn usual_events_fit_and_reasons_are_explained_once() {
    let text = lines(&usual(), false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn strange_names_do_no_harm() {
    let text = lines(&strange(), false);
    assert!(!text.contains('\u{1b}'));
    insta::assert_snapshot!(text);
}

#[test]
fn wide_and_combining_characters_do_not_move_what_follows() {
    let event = |name: &str| {
        let window = What::IrqWindow { vcpu: Some(1), reason: ExitReason::svm(0x64), rip: 0 };
        occurrence(0, owner(Some(name)), window)
    };
    let text = lines(&["web", "虚拟机生产环境数据库服务器", "we\u{301}b"].map(event), false);
    for line in text.lines().take(3) {
        let (before, _) = line.split_once("irq-window").unwrap_or_else(|| panic!("{text}"));
        assert_eq!(textwrap::core::display_width(before), 29, "{text}");
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let coloured = lines(&usual(), true);
    assert!(coloured.contains("\u{1b}[31minhibit") && coloured.contains("\u{1b}[32minhibit"));
    let mut bare = String::new();
    for part in coloured.split('\u{1b}') {
        let code = part.strip_prefix('[').and_then(|rest| rest.split_once('m')).map(|(_, rest)| rest);
        bare += code.unwrap_or(part);
    }
    assert_eq!(bare, lines(&usual(), false));
}

#[test]
fn objects_for_programs() {
    let all = usual().into_iter().chain(strange());
    let mut text: Vec<String> =
        all.map(|event| serde_json::to_string(&json::event(&event)).unwrap()).collect();
    text.push(serde_json::to_string(&json::loss(&loss())).unwrap());
    assert!(text.iter().all(|line| !line.contains('\n')));
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn the_beginning_and_the_end() {
    let missing = |kind, why: &str| Missing { kind, why: why.to_owned() };
    let beginning = beginning(
        &[EventKind::Inhibit, EventKind::IrqWindow],
        &[
            missing(EventKind::GaLog, "this kernel's KVM has no kvm:kvm_avic_ga_log"),
            missing(
                EventKind::Kick,
                "Linux 5.10 has no kvm:kvm_avic_kick_vcpu_slowpath, which came with 5.19",
            ),
        ],
    );
    let quiet = Summary { events: BTreeMap::from([(EventKind::Inhibit, 0)]), ..Summary::default() };
    let loud = Summary {
        events: BTreeMap::from([
            (EventKind::Inhibit, 12),
            (EventKind::IrqWindow, 1_289),
            (EventKind::Kick, 0),
        ]),
        lost: BTreeMap::from([(EventKind::IrqWindow, 17)]),
        unchanged: 42,
        of_nobody: 1,
        undecoded: 2,
    };
    insta::assert_snapshot!(format!("{beginning}\n{}\n{}", summary(&quiet), summary(&loud)));
}
