//! Text of tracefs, trace-cmd and perf, intact and damaged. `fixtures/TRACE-CMD.md` and `fixtures/text/README.md`
//! tell how it was made.

use std::collections::{BTreeMap, BTreeSet};

use crate::truth::{Truth, assert_true, bytes, packed, read, read_bytes, truths};
use exits::{Access, Direction, ExitReason, Exits};
use traces::{Error, ExitRecord, Format, Options, Recordings};

fn path(name: &str) -> String {
    format!("trace-cmd/{name}")
}

fn error(text: &str) -> String {
    read_bytes(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn every_text_has_the_exits_of_its_lines() {
    let truths = truths();
    let texts: Vec<_> = truths.iter().filter(|(name, _)| name.ends_with(".txt")).collect();
    assert_eq!(texts.len(), 19);
    for (name, truth) in texts {
        let reading = read(&path(name));
        assert_true(name, &reading, truth);
        assert_eq!(reading.origin.format, Format::TracefsText);
        assert_eq!(reading.origin.bytes, bytes(&path(name)).len() as u64);
        assert!(reading.warnings.iter().all(|warning| !warning.contains("without an event")), "{name}");
    }
}

#[test]
fn exits_of_intel_have_their_names() {
    for name in ["text/vmx.trace.txt", "text/vmx-apicv.trace.txt"] {
        let truth =
            std::fs::read_to_string(packed(name).to_string_lossy().replace(".trace.txt.zst", ".truth.txt"));
        let truth = truth.unwrap();
        let (_, reasons) = truth.split_once("Exits by reason\n").unwrap();
        let reasons = reasons.lines().map_while(|line| line.trim().split_once(' '));
        let reasons: BTreeMap<ExitReason, u64> =
            reasons.map(|(count, reason)| (reason.parse().unwrap(), count.parse().unwrap())).collect();
        assert!(reasons.len() > 5);
        let reading = read(name);
        let found: BTreeMap<_, _> =
            reading.profile.reasons().into_iter().map(|(reason, exits)| (reason, exits.count)).collect();
        assert_eq!(found, reasons, "{name}");
    }
}

#[test]
fn all_forms_of_one_recording_give_the_same_profile() {
    let forms = [
        "zstd.report.txt",
        "zstd.report-l.txt",
        "zstd.report-N.txt",
        "zstd.report-R.txt",
        "zstd.report-ts-diff.txt",
    ];
    let [first, others @ ..] = forms.map(|name| read(&path(name)).profile);
    assert!(first.accesses().len() > 2);
    for (other, name) in others.iter().zip(&forms[1..]) {
        assert_eq!(other.vcpus(), first.vcpus(), "{name}");
        assert_eq!(other.events, first.events, "{name}");
    }
    let [default, tid_only, period, pid] =
        ["default", "tid-only", "period", "pid-ns"].map(|name| read(&path(&format!("{name}.script.txt"))));
    assert_eq!(tid_only.profile.vcpus(), default.profile.vcpus());
    assert_eq!(period.profile.vcpus(), default.profile.vcpus());
    assert_eq!(pid.profile.counts(), default.profile.counts());
    assert!(default.warnings[0].contains("microseconds") && pid.warnings.is_empty());
    assert_eq!(pid.origin.kernel.as_deref(), Some("6.12.117+deb13-cloud-amd64"));
    assert!(pid.origin.command.unwrap().contains("kvm:kvm_exit"));
}

#[test]
fn a_column_with_the_process_tells_vms_apart() {
    let vms = |name: &str| -> BTreeSet<_> {
        read(&path(name)).profile.vcpus().iter().map(|exits| exits.vcpu.vm).collect()
    };
    assert_eq!(vms("tgid.trace.txt"), BTreeSet::from([Some(690), Some(691)]));
    assert_eq!(vms("pid-ns.script.txt").len(), 1);
    assert_ne!(vms("pid-ns.script.txt"), BTreeSet::from([None]));
    assert_eq!(vms("default.trace.txt"), BTreeSet::from([None]));
}

#[test]
fn no_time_is_taken_across_a_loss() {
    let reading = read(&path("losses.pipe.txt"));
    let losses = reading.profile.losses;
    let paired: u64 = reading.profile.reasons().values().map(|exits| exits.handling.count()).sum();
    let unpaired = losses.exits_without_entry + losses.exits_at_the_end + losses.pairs_across_loss;
    assert_eq!(paired + unpaired, reading.profile.total());
    let reading = read(&path("lost.script.txt"));
    assert!(reading.profile.losses.pairs_across_loss > 0);
}

#[test]
fn ticks_are_called_ticks() {
    let reading = read(&path("x86-tsc.trace.txt"));
    assert!(reading.warnings[0].contains("handling times are ticks"));
    assert!(read(&path("latency.trace.txt")).origin.kernel.unwrap().starts_with("6.12."));
}

#[test]
fn a_text_that_was_cut_anywhere_gives_its_whole_lines() {
    let whole = bytes(&path("default.trace.txt"));
    for length in (2_000..whole.len()).step_by(977) {
        let part = &whole[..length];
        let lines = String::from_utf8_lossy(&part[..part.iter().rposition(|&byte| byte == b'\n').unwrap()])
            .into_owned();
        let exits = lines.matches(": kvm_exit: ").count() as u64;
        match read_bytes(part) {
            Ok(reading) => {
                assert_eq!(reading.profile.total(), exits);
                let damage = reading.damage.map(|damage| damage.offset);
                assert_eq!(damage, (lines.len() + 1 < length).then_some(lines.len() as u64 + 1));
            }
            Err(error) => assert!(matches!(error, Error::NoExits { .. }) && exits == 0, "{error}"),
        }
    }
}

#[test]
fn lines_that_are_no_events_are_counted() {
    let mut text = String::from_utf8(bytes(&path("default.trace.txt"))).unwrap();
    text.insert_str(0, "notes of mine\n\n");
    text.push_str(&"x".repeat(1 << 20));
    text.push_str("\n => vcpu_enter_guest\n");
    let reading = read_bytes(text.as_bytes()).unwrap();
    assert!(
        reading.warnings.contains(&"2 lines without an event passed over".to_owned()),
        "{:?}",
        reading.warnings
    );
    let Truth { reasons, .. } = &truths()["default.trace.txt"];
    assert_eq!(reading.profile.total(), reasons.values().map(|reason| reason.0).sum::<u64>());
}

#[test]
fn texts_without_exits_say_what_they_have() {
    let header = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 0/0   #P:2\n";
    assert!(error(header).contains("has no kvm:kvm_exit events (no events at all)"));
    let line = "  sshd-12   [000] d..2.   12.345678: sched_switch: prev_comm=sshd\n";
    assert!(error(line).contains("(1 sched_switch)"));
    let arm = "  qemu-12   [000] d..2.   12.345678: kvm_exit: TRAP: DABT_LOW: 0x0024, PC: 0xffff80001000\n";
    assert!(error(arm).contains("1 kvm:kvm_exit of reasons that x86 does not have"), "{}", error(arm));
    assert!(error("perf\n").contains("is not a recording of exits"));
    let other = format!("# arch : aarch64\n{arm}");
    assert!(matches!(read_bytes(other.as_bytes()), Err(Error::Architecture { .. })));
}

#[test]
fn reasons_that_are_not_known_are_counted_as_such() {
    let lines =
        ["reason npf rip 0x1 info 0 0", "reason brand_new rip 0x1 info 0 0", "reason 0x7ff rip 0x1 info 0 0"];
    let text: String = lines
        .iter()
        .enumerate()
        .map(|(second, line)| format!("  mix-9   [000] d..1.    {second}.000001: kvm_exit: {line}\n"))
        .collect();
    let profile = read_bytes(text.as_bytes()).unwrap().profile;
    assert_eq!(profile.losses.undecoded, 1);
    let reasons: Vec<_> = profile.reasons().into_keys().collect();
    assert_eq!(reasons, [ExitReason::svm(0x400), ExitReason::svm(0x7ff)]);
}

fn text(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Exits of one reason within ten seconds, in which another event occurs ten times a second.
fn ten_seconds(exits: u64, every_us: u64) -> String {
    let mut lines: Vec<_> = (0..100).map(|tenth| (tenth * 100_000, "sched_wakeup: comm=sh pid=3")).collect();
    for exit in 0..exits {
        lines.push((exit * every_us + 3, "kvm_exit: reason vintr rip 0x1 info 0 0"));
        lines.push((exit * every_us + 5, "kvm_entry: vcpu 0"));
    }
    lines.sort_by_key(|line| line.0);
    let seconds = |us| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    lines.iter().map(|(us, what)| format!("  mix-9   [000] d..1.  {}: {what}\n", seconds(*us))).collect()
}

#[test]
fn the_time_goes_on_after_the_last_exit() {
    for text in [ten_seconds(1000, 9_900), ten_seconds(100, 990)] {
        let mut recordings = Recordings::new(Options::default());
        recordings.add("text".to_owned(), read_bytes(text.as_bytes()).unwrap());
        assert_eq!(recordings.observed_ns(), 9_900_000_000);
    }
}

#[test]
fn no_time_is_taken_across_a_loss_on_either_processor() {
    let moved_to = text(&[
        "  other-8 [001] d..1.  0.000005: kvm_exit: reason hlt rip 0x1 info 0 0",
        "  mix-9   [000] d..1.  0.000010: kvm_exit: reason io rip 0x1 info 0 0",
        "CPU:1 [LOST 7 EVENTS]",
        "  mix-9   [001] d..1.  0.000060: kvm_entry: vcpu 0",
    ]);
    let profile = read_bytes(moved_to.as_bytes()).unwrap().profile;
    assert_eq!((profile.losses.pairs_across_loss, profile.losses.lost_events), (1, 7));
    assert_eq!(profile.reasons()[&ExitReason::svm(0x7b)].handling.count(), 0);
    let moved_from = text(&[
        "  mix-9   [000] d..1.  0.000010: kvm_exit: reason npf rip 0x1 info 0 0",
        "CPU:0 [LOST 7 EVENTS]",
        "  mix-9   [001] d..1.  0.000990: kvm_mmio: mmio read len 4 gpa 0xfee00020 val 0x0",
        "  mix-9   [001] d..1.  0.000995: kvm_entry: vcpu 0",
    ]);
    let profile = read_bytes(moved_from.as_bytes()).unwrap().profile;
    let read = &profile.accesses()[&Access::Mmio { address: 0xfee0_0020, direction: Direction::Read }];
    assert_eq!((read.count, read.handling.count()), (1, 0));
}

#[test]
fn an_ipi_of_the_fast_path_of_svm_has_its_exit() {
    let lines = text(&[
        "  mix-9   [000] d..1.  0.000005: kvm_entry: vcpu 0",
        "  mix-9   [000] d..1.  0.000010: kvm_apic: apic_write APIC_ICR = 0x8fd",
        "  mix-9   [000] d..1.  0.000011: kvm_msr: msr_write 830 = 0x8fd",
        "  mix-9   [000] d..1.  0.000014: kvm_exit: reason msr rip 0x1 info 1 0",
        "  mix-9   [000] d..1.  0.000019: kvm_entry: vcpu 0",
    ]);
    let icr = Access::Msr { number: 0x830, direction: Direction::Write };
    let mut exits = Vec::new();
    let profile = traces::read_bytes(lines.as_bytes(), &Options::default(), &mut |exit: &ExitRecord| {
        exits.push((exit.access, exit.handling_ns));
    });
    let times = |exits: &Exits| (exits.count, exits.handling.count(), exits.handling.total_ns());
    let accesses = profile.unwrap().profile.accesses();
    assert_eq!(times(&accesses[&icr]), (1, 1, 8_000));
    assert_eq!(exits, [(Some(icr), Some(5_000))]);
}
