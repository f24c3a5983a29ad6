//! `-machine`, `-accel`, `-smp`, `-m`, `-rtc` and similar options.

use super::command::cut;
use super::items::Item;
use super::properties::{same_name, switch};
use super::reading::Reading;
use crate::{Accelerator, GuestIommu, IoThread, Irqchip, Place, Set, TickPolicy};
use std::collections::HashMap;

/// Reads these options in order; later ones replace earlier ones.
pub(super) fn read(reading: &mut Reading<'_>) {
    let first_accelerator = reading.items.iter().position(|item| item.name == "accel");
    for number in 0..reading.items.len() {
        let item = reading.items[number].clone();
        let place = item.place.clone();
        match item.name.as_str() {
            "machine" => machine(reading, &item),
            "accel" => accelerator(reading, &item, first_accelerator == Some(number)),
            "enable-kvm" => reading.definition.machine.accelerator = Some(Set::new(Accelerator::Kvm, place)),
            "no-kvm" => reading.definition.machine.accelerator = Some(Set::new(Accelerator::Tcg, place)),
            "enable-hax" | "enable-hvf" => {
                reading.definition.machine.accelerator = Some(Set::new(Accelerator::Other, place));
            }
            "no-kvm-irqchip" => {
                reading.definition.machine.irqchip = Some(Set::new(Irqchip::UserSpace, place))
            }
            "no-kvm-pit-reinjection" => {
                reading.definition.timers.pit = Some(Set::new(TickPolicy::Discard, place))
            }
            "no-hpet" => reading.definition.timers.hpet = Some(Set::new(false, place)),
            "no-acpi" => {
                let pair = ("acpi".to_owned(), "off".to_owned());
                reading.definition.machine.properties.push(Set::new(pair, place));
            }
            "smp" => smp(reading, &item),
            "m" => memory(reading, &item),
            "rtc" => clock(reading, &item),
            "global" => global(reading, &item),
            "object" => object(reading, &item),
            "device" => iommu(reading, &item),
            _ => {}
        }
    }
    derived_vcpus(reading);
    irqchip_of_accelerator(reading);
    memory_of_backend(reading);
    shared_memory(reading);
    huge_pages(reading);
    encryption(reading);
    iommu_globals(reading);
}

fn machine(reading: &mut Reading<'_>, item: &Item) {
    for property in &item.properties.list {
        let (value, place) = (property.value.as_str(), reading.place(item, property));
        let key = property.key.replace('_', "-");
        let machine = &mut reading.definition.machine;
        match key.as_str() {
            "type" => machine.kind = Some(Set::new(value.to_owned(), place)),
            "accel" => machine.accelerator = Some(Set::new(first_accelerator(value), place)),
            "kernel-irqchip" => irqchip(reading, value, place),
            "pit" => machine.pit = switch(value).map(|on| Set::new(on, place)),
            "pic" => machine.pic = switch(value).map(|on| Set::new(on, place)),
            "vmport" => machine.vmport = switch(value).map(|on| Set::new(on, place)),
            "hpet" => reading.definition.timers.hpet = switch(value).map(|on| Set::new(on, place)),
            _ => match key.strip_prefix("smp.") {
                Some(level) => topology(reading, level, value, place),
                None => machine.properties.push(Set::new((key, value.to_owned()), place)),
            },
        }
    }
}

/// The first of `kvm:tcg`: QEMU uses the next only if it is not available.
fn first_accelerator(value: &str) -> Accelerator {
    match value.split(':').next().unwrap_or_default() {
        "kvm" => Accelerator::Kvm,
        "tcg" => Accelerator::Tcg,
        "xen" => Accelerator::Xen,
        _ => Accelerator::Other,
    }
}

fn irqchip(reading: &mut Reading<'_>, value: &str, place: Place) {
    let chip = match (value, switch(value)) {
        ("split", _) => Irqchip::Split,
        (_, Some(true)) => Irqchip::Kernel,
        (_, Some(false)) => Irqchip::UserSpace,
        _ => {
            let doubt = format!("Line {}: kernel-irqchip is {value}, not on, off or split.", place.line);
            reading.definition.doubts.push(doubt);
            return;
        }
    };
    reading.definition.machine.irqchip = Some(Set::new(chip, place));
}

