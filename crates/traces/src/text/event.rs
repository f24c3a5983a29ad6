//! The text of an event: `TP_printk` of `arch/x86/kvm/trace.h` and `include/trace/events/kvm.h` of Linux 4.x to 6.x,
//! the plug-in `plugin_kvm.c` of libtraceevent for `trace-cmd report` and `perf script`, and the raw fields of
//! `trace-cmd report -R` and of tracefs's option `fields`.

use super::number::{after, find, hexadecimal, number};
use super::reasons::Reasons;
use super::registers;
use crate::event::{Event, Kind};

/// The events that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Exit,
    Entry,
    Port,
    Mmio,
    FastMmio,
    Msr,
    Apic,
    IncompleteIpi,
    Unaccelerated,
    NestedExit,
    NestedToL1,
}

impl Name {
    /// The event with this name, without its subsystem.
    pub(super) fn find(name: &[u8]) -> Option<Self> {
        Some(match name.strip_prefix(b"kvm_")? {
            b"exit" => Self::Exit,
            b"entry" => Self::Entry,
            b"pio" => Self::Port,
            b"mmio" => Self::Mmio,
            b"fast_mmio" => Self::FastMmio,
            b"msr" => Self::Msr,
            b"apic" => Self::Apic,
            b"avic_incomplete_ipi" => Self::IncompleteIpi,
            b"avic_unaccelerated_access" => Self::Unaccelerated,
            b"nested_vmexit" => Self::NestedExit,
            b"nested_vmexit_inject" => Self::NestedToL1,
            _ => return None,
        })
    }

    /// The kind, value and extra of an event with this text.
    pub(super) fn read(self, text: &[u8], reasons: &mut Reasons) -> Option<(Kind, u64, u64)> {
        match self {
            Self::Exit => exit(text, reasons),
            Self::Entry => {
                let vcpu = after(text, b"vcpu_id=").or_else(|| after(text, b"vcpu "))?;
                Some((Kind::Entry, number(vcpu)?, 0))
            }
            Self::Port => {
                let port = after(text, b"at ").or_else(|| after(text, b"port="))?;
                let (read, write) = (Kind::PortRead, Kind::PortWrite);
                Some((
                    either(text, b"pio_read", b"pio_write", b"rw=", read, write)?,
                    number(port)?,
                    value(text),
                ))
            }
            Self::Mmio => mmio(text),
            Self::FastMmio => Some((Kind::FastMmio, number(address(text)?)?, 0)),
            Self::Msr => {
                let (read, write) = (Kind::MsrRead, Kind::MsrWrite);
                let kind = either(text, b"msr_read", b"msr_write", b"write=", read, write)?;
                let msr = after(text, b"msr_read ").or_else(|| after(text, b"msr_write "));
                // Hexadecimal in all formats, in most without `0x`.
                let msr = hexadecimal(msr.or_else(|| after(text, b"ecx="))?)?;
                let data = after(text, b"= ").or_else(|| after(text, b"data=")).and_then(number);
                Some((kind, msr, data.unwrap_or(0)))
            }
            Self::Apic => {
                let (read, write) = (Kind::ApicRead, Kind::ApicWrite);
                let kind = either(text, b"apic_read", b"apic_write", b"rw=", read, write)?;
                let register = after(text, b"apic_read ").or_else(|| after(text, b"apic_write "));
                let data = after(text, b"= ").or_else(|| after(text, b"val=")).and_then(number);
                let register = registers::offset(register.or_else(|| after(text, b"reg="))?)?;
                Some((kind, register, data.unwrap_or(0)))
            }
            Self::IncompleteIpi => {
                let id = number(after(text, b"id=")?)?;
                let command = after(text, b"icrh:icrl=").and_then(|command| {
                    let low = &command[find(command, b":")? + 1..];
                    Some(hexadecimal(command)? << 32 | hexadecimal(low)?)
                });
                Some((Kind::IncompleteIpi, id, command.unwrap_or(0)))
            }
            Self::Unaccelerated => {
                let (read, write) = (Kind::UnacceleratedRead, Kind::UnacceleratedWrite);
                let kind = either(text, b"read", b"write", b"rw=", read, write)?;
                Some((kind, number(after(text, b"offset=")?)?, 0))
            }
            Self::NestedExit => Some((Kind::NestedExit, nested(text, reasons)?, 0)),
            Self::NestedToL1 => Some((Kind::NestedToL1, nested(text, reasons)?, 0)),
        }
    }
}

fn exit(text: &[u8], reasons: &mut Reasons) -> Option<(Kind, u64, u64)> {
    let (reason, rip) = match after(text, b"exit_reason=") {
        Some(code) => {
            let reason = reasons.of_numbers(number(after(text, b"isa=")?)?, number(code)?)?;
            (reason, after(text, b"guest_rip="))
        }
        None => {
            // Names contain spaces, and flags follow them.
            let name = after(text, b"reason ")?;
            let end = find(name, b" rip ")?;
            (reasons.find(&name[..end])?, Some(&name[end + b" rip ".len()..]))
        }
    };
    Some((Kind::Exit, Event::exit(reason), rip.and_then(hexadecimal).unwrap_or(0)))
}

/// The reason of a nested guest's exit: since Linux 5.13 in the format of `kvm_exit`; before, and for L1, in a format
/// of its own.
fn nested(text: &[u8], reasons: &mut Reasons) -> Option<u64> {
    if let Some(name) = after(text, b"reason: ") {
        let end = find(name, b" info1").or_else(|| find(name, b" ext_inf1"))?;
        return Some(Event::exit(reasons.find(&name[..end])?));
    }
    if let Some(code) = after(text, b"exit_code=") {
        return Some(Event::exit(reasons.of_numbers(number(after(text, b"isa=")?)?, number(code)?)?));
    }
    Some(exit(text, reasons)?.1)
}

fn mmio(text: &[u8]) -> Option<(Kind, u64, u64)> {
    let kind = match after(text, b"mmio ") {
        Some(what) if what.starts_with(b"unsatisfied-read ") => Kind::MmioUnsatisfied,
        Some(what) if what.starts_with(b"read ") => Kind::MmioRead,
        Some(what) if what.starts_with(b"write ") => Kind::MmioWrite,
        Some(_) => return None,
        // `KVM_TRACE_MMIO_` in `include/trace/events/kvm.h`.
        None => match flag(after(text, b"type=")?)? {
            0 => Kind::MmioUnsatisfied,
            1 => Kind::MmioRead,
            2 => Kind::MmioWrite,
            _ => return None,
        },
    };
    Some((kind, number(address(text)?)?, value(text)))
}

fn address(text: &[u8]) -> Option<&[u8]> {
    after(text, b"gpa ").or_else(|| after(text, b"gpa="))
}

/// The direction: one of two words, or a field that is zero for a read.
fn either(text: &[u8], read: &[u8], write: &[u8], field: &[u8], reads: Kind, writes: Kind) -> Option<Kind> {
    if let Some(direction) = after(text, field) {
        return Some(if flag(direction)? == 0 { reads } else { writes });
    }
    if after(text, write).is_some() {
        return Some(writes);
    }
    after(text, read).map(|_| reads)
}

/// A small number, which tracefs may write only in brackets.
fn flag(text: &[u8]) -> Option<u64> {
    number(text.strip_prefix(b"(").unwrap_or(text))
}

/// The data that was read or written; zero if the text does not have it.
fn value(text: &[u8]) -> u64 {
    after(text, b"val ").or_else(|| after(text, b"val=")).and_then(number).unwrap_or(0)
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
