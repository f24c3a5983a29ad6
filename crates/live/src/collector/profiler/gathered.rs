//! Converts the counts and samples of the BPF programs into a recording.

use std::collections::BTreeMap;

use exits::{ExitReason, Isa, Profile};
use hotspots::{Away, Measured, Recording, Stack, Symbols};

use super::ticks::{Met, Times};
use super::{Absence, AbsenceKey};

/// Exits with their times on and off the CPU.
pub(super) fn measured(
    profile: &Profile,
    absences: &[(AbsenceKey, Absence)],
    isa: Isa,
) -> BTreeMap<(Option<u32>, ExitReason), Measured> {
    let mut measured: BTreeMap<_, Measured> = BTreeMap::new();
    for vcpu in profile.vcpus() {
        for (&reason, exits) in &vcpu.reasons {
            let one = Measured {
                exits: exits.count,
                handling_ns: exits.handling.total_ns(),
                away: Away::default(),
            };
            measured.entry((vcpu.vcpu.vm, reason)).or_default().add(one);
        }
    }
    for (key, absence) in absences {
        let Absence { times, away_ns, waited_ns } = *absence;
        let away = Away { times, away_ns, waited_ns };
        let reason = ExitReason { isa, code: key.reason };
        measured.entry((Some(key.process), reason)).or_default().away.add(away);
    }
    measured
}

/// The stack with addresses resolved to symbols.
pub(super) fn resolved(recording: &mut Recording, symbols: &mut Symbols, met: &Met, times: Times) -> Stack {
    let mut frames = Vec::with_capacity(met.kernel.len() + met.user.len());
    // Outer frames are return addresses, which may be past the end of the calling function.
    let called_from = |at: usize, address: u64| if at == 0 { address } else { address.saturating_sub(1) };
    for (at, &address) in met.kernel.iter().enumerate() {
        let frame = symbols.kernel(called_from(at, address));
        frames.push(recording.number(frame));
    }
    for (at, &address) in met.user.iter().enumerate() {
        let address = called_from(at, address);
        // In code without frame pointers the unwinder follows whatever value the register has.
        if at > 0 && !symbols.is_code(met.process, address) {
            break;
        }
        let frame = symbols.user(met.process, address);
        frames.push(recording.number(frame));
    }
    Stack {
        vm: Some(met.process),
        thread: Some(met.thread),
        activity: met.activity,
        frames,
        samples: times.samples,
        away: times.away,
        cut: met.cut,
    }
}
