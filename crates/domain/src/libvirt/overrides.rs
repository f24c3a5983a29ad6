//! The effect of QEMU's own arguments in libvirt's XML: they come after libvirt's and override them.

use super::reading::Reading;
use crate::xml::{Node, Value};
use crate::{Definition, Files, IoThread, Place, Set, Text, qemu};
use std::collections::HashMap;

/// The namespace of `<qemu:commandline>`; a document may give it any prefix.
const NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// An element of QEMU's namespace below the domain.
pub(crate) fn element<'t>(domain: Node<'t>, name: &str) -> Option<Node<'t>> {
    domain.children().find(|child| {
        child.full_name().contains(':') && child.name() == name && child.namespace() == Some(NAMESPACE)
    })
}

/// The arguments as the text of a process (each ends with a NUL), and the start of each.
struct Arguments<'t> {
    bytes: Vec<u8>,
    starts: Vec<usize>,
    values: Vec<Value<'t>>,
}

impl Arguments<'_> {
    /// The place in the XML that corresponds to a part of the arguments.
    fn place(&self, part: &Place) -> Place {
        let value = |byte: usize| {
            let number = self.starts.partition_point(|start| *start <= byte);
            number.checked_sub(1).and_then(|number| self.values.get(number)).map(|value| &value.place)
        };
        match (value(part.start), value(part.end.saturating_sub(1).max(part.start))) {
            (Some(first), Some(last)) => {
                Place { start: first.start, end: last.end, line: first.line, text: part.text.clone() }
            }
            _ => part.clone(),
        }
    }

    fn map<T: Clone>(&self, set: &Set<T>) -> Set<T> {
        Set::new(set.value.clone(), self.place(&set.place))
    }

    /// Overrides the XML's value with that of the arguments.
    fn over<T: Clone>(&self, ours: &mut Option<Set<T>>, theirs: Option<&Set<T>>) {
        if let Some(theirs) = theirs.filter(|set| set.place.end > set.place.start) {
            *ours = Some(self.map(theirs));
        }
    }
}

impl<'t> Reading<'t> {
    pub(super) fn overrides(&mut self, files: &dyn Files) {
        if let Some(commandline) = element(self.domain, "commandline") {
            self.commandline(commandline, files);
        }
        if let Some(overrides) = element(self.domain, "override") {
            let aliases: HashMap<String, usize> = self
                .definition
                .devices
                .iter()
                .enumerate()
                .filter_map(|(position, device)| Some((device.id.clone()?, position)))
                .collect();
            for device in overrides.children().filter(|child| child.name() == "device") {
                self.override_device(device, &aliases);
            }
        }
    }

    fn commandline(&mut self, commandline: Node<'t>, files: &dyn Files) {
        let mut arguments = Arguments { bytes: Vec::new(), starts: Vec::new(), values: Vec::new() };
        arguments.bytes.extend(b"qemu-system-x86_64\0");
        for argument in commandline.children().filter(|child| child.name() == "arg") {
            let Some(value) = argument.attribute("value") else { continue };
            arguments.starts.push(arguments.bytes.len());
            arguments.bytes.extend(value.text.bytes().filter(|byte| *byte != 0));
            arguments.bytes.push(0);
            arguments.values.push(value);
        }
        if arguments.values.is_empty() {
            return;
        }
        let text = Text::new("<qemu:commandline>", arguments.bytes.clone());
        match qemu::read(&text, files) {
            Ok(theirs) => merge(&mut self.definition, &theirs, &arguments),
            Err(error) => self.definition.doubts.push(format!("{error}.")),
        }
    }

    /// `<qemu:device alias=><qemu:frontend><qemu:property name= value=>`.
    fn override_device(&mut self, element: Node<'t>, aliases: &HashMap<String, usize>) {
        let Some(alias) = element.get("alias") else { return };
        let Some(&found) = aliases.get(alias) else {
            let place = element.place();
            let doubt = format!("Line {}: {} names no device with this alias.", place.line, place.text);
            self.definition.doubts.push(doubt);
            return;
        };
        let frontends = element.children().filter(|child| child.name() == "frontend");
        let properties = frontends.flat_map(|frontend| frontend.children());
        for property in properties.filter(|child| child.name() == "property") {
            let Some(name) = property.get("name") else { continue };
            let value = property.get("value").unwrap_or_default();
            let queues = match name {
                "num-queues" | "num_queues" => self.number::<u32>(property, "@value"),
                _ => None,
            };
            let device = &mut self.definition.devices[found];
            device.properties.push((format!("override@{name}"), value.to_owned()));
            if queues.is_some() {
                device.queues = queues;
            }
            if name == "iothread" {
                device.iothreads =
                    property.attribute("value").map(|value| value.string()).into_iter().collect();
            }
        }
    }
}

