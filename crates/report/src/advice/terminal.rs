//! The tables of `exitless advise`.

use advice::{Advice, Audit, Cure, DeviceExits, Effect, Of, Suspect, VmAdvice};
use conclusions::prediction::Part;
use exits::{Access, ExitReason, Profile};
use host::pci::Bar;
use host::vms::{Spent, Work};
use traces::Recordings;

use super::words::{name, percent};
use crate::format::{NONE, counted, per_second, rate_over, share_of, whole_time};
use crate::recordings::terminal::head;
use crate::recordings::words::{notes, vm as vm_number};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The maximum number of ports, addresses or registers shown for a device.
const MOST_PARTS: usize = 4;

/// The settings of the display.
#[derive(Debug, Clone, Copy)]
pub struct AdviceView {
    /// Columns of the terminal.
    pub width: usize,
    /// Escape sequences are allowed.
    pub colour: bool,
    /// The number of rows shown for a VM.
    pub top: usize,
}

/// The devices that cause the exits of each VM, with the fixes, in order of the time that can be saved. With `audits`, the
/// wake-ups of VMs that should be idle.
///
/// No line is wider than `width` columns if `width` is at least 80.
#[must_use]
pub fn terminal(
    recordings: &Recordings,
    advice: &Advice<'_>,
    audits: Option<&[Audit<'_>]>,
    view: AdviceView,
) -> String {
    match audits {
        Some(audits) => idle(recordings, advice, audits, view),
        None => devices(recordings, advice, view),
    }
}

fn devices(recordings: &Recordings, advice: &Advice<'_>, view: AdviceView) -> String {
    let width = view.width.max(NARROWEST);
    let mut text = head(recordings, width, view.colour);
    let observed_ns = advice.observed_ns;
    if advice.vms.is_empty() {
        text.push('\n');
        text += &wrapped("There is no exit to advise on.", width, "", "");
    }
    for vm in &advice.vms {
        text.push('\n');
        text += &wrapped(&title(vm, observed_ns, &recordings.profile), width, "", "");
        text.push('\n');
        let rows = &vm.rows[..vm.rows.len().min(view.top)];
        text += &drawn(columns(vm, rows, observed_ns), width, false, view.colour);
        text += &left_out(vm, rows.len(), observed_ns, width);
        let with_cures = rows.iter().enumerate().filter(|(_, row)| !row.cures.is_empty());
        with_cures.for_each(|(at, row)| text += &details(at + 1, row, observed_ns, width));
        text += &suspects(&vm.suspects, width);
    }
    let mut notes = notes(recordings);
    if !advice.vms.is_empty() {
        notes.extend(assumptions(advice));
    }
    text + &listed("Notes", &notes, width)
}

fn title(vm: &VmAdvice<'_>, observed_ns: u64, profile: &Profile) -> String {
    let vcpus = if vm.vcpus == 1 { "vCPU" } else { "vCPUs" };
    let cost = if vm.is_timed() {
        format!(
            "the host needs {} of one CPU for them, of which changes below can save at most {}",
            share_of(percent(vm.time_ns, observed_ns)),
            share_of(percent(vm.at_most_ns(), observed_ns)),
        )
    } else {
        "how long the host needs for them is not in the recording".to_owned()
    };
    format!(
        "VM {}: {} exits of {} {vcpus}; {cost}.",
        vm_number(vm.vm, profile),
        rate_over(vm.exits, observed_ns),
        vm.vcpus,
    )
}

fn columns(vm: &VmAdvice<'_>, rows: &[DeviceExits<'_>], observed_ns: u64) -> Vec<Column> {
    let cells = |cell: &dyn Fn(usize, &DeviceExits<'_>) -> String| -> Vec<String> {
        rows.iter().enumerate().map(|(at, row)| cell(at + 1, row)).collect()
    };
    let share = |time_ns: u64| share_of(percent(time_ns, observed_ns).filter(|_| vm.is_timed()));
    let cpu = |row: &DeviceExits<'_>| match row.sleeps() {
        true => "sleep".to_owned(),
        false => share(row.time_ns),
    };
    let at_most = |row: &DeviceExits<'_>| match row.best() {
        Some(_) if !row.sleeps() => share(row.at_most_ns()),
        _ => NONE.to_owned(),
    };
    vec![
        Column::figures("", cells(&|at, _| at.to_string())),
        Column::names("device", cells(&|_, row| name(row.of))),
        Column::figures("exits", cells(&|_, row| rate_over(row.exits, observed_ns))),
        Column::figures("host CPU", cells(&|_, row| cpu(row))),
        Column::figures("at most saved", cells(&|_, row| at_most(row))),
        Column::whole_names("exits then", cells(&|_, row| row.best().map_or(NONE, word).to_owned())),
    ]
}

const fn word(effect: Effect) -> &'static str {
    match effect {
        Effect::Gone => "gone",
        Effect::Fewer => "fewer",
        Effect::Cheaper => "cheaper",
        Effect::Stay => "stay",
    }
}

