//! Decodes tracepoint records into events, with the offsets from the recording's own descriptions.

use exits::{ExitReason, Isa};
use tracepoints::{EventFormat, Field};

use crate::bytes::u16_at;
use crate::event::{Event, Kind};
use crate::quick::{Load, Quick};

/// The number of event IDs, which have 16 bits.
pub(crate) const IDS: usize = 1 << 16;

/// The number of occurrences of each event, by its slot in the [`Decoder`].
pub(crate) type Counts = Vec<u64>;

/// The result of decoding a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// An event to pass on.
    Event,
    /// An event that is only counted, or has no description.
    Other,
    /// An event of interest that could not be decoded.
    Undecoded,
}

/// The offset and size of a field.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    offset: u16,
    size: u8,
}

impl Place {
    /// Reads the number, zero-extended.
    #[inline]
    fn read(self, raw: &[u8]) -> Option<u64> {
        let bytes = raw.get(usize::from(self.offset)..)?;
        Some(match self.size {
            4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
            8 => u64::from_le_bytes(*bytes.first_chunk()?),
            2 => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            1 => u64::from(*bytes.first()?),
            // The kernel does not have this field.
            _ => 0,
        })
    }
}

/// The fields to read from an event.
#[derive(Debug, Clone, Copy)]
enum Recipe {
    Exit { reason: Place, isa: Place, rip: Place },
    Entry { vcpu: Place },
    Port { write: Place, port: Place, value: Place },
    Mmio { kind: Place, address: Place, value: Place },
    FastMmio { address: Place },
    Msr { write: Place, number: Place, value: Place },
    Apic { write: Place, register: Place, value: Place },
    IncompleteIpi { id: Place, high: Place, low: Place },
    Unaccelerated { write: Place, register: Place },
    Nested { reason: Place, isa: Place, to_l1: bool },
    Counted,
}

/// Decodes records of the tracepoints that were added to it.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    /// The slot plus one of each event ID; zero for events without a description.
    slots: Vec<u16>,
    recipes: Vec<Recipe>,
    names: Vec<String>,
    /// The slot of `kvm_exit`.
    exits: Option<usize>,
    /// The field with the thread, which is the same for all events of a kernel.
    thread: Place,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        let thread = Place { offset: 4, size: 4 };
        Self { slots: Vec::new(), recipes: Vec::new(), names: Vec::new(), exits: None, thread }
    }

    /// Adds an event, of interest or not. An event that lacks a field it needs is only counted.
    pub(crate) fn add(&mut self, system: &str, format: &EventFormat) {
        let slot = self.names.len();
        // Always fits: there is at most one slot for each of the 65,536 event IDs.
        let Ok(stored) = u16::try_from(slot + 1) else { return };
        let recipe = if system == "kvm" { recipe(format) } else { None };
        if let Some(Recipe::Exit { .. }) = recipe {
            self.exits = Some(slot);
        }
        if let Some(thread) = format.field("common_pid").and_then(place) {
            self.thread = thread;
        }
        self.recipes.push(recipe.unwrap_or(Recipe::Counted));
        self.names.push(format!("{system}:{}", format.name));
        let id = usize::from(format.id);
        if self.slots.len() <= id {
            self.slots.resize((id + 1).next_power_of_two().min(IDS), 0);
        }
        self.slots[id] = stored;
    }

    /// Tests whether exits can be decoded.
    pub(crate) fn has_exits(&self) -> bool {
        self.exits.is_some()
    }

    /// Tests whether the event with this ID is `kvm_exit`.
    pub(crate) fn is_exit(&self, id: u64) -> bool {
        self.slot(id).is_some_and(|slot| self.exits == Some(slot))
    }

    /// The name of the event with this ID, if its fields are read.
    pub(crate) fn name_of_read(&self, id: u64) -> Option<&str> {
        let slot = self.slot(id).filter(|&slot| !matches!(self.recipes[slot], Recipe::Counted))?;
        Some(&self.names[slot])
    }

    /// The events' names, `system:event`, by slot.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The number of events, of interest or not.
    pub(crate) fn slots(&self) -> usize {
        self.recipes.len()
    }

    /// The fast paths of the events that have one, with the events' IDs and slots. Raw data begins at offset `before`
    /// of a window.
    pub(crate) fn quick(&self, before: usize) -> impl Iterator<Item = (usize, usize, Quick)> {
        let described = self.slots.iter().enumerate();
        described.filter_map(move |(id, &slot)| {
            let slot = usize::from(slot).checked_sub(1)?;
            Some((id, slot, self.recipes[slot].quick(before)?))
        })
    }

    /// The slot of an event ID.
    #[inline(always)]
    pub(crate) fn slot(&self, id: u64) -> Option<usize> {
        usize::from(*self.slots.get(id as usize)?).checked_sub(1)
    }

    /// The thread in which a record was made, from its common fields.
    pub(crate) fn thread(&self, raw: &[u8]) -> Option<u32> {
        self.thread.read(raw).map(|thread| thread as u32)
    }

    /// Decodes a record, which begins with `common_type`, and counts it. Sets kind, value and extra of `event`; the
    /// caller sets the rest.
    #[inline]
    pub(crate) fn decode(&self, raw: &[u8], event: &mut Event, counts: &mut Counts) -> Decoded {
        let slot = u16_at(raw, 0).and_then(|id| self.slot(u64::from(id)));
        let Some(slot) = slot else { return Decoded::Other };
        if counts.len() <= slot {
            counts.resize(self.recipes.len(), 0);
        }
        counts[slot] += 1;
        let recipe = &self.recipes[slot];
        if matches!(recipe, Recipe::Counted) {
            return Decoded::Other;
        }
        match fill(recipe, raw, event) {
            Some(()) => Decoded::Event,
            None => Decoded::Undecoded,
        }
    }
}

