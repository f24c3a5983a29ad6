//! `<features>`, `<cpu>` and `<clock>`.

use super::Writing;
use crate::libvirt::{has_element, libvirt_name};
use crate::xml::New;
use crate::{CpuModel, FeatureState, Irqchip, TickPolicy};

/// Features of KVM with their own elements.
const KVM: [(&str, &str); 3] = [
    ("kvm-hint-dedicated", "hint-dedicated"),
    ("kvm-poll-control", "poll-control"),
    ("kvm-pv-ipi", "pv-ipi"),
];
/// Properties of `-cpu` that are not written as features.
const ELSEWHERE: [&str; 6] = ["kvm", "kvm-pv-unhalt", "kvm-pv-eoi", "kvmclock", "pmu", "migratable"];

impl Writing<'_> {
    fn said(&self, name: &str) -> Option<&'static str> {
        let state = self.definition.cpu.feature(name)?;
        Some(if state == FeatureState::Off { "off" } else { "on" })
    }

    pub(super) fn features(&mut self) -> New {
        let definition = self.definition;
        let property = |name: &str| {
            definition
                .machine
                .properties
                .iter()
                .rev()
                .find(|set| set.value.0 == name)
                .map(|set| set.value.1.as_str())
        };
        let mut features = New::named("features");
        if property("acpi") != Some("off") {
            features = features.holding(New::named("acpi"));
        }
        let apic = New::named("apic");
        features = features.holding(match self.said("kvm-pv-eoi") {
            Some(state) => apic.with("eoi", state),
            None => apic,
        });
        features.children.extend(self.hyperv());
        let mut kvm = New::named("kvm");
        if let Some(state) = self.said("kvm") {
            kvm = kvm.holding(New::named("hidden").with("state", if state == "on" { "off" } else { "on" }));
        }
        for (feature, element) in KVM {
            if let Some(state) = self.said(feature) {
                kvm = kvm.holding(New::named(element).with("state", state));
            }
        }
        if !kvm.children.is_empty() {
            features = features.holding(kvm);
        }
        for (feature, element) in [("kvm-pv-unhalt", "pvspinlock"), ("pmu", "pmu")] {
            if let Some(state) = self.said(feature) {
                features = features.holding(New::named(element).with("state", state));
            }
        }
        if let Some(vmport) = &definition.machine.vmport {
            let state = if vmport.value { "on" } else { "off" };
            features = features.holding(New::named("vmport").with("state", state));
        }
        if let Some(state @ ("on" | "off")) = property("smm") {
            features = features.holding(New::named("smm").with("state", state));
        }
        let irqchip = definition.machine.irqchip.as_ref().map(|set| set.value);
        // The IOMMU that libvirt requires remaps interrupts only with QEMU's own I/O APIC.
        let split = self.is_wide() && self.q35 && irqchip != Some(Irqchip::Split);
        if split {
            self.note("Interrupt remapping needs the I/O APIC in QEMU, so <ioapic driver='qemu'/> was set.");
        }
        match if split { Some(Irqchip::Split) } else { irqchip } {
            Some(Irqchip::Split) => features = features.holding(New::named("ioapic").with("driver", "qemu")),
            Some(Irqchip::Kernel) => features = features.holding(New::named("ioapic").with("driver", "kvm")),
            Some(Irqchip::UserSpace) => self.added.extend(["-machine".into(), "kernel-irqchip=off".into()]),
            None => {}
        }
        if self.vmcoreinfo() {
            features = features.holding(New::named("vmcoreinfo").with("state", "on"));
        }
        features
    }

    fn vmcoreinfo(&self) -> bool {
        let device = self.all("device").find(|option| option.get("driver") == Some("vmcoreinfo"));
        if let Some(device) = device {
            device.used.set(true);
        }
        device.is_some()
    }

    fn hyperv(&mut self) -> Option<New> {
        let definition = self.definition;
        let said = &definition.cpu.hyperv;
        let passthrough = said.passthrough.as_ref().is_some_and(|set| set.value);
        let mut hyperv =
            New::named("hyperv").with("mode", if passthrough { "passthrough" } else { "custom" });
        let value = |name: &str| {
            let mut properties = definition.cpu.properties.iter().rev();
            properties.find(|set| set.value.0 == name).map(|set| set.value.1.as_str())
        };
        let state = |on: bool| if on { "on" } else { "off" };
        for (name, set) in &said.features {
            // Features with a dash are children of others, except these.
            let below =
                name.contains('-') && !["vendor-id", "emsr-bitmap", "xmm-input"].contains(&name.as_str());
            if name == "time" || below {
                continue;
            }
            if !has_element(name) {
                self.added.extend(["-global".into(), format!("x86_64-cpu.hv-{name}={}", state(set.value))]);
                continue;
            }
            let mut element = New::named(name.replace('-', "_")).with("state", state(set.value));
            match name.as_str() {
                "spinlocks" => element = element.with("retries", retries(value("hv-spinlocks")).to_string()),
                "vendor-id" => element = element.with("value", value("hv-vendor-id").unwrap_or_default()),
                _ => {}
            }
            for (child, set) in &said.features {
                let Some(child) = child.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('-'))
                else {
                    continue;
                };
                let child = if child == "ext" { "extended" } else { child };
                element = element.holding(New::named(child).with("state", state(set.value)));
            }
            hyperv = hyperv.holding(element);
        }
        (passthrough || !hyperv.children.is_empty()).then_some(hyperv)
    }

    pub(super) fn processor(&mut self) -> Option<New> {
        let definition = self.definition;
        let said = &definition.cpu;
        let mut cpu = New::named("cpu");
        match said.model.as_ref().map(|set| &set.value) {
            Some(CpuModel::Host) => cpu = cpu.with("mode", "host-passthrough").with("check", "none"),
            Some(CpuModel::Maximum) => cpu = cpu.with("mode", "maximum").with("check", "none"),
            Some(CpuModel::HostModel) => cpu = cpu.with("mode", "host-model"),
            Some(CpuModel::Named(name)) => {
                cpu = cpu.with("mode", "custom").with("match", "exact").with("check", "none");
                cpu = cpu.holding(New::named("model").with("fallback", "forbid").saying(name));
            }
            None => {}
        }
        if let (Some(state), Some(CpuModel::Host | CpuModel::Maximum)) =
            (self.said("migratable"), said.model.as_ref().map(|set| &set.value))
        {
            cpu = cpu.with("migratable", state);
        }
        let vcpus = &definition.vcpus;
        let mut topology = New::named("topology");
        let levels = [
            ("sockets", &vcpus.sockets),
            ("dies", &vcpus.dies),
            ("clusters", &vcpus.clusters),
            ("cores", &vcpus.cores),
            ("threads", &vcpus.threads),
        ];
        if levels.iter().any(|(_, set)| set.is_some()) {
            for (name, number) in self.whole_topology() {
                let said = levels.iter().any(|(other, set)| *other == name && set.is_some());
                // libvirt requires these three, and the others if they are given.
                if said || ["sockets", "cores", "threads"].contains(&name) {
                    topology = topology.with(name, number.to_string());
                }
            }
            cpu = cpu.holding(topology);
        }
        self.cpu_properties(&mut cpu);
        for (name, set) in &said.features {
            if ELSEWHERE.contains(&name.as_str())
                || KVM.iter().any(|(other, _)| other == name)
                || PROPERTIES.contains(&name.as_str())
            {
                continue;
            }
            let off = set.value == FeatureState::Off;
            if name == "enforce" || name == "check" {
                self.loss(format!("-cpu {name}"), "libvirt compares CPUs itself: <cpu check='full'>.");
            } else if name.starts_with("kvm-") {
                let value = if off { "off" } else { "on" };
                self.added.extend(["-global".into(), format!("x86_64-cpu.{name}={value}")]);
            } else {
                let policy = if off { "disable" } else { "require" };
                cpu = cpu
                    .holding(New::named("feature").with("policy", policy).with("name", libvirt_name(name)));
            }
        }
        let empty = cpu.attributes.is_empty() && cpu.children.is_empty();
        (!empty).then_some(cpu)
    }

    /// All levels, so that their product is the number of vCPUs: missing levels as QEMU sets them
    /// (`machine_parse_smp_config` in `hw/core/machine-smp.c`), cores before sockets.
    fn whole_topology(&self) -> [(&'static str, u32); 5] {
        let vcpus = &self.definition.vcpus;
        let said = |set: &Option<crate::Set<u32>>| set.as_ref().map(|set| set.value.max(1));
        let (dies, clusters) = (said(&vcpus.dies).unwrap_or(1), said(&vcpus.clusters).unwrap_or(1));
        let most = self.definition.most_vcpus();
        let rest = |others: [u32; 2]| {
            let product = others.into_iter().chain([dies, clusters]).fold(1, u32::saturating_mul);
            (most / product).max(1)
        };
        let (sockets, cores, threads) = match (said(&vcpus.sockets), said(&vcpus.cores), said(&vcpus.threads))
        {
            (Some(sockets), Some(cores), threads) => {
                (sockets, cores, threads.unwrap_or_else(|| rest([sockets, cores])))
            }
            (None, Some(cores), threads) => {
                (rest([cores, threads.unwrap_or(1)]), cores, threads.unwrap_or(1))
            }
            (sockets, None, threads) => {
                let (sockets, threads) = (sockets.unwrap_or(1), threads.unwrap_or(1));
                (sockets, rest([sockets, threads]), threads)
            }
        };
        [("sockets", sockets), ("dies", dies), ("clusters", clusters), ("cores", cores), ("threads", threads)]
    }

    fn cpu_properties(&mut self, cpu: &mut New) {
        match (self.said("host-cache-info"), self.said("l3-cache")) {
            (Some("on"), _) => cpu.children.push(New::named("cache").with("mode", "passthrough")),
            (_, Some("on")) => {
                cpu.children.push(New::named("cache").with("level", "3").with("mode", "emulate"))
            }
            (_, Some("off")) => cpu.children.push(New::named("cache").with("mode", "disable")),
            _ => {}
        }
        let mut address = New::named("maxphysaddr");
        if self.said("host-phys-bits") == Some("on") {
            address = address.with("mode", "passthrough");
        }
        for set in &self.definition.cpu.properties {
            let (name, value) = &set.value;
            match name.as_str() {
                "host-phys-bits-limit" => address = address.with("limit", value),
                "phys-bits" => address = address.with("mode", "emulate").with("bits", value),
                "hv-spinlocks" | "hv-vendor-id" | "tsc-frequency" => {}
                _ => self.added.extend(["-global".into(), format!("x86_64-cpu.{name}={value}")]),
            }
        }
        if !address.attributes.is_empty() {
            cpu.children.push(address);
        }
    }

    pub(super) fn clock(&mut self) -> New {
        let definition = self.definition;
        let rtc = self.take("rtc");
        let base = rtc.and_then(|rtc| rtc.get("base")).unwrap_or("utc");
        let offset =
            if base == "localtime" || self.take("localtime").is_some() { "localtime" } else { "utc" };
        if !["utc", "localtime"].contains(&base) {
            self.loss(
                format!("-rtc base={base}"),
                "libvirt takes seconds from now: <clock offset='variable' adjustment=>.",
            );
        }
        if let Some(clock) = rtc.and_then(|rtc| rtc.get("clock")).filter(|clock| *clock != "host") {
            self.loss(
                format!("-rtc clock={clock}"),
                "libvirt knows <timer name='rtc' track='guest'>, which is clock=vm.",
            );
        }
        let mut clock = New::named("clock").with("offset", offset);
        if let Some(CatchUp) = definition.timers.rtc.as_ref().map(|set| set.value) {
            clock = clock.holding(New::named("timer").with("name", "rtc").with("tickpolicy", "catchup"));
        }
        for option in self.all("global") {
            let said = option.said.as_str();
            if said.starts_with("kvm-pit.lost_tick_policy=") || said.contains("driver=kvm-pit,") {
                option.used.set(true);
            }
        }
        let policy = definition.timers.pit.as_ref().and_then(|set| match set.value {
            TickPolicy::Delay => Some("delay"),
            TickPolicy::Discard => Some("discard"),
            _ => None,
        });
        let pit = definition.machine.pit.as_ref().map(|set| set.value);
        if policy.is_some() || pit == Some(false) {
            let mut timer = New::named("timer").with("name", "pit");
            if let Some(policy) = policy {
                timer = timer.with("tickpolicy", policy);
            }
            if pit == Some(false) {
                timer = timer.with("present", "no");
            }
            clock = clock.holding(timer);
        }
        let timers = [
            ("hpet", definition.timers.hpet.as_ref()),
            ("kvmclock", definition.timers.kvm_clock.as_ref()),
            ("hypervclock", definition.timers.hyperv_clock.as_ref()),
        ];
        for (name, set) in timers {
            if let Some(set) = set {
                let present = if set.value { "yes" } else { "no" };
                clock = clock.holding(New::named("timer").with("name", name).with("present", present));
            }
        }
        let frequency = definition.cpu.properties.iter().rev().find(|set| set.value.0 == "tsc-frequency");
        if let Some(set) = frequency {
            clock = clock.holding(New::named("timer").with("name", "tsc").with("frequency", &set.value.1));
        }
        clock
    }
}

use TickPolicy::CatchUp;

/// Switches of `-cpu` other than features.
const PROPERTIES: [&str; 3] = ["host-cache-info", "l3-cache", "host-phys-bits"];

/// The number of a guest's attempts at a spinlock before it notifies the host; libvirt writes it in decimal
/// digits.
fn retries(said: Option<&str>) -> u64 {
    let said = said.unwrap_or("4095");
    let number = match said.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => said.parse(),
    };
    number.unwrap_or(4095)
}
