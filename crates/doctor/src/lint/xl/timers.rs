//! Timers, the time stamp counter, and the enlightenments that replace them for Windows.

use super::row;
use crate::lint::rule::{Rule, Verdict};
use crate::lint::subject::Subject;
use domain::Form;
use exits::XenGuestType;

pub(in crate::lint) const RULES: &[Rule] = &[
    row(
        "xl-time-stamps",
        "Time stamp counter",
        "while Xen emulates it, each RDTSC and RDTSCP of the guest exits",
        "xl.cfg(5), tsc_mode; xen-tscmode(7)",
        time_stamps,
    ),
    row(
        "xl-missed-ticks",
        "Missed ticks",
        "ticks that are delivered late one by one cause a burst of interrupts after each wait",
        "xl.cfg(5), timer_mode",
        missed_ticks,
    ),
    row(
        "xl-hpet",
        "HPET",
        "each access to its registers exits; guests have better clocks",
        "xl.cfg(5), hpet and viridian",
        hpet,
    ),
    row(
        "xl-viridian",
        "Enlightenments for Windows",
        "with them Windows reads time without an exit and does not use the emulated timers",
        "xl.cfg(5), viridian",
        viridian,
    ),
];

fn time_stamps(subject: &Subject<'_>) -> Verdict {
    match subject.setting("tsc_mode") {
        Some(("always_emulate" | "1", place)) => Verdict::warn("always emulated")
            .said(Form::Xl, place)
            .advice("tsc_mode = \"default\", which emulates only if the host's counter is not steady"),
        Some(("native_paravirt" | "3", place)) => Verdict::fail("native_paravirt, which Xen has removed")
            .said(Form::Xl, place)
            .advice("remove tsc_mode"),
        Some((mode, _)) => Verdict::pass(mode.to_owned()),
        None => Verdict::pass("emulated only where the host's counter is not steady"),
    }
}

fn missed_ticks(subject: &Subject<'_>) -> Verdict {
    if subject.vm.xen_type() == XenGuestType::Pv {
        return Verdict::skip("PV guests have no such timers");
    }
    match subject.setting("timer_mode") {
        Some(("delay_for_missed_ticks" | "0", place)) => {
            Verdict::warn("each is delivered, and the guest's time waits for it")
                .said(Form::Xl, place)
                .advice("timer_mode = \"one_missed_tick_pending\", which merges them")
        }
        Some((mode, _)) => Verdict::pass(format!("timer_mode is {mode}")),
        None => Verdict::pass("the guest's time does not wait for them"),
    }
}

fn hpet(subject: &Subject<'_>) -> Verdict {
    if subject.vm.xen_type() != XenGuestType::Hvm {
        return Verdict::skip("only HVM guests have one");
    }
    let synthetic = groups(subject).is_some_and(|(groups, _)| groups.contains(&"stimer"));
    match &subject.vm.timers.hpet {
        Some(set) if set.value => {
            Verdict::warn("there, by its own setting").said(Form::Xl, &set.place).advice("write hpet = 0")
        }
        Some(_) => Verdict::pass("none"),
        None if synthetic => Verdict::pass("there by default; Windows prefers its synthetic timers"),
        None => Verdict::pass("there by default; Linux takes Xen's clock instead"),
    }
}

/// The groups that `defaults` and `viridian = 1` stand for.
const DEFAULTS: &[&str] =
    &["base", "freq", "time_ref_count", "apic_assist", "crash_ctl", "no_vp_limit", "cpu_hotplug"];
/// The groups that `all` adds to [`DEFAULTS`].
const REST: &[&str] =
    &["reference_tsc", "hcall_remote_tlb_flush", "stimer", "hcall_ipi", "ex_processor_masks"];

/// The groups that are on, and the place of the setting.
fn groups<'a>(subject: &Subject<'a>) -> Option<(Vec<&'a str>, &'a domain::Place)> {
    let (value, place) = subject.setting("viridian")?;
    let mut on: Vec<&str> = Vec::new();
    let mut off: Vec<&str> = Vec::new();
    for word in value.split(',').map(str::trim) {
        match word {
            "0" | "" => {}
            "1" | "defaults" => on.extend(DEFAULTS),
            "all" => on.extend(DEFAULTS.iter().chain(REST)),
            word => match word.strip_prefix('!') {
                Some(name) => off.push(name),
                None => on.push(word),
            },
        }
    }
    on.retain(|name| !off.contains(name));
    Some((on, place))
}

fn viridian(subject: &Subject<'_>) -> Verdict {
    if subject.vm.xen_type() != XenGuestType::Hvm {
        return Verdict::skip("they are for HVM guests");
    }
    let Some((on, place)) = groups(subject) else {
        return Verdict::pass("none, as for guests other than Windows");
    };
    if on.is_empty() {
        return Verdict::pass("switched off, as for guests other than Windows");
    }
    let lacking: Vec<&str> =
        ["reference_tsc", "stimer"].into_iter().filter(|name| !on.contains(name)).collect();
    if lacking.is_empty() {
        return Verdict::pass("time and timers among them");
    }
    Verdict::warn(format!("without {}", lacking.join(" and ")))
        .said(Form::Xl, place)
        .advice(
            "viridian = [ \"defaults\", \"reference_tsc\", \"stimer\" ], after Windows is installed; try it first",
        )
}