fn accelerator(reading: &mut Reading<'_>, item: &Item, first: bool) {
    for property in &item.properties.list {
        let place = reading.place(item, property);
        if same_name(&property.key, "accel") {
            // Of several accelerators QEMU uses the first available one.
            if first {
                let accelerator = first_accelerator(&property.value);
                reading.definition.machine.accelerator = Some(Set::new(accelerator, place));
            }
        } else if !same_name(&property.key, "kernel-irqchip") {
            let pair = (property.key.replace('_', "-"), property.value.clone());
            reading.definition.machine.properties.push(Set::new(pair, place));
        }
    }
}

/// A `kernel-irqchip` of `-accel` replaces that of `-machine`, whatever their order: QEMU applies that of `-machine`
/// first, as a default of the accelerator (`do_configure_accelerator` in `system/vl.c`).
fn irqchip_of_accelerator(reading: &mut Reading<'_>) {
    for number in 0..reading.items.len() {
        let item = reading.items[number].clone();
        for property in item.properties.list.iter().filter(|_| item.name == "accel") {
            if same_name(&property.key, "kernel-irqchip") {
                irqchip(reading, &property.value, reading.place(&item, property));
            }
        }
    }
}

fn smp(reading: &mut Reading<'_>, item: &Item) {
    for property in &item.properties.list {
        let place = reading.place(item, property);
        topology(reading, &property.key, &property.value, place);
    }
}

/// Without a number of vCPUs, the maximum or else the topology determines it, after all `-smp` are merged
/// (`machine_parse_smp_config` in QEMU's `hw/core/machine-smp.c`; 6.2 and later).
fn derived_vcpus(reading: &mut Reading<'_>) {
    let vcpus = &reading.definition.vcpus;
    if vcpus.count.is_some() {
        return;
    }
    let product = reading.definition.vcpus_in_force();
    let smp = reading.items.iter().rfind(|item| item.name == "smp" && !item.properties.list.is_empty());
    let product = smp.map(|item| Set::new(product, item.place.clone()));
    reading.definition.vcpus.count = vcpus.maximum.clone().or(product);
}

fn topology(reading: &mut Reading<'_>, level: &str, value: &str, place: Place) {
    let Ok(number) = value.parse::<u32>() else {
        let doubt = format!("Line {}: -smp {level}={} {}.", place.line, cut(value), unread(value, "number"));
        reading.definition.doubts.push(doubt);
        return;
    };
    let vcpus = &mut reading.definition.vcpus;
    let field = match level {
        "cpus" => &mut vcpus.count,
        "maxcpus" => &mut vcpus.maximum,
        "sockets" => &mut vcpus.sockets,
        "dies" => &mut vcpus.dies,
        "clusters" => &mut vcpus.clusters,
        "cores" => &mut vcpus.cores,
        "threads" => &mut vcpus.threads,
        // The default is one.
        "modules" | "books" | "drawers" if number == 1 => return,
        _ => {
            let doubt = format!("Line {}: -smp {level}={value} is not part of the model.", place.line);
            reading.definition.doubts.push(doubt);
            return;
        }
    };
    *field = Some(Set::new(number, place));
}

/// The reason why a value was not read.
fn unread(value: &str, expected: &str) -> String {
    if value.contains('$') { "is known only to the shell".to_owned() } else { format!("is no {expected}") }
}

