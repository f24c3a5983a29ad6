//! `<cpu>` and `<hyperv>`.

use super::reading::Reading;
use crate::xml::Node;
use crate::{CpuModel, FeatureState, Set};

const POLICIES: [(&str, FeatureState); 5] = [
    ("force", FeatureState::On),
    ("require", FeatureState::On),
    ("optional", FeatureState::Optional),
    ("disable", FeatureState::Off),
    ("forbid", FeatureState::Off),
];

/// QEMU's name of a feature or an enlightenment; libvirt writes some with underscores.
pub(super) fn qemu_name(name: &str) -> String {
    if name == "pclmuldq" { "pclmulqdq".to_owned() } else { name.replace('_', "-") }
}

/// libvirt's name of a feature, some of which have underscores (`cpu_map/x86_features.xml`).
pub(crate) fn libvirt_name(name: &str) -> String {
    const UNDERSCORES: [&str; 10] = [
        "cmp-legacy",
        "ds-cpl",
        "fxsr-opt",
        "lahf-lm",
        "mbm-local",
        "mbm-total",
        "nodeid-msr",
        "perfctr-core",
        "perfctr-nb",
        "tsc-adjust",
    ];
    match name {
        "pclmulqdq" => "pclmuldq".to_owned(),
        _ if UNDERSCORES.contains(&name) => name.replace('-', "_"),
        _ => name.to_owned(),
    }
}

impl<'t> Reading<'t> {
    pub(super) fn processor(&mut self) {
        let Some(cpu) = self.domain.child("cpu") else { return };
        self.model(cpu);
        for feature in cpu.all("feature") {
            let Some(name) = feature.get("name") else { continue };
            let state = match feature.attribute("policy") {
                None => FeatureState::On,
                Some(policy) => match self.one_of(&policy, &POLICIES) {
                    Some(state) => state.value,
                    None => continue,
                },
            };
            self.definition.cpu.features.insert(qemu_name(name), Set::new(state, feature.place()));
        }
        if cpu.child("topology").is_some() {
            self.definition.vcpus.sockets = self.number(cpu, "topology@sockets");
            self.definition.vcpus.dies = self.number(cpu, "topology@dies");
            self.definition.vcpus.clusters = self.number(cpu, "topology@clusters");
            self.definition.vcpus.cores = self.number(cpu, "topology@cores");
            self.definition.vcpus.threads = self.number(cpu, "topology@threads");
        }
        self.processor_properties(cpu);
    }

    fn model(&mut self, cpu: Node<'t>) {
        let named = cpu.value("model").filter(|model| !model.text.is_empty());
        let mode = cpu.attribute("mode");
        self.definition.cpu.model = match (mode.as_ref().map(|mode| mode.text), named) {
            (Some("host-passthrough"), _) => mode.map(|mode| mode.set(CpuModel::Host)),
            (Some("maximum"), _) => mode.map(|mode| mode.set(CpuModel::Maximum)),
            (Some("host-model"), _) => mode.map(|mode| mode.set(CpuModel::HostModel)),
            (_, Some(named)) => Some(named.set(CpuModel::Named(named.text.to_owned()))),
            (Some("custom") | None, None) => None,
            (Some(_), None) => {
                if let Some(mode) = &mode {
                    self.doubt(mode, "host-passthrough, host-model, maximum or custom");
                }
                None
            }
        };
    }

    fn processor_properties(&mut self, cpu: Node<'t>) {
        let mut add = |path: &str, name: &str, value: &str| {
            if let Some(said) = cpu.value(path) {
                let property = (name.to_owned(), if value.is_empty() { said.text } else { value }.to_owned());
                self.definition.cpu.properties.push(said.set(property));
            }
        };
        add("@migratable", "migratable", "");
        match cpu.find("cache@mode") {
            Some("passthrough") => add("cache@mode", "host-cache-info", "on"),
            Some("emulate") => add("cache@mode", "l3-cache", "on"),
            _ => {}
        }
        match cpu.find("maxphysaddr@mode") {
            Some("passthrough") => {
                add("maxphysaddr@mode", "host-phys-bits", "on");
                add("maxphysaddr@limit", "host-phys-bits-limit", "");
            }
            Some("emulate") => add("maxphysaddr@bits", "phys-bits", ""),
            _ => {}
        }
    }

    pub(super) fn hyperv(&mut self) {
        let Some(hyperv) = self.domain.child("features/hyperv") else { return };
        if let Some(mode) = hyperv.attribute("mode") {
            // For host-model libvirt determines the host's enlightenments at the start of the domain: in effect the
            // same as passthrough.
            let modes = [("custom", false), ("passthrough", true), ("host-model", true)];
            if let Some(passthrough) = self.one_of(&mode, &modes) {
                self.definition.cpu.hyperv.passthrough = passthrough.value.then_some(passthrough);
            }
        }
        for child in hyperv.children() {
            let Some(state) = self.state(child) else { continue };
            let name = qemu_name(child.name());
            for below in child.children() {
                // `<stimer><direct/>`, `<tlbflush><extended/>`: QEMU has a property for each.
                if let Some(state) = self.state(below) {
                    let below = if below.name() == "extended" { "ext" } else { below.name() };
                    self.definition.cpu.hyperv.features.insert(format!("{name}-{below}"), state);
                }
            }
            for (attribute, property) in [("retries", "hv-spinlocks"), ("value", "hv-vendor-id")] {
                if let Some(value) = child.attribute(attribute) {
                    let property = value.set((property.to_owned(), value.text.to_owned()));
                    self.definition.cpu.properties.push(property);
                }
            }
            self.definition.cpu.hyperv.features.insert(name, state);
        }
    }
}