const fn exits_then(effect: Effect) -> &'static str {
    match effect {
        Effect::Gone => "no exits",
        Effect::Fewer => "fewer exits",
        Effect::Cheaper => "cheaper exits",
        Effect::Stay => "exits stay",
    }
}

fn left_out(vm: &VmAdvice<'_>, shown: usize, observed_ns: u64, width: usize) -> String {
    let rest = &vm.rows[shown..];
    if rest.is_empty() {
        return String::new();
    }
    let exits = rest.iter().fold(0u64, |sum, row| sum.saturating_add(row.exits));
    let rows = counted(rest.len() as u64, "more row");
    let said = format!("Left out: {rows} with {} exits; --top shows more.", rate_over(exits, observed_ns));
    wrapped(&said, width, "", "")
}

/// The causes of a row's exits, and its fixes.
fn details(number: usize, row: &DeviceExits<'_>, observed_ns: u64, width: usize) -> String {
    let Of::Device(device) = row.of else { return String::new() };
    let mut text =
        wrapped(&format!("{}: {}", device.name, device.what), width, &format!("\n{number:2}  "), "    ");
    let line = |label: &str, said: &str| labelled(label, said, width);
    text += &line("seen", &seen(row, observed_ns));
    if !row.bars.is_empty() {
        let one = |bar: &Bar| {
            let id = if bar.id.is_empty() { String::new() } else { format!(" {}", printable(&bar.id)) };
            format!("{}{id} ({:04x}:{:04x}), register {}", bar.address, bar.vendor, bar.device, bar.number)
        };
        text += &line("PCI", &row.bars.iter().map(one).collect::<Vec<_>>().join("; "));
    } else if device.is_by_definition() {
        text += &line("how", "by the VM's definition; the address alone does not tell the device");
    }
    text += &line("why", &device.why);
    for cure in row.open() {
        text += &cure_text(cure, width);
    }
    let there: Vec<&str> =
        row.cures.iter().filter(|one| one.there).map(|one| one.cure.does.as_str()).collect();
    if !there.is_empty() {
        text += &line("done", &there.join("; "));
    }
    text
}

fn cure_text(cure: &Cure, width: usize) -> String {
    let mut text = labelled("fix", &format!("{} ({})", cure.does, exits_then(cure.effect)), width);
    let ways = [
        ("  QEMU", &cure.qemu),
        ("  XML", &cure.libvirt),
        ("  xl.cfg", &cure.xl),
        ("  guest", &cure.guest),
        ("  host", &cure.host),
        ("  needs", &cure.needs),
    ];
    for (label, said) in ways {
        text += &said.as_ref().map_or_else(String::new, |said| labelled(label, said, width));
    }
    text + &labelled("  by", &cure.sources.join("; "), width)
}

fn labelled(label: &str, said: &str, width: usize) -> String {
    wrapped(said, width, &format!("    {label:9}"), "             ")
}

/// The ports, addresses or registers with the most exits.
fn seen(row: &DeviceExits<'_>, observed_ns: u64) -> String {
    let said = |&(reason, part, exits, _): &(ExitReason, Part, u64, u64)| {
        let what = match part {
            Part::Access(access) => access.to_string(),
            Part::Nested => Access::Nested { reason, to_l1: false }.to_string(),
            Part::Whole | Part::Rest => reason.to_string(),
        };
        format!("{what} {}", rate_over(exits, observed_ns))
    };
    let mut parts: Vec<String> = row.parts.iter().take(MOST_PARTS).map(said).collect();
    if row.parts.len() > MOST_PARTS {
        parts.push(format!("{} more", row.parts.len() - MOST_PARTS));
    }
    parts.join(", ")
}

fn suspects(suspects: &[&Suspect], width: usize) -> String {
    let mut text = String::new();
    for suspect in suspects {
        text += &wrapped(&format!("without exits: {}", suspect.name), width, "\n    ", "    ");
        text += &labelled("what", &suspect.says, width);
        text += &labelled("change", &suspect.change, width);
        text += &labelled("  by", &suspect.sources.join("; "), width);
    }
    text
}

fn assumptions(advice: &Advice<'_>) -> Vec<String> {
    let mut said = vec![
        "\"At most saved\" is all the handling time of these exits, as a share of one CPU of the host. A fix that leaves \
         some of them, or makes them cheaper, saves less. What the processor itself needs to leave the guest and to \
         enter it again is in no handling time, and is saved on top."
            .to_owned(),
    ];
    if advice.vms.iter().any(|vm| vm.is_of_other_vmm) {
        said.push(
            "Some VMs are of other VMMs than QEMU. Their devices were named by addresses that PCs have in common, and fixes in \
             settings of QEMU or libvirt were left out."
                .to_owned(),
        );
    }
    if advice.vms.iter().any(|vm| !vm.has_definition && !vm.is_of_other_vmm) {
        said.push(
            "Without a VM's definition, fixes may be listed that it already has, and devices that share addresses are not \
             distinguished; --definition gives one for a recording."
                .to_owned(),
        );
    }
    said
}

