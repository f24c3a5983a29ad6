//! `-cpu`.

use super::{Properties, Writing};

impl Writing<'_, '_> {
    pub(super) fn processor(&mut self) {
        let domain = self.domain;
        let cpu = domain.child("cpu");
        let named = cpu.and_then(|cpu| cpu.get("model")).filter(|name| !name.is_empty());
        let model = match cpu.and_then(|cpu| cpu.get("@mode")) {
            Some("host-passthrough") => "host",
            Some("maximum") => "max",
            Some("host-model") => {
                self.note(
                    "libvirt puts the CPU of mode='host-model' together from the host's capabilities; -cpu host \
                     stands for it, which migrates to equal hosts alone.",
                );
                "host"
            }
            // libvirt's default for a domain of KVM or TCG without a model.
            _ => named.unwrap_or("qemu64"),
        };
        let mut said = Properties::of(model);
        if let Some(cpu) = cpu {
            cpu.get("@match");
            if cpu.node.get("check") == Some("none") {
                cpu.get("@check");
            }
            cpu.get("model@fallback");
            cpu.ignore("vendor");
            said = said.maybe("migratable", cpu.get("@migratable"));
            match cpu.get("cache@mode") {
                Some("passthrough") => said = said.with("host-cache-info", "on").with("l3-cache", "off"),
                Some("disable") => said = said.with("l3-cache", "off"),
                _ => {}
            }
            match cpu.get("maxphysaddr@mode") {
                Some("passthrough") => {
                    said = said.with("host-phys-bits", "on");
                    said = said.maybe("host-phys-bits-limit", cpu.get("maxphysaddr@limit"));
                }
                Some("emulate") => said = said.maybe("phys-bits", cpu.get("maxphysaddr@bits")),
                _ => {}
            }
            for feature in cpu.all("feature") {
                let Some(name) = feature.get("@name") else { continue };
                let off = matches!(feature.get("@policy"), Some("disable" | "forbid"));
                said = said.with(&name.replace('_', "-"), if off { "off" } else { "on" });
            }
        }
        said = self.paravirtual(said);
        said = self.enlightenments(said);
        if let Some(frequency) = self.timer("tsc").and_then(|timer| timer.get("@frequency")) {
            said = said.with("tsc-frequency", frequency);
        }
        if cpu.is_some() || said.0 != model {
            self.option("-cpu", said.0);
        }
    }

    fn paravirtual(&mut self, mut said: Properties) -> Properties {
        let domain = self.domain;
        if let Some(hidden) = domain.get("features/kvm/hidden@state") {
            said = said.with("kvm", if hidden == "on" { "off" } else { "on" });
        }
        for (path, property) in [
            ("features/kvm/hint-dedicated@state", "kvm-hint-dedicated"),
            ("features/kvm/poll-control@state", "kvm-poll-control"),
            ("features/kvm/pv-ipi@state", "kvm-pv-ipi"),
            ("features/pvspinlock@state", "kvm-pv-unhalt"),
            ("features/apic@eoi", "kvm-pv-eoi"),
            ("features/pmu@state", "pmu"),
        ] {
            said = said.maybe(property, domain.get(path));
        }
        for (timer, property) in [("kvmclock", "kvmclock"), ("hypervclock", "hv-time")] {
            if let Some(present) = self.timer(timer).and_then(|timer| timer.get("@present")) {
                said = said.with(property, if present == "no" { "off" } else { "on" });
            }
        }
        said
    }

    fn enlightenments(&mut self, mut said: Properties) -> Properties {
        let Some(hyperv) = self.domain.child("features/hyperv") else { return said };
        if hyperv.get("@mode") == Some("passthrough") {
            said = said.with("hv-passthrough", "on");
        }
        for child in hyperv.children() {
            let name = child.node.name().replace('_', "-");
            let state = child.get("@state").unwrap_or("on");
            let value = match name.as_str() {
                "spinlocks" => child.get("@retries"),
                "vendor-id" => child.get("@value"),
                _ => None,
            };
            said = match value {
                Some(_) if state == "off" => said,
                // The number of retries in QEMU's form.
                Some(value) => said.with(&format!("hv-{name}"), value),
                None => said.with(&format!("hv-{name}"), state),
            };
            for below in child.children() {
                let state = below.get("@state").unwrap_or("on");
                let below = if below.node.name() == "extended" { "ext" } else { below.node.name() };
                said = said.with(&format!("hv-{name}-{below}"), state);
            }
        }
        said
    }
}