fn merge(ours: &mut Definition, theirs: &Definition, arguments: &Arguments<'_>) {
    arguments.over(&mut ours.machine.kind, theirs.machine.kind.as_ref());
    arguments.over(&mut ours.machine.accelerator, theirs.machine.accelerator.as_ref());
    arguments.over(&mut ours.machine.encryption, theirs.machine.encryption.as_ref());
    arguments.over(&mut ours.machine.irqchip, theirs.machine.irqchip.as_ref());
    arguments.over(&mut ours.machine.pit, theirs.machine.pit.as_ref());
    arguments.over(&mut ours.machine.pic, theirs.machine.pic.as_ref());
    arguments.over(&mut ours.machine.vmport, theirs.machine.vmport.as_ref());
    arguments.over(&mut ours.timers.pit, theirs.timers.pit.as_ref());
    arguments.over(&mut ours.timers.rtc, theirs.timers.rtc.as_ref());
    arguments.over(&mut ours.timers.hpet, theirs.timers.hpet.as_ref());
    arguments.over(&mut ours.timers.kvm_clock, theirs.timers.kvm_clock.as_ref());
    arguments.over(&mut ours.timers.hyperv_clock, theirs.timers.hyperv_clock.as_ref());
    arguments.over(&mut ours.memory_mib, theirs.memory_mib.as_ref());
    arguments.over(&mut ours.shared_memory, theirs.shared_memory.as_ref());
    arguments.over(&mut ours.huge_pages, theirs.huge_pages.as_ref());
    arguments.over(&mut ours.vcpus.count, theirs.vcpus.count.as_ref());
    arguments.over(&mut ours.vcpus.maximum, theirs.vcpus.maximum.as_ref());
    arguments.over(&mut ours.vcpus.sockets, theirs.vcpus.sockets.as_ref());
    arguments.over(&mut ours.vcpus.dies, theirs.vcpus.dies.as_ref());
    arguments.over(&mut ours.vcpus.clusters, theirs.vcpus.clusters.as_ref());
    arguments.over(&mut ours.vcpus.cores, theirs.vcpus.cores.as_ref());
    arguments.over(&mut ours.vcpus.threads, theirs.vcpus.threads.as_ref());
    ours.machine.properties.extend(theirs.machine.properties.iter().map(|set| arguments.map(set)));
    processor(ours, theirs, arguments);
    for iommu in &theirs.iommus {
        let mut iommu = iommu.clone();
        iommu.place = arguments.place(&iommu.place);
        ours.iommus.push(iommu);
    }
    let threads = theirs.iothreads.iter().cloned();
    ours.iothreads.extend(threads.map(|thread| IoThread { unknown_to_libvirt: true, ..thread }));
    for device in theirs.devices.iter().filter(|device| device.place.end > device.place.start) {
        let mut device = device.clone();
        device.place = arguments.place(&device.place);
        for place in [&mut device.source, &mut device.aio, &mut device.cache].into_iter().flatten() {
            place.place = arguments.place(&place.place);
        }
        device.queues = device.queues.as_ref().map(|set| arguments.map(set));
        device.backend = device.backend.as_ref().map(|set| arguments.map(set));
        device.iothreads = device.iothreads.iter().map(|set| arguments.map(set)).collect();
        ours.devices.push(device);
    }
    ours.globals.extend(theirs.globals.iter().map(|set| arguments.map(set)));
    ours.other.extend(theirs.other.iter().map(|set| arguments.map(set)));
    ours.doubts.extend(theirs.doubts.iter().map(|doubt| format!("In <qemu:commandline>: {doubt}")));
}

/// A second `-cpu` replaces the first one.
fn processor(ours: &mut Definition, theirs: &Definition, arguments: &Arguments<'_>) {
    let cpu = &theirs.cpu;
    if let Some(model) = &cpu.model {
        ours.cpu = crate::GuestCpu { model: Some(arguments.map(model)), ..crate::GuestCpu::default() };
    }
    ours.cpu.features.extend(cpu.features.iter().map(|(name, set)| (name.clone(), arguments.map(set))));
    arguments.over(&mut ours.cpu.hyperv.passthrough, cpu.hyperv.passthrough.as_ref());
    let enlightenments = cpu.hyperv.features.iter().map(|(name, set)| (name.clone(), arguments.map(set)));
    ours.cpu.hyperv.features.extend(enlightenments);
    ours.cpu.properties.extend(cpu.properties.iter().map(|set| arguments.map(set)));
}
