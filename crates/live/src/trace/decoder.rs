//! Decodes events from the records of tracepoints, by their format files.

use super::event::{Event, IrteUpdate, What};
use super::ipi::{DeliveryMode, Ipi};
use super::kind::EventKind;
use crate::inhibit::{InhibitFields, number_field};
use crate::record::Sample;
use crate::{Error, EventFormat, Field, Tracefs};
use exits::{Direction, ExitReason, InhibitNumbering, Isa};

/// `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ` and `TRACE_FLAG_NMI` of `enum trace_flag_type` in
/// `include/linux/trace_events.h`.
const IN_INTERRUPT: u64 = 0x08 | 0x10 | 0x40;

/// The exits when an injection had to wait: VMX basic reason 7 (Intel SDM volume 3, appendix C) and SVM's
/// VMEXIT_VINTR (AMD64 APM volume 2, appendix C).
const WINDOWS: [(u32, ExitReason); 2] = [(1, ExitReason::vmx(7)), (2, ExitReason::svm(0x64))];

/// The offsets of the fields that are read from the events of one kind.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub(crate) kind: EventKind,
    pub(crate) id: u16,
    flags: Option<Field>,
    fields: Fields,
}

#[derive(Debug)]
enum Fields {
    Inhibit(InhibitFields),
    IrqWindow { reason: Field, isa: Field, rip: Field, vcpu: Option<Field> },
    GaLog([Field; 2]),
    PostedInterrupt { numbers: [Field; 5], descriptor: Option<Field> },
    IncompleteIpi([Field; 5]),
    Unaccelerated([Field; 5]),
    Kick([Field; 3]),
    AcceptIrq([Field; 4]),
    PvEoi([Field; 2]),
}

impl Decoder {
    /// Finds the fields of `kind` in the format of one of its tracepoints.
    ///
    /// # Errors
    /// [`Error::Field`] if one is missing.
    pub(crate) fn new(kind: EventKind, format: &EventFormat, host: Option<&Tracefs>) -> Result<Self, Error> {
        let one = |name| number_field(format, name);
        let fields = match kind {
            EventKind::Inhibit => Fields::Inhibit(InhibitFields::new(format, host)?),
            EventKind::IrqWindow => Fields::IrqWindow {
                reason: one("exit_reason")?,
                isa: one("isa")?,
                rip: one("guest_rip")?,
                vcpu: one("vcpu_id").ok(),
            },
            EventKind::GaLog => Fields::GaLog(all(format, ["vmid", "vcpuid"])?),
            EventKind::PostedInterrupt => Fields::PostedInterrupt {
                numbers: all(format, ["set", "host_irq", "vcpu_id", "gsi", "gvec"])?,
                descriptor: one("pi_desc_addr").ok(),
            },
            EventKind::IncompleteIpi => {
                Fields::IncompleteIpi(all(format, ["vcpu", "icrh", "icrl", "id", "index"])?)
            }
            EventKind::Unaccelerated => {
                Fields::Unaccelerated(all(format, ["vcpu", "offset", "ft", "rw", "vec"])?)
            }
            EventKind::Kick => Fields::Kick(all(format, ["icrh", "icrl", "index"])?),
            EventKind::AcceptIrq => Fields::AcceptIrq(all(format, ["apicid", "dm", "tm", "vec"])?),
            EventKind::PvEoi => Fields::PvEoi(all(format, ["apicid", "vector"])?),
        };
        Ok(Self { kind, id: format.id, flags: one("common_flags").ok(), fields })
    }

    /// The filter with which the kernel drops events before it makes a record.
    pub(crate) fn filter(&self) -> Option<String> {
        let Fields::IrqWindow { reason, isa, .. } = &self.fields else { return None };
        let each = WINDOWS.iter().map(|(number, window)| {
            format!("({} == {number} && {} == {})", isa.name, reason.name, window.code)
        });
        Some(each.collect::<Vec<_>>().join(" || "))
    }

    /// The numbering of inhibit reasons, if this is the decoder for them.
    pub(crate) fn numbering(&self) -> Option<&InhibitNumbering> {
        match &self.fields {
            Fields::Inhibit(fields) => Some(&fields.numbering),
            _ => None,
        }
    }

