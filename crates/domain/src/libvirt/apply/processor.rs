//! The CPU's model and features, and the enlightenments.

use super::order::{DOMAIN, before};
use super::{Made, Step};
use crate::change::INVTSC_NOTE;
use crate::xml::{New, Replacement};
use crate::{CpuModel, FeatureState};

/// Enlightenments with an element in libvirt (formatdomain, "Hypervisor features").
const ENLIGHTENMENTS: [&str; 15] = [
    "relaxed",
    "vapic",
    "spinlocks",
    "vpindex",
    "runtime",
    "synic",
    "stimer",
    "reset",
    "vendor-id",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
    "evmcs",
    "avic",
];

/// Properties of QEMU's CPU that are switched like features, but are none of CPUID (`x86_cpu_properties` and
/// `max_x86_cpu_initfn` in QEMU's `target/i386/cpu.c`). libvirt starts no domain with a feature that is not in its CPU map
/// (`virCPUx86ValidateFeatures`).
const NO_FEATURES: [&str; 15] = [
    "check",
    "cpuid-0xb",
    "enforce",
    "fill-mtrr-mask",
    "full-cpuid-auto-level",
    "host-cache-info",
    "host-phys-bits",
    "l3-cache",
    "legacy-cache",
    "legacy-multi-node",
    "lmce",
    "migratable",
    "tcg-cpuid",
    "vmware-cpuid-freq",
    "xen-vapic",
];

/// Enlightenments that libvirt supports only since the given version. Before, it refuses the definition.
const LATER: [(&str, &str); 3] = [("avic", "8.10"), ("emsr-bitmap", "10.7"), ("xmm-input", "10.7")];

