//! The guest's code, as bytes, and the addresses of its parts.

use std::arch::global_asm;

use crate::layout;
use crate::measure::Measure;
use crate::run::ApicMode;

global_asm!(
    ".set APIC_BASE, {apic_base}",
    ".set APIC_TPR, 0x80",
    ".set APIC_EOI, 0xb0",
    ".set APIC_SVR, 0xf0",
    ".set APIC_ICR, 0x300",
    ".set APIC_ICR2, 0x310",
    ".set APIC_LVT_TIMER, 0x320",
    ".set MMIO_USER, {mmio_user}",
    ".set MMIO_EVENTFD, {mmio_eventfd}",
    ".set UNTOUCHED_STACK, {untouched_stack}",
    ".set PORT_DONE, {port_done}",
    ".set PORT_FAULT, {port_fault}",
    ".set PORT_USER, {port_user}",
    ".set PORT_EVENTFD, {port_eventfd}",
    ".set VECTOR_IPI, {vector_ipi}",
    ".set VECTOR_WAKE, {vector_wake}",
    ".set VECTOR_SELF, {vector_self}",
    ".set VECTOR_EOI, {vector_eoi}",
    ".set VECTOR_HALT, {vector_halt}",
    ".set VECTOR_TIMER, {vector_timer}",
    ".set VECTOR_SPURIOUS, {vector_spurious}",
    ".set BLOCK_ROUTINE, {routine}",
    ".set BLOCK_WARM_UP, {warm_up}",
    ".set BLOCK_SAMPLES, {samples}",
    ".set BLOCK_BUFFER, {buffer}",
    ".set BLOCK_PEER, {peer}",
    ".set BLOCK_PEER_APIC_ID, {peer_apic_id}",
    ".set BLOCK_DELAY, {delay}",
    ".set BLOCK_PROGRESS, {progress}",
    ".set BLOCK_SELF_IPI_MSR, {self_ipi_msr}",
    ".set BLOCK_SELF_IPI_BITS, {self_ipi_bits}",
    ".set BLOCK_ACK, {ack}",
    ".set BLOCK_READY, {ready}",
    ".set BLOCK_STOP, {stop}",
    ".set BLOCK_FAULT_VECTOR, {fault_vector}",
    ".set BLOCK_FAULT_CODE, {fault_code}",
    ".set BLOCK_FAULT_RIP, {fault_rip}",
    include_str!("payload/head.s"),
    include_str!("payload/plain.s"),
    include_str!("payload/apic.s"),
    apic_base = const layout::APIC_BASE,
    mmio_user = const layout::MMIO_USER,
    mmio_eventfd = const layout::MMIO_EVENTFD,
    untouched_stack = const layout::MEMORY_SIZE,
    port_done = const layout::PORT_DONE,
    port_fault = const layout::PORT_FAULT,
    port_user = const layout::PORT_USER,
    port_eventfd = const layout::PORT_EVENTFD,
    vector_ipi = const layout::VECTOR_IPI,
    vector_wake = const layout::VECTOR_WAKE,
    vector_self = const layout::VECTOR_SELF,
    vector_eoi = const layout::VECTOR_EOI,
    vector_halt = const layout::VECTOR_HALT,
    vector_timer = const layout::VECTOR_TIMER,
    vector_spurious = const layout::VECTOR_SPURIOUS,
    routine = const layout::block::ROUTINE,
    warm_up = const layout::block::WARM_UP,
    samples = const layout::block::SAMPLES,
    buffer = const layout::block::BUFFER,
    peer = const layout::block::PEER,
    peer_apic_id = const layout::block::PEER_APIC_ID,
    delay = const layout::block::DELAY,
    progress = const layout::block::PROGRESS,
    self_ipi_msr = const layout::block::SELF_IPI_MSR,
    self_ipi_bits = const layout::block::SELF_IPI_BITS,
    ack = const layout::block::ACK,
    ready = const layout::block::READY,
    stop = const layout::block::STOP,
    fault_vector = const layout::block::FAULT_VECTOR,
    fault_code = const layout::block::FAULT_CODE,
    fault_rip = const layout::block::FAULT_RIP,
    options(att_syntax)
);

