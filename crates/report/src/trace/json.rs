//! The objects of `exitless trace --json`, one on each line. `docs/trace.md` describes the fields.

use std::time::SystemTime;

use exits::{Direction, ExitReason, apic_register_name, incomplete_ipi_cause};
use live::trace::{
    DeliveryMode, Destination, InhibitReport, InhibitState, Ipi, IrteUpdate, Loss, Occurrence, What,
};
use serde::Serialize;

/// One line: an event, or a number of lost events.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct TraceLine {
    time: String,
    time_ns: u64,
    kind: &'static str,
    cpu: Option<u32>,
    /// The VM's process ID, as in the documents on recordings.
    vm: Option<i32>,
    vm_name: Option<String>,
    process: Option<String>,
    vcpu: Option<u32>,
    thread: Option<i32>,
    #[serde(flatten)]
    details: Details,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum Details {
    Lost {
        events: u64,
    },
    Inhibit {
        change: &'static str,
        reason: String,
        number: u32,
        changed: Option<bool>,
        state: &'static str,
        inhibited_by: Vec<String>,
        complete: bool,
        set_by: Option<&'static str>,
        cure: Option<&'static str>,
    },
    IrqWindow {
        exit: ExitReason,
        rip: String,
    },
    GaLog {
        avic_vm: u32,
        tag_vcpu: u32,
    },
    PostedInterrupt {
        posted: bool,
        host_irq: u32,
        gsi: u32,
        vector: u32,
        descriptor: Option<String>,
    },
    IncompleteIpi {
        cause: Option<&'static str>,
        cause_id: u32,
        index: u32,
        #[serde(flatten)]
        ipi: Sent,
    },
    Unaccelerated {
        register: Option<&'static str>,
        offset: u32,
        access: Direction,
        trap: bool,
        vector: u32,
    },
    Kick {
        index: u32,
        #[serde(flatten)]
        ipi: Sent,
    },
    AcceptIrq {
        vector: u32,
        delivery_mode: DeliveryMode,
        trigger: &'static str,
    },
    PvEoi {
        apic_id: u32,
        vector: i32,
    },
    Nothing {},
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sent {
    icr: String,
    delivery_mode: DeliveryMode,
    vector: u8,
    destination_mode: &'static str,
    destination: Option<u32>,
}

/// The line of an event.
#[must_use]
pub fn event(occurrence: &Occurrence) -> impl Serialize {
    let event = &occurrence.event;
    let owner = occurrence.owner.as_ref();
    TraceLine {
        time: rfc3339(occurrence.wall),
        time_ns: event.time_ns,
        kind: event.what.kind().name(),
        cpu: Some(event.cpu),
        vm: owner.map(|owner| owner.pid),
        vm_name: owner.and_then(|owner| owner.vm.clone()),
        process: owner.map(|owner| owner.process.clone()),
        vcpu: event.what.vcpu(),
        thread: owner.map(|_| event.tid),
        details: details(&event.what),
    }
}

/// The line of lost events.
#[must_use]
pub fn loss(loss: &Loss) -> impl Serialize {
    TraceLine {
        time: rfc3339(loss.wall),
        time_ns: loss.time_ns,
        kind: "lost",
        cpu: loss.cpu,
        vm: None,
        vm_name: None,
        process: None,
        vcpu: None,
        thread: None,
        details: Details::Lost { events: loss.events },
    }
}

fn details(what: &What) -> Details {
    match what {
        What::InhibitReport(report) => inhibit(report),
        What::IrqWindow { reason, rip, .. } => Details::IrqWindow { exit: *reason, rip: hexadecimal(*rip) },
        What::GaLog { avic_vm, tag_vcpu } => Details::GaLog { avic_vm: *avic_vm, tag_vcpu: *tag_vcpu },
        What::PostedInterrupt(IrteUpdate { posted, host_irq, gsi, vector, descriptor, .. }) => {
            Details::PostedInterrupt {
                posted: *posted,
                host_irq: *host_irq,
                gsi: *gsi,
                vector: *vector,
                descriptor: descriptor.map(hexadecimal),
            }
        }
        What::IncompleteIpi { ipi, cause, index, .. } => Details::IncompleteIpi {
            cause: incomplete_ipi_cause(*cause),
            cause_id: *cause,
            index: *index,
            ipi: sent(ipi),
        },
        What::Unaccelerated { register, direction, trap, vector, .. } => Details::Unaccelerated {
            register: apic_register_name(*register),
            offset: *register,
            access: *direction,
            trap: *trap,
            vector: *vector,
        },
        What::Kick { ipi, index } => Details::Kick { index: *index, ipi: sent(ipi) },
        What::AcceptIrq { mode, level, vector, .. } => Details::AcceptIrq {
            vector: *vector,
            delivery_mode: *mode,
            trigger: if *level { "level" } else { "edge" },
        },
        What::PvEoi { apic_id, vector } => Details::PvEoi { apic_id: *apic_id, vector: *vector },
        _ => Details::Nothing {},
    }
}

fn inhibit(report: &InhibitReport) -> Details {
    let (state, by, complete) = match &report.state {
        InhibitState::Active => ("active", &[][..], true),
        InhibitState::Inhibited { by, complete } => ("inhibited", &by[..], *complete),
        InhibitState::Unknown => ("unknown", &[][..], false),
    };
    let named = match report.reason {
        exits::Inhibit::Named(reason) => Some(reason),
        exits::Inhibit::Number(_) => None,
    };
    Details::Inhibit {
        change: if report.change.set { "set" } else { "cleared" },
        reason: report.reason.to_string(),
        number: report.change.number,
        changed: report.changed,
        state,
        inhibited_by: by.iter().map(ToString::to_string).collect(),
        complete,
        set_by: named.map(|reason| reason.set_by()),
        cure: named.map(|reason| reason.cure()),
    }
}

fn sent(ipi: &Ipi) -> Sent {
    let (destination_mode, destination) = match ipi.destination {
        Destination::Physical(id) => ("physical", Some(id)),
        Destination::Logical(mask) => ("logical", Some(mask)),
        Destination::Myself => ("self", None),
        Destination::All => ("all", None),
        Destination::Others => ("others", None),
    };
    Sent {
        icr: hexadecimal(ipi.icr),
        delivery_mode: ipi.mode,
        vector: ipi.vector,
        destination_mode,
        destination,
    }
}

fn rfc3339(wall: SystemTime) -> String {
    humantime::format_rfc3339_nanos(wall).to_string()
}

fn hexadecimal(value: u64) -> String {
    format!("{value:#x}")
}