impl Step<'_> {
    pub(super) fn cpu_model(&self, model: &CpuModel) -> Result<Made, String> {
        let mode = match model {
            CpuModel::Host => "host-passthrough",
            CpuModel::Maximum => "maximum",
            CpuModel::HostModel => "host-model",
            CpuModel::Named(_) => "custom",
        };
        let named = match model {
            CpuModel::Named(name) => Some(New::named("model").with("fallback", "forbid").saying(name)),
            _ => None,
        };
        let note =
            "The guest sees another CPU from its next cold start on; migration needs hosts that have it too.";
        let Some(cpu) = self.domain.child("cpu") else {
            let mut cpu = New::named("cpu").with("mode", mode);
            cpu = match (model, named) {
                (CpuModel::Named(_), Some(named)) => cpu.with("match", "exact").holding(named),
                _ => cpu.with("check", "none"),
            };
            return Ok(Made::of(self.style.insert(self.domain, before(DOMAIN, "cpu"), &cpu)).noting(note));
        };
        let mut edits = self.style.set_attribute(cpu, "mode", mode);
        if *model != CpuModel::Host {
            edits.extend(self.style.remove_attribute(cpu, "migratable"));
        }
        match (named, cpu.child("model"), model) {
            (Some(_), Some(old), CpuModel::Named(name)) => edits.extend(self.style.set_text(old, name)),
            (Some(named), _, _) => edits.extend(self.style.insert(cpu, &[], &named)),
            (None, old, _) => {
                // The vendor of a named model does not apply to the host's.
                for gone in old.into_iter().chain(cpu.child("vendor")) {
                    edits.extend(self.style.remove(gone));
                }
            }
        }
        Ok(Made::of(edits).noting(note))
    }

    pub(super) fn cpu_feature(&self, name: &str, state: FeatureState) -> Result<Made, String> {
        let on = state != FeatureState::Off;
        let switch = if on { "on" } else { "off" };
        match name {
            "kvm" => {
                // `<hidden state='on'/>` hides KVM.
                let hidden = if on { "off" } else { "on" };
                return Ok(self.kvm("hidden", hidden));
            }
            "kvm-hint-dedicated" if on && !self.has_model(&CpuModel::Host) => {
                return Err("libvirt offers kvm-hint-dedicated only with the host's CPU. Choose \
                            <cpu mode='host-passthrough'/> first."
                    .into());
            }
            "kvm-poll-control" if !on && self.definition.passes_host_cpu() => {
                return Ok(self.past_libvirt(name, switch));
            }
            "kvm-pv-ipi" if on && !self.definition.passes_host_cpu() => {
                return Ok(self.past_libvirt(name, switch));
            }
            "kvm-hint-dedicated" | "kvm-poll-control" | "kvm-pv-ipi" => {
                return Ok(self.kvm(name.trim_start_matches("kvm-"), switch));
            }
            "kvm-pv-unhalt" => return Ok(Made::of(self.switch("pvspinlock", "state", switch))),
            "kvm-pv-eoi" => return Ok(Made::of(self.switch("apic", "eoi", switch))),
            "pmu" => return Ok(Made::of(self.switch("pmu", "state", switch))),
            "kvmclock" => return Ok(self.timer("kvmclock", "present", if on { "yes" } else { "no" })),
            "kvmclock-stable-bit" => return Ok(self.property(name, switch)),
            _ if name.starts_with("kvm-") => return Ok(self.property(name, switch)),
            _ if name.starts_with("hv-") => {
                return Err(format!("{name} is an enlightenment, and libvirt has it in <hyperv>."));
            }
            _ if NO_FEATURES.contains(&name) || name.starts_with("x-") => {
                return Err(format!(
                    "libvirt has no CPU feature {name}, which is a property of QEMU's CPU. Set it by hand, if libvirt \
                     has an element for it, such as <cache> or <maxphysaddr> in <cpu>."
                ));
            }
            _ => {}
        }
        if self.definition.cpu.model.is_none() {
            return Err(
                "The domain names no CPU model, and libvirt takes features only beside one. Choose a model \
                        first, such as <cpu mode='host-passthrough'/>."
                    .into(),
            );
        }
        let cpu = self.domain.child("cpu").ok_or("The domain has no <cpu>.")?;
        let policy = match state {
            FeatureState::On => "require",
            FeatureState::Optional => "optional",
            FeatureState::Off => "disable",
        };
        let said = cpu.all("feature").rfind(|feature| {
            feature.get("name").is_some_and(|said| super::super::processor::qemu_name(said) == name)
        });
        let made = Made::of(match said {
            Some(feature) => self.style.set_attribute(feature, "policy", policy),
            None => {
                let name = super::super::processor::libvirt_name(name);
                let feature = New::named("feature").with("policy", policy).with("name", name);
                let before = ["model", "vendor", "topology", "cache", "maxphysaddr", "feature"];
                self.style.insert(cpu, &before, &feature)
            }
        });
        if name == "invtsc" && on {
            return Ok(made.noting(INVTSC_NOTE));
        }
        Ok(made)
    }

    /// Sets a child of `<features><kvm>`.
    fn kvm(&self, name: &str, state: &str) -> Made {
        let child = New::named(name).with("state", state);
        Made::of(match self.domain.child("features/kvm") {
            None => self.feature(New::named("kvm").holding(child)),
            Some(kvm) => match kvm.child(name) {
                Some(child) => self.style.set_attribute(child, "state", state),
                None => self.style.insert(kvm, &["hidden", "hint-dedicated", "poll-control"], &child),
            },
        })
    }

    /// Sets a feature of KVM to the state that its element has without effect.
    fn past_libvirt(&self, name: &str, state: &str) -> Made {
        let kvm = self.domain.child("features/kvm");
        let said = kvm.and_then(|kvm| kvm.child(name.trim_start_matches("kvm-")));
        // The other state would be an argument of -cpu, which wins over -global.
        let edits = said.map_or_else(Vec::new, |said| self.style.set_attribute(said, "state", state));
        self.property(name, state).and(edits)
    }

    fn has_model(&self, model: &CpuModel) -> bool {
        self.definition.cpu.model.as_ref().is_some_and(|set| set.value == *model)
    }

    /// Sets a child of `<features>` with one attribute.
    fn switch(&self, name: &str, attribute: &str, value: &str) -> Vec<Replacement> {
        match self.domain.child(&format!("features/{name}")) {
            Some(child) => self.style.set_attribute(child, attribute, value),
            None => self.feature(New::named(name).with(attribute, value)),
        }
    }

    /// Sets a CPU property that libvirt cannot set, by QEMU's `-global` for the parent type of all x86 CPUs.
    fn property(&self, name: &str, value: &str) -> Made {
        const NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
        let property = format!("x86_64-cpu.{name}={value}");
        let argument = |prefix: &str, value: &str| New::named(format!("{prefix}arg")).with("value", value);
        let note = format!(
            "libvirt cannot set {name}={value}, so it is given as QEMU's own argument; libvirt marks the domain as \
             tainted by that. It still asks for an IOMMU with eim where there are more than 255 vCPUs."
        );
        if let Some(commandline) = super::super::overrides::element(self.domain, "commandline") {
            let prefix = commandline.full_name().trim_end_matches("commandline");
            let last = format!("{prefix}arg");
            let earlier = commandline.children().rfind(|child| child.full_name() == last);
            let both = [argument(prefix, "-global"), argument(prefix, &property)];
            let edits = both.iter().flat_map(|new| match earlier {
                Some(earlier) => self.style.insert_after(earlier, new),
                None => self.style.insert(commandline, &[], new),
            });
            return Made::of(edits.collect()).noting(note);
        }
        let commandline = New::named("qemu:commandline")
            .holding(argument("qemu:", "-global"))
            .holding(argument("qemu:", &property));
        let mut edits = Vec::new();
        if self.domain.get("xmlns:qemu").is_none() {
            edits.extend(self.style.set_attribute(self.domain, "xmlns:qemu", NAMESPACE));
        }
        edits.extend(self.style.insert(self.domain, DOMAIN, &commandline));
        Made::of(edits).noting(note)
    }

    pub(super) fn hyperv(&self, name: &str, on: bool) -> Result<Made, String> {
        if name == "time" {
            return Ok(self.timer("hypervclock", "present", if on { "yes" } else { "no" }));
        }
        if self.definition.cpu.hyperv.passthrough.is_some() {
            let mode = self.domain.child("features/hyperv").and_then(|hyperv| hyperv.get("mode"));
            return Err(format!(
                "<hyperv mode='{}'> gives the guest all that the host has. Use mode='custom' to choose.",
                mode.unwrap_or("passthrough")
            ));
        }
        let (parent, child) = match name.split_once('-') {
            Some(("stimer", "direct")) => ("stimer", Some("direct")),
            Some(("tlbflush", "direct")) => ("tlbflush", Some("direct")),
            Some(("tlbflush", "ext")) => ("tlbflush", Some("extended")),
            _ => (name, None),
        };
        let later = LATER.iter().find(|(later, _)| *later == parent);
        if !ENLIGHTENMENTS.contains(&parent) && later.is_none() {
            return Err(format!("libvirt has no element for the enlightenment {name}."));
        }
        let state = if on { "on" } else { "off" };
        let parent = parent.replace('-', "_");
        let hyperv = self.domain.child("features/hyperv");
        let said = hyperv.and_then(|hyperv| hyperv.child(&parent));
        if name == "vendor-id" && on && said.and_then(|said| said.get("value")).is_none() {
            return Err("The enlightenment vendor-id needs a vendor, which only you know: \
                        <vendor_id state='on' value='...'/>."
                .into());
        }
        let mut edits = Vec::new();
        match (said, child) {
            (Some(said), None) => {
                edits.extend(self.style.set_attribute(said, "state", state));
                if name == "spinlocks" && on && said.get("retries").is_none() {
                    edits.extend(self.style.set_attribute(said, "retries", "8191"));
                }
            }
            (Some(said), Some(child)) => match said.child(child) {
                Some(child) => edits.extend(self.style.set_attribute(child, "state", state)),
                None => {
                    edits.extend(self.style.insert(
                        said,
                        &["direct"],
                        &New::named(child).with("state", state),
                    ));
                }
            },
            (None, _) => {
                let mut new = New::named(&*parent).with("state", state);
                if name == "spinlocks" {
                    // The recommendation of libvirt's documentation for all Windows guests.
                    new = new.with("retries", "8191");
                }
                if let Some(child) = child {
                    new.children.push(New::named(child).with("state", state));
                }
                edits.extend(match hyperv {
                    Some(hyperv) => {
                        let written: Vec<String> =
                            ENLIGHTENMENTS.iter().map(|other| other.replace('-', "_")).collect();
                        let position = written.iter().position(|other| *other == parent);
                        let before: Vec<&str> =
                            written[..position.unwrap_or(written.len())].iter().map(String::as_str).collect();
                        self.style.insert(hyperv, &before, &new)
                    }
                    None => self.feature(New::named("hyperv").with("mode", "custom").holding(new)),
                });
            }
        }
        let mut made = Made::of(edits);
        if let Some((_, version)) = later.filter(|_| on) {
            made = made.noting(format!(
                "libvirt knows the enlightenment {name} from version {version} on; an older one refuses the whole \
                 definition."
            ));
        }
        Ok(made)
    }
}
