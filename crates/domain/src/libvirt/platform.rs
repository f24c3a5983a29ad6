//! The machine, its features and its clock.

use super::reading::Reading;
use crate::defaults::{architecture_of_machine, other_than_x86};
use crate::xml::Node;
use crate::{Accelerator, FeatureState, GuestIommu, Irqchip, Set, TickPolicy};

/// The tick policies of `<clock>`'s timers.
const POLICIES: [(&str, TickPolicy); 4] = [
    ("delay", TickPolicy::Delay),
    ("discard", TickPolicy::Discard),
    ("catchup", TickPolicy::CatchUp),
    ("merge", TickPolicy::Merge),
];

impl<'t> Reading<'t> {
    pub(super) fn machine(&mut self) {
        let domain = self.domain;
        if let Some(kind) = domain.value("@type") {
            let accelerator = match kind.text {
                "kvm" => Accelerator::Kvm,
                "qemu" => Accelerator::Tcg,
                "xen" => Accelerator::Xen,
                _ => Accelerator::Other,
            };
            self.definition.machine.accelerator = Some(kind.set(accelerator));
        }
        self.definition.machine.kind = domain.value("os/type@machine").map(|value| value.string());
        self.definition.program = domain.value("devices/emulator").map(|value| value.string());
        self.definition.other_architecture = self.other_architecture();
        self.definition.machine.encryption = domain
            .child("launchSecurity")
            .and_then(|security| security.attribute("type"))
            .map(|kind| kind.string());
    }

    /// The architecture if it is not x86: as written, or else by the emulator's name or the machine type.
    fn other_architecture(&self) -> Option<Set<String>> {
        let said = |path: &str, other: fn(&str) -> Option<&str>| {
            let value = self.domain.value(path)?;
            Some(value.set(other(value.text)?.to_owned()))
        };
        if self.domain.find("os/type@arch").is_some() {
            return said("os/type@arch", |arch| (!["x86_64", "i686"].contains(&arch)).then_some(arch));
        }
        said("devices/emulator", other_than_x86).or_else(|| said("os/type@machine", architecture_of_machine))
    }

    /// Reads `<features>`, after the CPU's model.
    pub(super) fn features(&mut self) {
        let Some(features) = self.domain.child("features") else { return };
        if let Some(driver) = features.value("ioapic@driver") {
            let known = [("kvm", Irqchip::Kernel), ("qemu", Irqchip::Split)];
            self.definition.machine.irqchip = self.one_of(&driver, &known);
        }
        if let Some(vmport) = features.child("vmport") {
            self.definition.machine.vmport = self.state(vmport);
        }
        if let Some(smm) = features.child("smm")
            && let Some(state) = self.state(smm)
        {
            let value = if state.value { "on" } else { "off" };
            let property = ("smm".to_owned(), value.to_owned());
            self.definition.machine.properties.push(Set::new(property, state.place));
        }
        // What QEMU has as properties of the CPU.
        let named = [("pvspinlock@state", "kvm-pv-unhalt"), ("apic@eoi", "kvm-pv-eoi"), ("pmu@state", "pmu")];
        for (path, name) in named {
            if features.value(path).is_some() {
                let state = self.switch(features, path);
                self.feature(name, state, false);
            }
        }
        let Some(kvm) = features.child("kvm") else { return };
        let host = self.definition.passes_host_cpu();
        for child in kvm.children() {
            let (name, inverted) = match child.name() {
                "hidden" => ("kvm", true),
                "hint-dedicated" => ("kvm-hint-dedicated", false),
                "poll-control" => ("kvm-poll-control", false),
                "pv-ipi" => ("kvm-pv-ipi", false),
                _ => continue,
            };
            // Of these two libvirt passes on only one state (`qemuBuildCpuCommandLine`). With the other one the guest
            // has what its CPU model has: both features if it is the host's, else neither.
            let state = self.state(child).filter(|state| match name {
                "kvm-poll-control" => state.value || !host,
                "kvm-pv-ipi" => !state.value || host,
                _ => true,
            });
            self.feature(name, state, inverted);
        }
    }

    fn feature(&mut self, name: &str, state: Option<Set<bool>>, inverted: bool) {
        let Some(state) = state else { return };
        let value = if state.value == inverted { FeatureState::Off } else { FeatureState::On };
        self.definition.cpu.features.insert(name.to_owned(), Set::new(value, state.place));
    }

    pub(super) fn clock(&mut self) {
        let Some(clock) = self.domain.child("clock") else { return };
        for timer in clock.all("timer") {
            let Some(name) = timer.attribute("name") else { continue };
            let present = timer.attribute("present").and_then(|_| self.switch(timer, "@present"));
            let policy = timer.value("@tickpolicy").and_then(|value| self.one_of(&value, &POLICIES));
            match name.text {
                // libvirt cannot remove the PIT: it ignores `present` (`qemuBuildClockCommandLine`).
                "pit" => self.definition.timers.pit = policy,
                "rtc" => self.definition.timers.rtc = policy,
                "hpet" => self.definition.timers.hpet = present,
                "kvmclock" => {
                    self.feature("kvmclock", present.clone(), false);
                    self.definition.timers.kvm_clock = present;
                }
                "hypervclock" => {
                    if let Some(present) = present.clone() {
                        self.definition.cpu.hyperv.features.insert("time".into(), present);
                    }
                    self.definition.timers.hyperv_clock = present;
                }
                "tsc" => self.tsc(timer),
                "armvtimer" | "platform" => {}
                _ => self.doubt(&name, "a timer of x86"),
            }
        }
    }

    fn tsc(&mut self, timer: Node<'t>) {
        if let Some(frequency) = self.number::<u64>(timer, "@frequency") {
            let property = ("tsc-frequency".to_owned(), frequency.value.to_string());
            self.definition.cpu.properties.push(Set::new(property, frequency.place));
        }
    }

    pub(super) fn iommu(&mut self, node: Node<'t>) {
        let model = match node.find("@model").unwrap_or("intel") {
            model @ ("intel" | "amd" | "virtio") => format!("{model}-iommu"),
            other => other.to_owned(),
        };
        let iommu = GuestIommu {
            model,
            interrupt_remapping: self.switch(node, "driver@intremap"),
            extended_interrupt_mode: self.switch(node, "driver@eim"),
            caching_mode: self.switch(node, "driver@caching_mode"),
            dma_remapping: None,
            place: node.place(),
        };
        self.definition.iommus.push(iommu);
    }
}
