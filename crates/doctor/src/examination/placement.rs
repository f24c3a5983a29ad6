//! Threads of VMs and interrupts of devices that share a processor.

use super::rule::{Category, Rule, Verdict};
use super::subject::Subject;
use exits::counted;
use host::CpuSet;
use host::inspection::{DeviceKind, Interrupt, Occupant, Placement, Role};

const PINNING: &str = "sched(7) and Linux Documentation/admin-guide/kernel-per-CPU-kthreads.rst: one processor runs \
                       one thread at a time";

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "vms-readable",
        title: "VMs on this host",
        category: Category::Placement,
        why: "a process that cannot be inspected may be another VM",
        source: "proc_pid_fd(5): its entries are readable by their owner and by root",
        parent: "",
        check: readable,
    },
    Rule {
        name: "place-vcpus",
        title: "vCPUs that share a CPU",
        category: Category::Placement,
        why: "two vCPUs pinned to one CPU take turns, and an interrupt for one waits while the other runs",
        source: PINNING,
        parent: "",
        check: vcpus,
    },
    Rule {
        name: "place-vhost",
        title: "vhost workers on CPUs of vCPUs",
        category: Category::Placement,
        why: "the worker that serves a queue displaces the vCPU that waits for it",
        source: PINNING,
        parent: "",
        check: vhost,
    },
    Rule {
        name: "place-threads",
        title: "I/O threads on CPUs of vCPUs",
        category: Category::Placement,
        why: "the VMM's thread that serves a device displaces the vCPU that waits for it",
        source: PINNING,
        parent: "",
        check: threads,
    },
    Rule {
        name: "place-interrupts",
        title: "Device interrupts on CPUs of vCPUs",
        category: Category::Placement,
        why: "each such interrupt makes the vCPU exit for something that does not concern its VM",
        source: "Linux Documentation/core-api/irq/irq-affinity.rst; admin-guide/kernel-parameters.txt, isolcpus=",
        parent: "",
        check: interrupts,
    },
];

/// The largest number of processors to list one by one.
const SHOWN: usize = 4;

fn readable(subject: &Subject<'_>) -> Option<Verdict> {
    if subject.is_xen() {
        return None;
    }
    let running = &subject.host.running;
    let Some(vms) = running.vms.get() else { return Some(Verdict::unknown(&running.vms)) };
    let found = match vms.len() {
        0 => "no VM runs".to_owned(),
        1 => "1 VM runs".to_owned(),
        some => format!("{some} VMs run"),
    };
    let closed = match running.unreadable {
        1 => "1 process".to_owned(),
        some => format!("{some} processes"),
    };
    let verdict = if running.unreadable == 0 && running.held.is_empty() {
        Verdict::pass(found).seen("/proc", "all processes were inspected")
    } else if running.unreadable == 0 {
        let held = counted(running.held.len() as u64, "process");
        Verdict::warn(format!("{found}; {held} could not be inspected: reading blocks"))
            .advice("end the process, or the FUSE server that it waits for")
    } else {
        let verdict = Verdict::warn(format!("{found}; {closed} cannot be inspected"))
            .seen("/proc", format!("{closed} closed to this user"))
            .advice(host::vms::AS_ROOT);
        running.likely.iter().fold(verdict, |verdict, likely| {
            let threads = counted(u64::from(likely.vcpu_threads), "thread");
            let text = format!("{} has {threads} named as a vCPU's is", likely.command);
            verdict.seen(format!("process {}", likely.pid), text)
        })
    };
    Some(running.held.iter().fold(verdict, |verdict, held| {
        let text = format!("{} blocks inspection", held.command);
        verdict.seen(format!("process {}", held.pid), text)
    }))
}

fn role(occupant: &Occupant) -> String {
    let what = match occupant.role {
        Role::Vcpu(number) => format!("vCPU {number}"),
        Role::Vhost => format!("vhost worker {}", occupant.tid),
        Role::IoThread => format!("I/O thread {}", occupant.tid),
        Role::Emulator => format!("emulator thread {}", occupant.tid),
    };
    format!("{what} of {}", occupant.vm)
}

/// The vCPUs that may run only on this processor.
fn pinned(place: &Placement) -> Vec<&Occupant> {
    place.occupants.iter().filter(|one| one.pinned && matches!(one.role, Role::Vcpu(_))).collect()
}