unsafe extern "C" {
    #[link_name = "exitless_probe_payload_start"]
    static START: u8;
    #[link_name = "exitless_probe_payload_end"]
    static END: u8;
}

/// The code to copy into the guest. The host treats it as data and never runs it.
pub(crate) fn bytes() -> &'static [u8] {
    let start = &raw const START;
    let length = (&raw const END).addr() - start.addr();
    // SAFETY: both symbols delimit code in one read-only section of this program, which lives as long as the
    // program and is never written.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// A part of the payload that the host refers to, in the order of the table in payload/head.s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Entry,
    OnIpi,
    OnWake,
    OnSelf,
    OnEoi,
    OnHalt,
    OnTimer,
    Prepare,
    TargetRunning,
    TargetHalted,
    /// Never ends; the watchdog's test runs it.
    #[cfg_attr(not(test), allow(dead_code))]
    SpinForEver,
    /// Faults; the test of unexpected exceptions runs it.
    #[cfg_attr(not(test), allow(dead_code))]
    UndefinedOpcode,
    TargetExiting,
    Masked,
    UntouchedStack,
    OnDivide,
    Faulting,
    Measure(Measure),
}

impl Part {
    const BEFORE_MEASURES: usize = 17;

    fn index(self) -> usize {
        match self {
            Self::Entry => 0,
            Self::OnIpi => 1,
            Self::OnWake => 2,
            Self::OnSelf => 3,
            Self::OnEoi => 4,
            Self::OnHalt => 5,
            Self::OnTimer => 6,
            Self::Prepare => 7,
            Self::TargetRunning => 8,
            Self::TargetHalted => 9,
            Self::SpinForEver => 10,
            Self::UndefinedOpcode => 11,
            Self::TargetExiting => 12,
            Self::Masked => 13,
            Self::UntouchedStack => 14,
            Self::OnDivide => 15,
            Self::Faulting => 16,
            Self::Measure(measure) => {
                let place = Measure::ALL.iter().position(|other| *other == measure);
                Self::BEFORE_MEASURES + place.expect("Measure::ALL holds every measure")
            }
        }
    }
}

/// The entries of the table before the two of the APIC modes.
const COMMON: usize = 2;
const PER_MODE: usize = Part::BEFORE_MEASURES + Measure::ALL.len();

/// The guest's address of table entry `index`.
fn address(index: usize) -> u64 {
    let bytes = bytes();
    let entry = bytes[index * 4..index * 4 + 4].try_into().expect("four bytes");
    layout::PAYLOAD + u64::from(u32::from_le_bytes(entry))
}

/// The address at which `part` begins in the guest, in the variant for `apic`.
pub(crate) fn address_of(part: Part, apic: ApicMode) -> u64 {
    let table = match apic {
        ApicMode::Xapic => 0,
        ApicMode::X2apic => PER_MODE,
    };
    address(COMMON + table + part.index())
}

/// The address to which the gate of `vector` leads.
pub(crate) fn handler(vector: u8, apic: ApicMode) -> u64 {
    let part = match vector {
        layout::VECTOR_IPI => Part::OnIpi,
        layout::VECTOR_WAKE => Part::OnWake,
        layout::VECTOR_SELF => Part::OnSelf,
        layout::VECTOR_EOI => Part::OnEoi,
        layout::VECTOR_HALT => Part::OnHalt,
        layout::VECTOR_TIMER => Part::OnTimer,
        layout::VECTOR_DIVIDE_ERROR => Part::OnDivide,
        layout::VECTOR_SPURIOUS => return address(1),
        // The stubs are 8 bytes apart.
        _ => return address(0) + 8 * u64::from(vector),
    };
    address_of(part, apic)
}