    /// The event in a record of CPU `cpu`; `None` if the record is too short, or of another kind.
    pub(crate) fn decode(&self, cpu: u32, sample: &Sample<'_>) -> Option<Event> {
        let flags = self.flags.as_ref().and_then(|flags| flags.read(sample.raw)).unwrap_or(0);
        Some(Event {
            time_ns: sample.time_ns,
            cpu,
            pid: sample.pid,
            tid: sample.tid,
            in_interrupt: flags & IN_INTERRUPT != 0,
            what: self.what(sample)?,
        })
    }

    fn what(&self, sample: &Sample<'_>) -> Option<What> {
        let raw = sample.raw;
        match &self.fields {
            Fields::Inhibit(fields) => fields.decode(sample.tid, sample.time_ns, raw).map(What::Inhibit),
            Fields::IrqWindow { reason, isa, rip, vcpu } => {
                let isa = Isa::from_kvm(low(isa.read(raw)?))?;
                let reason = ExitReason { isa, code: low(reason.read(raw)?) };
                WINDOWS.iter().find(|(_, window)| *window == reason.basic())?;
                let vcpu = vcpu.as_ref().and_then(|vcpu| vcpu.read(raw)).map(low);
                Some(What::IrqWindow { vcpu, reason, rip: rip.read(raw)? })
            }
            Fields::GaLog(fields) => {
                let [avic_vm, tag_vcpu] = numbers(fields, raw)?;
                Some(What::GaLog { avic_vm, tag_vcpu })
            }
            Fields::PostedInterrupt { numbers: fields, descriptor } => {
                let [set, host_irq, vcpu, gsi, vector] = numbers(fields, raw)?;
                Some(What::PostedInterrupt(IrteUpdate {
                    posted: set != 0,
                    host_irq,
                    vcpu: (vcpu != u32::MAX).then_some(vcpu),
                    gsi,
                    vector,
                    descriptor: descriptor.as_ref().and_then(|descriptor| descriptor.read(raw)),
                }))
            }
            Fields::IncompleteIpi(fields) => {
                let [vcpu, high, low, cause, index] = numbers(fields, raw)?;
                Some(What::IncompleteIpi { vcpu, ipi: Ipi::from_register(high, low), cause, index })
            }
            Fields::Unaccelerated(fields) => {
                let [vcpu, register, trap, write, vector] = numbers(fields, raw)?;
                let direction = if write != 0 { Direction::Write } else { Direction::Read };
                Some(What::Unaccelerated { vcpu, register, direction, trap: trap != 0, vector })
            }
            Fields::Kick(fields) => {
                let [high, low, index] = numbers(fields, raw)?;
                Some(What::Kick { ipi: Ipi::from_register(high, low), index })
            }
            Fields::AcceptIrq(fields) => {
                let [vcpu, mode, trigger, vector] = numbers(fields, raw)?;
                let mode = DeliveryMode::from_register(mode);
                Some(What::AcceptIrq { vcpu, mode, level: trigger != 0, vector })
            }
            Fields::PvEoi(fields) => {
                let [apic_id, vector] = numbers(fields, raw)?;
                Some(What::PvEoi { apic_id, vector: vector as i32 })
            }
        }
    }
}

fn all<const N: usize>(format: &EventFormat, names: [&'static str; N]) -> Result<[Field; N], Error> {
    let fields: Vec<Field> =
        names.into_iter().map(|name| number_field(format, name)).collect::<Result<_, _>>()?;
    // Cannot fail: there is one field for each name.
    fields.try_into().map_err(|_| Error::Field { event: format.name.clone(), field: "common_type" })
}

fn numbers<const N: usize>(fields: &[Field; N], raw: &[u8]) -> Option<[u32; N]> {
    let mut numbers = [0; N];
    for (number, field) in numbers.iter_mut().zip(fields) {
        *number = low(field.read(raw)?);
    }
    Some(numbers)
}

/// These fields have at most 32 bits; some kernels declare the exit reason as long and sign-extend -1.
const fn low(value: u64) -> u32 {
    (value & u32::MAX as u64) as u32
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
