//! Guests that represent a VM, as far as a plan can express its properties, so that the VM itself is not changed.

use domain::{Accelerator, Backend, Definition, Device, DeviceKind, FeatureState, Irqchip, TickPolicy};
use toml::{Table, Value};

use guests::QemuPlan;

/// The properties of a definition that a plan's guests can have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Likeness {
    /// The table `guests` that sets them.
    pub(super) over: Table,
    /// The properties that the guests lack, as sentences.
    pub(super) notes: Vec<String>,
}

/// The disk of a definition that the plan's disk represents: the first that is neither a CD nor a floppy.
pub(super) fn disk(definition: &Definition) -> Option<&Device> {
    let is = |device: &&Device| device.kind == DeviceKind::Disk && bus(&device.model).is_some();
    definition.devices.iter().find(is)
}

/// The network interface of a definition that the plan's interface represents: the first.
pub(super) fn interface(definition: &Definition) -> Option<&Device> {
    definition.devices.iter().find(|device| device.kind == DeviceKind::Network)
}

/// The plan's name of a disk's bus.
fn bus(model: &str) -> Option<&'static str> {
    match model {
        "ide-hd" | "ide-drive" => Some("ide"),
        "scsi-hd" | "scsi-block" | "scsi-disk" => Some("virtio-scsi"),
        "nvme" | "nvme-ns" => Some("nvme"),
        _ if model.starts_with("virtio-blk") => Some("virtio-blk"),
        _ => None,
    }
}

/// Merges the definition's machine, timers, CPU features, disk and interface over those of the plan. The guests' size
/// and workloads remain those of the plan.
pub(super) fn likeness(plan: &QemuPlan, definition: &Definition) -> Likeness {
    let mut like = Likeness { over: Table::new(), notes: Vec::new() };
    like.machine(definition);
    like.cpu(plan, definition);
    like.disk(plan, definition);
    like.net(plan, definition);
    like
}

impl Likeness {
    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.over.insert(key.to_owned(), value.into());
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    fn machine(&mut self, definition: &Definition) {
        let kind = match () {
            () if definition.is_microvm() => "microvm",
            () if definition.is_q35() => "q35",
            () => "pc",
        };
        let has_choice = kind != "microvm" && !definition.has_hpet();
        self.put("machine", if has_choice { format!("{kind},hpet=off") } else { kind.to_owned() });
        if definition.accelerator_in_force() != Accelerator::Kvm {
            self.note("The definition's VM is not run by KVM; the guests are.");
            return;
        }
        match definition.irqchip_in_force() {
            // QEMU's default for these machine types.
            Irqchip::Kernel if kind != "microvm" => {}
            Irqchip::Kernel => self.put("irqchip", "on"),
            Irqchip::Split => self.put("irqchip", "split"),
            Irqchip::UserSpace => self.put("irqchip", "off"),
        }
        if definition.kernel_pit_in_force() == Some(TickPolicy::Discard) && kind != "microvm" {
            self.put("pit", "discard");
        }
    }

    fn cpu(&mut self, plan: &QemuPlan, definition: &Definition) {
        let mut cpu = plan.cpu.clone().unwrap_or_else(|| "host".to_owned());
        for (name, set) in &definition.cpu.features {
            let state = if set.value == FeatureState::Off { "off" } else { "on" };
            cpu += &format!(",{name}={state}");
        }
        // The values of these two are a number and a text. They change no exit of the guests, which are Linux.
        let is_switch = |name: &str| !matches!(name, "spinlocks" | "vendor-id");
        for (name, set) in definition.cpu.hyperv.features.iter().filter(|(name, _)| is_switch(name)) {
            cpu += &format!(",hv-{name}={}", if set.value { "on" } else { "off" });
        }
        if definition.timers.kvm_clock.as_ref().is_some_and(|set| !set.value)
            && !definition.cpu.features.contains_key("kvmclock")
        {
            cpu += ",kvmclock=off";
        }
        if plan.cpu.as_deref() != Some(&cpu) && cpu != "host" {
            self.put("cpu", cpu);
        }
        if !definition.passes_host_cpu() {
            self.note("The guests' CPU model is the plan's; features that the definition names are its own.");
        }
    }

    fn disk(&mut self, plan: &QemuPlan, definition: &Definition) {
        if plan.disk().is_none() {
            self.note("The plan measures no disk: the definition's are left alone.");
            return;
        }
        let Some(disk) = disk(definition) else {
            self.note("The definition has no disk that a plan can stand for: the plan's is used.");
            return;
        };
        let bus = bus(&disk.model).unwrap_or("virtio-blk");
        let mut table = Table::from_iter([("bus".to_owned(), Value::from(bus))]);
        let cache = disk.cache.as_ref().map(|set| set.value.as_str());
        let known = ["none", "writeback", "writethrough", "directsync", "unsafe"];
        if let Some(cache) = cache.filter(|cache| known.contains(cache)) {
            table.insert("cache".to_owned(), cache.into());
        }
        if let Some(aio) = disk.aio.as_ref().map(|set| set.value.as_str())
            && (aio != "native" || matches!(cache, Some("none" | "directsync")))
        {
            table.insert("aio".to_owned(), aio.into());
        }
        if matches!(bus, "virtio-blk" | "virtio-scsi") {
            table.insert("iothread".to_owned(), (!disk.iothreads.is_empty()).into());
        }
        self.put("disk", table);
    }

    fn net(&mut self, plan: &QemuPlan, definition: &Definition) {
        if plan.net().is_none() {
            self.note("The plan measures no network: the definition's interfaces are left alone.");
            return;
        }
        let Some(interface) = interface(definition) else {
            self.note("The definition has no network interface: the plan's is used.");
            return;
        };
        let backend = match definition.network_backend(interface) {
            Backend::Vhost => "vhost",
            _ => "tap",
        };
        let model = match () {
            () if interface.model.starts_with("virtio-net") => "virtio-net",
            () if interface.model == "vmxnet3" => "vmxnet3",
            () if plan.kernel.is_some() && interface.model.starts_with("e1000") => "e1000",
            () if plan.kernel.is_some() && interface.model.starts_with("rtl8139") => "rtl8139",
            () => {
                // A replacement of the same kind: QEMU emulates its registers in user space too.
                self.note(format!(
                    "The guest image's kernel has no driver for {}; vmxnet3 replaces it.",
                    interface.model
                ));
                "vmxnet3"
            }
        };
        let pairs = [("model", model), ("backend", if model == "virtio-net" { backend } else { "tap" })];
        let table = pairs.map(|(key, value)| (key.to_owned(), Value::from(value)));
        self.put("net", Table::from_iter(table));
    }
}