/// The wake-ups of VMs that should be idle, with their causes and the comparison with the budget.
fn idle(recordings: &Recordings, advice: &Advice<'_>, audits: &[Audit<'_>], view: AdviceView) -> String {
    let width = view.width.max(NARROWEST);
    let mut text = head(recordings, width, view.colour);
    if audits.is_empty() {
        text.push('\n');
        text += &wrapped("No VM had an exit: they rest, or there is none.", width, "", "");
    }
    for (vm, audit) in advice.vms.iter().zip(audits) {
        let verdict = if audit.is_within() { "within" } else { "above" };
        let cost = if vm.is_timed() {
            let share = share_of(percent(vm.time_ns, advice.observed_ns));
            format!("the host needs {share} of one CPU for exits")
        } else {
            "how long the host needs for exits is not in the recording".to_owned()
        };
        let said = format!(
            "VM {}: {} exits, {verdict} the budget of {}; it went to sleep {}; {cost}.",
            vm_number(vm.vm, &recordings.profile),
            per_second(audit.exits_per_second),
            per_second(audit.budget),
            per_second(audit.sleeps_per_second),
        );
        text.push('\n');
        text += &wrapped(&said, width, "", "");
        text.push('\n');
        let sources = &audit.sources[..audit.sources.len().min(view.top)];
        let cells = |cell: &dyn Fn(&advice::Source<'_>) -> String| sources.iter().map(cell).collect();
        let of_budget = |rate: f64| share_of((audit.budget > 0.0).then(|| rate / audit.budget * 100.0));
        let table = vec![
            Column::names("device", cells(&|one| name(one.of))),
            Column::figures("exits", cells(&|one| per_second(one.exits_per_second))),
            Column::figures("of budget", cells(&|one| of_budget(one.exits_per_second))),
            Column::whole_names("woken by", cells(&|one| one.wakes.unwrap_or(NONE).to_owned())),
        ];
        text += &drawn(table, width, false, view.colour);
        text += &threads(audit, advice.observed_ns, width, view.colour);
        let mut rows: Vec<_> = vm.rows.iter().filter(|row| row.open().next().is_some()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.exits));
        if !audit.is_within() {
            let first = rows.iter().take(view.top).enumerate();
            first.for_each(|(at, row)| text += &details(at + 1, row, advice.observed_ns, width));
        }
        text += &suspects(&vm.suspects, width);
    }
    let mut notes = notes(recordings);
    let seen = audits.iter().any(|audit| !audit.threads.is_empty());
    let unseen = if seen { "" } else { " What QEMU does without exits is in none of these figures." };
    notes.push(format!("Observed for {}.{unseen}", whole_time(advice.observed_ns)));
    text + &listed("Notes", &notes, width)
}

/// The host CPU time of the threads of a VM's process outside the guest, the busiest first.
fn threads(audit: &Audit<'_>, observed_ns: u64, width: usize, colour: bool) -> String {
    if audit.threads.is_empty() {
        return String::new();
    }
    let seconds = observed_ns as f64 / 1e9;
    let per = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let said = format!(
        "Its process took {} of one CPU beside the guest, and was woken {}:",
        share_of(percent(audit.host_ns(), observed_ns)),
        per_second(per(audit.wake_ups())),
    );
    let cells = |cell: &dyn Fn(&Spent) -> String| audit.threads.iter().map(cell).collect();
    let table = vec![
        Column::names("threads", cells(&|one| thread_name(one))),
        Column::figures("host CPU", cells(&|one| share_of(percent(one.host_ns, observed_ns)))),
        Column::figures("guest", cells(&|one| share_of(percent(one.guest_ns, observed_ns)))),
        Column::figures("woken", cells(&|one| per_second(per(one.wake_ups)))),
        Column::whole_names("by", cells(&|one| woken_by(&one.work).to_owned())),
    ];
    format!("\n{}\n{}", wrapped(&said, width, "", ""), drawn(table, width, false, colour))
}

fn thread_name(spent: &Spent) -> String {
    match &spent.work {
        Work::Vcpus => format!("vCPUs ({})", spent.threads),
        Work::MainLoop => "main loop".to_owned(),
        Work::IoThread(name) => format!("I/O thread {}", printable(name)),
        Work::Vhost => format!("vhost ({})", spent.threads),
        Work::Others => format!("others ({})", spent.threads),
    }
}

/// The causes that wake threads of this kind.
fn woken_by(work: &Work) -> &'static str {
    match work {
        Work::Vcpus => "the exits above",
        Work::MainLoop => "timers of devices, viewers",
        Work::IoThread(_) => "disk requests, polling",
        Work::Vhost => "packets",
        Work::Others => "aio=threads, displays",
    }
}
