//! The functions in which the exits of a device spend their time.

use std::collections::{BTreeMap, BTreeSet};

use exits::ExitReason;
use hotspots::{Part, Recording, Selection, Summary, SymbolRow};
use stats::Estimate;

use crate::{DeviceExits, VmAdvice};

/// The samples of the exits of one row. They are selected by exit reason, because a sample does not say which device the
/// exit was for. So rows with the same reasons have the same samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Hot {
    /// The reasons of the row's exits.
    pub reasons: BTreeSet<ExitReason>,
    /// The number of samples in exits of these reasons.
    pub samples: u64,
    /// The share of each part of the handling, from 0 to 1.
    pub parts: Vec<(Part, Estimate)>,
    /// The functions, those with the most samples of their own first. Shares are of all these samples.
    pub functions: Vec<SymbolRow>,
}

/// The samples of a recording for a row; `None` if no sample is in its exits. The VM is looked up in the recording by
/// process ID, then by name: a process of the same ID but another name is another VM.
#[must_use]
pub fn hot(vm: &VmAdvice<'_>, row: &DeviceExits<'_>, recording: &Recording) -> Option<Hot> {
    let is_other = |name: &String| vm.name.as_ref().is_some_and(|own| own != name);
    let is_there = |number: &u32| {
        recording.measured.keys().any(|key| key.0 == Some(*number))
            && !recording.names.get(number).is_some_and(is_other)
    };
    let by_name = || {
        let named = recording.names.iter().filter(|(_, name)| Some(*name) == vm.name.as_ref());
        named.map(|(&number, _)| number).collect::<BTreeSet<u32>>()
    };
    let vms = match vm.vm.filter(is_there) {
        Some(number) => [number].into(),
        None => by_name(),
    };
    if vms.is_empty() {
        return None;
    }
    let reasons: BTreeSet<ExitReason> = row.parts.iter().map(|part| part.0.basic()).collect();
    let summary = Summary::of(recording, &Selection { vms, reasons: reasons.clone() });
    let samples = summary.in_exits;
    let mut parts: BTreeMap<Part, u64> = BTreeMap::new();
    for (&part, &samples) in summary.reasons.iter().flat_map(|row| &row.parts) {
        *parts.entry(part).or_default() += samples;
    }
    let parts =
        parts.into_iter().filter_map(|(part, own)| Some((part, stats::share(own, samples)?))).collect();
    let mut functions = [summary.kernel, summary.monitors, summary.guests].concat();
    for function in &mut functions {
        function.share = stats::share(function.own, samples)?;
    }
    functions.sort_by(|a, b| (b.own, b.total, &a.frame).cmp(&(a.own, a.total, &b.frame)));
    Some(Hot { reasons, samples, parts, functions }).filter(|hot| hot.samples > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Table;
    use crate::{Of, advise};
    use exits::{Profile, Vcpu};
    use hotspots::{Activity, Away, Event, Frame, Head, Measured, Space, Stack};

    const IO: ExitReason = ExitReason::vmx(30);

    fn recording(vm: u32) -> Recording {
        let mut recording = Recording::new(Head {
            kernel: None,
            event: Event::Cycles,
            frequency_hz: 997,
            cpus: 1,
            duration_ns: 1,
            away: false,
            notes: Vec::new(),
        });
        recording.names.insert(vm, "web".to_owned());
        recording.measured.insert((Some(vm), IO), Measured { exits: 1, ..Measured::default() });
        for (reason, space, symbol, samples) in [
            (IO, Space::Kernel, "kvm_fast_pio", 30),
            (IO, Space::User, "serial_ioport_write", 70),
            (ExitReason::vmx(48), Space::Kernel, "handle_ept_violation", 500),
        ] {
            let object = if space == Space::Kernel { "kvm" } else { "qemu" }.to_owned();
            let frame = Frame { space, symbol: Some(symbol.to_owned()), object, address: None };
            let number = recording.number(frame);
            let (activity, away) = (Activity::Exit(reason), Away::default());
            let frames = vec![number];
            recording.stacks.push(Stack {
                vm: Some(vm),
                thread: None,
                activity,
                frames,
                samples,
                away,
                cut: false,
            });
        }
        recording
    }

    #[test]
    fn a_devices_row_has_the_functions_of_its_exits() {
        let table = Table::load(exits::Hypervisor::Kvm).unwrap();
        let mut profile = Profile::new();
        profile.names.insert(7, "web".to_owned());
        let vcpu = Vcpu { vm: Some(7), ..Vcpu::default() };
        profile.vcpu(vcpu).reasons.entry(IO).or_default().count = 5;
        let advice = advise(&table, &profile, 1_000_000_000, &BTreeMap::new());
        let (vm, row) = (&advice.vms[0], &advice.vms[0].rows[0]);
        assert!(!matches!(row.of, Of::UnknownAccess(_)));
        // By process ID, and in a recording of another boot by name.
        for number in [7, 9] {
            let hot = hot(vm, row, &recording(number)).unwrap();
            let names: Vec<String> = hot.functions.iter().map(|one| one.frame.to_string()).collect();
            assert_eq!(names, ["serial_ioport_write", "kvm_fast_pio"]);
            assert_eq!(hot.samples, 100);
            let parts: Vec<_> = hot.parts.iter().map(|(part, of)| (*part, of.value)).collect();
            assert_eq!(parts, [(Part::Kvm, 0.3), (Part::Monitor, 0.7)]);
        }
        let mut other = recording(9);
        other.names.clear();
        assert_eq!(hot(vm, row, &other), None);
        let mut reused = recording(7);
        reused.names.insert(7, "db".to_owned());
        assert_eq!(hot(vm, row, &reused), None, "the process is another VM");
        reused.names.clear();
        assert!(hot(vm, row, &reused).is_some());
    }
}