/// A size in bytes: a number, possibly with a fraction, and a unit; the default unit without one
/// (`parse_size_suffix` in QEMU).
pub(super) fn bytes(text: &str, default_unit: u64) -> Option<u64> {
    let digits = text.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(text.len());
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" => default_unit,
        "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        _ => return None,
    };
    let (whole, fraction) = text[..digits].split_once('.').unwrap_or((&text[..digits], ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<u128>().ok()?.checked_mul(u128::from(unit))? / scale;
    whole.checked_add(u64::try_from(part).ok()?)
}

fn memory(reading: &mut Reading<'_>, item: &Item) {
    let Some(property) = item.properties.get("size") else { return };
    let place = reading.place(item, property);
    match bytes(&property.value, 1 << 20) {
        Some(bytes) => reading.definition.memory_mib = Some(Set::new(bytes >> 20, place)),
        None => {
            let doubt =
                format!("Line {}: -m {} is not a size.", place.line, super::command::cut(&property.value));
            reading.definition.doubts.push(doubt);
        }
    }
}

/// Without `-m`, the memory has the size of the backend in `-machine memory-backend=`.
fn memory_of_backend(reading: &mut Reading<'_>) {
    if reading.definition.memory_mib.is_some() {
        return;
    }
    let properties = &reading.definition.machine.properties;
    let Some(id) = properties.iter().rev().find(|set| set.value.0 == "memory-backend") else { return };
    let size =
        reading.named("object", "id", &id.value.1).and_then(|item| reading.set(&reading.items[item], "size"));
    reading.definition.memory_mib =
        size.and_then(|set| Some(Set::new(bytes(&set.value, 1)? >> 20, set.place)));
}

/// The items of the objects that are the guest's memory, of NUMA nodes or of the machine.
pub(super) fn memory_backends(reading: &Reading<'_>) -> Vec<usize> {
    let nodes =
        reading.items.iter().filter(|item| item.name == "numa").filter_map(|item| item.value("memdev"));
    let properties = &reading.definition.machine.properties;
    let machine = properties.iter().rev().find(|set| set.value.0 == "memory-backend");
    let names = nodes.chain(machine.map(|set| set.value.1.as_str()));
    // QEMU does not allow more nodes.
    const MOST: usize = 128;
    names.take(MOST).filter_map(|id| reading.named("object", "id", id)).collect()
}

/// Reads whether the memory is shared, that is, whether all of its backends are shared files. memfd is shared
/// by default (QEMU `backends/hostmem-memfd.c`).
fn shared_memory(reading: &mut Reading<'_>) {
    let shared = |item: &Item| match (item.value("qom-type"), item.properties.switch("share")) {
        (Some("memory-backend-memfd"), share) => share != Some(false),
        (Some("memory-backend-file" | "memory-backend-shm" | "memory-backend-epc"), share) => {
            share == Some(true)
        }
        _ => false,
    };
    let backends = memory_backends(reading);
    let Some(&first) = backends.first() else { return };
    let all = backends.iter().all(|&number| shared(&reading.items[number]));
    let place = reading.items[first].place.clone();
    reading.definition.shared_memory = Some(Set::new(all, place));
}

/// Reads whether huge pages back the memory, that is, all of its backends, or else the file of `-mem-path`.
fn huge_pages(reading: &mut Reading<'_>) {
    // The file system is not in the text. It is mounted at such a directory by all distributions, and by libvirt.
    let named = |path: &str| path.contains("hugepages") || path.contains("hugetlbfs");
    let huge = |item: &Item| match item.value("qom-type") {
        Some("memory-backend-memfd") => item.properties.switch("hugetlb") == Some(true),
        Some("memory-backend-file") => item.value("mem-path").is_some_and(named),
        _ => false,
    };
    let backends = memory_backends(reading);
    let set = match backends.first() {
        Some(&first) => {
            let all = backends.iter().all(|&number| huge(&reading.items[number]));
            Some(Set::new(all, reading.items[first].place.clone()))
        }
        None => {
            let path = reading.items.iter().rev().find(|item| item.name == "mem-path");
            path.map(|item| Set::new(named(&item.said), item.place.clone()))
        }
    };
    reading.definition.huge_pages = set;
}

/// The type of the object that encrypts the guest's memory; its name if there is no such object.
fn encryption(reading: &mut Reading<'_>) {
    const NAMES: [&str; 2] = ["confidential-guest-support", "memory-encryption"];
    let properties = &reading.definition.machine.properties;
    let Some(set) = properties.iter().rev().find(|set| NAMES.contains(&set.value.0.as_str())) else { return };
    let object = reading.named("object", "id", &set.value.1);
    let kind = object.and_then(|number| reading.items[number].value("qom-type"));
    let kind = kind.map_or(set.value.1.as_str(), |kind| kind.strip_suffix("-guest").unwrap_or(kind));
    reading.definition.machine.encryption = Some(Set::new(kind.to_owned(), set.place.clone()));
}

/// A policy for lost ticks, by the names of QEMU's `LostTickPolicy`.
fn tick_policy(value: &str) -> Option<TickPolicy> {
    match value {
        "delay" => Some(TickPolicy::Delay),
        "discard" => Some(TickPolicy::Discard),
        "merge" => Some(TickPolicy::Merge),
        "slew" => Some(TickPolicy::CatchUp),
        _ => None,
    }
}

fn clock(reading: &mut Reading<'_>, item: &Item) {
    if let Some(set) = reading.set(item, "driftfix") {
        let policy = if set.value == "slew" { TickPolicy::CatchUp } else { TickPolicy::Discard };
        reading.definition.timers.rtc = Some(Set::new(policy, set.place));
    }
}

/// Driver, property and value of a `-global`.
pub(super) fn global_parts(item: &Item) -> Option<(String, String, String)> {
    if let (Some(driver), Some(property), Some(value)) =
        (item.text("driver"), item.text("property"), item.text("value"))
    {
        return Some((driver, property, value));
    }
    // An argument, in which the value may contain commas. In a file it is a group with a line for each part.
    let (path, value) = item.said.split_once('=')?;
    let (driver, property) = path.split_once('.')?;
    Some((driver.to_owned(), property.to_owned(), value.to_owned()))
}

fn global(reading: &mut Reading<'_>, item: &Item) {
    let Some((driver, property, value)) = global_parts(item) else {
        let said = cut(&item.said);
        let doubt =
            format!("Line {}: -global {said} is not of the form driver.property=value.", item.place.line);
        reading.definition.doubts.push(doubt);
        return;
    };
    let policy = || Some(Set::new(tick_policy(&value)?, item.place.clone()));
    match (driver.as_str(), property.replace('-', "_").as_str()) {
        ("kvm-pit", "lost_tick_policy") => reading.definition.timers.pit = policy(),
        ("mc146818rtc", "lost_tick_policy") => reading.definition.timers.rtc = policy(),
        _ => reading.definition.globals.push(Set::new((driver, property, value), item.place.clone())),
    }
}

fn object(reading: &mut Reading<'_>, item: &Item) {
    // Fixes name an I/O thread once for each disk, and a hostile command line could have a long name and many disks.
    const LONGEST_ID: usize = 256;
    if item.value("qom-type") == Some("iothread")
        && let Some(id) = item.text("id").filter(|id| id.len() <= LONGEST_ID)
    {
        reading.definition.iothreads.push(IoThread { id, cpus: None, unknown_to_libvirt: false });
    }
}

/// The model of an IOMMU driver.
pub(super) fn iommu_model(driver: &str) -> Option<&str> {
    match driver {
        "intel-iommu" | "amd-iommu" => Some(driver),
        "virtio-iommu" | "virtio-iommu-pci" | "virtio-iommu-device" => Some("virtio-iommu"),
        _ => None,
    }
}

fn iommu(reading: &mut Reading<'_>, item: &Item) {
    let Some(model) = item.value("driver").and_then(iommu_model) else { return };
    let iommu = GuestIommu {
        model: model.to_owned(),
        interrupt_remapping: reading.switch(item, "intremap"),
        extended_interrupt_mode: reading.switch(item, "eim"),
        caching_mode: reading.switch(item, "caching-mode"),
        dma_remapping: reading.switch(item, "dma-remap"),
        place: item.place.clone(),
    };
    reading.definition.iommus.push(iommu);
}

/// Applies `-global intel-iommu.eim=on` and similar, unless the device itself sets the property.
fn iommu_globals(reading: &mut Reading<'_>) {
    let definition = &mut reading.definition;
    let mut first: HashMap<(&str, String), Set<bool>> = HashMap::new();
    for global in definition.globals.iter().filter(|global| iommu_model(&global.value.0).is_some()) {
        let (driver, property, value) = &global.value;
        if let Some(on) = switch(value) {
            let named = (driver.as_str(), property.replace('_', "-"));
            first.entry(named).or_insert_with(|| Set::new(on, global.place.clone()));
        }
    }
    for iommu in &mut definition.iommus {
        for (property, field) in [
            ("intremap", &mut iommu.interrupt_remapping),
            ("eim", &mut iommu.extended_interrupt_mode),
            ("caching-mode", &mut iommu.caching_mode),
            ("dma-remap", &mut iommu.dma_remapping),
        ] {
            if field.is_none() {
                *field = first.get(&(iommu.model.as_str(), property.to_owned())).cloned();
            }
        }
    }
}