/// A verdict on all processors that something shares with a vCPU that is bound to them.
fn meeting(
    subject: &Subject<'_>,
    what: &str,
    advice: &str,
    meets: impl Fn(&Placement, &[&Occupant]) -> Option<String>,
) -> Option<Verdict> {
    let with_pins: Vec<(&Placement, Vec<&Occupant>)> = subject
        .host
        .placements
        .iter()
        .map(|place| (place, pinned(place)))
        .filter(|(_, pinned)| !pinned.is_empty())
        .collect();
    if with_pins.is_empty() {
        return None;
    }
    let found: Vec<(u32, String)> =
        with_pins.iter().filter_map(|(place, pinned)| Some((place.cpu, meets(place, pinned)?))).collect();
    if found.is_empty() {
        let on = match with_pins.len() {
            1 => "the processor with a pinned vCPU".to_owned(),
            some => format!("the {some} processors with pinned vCPUs"),
        };
        return Some(Verdict::pass(format!("none on {on}")));
    }
    let on = if found.len() == 1 { "1 processor".to_owned() } else { format!("{} processors", found.len()) };
    let verdict = Verdict::warn(format!("{what} on {on}")).advice(advice);
    let more = found.len().saturating_sub(SHOWN);
    let verdict = found
        .into_iter()
        .take(SHOWN)
        .fold(verdict, |verdict, (cpu, text)| verdict.seen(format!("CPU {cpu}"), text));
    Some(if more > 0 { verdict.seen("also", format!("{more} more")) } else { verdict })
}

fn listed(occupants: &[&Occupant]) -> String {
    occupants.iter().map(|one| role(one)).collect::<Vec<_>>().join(", ")
}

fn beside(wanted: impl Fn(Role) -> bool) -> impl Fn(&Placement, &[&Occupant]) -> Option<String> {
    move |place, pinned| {
        let others: Vec<&Occupant> =
            place.occupants.iter().filter(|one| one.pinned && wanted(one.role)).collect();
        (!others.is_empty()).then(|| format!("{}; {}", listed(pinned), listed(&others)))
    }
}

fn vcpus(subject: &Subject<'_>) -> Option<Verdict> {
    let several = |_: &Placement, pinned: &[&Occupant]| (pinned.len() > 1).then(|| listed(pinned));
    meeting(subject, "vCPUs collide", "give each vCPU a processor of its own (<vcpupin>, taskset)", several)
}

fn vhost(subject: &Subject<'_>) -> Option<Verdict> {
    let advice = "move the workers to housekeeping processors (<emulatorpin>, or taskset -p of the worker)";
    meeting(subject, "vhost workers collide with vCPUs", advice, beside(|role| role == Role::Vhost))
}

fn threads(subject: &Subject<'_>) -> Option<Verdict> {
    let advice = "move them to housekeeping processors (<iothreadpin> and <emulatorpin>, or taskset -p)";
    let wanted = |role| matches!(role, Role::IoThread | Role::Emulator);
    meeting(subject, "threads of the VMM collide with vCPUs", advice, beside(wanted))
}

fn interrupts(subject: &Subject<'_>) -> Option<Verdict> {
    let movable = "move the interrupts: /proc/irq/N/smp_affinity_list (refused for queues that the kernel manages), or irqbalance's \
         IRQBALANCE_BANNED_CPULIST";
    let managed = "isolcpus=managed_irq,CPUS among the kernel's arguments: only the kernel moves interrupts of NVMe queues";
    // Interrupts of assigned devices are best handled where their vCPU runs.
    let fires = |one: &&Interrupt| one.count > 0 && one.kind != DeviceKind::Assigned;
    let of = |place: &Placement| {
        let host = subject.host.interrupts.devices.get().map_or(&[][..], Vec::as_slice);
        let here = host.iter().filter(|one| place.interrupts.contains(&one.number));
        here.filter(fires).partition::<Vec<&Interrupt>, _>(|one| is_of_its_cpu(one))
    };
    let shared = subject.host.placements.iter().filter(|place| !pinned(place).is_empty());
    let (own, met): (Vec<_>, Vec<_>) = shared.map(of).unzip();
    let (own, met) = (own.concat(), met.concat());
    let (first, second) =
        match (met.iter().any(|one| !one.is_managed()), met.iter().any(|one| one.is_managed())) {
            (true, true) => (movable, Some(managed)),
            (false, true) => (managed, None),
            _ => (movable, None),
        };
    let verdict = meeting(subject, "interrupts of devices collide with vCPUs", first, |place, pinned| {
        let numbers: Vec<String> = of(place).1.iter().take(8).map(|one| one.number.to_string()).collect();
        (!numbers.is_empty()).then(|| format!("{}; interrupts {}", listed(pinned), numbers.join(", ")))
    })?;
    let verdict = second.into_iter().fold(verdict, Verdict::advice);
    let own = own.iter().filter(|_| met.is_empty()).take(SHOWN);
    Some(own.fold(verdict, |verdict, one| {
        let text = format!("{}: fires only for I/O that starts on its CPU", one.action);
        verdict.seen(format!("interrupt {}", one.number), text)
    }))
}

/// Tests whether an interrupt belongs to a queue of a single CPU. It fires only for I/O that starts on that CPU, and not even
/// the kernel moves it (Linux Documentation/admin-guide/kernel-parameters.txt, isolcpus=managed_irq).
fn is_of_its_cpu(one: &Interrupt) -> bool {
    one.is_managed() && one.affinity.as_ref().and_then(CpuSet::only).is_some()
}
