//! Memory, vCPUs, I/O threads, and their affinities.

use super::reading::{MOST_THREADS, Reading};
use crate::xml::{Node, Value};
use crate::{IoThread, Set};
use std::collections::BTreeSet;

/// The limit of a CPU list, in bytes: a list of 4096 CPUs with gaps between them is shorter.
const LONGEST_LIST: usize = 20_000;

impl<'t> Reading<'t> {
    pub(super) fn resources(&mut self) {
        let domain = self.domain;
        self.definition.name = domain.value("name").map(|name| name.string());
        if let Some(memory) = domain.value("memory") {
            self.definition.memory_mib = self.mebibytes(&memory, domain.find("memory@unit"));
        }
        self.definition.shared_memory = self.shared_memory();
        self.memory_backing();
        self.vcpus();
        self.iothreads();
        self.pins();
    }

    /// Tests whether other processes can map the memory (libvirt `qemuBuildMemoryBackendProps`), all of it: each NUMA cell
    /// without an access mode has that of the domain, and `memfd` without one is shared. That is not enough for libvirt if
    /// it checks the access for a device (`qemuValidateDomainDefVhostUserRequireSharedMemory`): it refuses the domain.
    fn shared_memory(&self) -> Option<Set<bool>> {
        let is_shared = |access: Value<'_>| access.set(access.text == "shared");
        let access = self.domain.value("memoryBacking/access@mode").map(is_shared);
        let source = self.domain.value("memoryBacking/source@type").filter(|source| source.text == "memfd");
        let checks = |device: Node<'_>| match device.name() {
            "disk" => matches!(device.get("type"), Some("vhostuser" | "vhostvdpa")),
            "filesystem" => device.find("driver@type") == Some("virtiofs"),
            _ => false,
        };
        let source = source.filter(|_| {
            let devices = self.domain.child("devices");
            !devices.is_some_and(|devices| devices.children().any(checks))
        });
        let of_domain = access.or_else(|| source.map(|source| source.set(true)));
        let cells = self.domain.child("cpu/numa").into_iter().flat_map(|numa| numa.all("cell"));
        let cells = cells.map(|cell| cell.value("@memAccess").map(is_shared).or_else(|| of_domain.clone()));
        let cells: Vec<Option<Set<bool>>> = cells.collect();
        let private = cells.iter().find(|cell| cell.as_ref().is_none_or(|shared| !shared.value));
        private.or(cells.first()).unwrap_or(&of_domain).clone()
    }

    /// Huge pages, and the settings that QEMU has as `-machine mem-merge=off` and `-overcommit mem-lock=on`.
    fn memory_backing(&mut self) {
        let Some(backing) = self.domain.child("memoryBacking") else { return };
        self.definition.huge_pages = backing.child("hugepages").map(|node| Set::new(true, node.place()));
        if let Some(node) = backing.child("nosharepages") {
            let property = ("mem-merge".to_owned(), "off".to_owned());
            self.definition.machine.properties.push(Set::new(property, node.place()));
        }
        if let Some(node) = backing.child("locked") {
            let setting = ("memoryBacking/locked".to_owned(), String::new());
            self.definition.other.push(Set::new(setting, node.place()));
        }
    }

    /// Memory in libvirt's units (`virScaleInteger`): KiB by default.
    fn mebibytes(&mut self, value: &Value<'_>, unit: Option<&str>) -> Option<Set<u64>> {
        let unit = unit.unwrap_or("KiB");
        let decimal = unit.len() == 2 && unit.ends_with(['B', 'b']);
        let base: u128 = if decimal { 1000 } else { 1024 };
        let power = match unit.to_ascii_lowercase().chars().next() {
            Some('b') => 0,
            Some('k') => 1,
            Some('m') => 2,
            Some('g') => 3,
            Some('t') => 4,
            Some('p') => 5,
            Some('e') => 6,
            _ => {
                self.doubt(value, "a size in b, KiB, MiB, GiB or TiB");
                return None;
            }
        };
        let mebibytes =
            value.text.parse::<u64>().ok().and_then(|number| {
                u64::try_from(u128::from(number).checked_mul(base.pow(power))? >> 20).ok()
            });
        if mebibytes.is_none() {
            self.doubt(value, "a size");
        }
        mebibytes.map(|mebibytes| value.set(mebibytes))
    }

    fn vcpus(&mut self) {
        let maximum = self.number::<u32>(self.domain, "vcpu");
        let current = self.number::<u32>(self.domain, "vcpu@current");
        self.definition.vcpus.count = current.or_else(|| maximum.clone());
        self.definition.vcpus.maximum = maximum;
    }

    fn iothreads(&mut self) {
        let mut numbers: Vec<u32> = Vec::new();
        if let Some(ids) = self.domain.child("iothreadids") {
            for thread in ids.all("iothread") {
                let number = self.number::<u32>(thread, "@id").map(|id| id.value);
                if let Some(number) =
                    number.filter(|number| *number <= MOST_THREADS && !numbers.contains(number))
                {
                    numbers.push(number);
                }
            }
        }
        if let Some(count) = self.number::<u32>(self.domain, "iothreads") {
            if count.value > MOST_THREADS {
                let place = count.place;
                let doubt = format!("Line {}: {} asks for more threads than can be.", place.line, place.text);
                self.definition.doubts.push(doubt);
            } else {
                // libvirt numbers threads without an <iothread> from 1, skipping the numbers of the others.
                let wanted = count.value as usize;
                for number in 1..=MOST_THREADS {
                    if numbers.len() >= wanted {
                        break;
                    }
                    if !numbers.contains(&number) {
                        numbers.push(number);
                    }
                }
            }
        }
        let threads = numbers.iter().map(|number| IoThread {
            id: format!("iothread{number}"),
            cpus: None,
            unknown_to_libvirt: false,
        });
        self.definition.iothreads = threads.collect();
    }

    /// A list of CPUs. It is copied for every vCPU, so lists that are longer than any host needs are
    /// rejected.
    fn cpus(&mut self, node: Node<'t>, path: &str) -> Option<Set<String>> {
        let value = node.value(path)?;
        if value.text.len() > LONGEST_LIST {
            self.doubt(&value, "a list of CPUs");
            return None;
        }
        Some(value.string())
    }

    fn pins(&mut self) {
        let domain = self.domain;
        let everywhere = self.cpus(domain, "vcpu@cpuset");
        self.definition.emulator_cpus =
            self.cpus(domain, "cputune/emulatorpin@cpuset").or_else(|| everywhere.clone());
        let mut pinned = Vec::new();
        let mut alone = BTreeSet::new();
        for pin in domain.child("cputune").into_iter().flat_map(|tune| tune.children()) {
            let Some(cpus) = self.cpus(pin, "@cpuset") else { continue };
            match pin.name() {
                "vcpupin" => {
                    if let Some(vcpu) = self.number::<u32>(pin, "@vcpu") {
                        alone.insert(vcpu.value);
                        pinned.push(Set::new((vcpu.value, cpus.value), pin.place()));
                    }
                }
                "iothreadpin" => {
                    let name = format!("iothread{}", pin.get("iothread").unwrap_or_default());
                    let thread = self.definition.iothreads.iter_mut().find(|thread| thread.id == name);
                    if let Some(thread) = thread {
                        thread.cpus = Some(cpus);
                    }
                }
                _ => {}
            }
        }
        // `<vcpu cpuset=>` applies to all vCPUs without their own pin, and to I/O threads.
        if let Some(everywhere) = everywhere {
            let count = self.definition.vcpus.maximum.as_ref().map_or(0, |count| count.value);
            for vcpu in 0..count.min(MOST_THREADS) {
                if !alone.contains(&vcpu) {
                    let place = everywhere.place.clone();
                    pinned.push(Set::new((vcpu, everywhere.value.clone()), place));
                }
            }
            for thread in &mut self.definition.iothreads {
                thread.cpus.get_or_insert_with(|| everywhere.clone());
            }
        }
        self.definition.vcpu_pins = pinned;
    }
}
