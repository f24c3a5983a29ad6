//! Interrupt controllers, timers and the IOMMU.

use super::order::{DEVICES, DOMAIN, FEATURES, before};
use super::{Made, Step};
use crate::change::SPLIT_NOTE;
use crate::xml::{New, Replacement};
use crate::{Accelerator, Irqchip, TickPolicy};

impl Step<'_> {
    /// Inserts a child into an element of the domain, which is created if it does not exist.
    pub(super) fn below(&self, parent: &str, empty: New, order: &[&str], child: New) -> Vec<Replacement> {
        match self.domain.child(parent) {
            Some(parent) => self.style.insert(parent, order, &child),
            None => self.style.insert(self.domain, before(DOMAIN, parent), &empty.holding(child)),
        }
    }

    /// Inserts a child into `<features>`.
    pub(super) fn feature(&self, child: New) -> Vec<Replacement> {
        let order = before(FEATURES, &child.name);
        self.below("features", New::named("features"), order, child)
    }

    pub(super) fn irqchip(&self, irqchip: Irqchip) -> Result<Made, String> {
        let accelerator = self.definition.machine.accelerator.as_ref().map(|set| set.value);
        if accelerator != Some(Accelerator::Kvm) {
            return Err("Only a domain of type kvm has interrupt controllers in the kernel.".into());
        }
        let driver = if irqchip == Irqchip::Split { "qemu" } else { "kvm" };
        let made = Made::of(match self.domain.child("features/ioapic") {
            Some(ioapic) => self.style.set_attribute(ioapic, "driver", driver),
            None => self.feature(New::named("ioapic").with("driver", driver)),
        });
        let splits = irqchip == Irqchip::Split && self.definition.irqchip_in_force() == Irqchip::Kernel;
        Ok(if splits { made.noting(SPLIT_NOTE) } else { made })
    }

    pub(super) fn pit(&self, policy: TickPolicy) -> Result<Made, String> {
        let policy = match policy {
            TickPolicy::Delay => "delay",
            TickPolicy::Discard => "discard",
            TickPolicy::CatchUp | TickPolicy::Merge => {
                return Err("KVM's PIT can delay lost ticks or discard them, nothing else.".into());
            }
        };
        Ok(self.timer("pit", "tickpolicy", policy))
    }

    /// Sets an attribute of a timer of `<clock>`.
    pub(super) fn timer(&self, name: &str, attribute: &str, value: &str) -> Made {
        let timer = self.domain.child("clock").and_then(|clock| {
            // Of timers with the same name the last one is effective.
            clock.all("timer").rfind(|timer| timer.get("name") == Some(name))
        });
        Made::of(match timer {
            Some(timer) => self.style.set_attribute(timer, attribute, value),
            None => {
                let timer = New::named("timer").with("name", name).with(attribute, value);
                let clock = New::named("clock").with("offset", "utc");
                self.below("clock", clock, &["timer"], timer)
            }
        })
    }

    pub(super) fn interrupt_remapping(&self) -> Result<Made, String> {
        let machine = self.definition.machine.kind.as_ref().map_or("", |set| set.value.as_str());
        if !machine.contains("q35") {
            let reason = "An Intel IOMMU needs the machine q35";
            return Err(format!(
                "{reason}; this one is {machine:?}. Another machine is another guest: install it anew."
            ));
        }
        let devices = self.domain.child("devices").ok_or("The domain has no <devices>.")?;
        let made = match devices.children().find(|device| device.name() == "iommu") {
            None => {
                if let Some(iommu) = self.definition.iommus.first() {
                    return Err(format!(
                        "The domain has an IOMMU already, {} in <qemu:commandline> (line {}). Change it there.",
                        iommu.model, iommu.place.line
                    ));
                }
                let driver =
                    New::named("driver").with("intremap", "on").with("caching_mode", "on").with("eim", "on");
                let iommu = New::named("iommu").with("model", "intel").holding(driver);
                self.style.insert(devices, before(DEVICES, "iommu"), &iommu)
            }
            Some(iommu) if iommu.get("model") != Some("intel") => {
                let model = iommu.get("model").unwrap_or_default();
                return Err(format!("The domain has an IOMMU of model {model} already. Remove it first."));
            }
            Some(iommu) => match iommu.child("driver") {
                None => {
                    let driver = New::named("driver")
                        .with("intremap", "on")
                        .with("caching_mode", "on")
                        .with("eim", "on");
                    self.style.insert(iommu, &[], &driver)
                }
                Some(driver) => {
                    let mut edits = self.style.set_attribute(driver, "intremap", "on");
                    if self.definition.has_assigned_device() {
                        edits.extend(self.style.set_attribute(driver, "caching_mode", "on"));
                    }
                    edits.extend(self.style.set_attribute(driver, "eim", "on"));
                    edits
                }
            },
        };
        let made = Made::of(made).noting(
            "The guest sees an Intel IOMMU as a new device; its kernel remaps interrupts with it when it has \
             CONFIG_IRQ_REMAP.",
        );
        if self.definition.machine.irqchip.as_ref().map(|set| set.value) == Some(Irqchip::Split) {
            return Ok(made);
        }
        // Interrupt remapping needs QEMU's own I/O APIC.
        let split = self.irqchip(Irqchip::Split)?;
        Ok(made.and(split.replacements).noting(SPLIT_NOTE).noting(
            "Interrupt remapping needs the I/O APIC in QEMU, so <ioapic driver='qemu'/> was set as well.",
        ))
    }
}