impl Recipe {
    /// The fast path, if raw data begins at offset `before` of a window.
    fn quick(&self, before: usize) -> Option<Quick> {
        let load = |place: Place| Load::new(before + usize::from(place.offset), place.size);
        let none = Load::default();
        let either = |read, write| [Some(read), Some(write), Some(write), Some(write)];
        let no = [0; 4];
        let (select, kinds, value, extra, added) = match *self {
            Self::Exit { reason, isa, rip } => {
                let kinds = [None, Some(Kind::Exit), Some(Kind::Exit), None];
                let added = [0, Event::exit(ExitReason::vmx(0)), Event::exit(ExitReason::svm(0)), 0];
                (load(isa)?, kinds, load(Place { size: reason.size.min(4), ..reason })?, load(rip)?, added)
            }
            Self::Entry { vcpu } => (none, [Some(Kind::Entry); 4], load(vcpu)?, none, no),
            Self::Port { write, port, value } => {
                (load(write)?, either(Kind::PortRead, Kind::PortWrite), load(port)?, load(value)?, no)
            }
            Self::Mmio { kind, address, value } => {
                let kinds = [Some(Kind::MmioUnsatisfied), Some(Kind::MmioRead), Some(Kind::MmioWrite), None];
                (load(kind)?, kinds, load(address)?, load(value)?, no)
            }
            Self::FastMmio { address } => (none, [Some(Kind::FastMmio); 4], load(address)?, none, no),
            Self::Msr { write, number, value } => {
                (load(write)?, either(Kind::MsrRead, Kind::MsrWrite), load(number)?, load(value)?, no)
            }
            Self::Apic { write, register, value } => {
                (load(write)?, either(Kind::ApicRead, Kind::ApicWrite), load(register)?, load(value)?, no)
            }
            Self::IncompleteIpi { .. } | Self::Unaccelerated { .. } | Self::Nested { .. } | Self::Counted => {
                return None;
            }
        };
        Some(Quick { length: self.length(), value, extra, select, kinds, added })
    }

    /// The minimum length of a record that has all fields.
    fn length(&self) -> u32 {
        let places = match *self {
            Self::Exit { reason, isa, rip } => [reason, isa, rip],
            Self::Entry { vcpu } => [vcpu; 3],
            Self::Port { write, port, value } => [write, port, value],
            Self::Mmio { kind, address, value } => [kind, address, value],
            Self::FastMmio { address } => [address; 3],
            Self::Msr { write, number, value } => [write, number, value],
            Self::Apic { write, register, value } => [write, register, value],
            Self::IncompleteIpi { id, high, low } => [id, high, low],
            Self::Unaccelerated { write, register } => [write, register, register],
            Self::Nested { reason, isa, .. } => [reason, isa, isa],
            Self::Counted => [Place::default(); 3],
        };
        places.iter().map(|place| u32::from(place.offset) + u32::from(place.size)).max().unwrap_or(0)
    }
}