/// The name of an address in the guest, for people: the part and the offset in it.
pub(crate) fn place(rip: u64) -> String {
    let parts = [
        ("entry", Part::Entry),
        ("on_ipi", Part::OnIpi),
        ("on_wake", Part::OnWake),
        ("on_self", Part::OnSelf),
        ("on_eoi", Part::OnEoi),
        ("on_halt", Part::OnHalt),
        ("on_timer", Part::OnTimer),
        ("prepare", Part::Prepare),
        ("target_running", Part::TargetRunning),
        ("target_halted", Part::TargetHalted),
        ("spin_for_ever", Part::SpinForEver),
        ("undefined_opcode", Part::UndefinedOpcode),
        ("target_exiting", Part::TargetExiting),
        ("masked", Part::Masked),
        ("untouched_stack", Part::UntouchedStack),
        ("on_divide", Part::OnDivide),
        ("faulting", Part::Faulting),
    ];
    let measures = Measure::ALL.map(|measure| (measure.name(), Part::Measure(measure)));
    let end = layout::PAYLOAD + bytes().len() as u64;
    let named = parts.into_iter().chain(measures);
    let starts = named.flat_map(|(name, part)| {
        [ApicMode::Xapic, ApicMode::X2apic].map(|apic| (address_of(part, apic), name))
    });
    match starts.filter(|(start, _)| (*start..end).contains(&rip)).max() {
        Some((start, name)) => format!("{name}+{:#x} ({rip:#x})", rip - start),
        None => format!("{rip:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_fits_its_room() {
        let length = bytes().len();
        assert!(length > 2048 && length <= layout::PAYLOAD_ROOM, "{length} bytes");
    }

    #[test]
    fn the_table_leads_into_the_code_in_ascending_measures() {
        let table_end = (COMMON + 2 * PER_MODE) * 4;
        let end = layout::PAYLOAD + bytes().len() as u64;
        for index in 0..COMMON + 2 * PER_MODE {
            let at = address(index);
            assert!(at >= layout::PAYLOAD + table_end as u64 && at < end, "entry {index} leads to {at:#x}");
        }
        // The two modes share exactly the measures that do not touch the APIC.
        for measure in Measure::ALL {
            let same = address_of(Part::Measure(measure), ApicMode::Xapic)
                == address_of(Part::Measure(measure), ApicMode::X2apic);
            let apic_free = matches!(
                measure,
                Measure::Floor
                    | Measure::Cpuid
                    | Measure::PioKernel
                    | Measure::PioUser
                    | Measure::MmioUser
                    | Measure::MmioEventfd
                    | Measure::MsrRead
                    | Measure::MsrWrite
            );
            assert_eq!(same, apic_free, "{measure}");
        }
    }

    #[test]
    fn every_measure_has_its_own_routine() {
        let mut all =
            Measure::ALL.map(|measure| address_of(Part::Measure(measure), ApicMode::X2apic)).to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Measure::ALL.len());
    }

    #[test]
    fn stubs_are_eight_bytes_apart_and_begin_with_a_call() {
        for vector in [0u8, 13, 255] {
            let at = address(0) + 8 * u64::from(vector) - layout::PAYLOAD;
            assert_eq!(bytes()[at as usize], 0xe8, "vector {vector}");
        }
    }

    #[test]
    fn addresses_have_names() {
        let at = address_of(Part::Measure(Measure::IpiHalted), ApicMode::X2apic);
        assert_eq!(place(at + 5), format!("ipi-halted+0x5 ({:#x})", at + 5));
        assert_eq!(place(0x42), "0x42");
    }

    #[test]
    fn unknown_vectors_lead_to_their_stub() {
        assert_eq!(handler(13, ApicMode::Xapic), address(0) + 13 * 8);
        assert_ne!(
            handler(layout::VECTOR_IPI, ApicMode::Xapic),
            handler(layout::VECTOR_IPI, ApicMode::X2apic)
        );
    }
}