#[inline]
fn fill(recipe: &Recipe, raw: &[u8], event: &mut Event) -> Option<()> {
    let either = |place: Place, read, write| Some(if place.read(raw)? == 0 { read } else { write });
    (event.kind, event.value, event.extra) = match *recipe {
        Recipe::Exit { reason, isa, rip } => {
            let isa = Isa::from_kvm(u32::try_from(isa.read(raw)?).ok()?)?;
            // Some kernels declare the field as long, and sign-extend -1 (SVM's VMEXIT_INVALID).
            let code = reason.read(raw)? as u32;
            (Kind::Exit, Event::exit(ExitReason { isa, code }), rip.read(raw)?)
        }
        Recipe::Entry { vcpu } => (Kind::Entry, vcpu.read(raw)?, 0),
        Recipe::Port { write, port, value } => {
            (either(write, Kind::PortRead, Kind::PortWrite)?, port.read(raw)?, value.read(raw)?)
        }
        Recipe::Mmio { kind, address, value } => {
            let kind = match kind.read(raw)? {
                0 => Kind::MmioUnsatisfied,
                1 => Kind::MmioRead,
                2 => Kind::MmioWrite,
                _ => return None,
            };
            (kind, address.read(raw)?, value.read(raw)?)
        }
        Recipe::FastMmio { address } => (Kind::FastMmio, address.read(raw)?, 0),
        Recipe::Msr { write, number, value } => {
            (either(write, Kind::MsrRead, Kind::MsrWrite)?, number.read(raw)?, value.read(raw)?)
        }
        Recipe::Apic { write, register, value } => {
            (either(write, Kind::ApicRead, Kind::ApicWrite)?, register.read(raw)?, value.read(raw)?)
        }
        Recipe::IncompleteIpi { id, high, low } => {
            (Kind::IncompleteIpi, id.read(raw)?, high.read(raw)? << 32 | low.read(raw)?)
        }
        Recipe::Unaccelerated { write, register } => {
            let kind = either(write, Kind::UnacceleratedRead, Kind::UnacceleratedWrite)?;
            (kind, register.read(raw)?, 0)
        }
        Recipe::Nested { reason, isa, to_l1 } => {
            let isa = Isa::from_kvm(u32::try_from(isa.read(raw)?).ok()?)?;
            let code = reason.read(raw)? as u32;
            let kind = if to_l1 { Kind::NestedToL1 } else { Kind::NestedExit };
            (kind, Event::exit(ExitReason { isa, code }), 0)
        }
        Recipe::Counted => return None,
    };
    Some(())
}

/// The recipe for an event of KVM (`arch/x86/kvm/trace.h`, `include/trace/events/kvm.h`).
fn recipe(format: &EventFormat) -> Option<Recipe> {
    let must = |name: &str| format.field(name).and_then(place);
    let may = |name: &str| must(name).unwrap_or_default();
    Some(match format.name.as_str() {
        "kvm_exit" => Recipe::Exit { reason: must("exit_reason")?, isa: must("isa")?, rip: may("guest_rip") },
        "kvm_entry" => Recipe::Entry { vcpu: must("vcpu_id")? },
        "kvm_pio" => Recipe::Port { write: must("rw")?, port: must("port")?, value: may("val") },
        "kvm_mmio" => Recipe::Mmio { kind: must("type")?, address: must("gpa")?, value: may("val") },
        "kvm_fast_mmio" => Recipe::FastMmio { address: must("gpa")? },
        "kvm_msr" => Recipe::Msr { write: must("write")?, number: must("ecx")?, value: may("data") },
        "kvm_apic" => Recipe::Apic { write: must("rw")?, register: must("reg")?, value: may("val") },
        "kvm_avic_incomplete_ipi" => {
            Recipe::IncompleteIpi { id: must("id")?, high: may("icrh"), low: may("icrl") }
        }
        "kvm_avic_unaccelerated_access" => {
            Recipe::Unaccelerated { write: must("rw")?, register: must("offset")? }
        }
        // Before Linux 5.13 the field of `kvm_nested_vmexit` is also named `exit_code`.
        "kvm_nested_vmexit" => Recipe::Nested {
            reason: must("exit_reason").or_else(|| must("exit_code"))?,
            isa: must("isa")?,
            to_l1: false,
        },
        "kvm_nested_vmexit_inject" => {
            Recipe::Nested { reason: must("exit_code")?, isa: must("isa")?, to_l1: true }
        }
        _ => return None,
    })
}

fn place(field: &Field) -> Option<Place> {
    let number = field.is_number();
    number
        .then(|| Some(Place { offset: field.offset.try_into().ok()?, size: field.size.try_into().ok()? }))?
}

#[cfg(test)]
#[path = "decoder_tests.rs"]
mod tests;
