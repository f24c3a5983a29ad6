//! The machine, memory, vCPUs, clock and I/O threads.

use super::{Properties, Writing, escaped};
use crate::convert::seen::Part;

impl<'t> Writing<'t, '_> {
    pub(super) fn platform(&mut self) {
        let domain = self.domain;
        if let Some(name) = domain.get("name") {
            self.option("-name", format!("guest={},debug-threads=on", escaped(name)));
        }
        let kind = domain.get("os/type@machine").unwrap_or("q35");
        domain.get("os/type");
        domain.get("os/type@arch");
        let mut machine = Properties::of(kind).with("usb", "off");
        match domain.get("features/ioapic@driver") {
            Some("qemu") => machine = machine.with("kernel-irqchip", "split"),
            Some(_) => machine = machine.with("kernel-irqchip", "on"),
            None => {}
        }
        machine = machine.maybe("vmport", self.state("features/vmport"));
        machine = machine.maybe("smm", self.state("features/smm"));
        if let Some(hpet) = self.timer("hpet").and_then(|timer| timer.get("@present")) {
            machine = machine.with("hpet", if hpet == "no" { "off" } else { "on" });
        }
        if !domain.has("features/acpi") {
            machine = machine.with("acpi", "off");
        }
        domain.has("features/apic");
        domain.has("features/pae");
        machine = machine.maybe("dump-guest-core", domain.get("memory@dumpCore"));
        if domain.has("memoryBacking/nosharepages") {
            machine = machine.with("mem-merge", "off");
        }
        if self.memory_backend() {
            machine = machine.with("memory-backend", "pc.ram");
        }
        let pflash = self.pflash();
        for (number, _) in pflash.iter().enumerate() {
            machine = machine.with(&format!("pflash{number}"), format!("pflash{number}"));
        }
        self.option("-machine", machine.0);
        let accelerator = match domain.get("@type") {
            Some("kvm") => "kvm",
            Some("xen") => "xen",
            _ => "tcg",
        };
        self.option("-accel", accelerator);
        for node in pflash {
            self.option("-blockdev", node);
        }
    }

    /// `<x/>` and `<x state='on'/>` are equal.
    pub(super) fn state(&self, path: &str) -> Option<&'static str> {
        let element = self.domain.child(path)?;
        Some(if element.get("@state") == Some("off") { "off" } else { "on" })
    }

    pub(super) fn timer(&self, name: &str) -> Option<Part<'t, '_>> {
        let timers = self.domain.child("clock")?.all("timer");
        timers.into_iter().filter(|timer| timer.get("@name") == Some(name)).last()
    }

    /// Tests whether the memory needs its own object.
    fn memory_backend(&self) -> bool {
        let backing = self.domain.node.child("memoryBacking");
        backing.is_some_and(|backing| {
            ["hugepages", "source", "access", "allocation"].iter().any(|name| backing.child(name).is_some())
        })
    }

    /// The memory in bytes.
    fn memory(&self) -> u64 {
        let unit = self.domain.get("memory@unit").unwrap_or("KiB");
        let scale: u64 = match unit {
            "b" | "bytes" => 1,
            "KB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            "T" | "TiB" => 1 << 40,
            _ => 1 << 10,
        };
        let number = self.domain.get("memory").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        number.saturating_mul(scale)
    }

    pub(super) fn resources(&mut self) {
        let domain = self.domain;
        let bytes = self.memory();
        if domain.get("currentMemory") == domain.get("memory") {
            domain.ignore("currentMemory");
        }
        if bytes > 0 {
            // QEMU rounds up to whole pages itself.
            let size = if bytes.is_multiple_of(1 << 20) {
                format!("{}M", bytes >> 20)
            } else {
                format!("{}k", bytes.div_ceil(1 << 10))
            };
            self.option("-m", Properties::of(&format!("size={size}")).0);
            if self.memory_backend() {
                self.memory_object(bytes);
            }
        }
        if domain.has("memoryBacking/locked") {
            self.option("-overcommit", "mem-lock=on");
        }
        let maximum = domain.get("vcpu").unwrap_or("1");
        domain.get("vcpu@placement");
        let current = domain.get("vcpu@current").unwrap_or(maximum);
        let mut smp = Properties::of(current);
        if current != maximum {
            smp = smp.with("maxcpus", maximum);
        }
        for level in ["sockets", "dies", "clusters", "cores", "threads"] {
            let value = domain.get(&format!("cpu/topology@{level}"));
            // QEMU before 7.1 has no clusters on x86; one is the default.
            if !(level == "clusters" && value == Some("1")) {
                smp = smp.maybe(level, value);
            }
        }
        self.option("-smp", smp.0);
        if let Some(uuid) = domain.get("uuid") {
            self.option("-uuid", uuid);
        }
        for name in ["-nodefaults", "-no-user-config"] {
            self.flag(name);
        }
    }

    fn memory_object(&mut self, bytes: u64) {
        let backing = self.domain.child("memoryBacking");
        let Some(backing) = backing else { return };
        let huge = backing.child("hugepages");
        let memfd = huge.is_some() || backing.get("source@type") == Some("memfd");
        let kind = match backing.get("source@type") {
            Some("file") => "memory-backend-file",
            _ if memfd => "memory-backend-memfd",
            _ => "memory-backend-ram",
        };
        let mut object = Properties::of(kind).with("id", "pc.ram").with("size", bytes);
        if kind == "memory-backend-file" {
            object = object.with("mem-path", "/var/lib/libvirt/qemu/ram");
            self.note("libvirt chooses the folder of memory that is kept in a file; /var/lib/libvirt/qemu/ram stands for it.");
        }
        if let Some(huge) = huge {
            object = object.with("hugetlb", "on");
            if let Some(size) = huge.get("page@size") {
                let unit = match huge.get("page@unit").unwrap_or("KiB") {
                    "M" | "MiB" => "M",
                    "G" | "GiB" => "G",
                    _ => "k",
                };
                object = object.with("hugetlbsize", format!("{size}{unit}"));
            }
        }
        if backing.get("access@mode") == Some("shared") {
            object = object.with("share", "on");
        }
        if backing.get("allocation@mode") == Some("immediate") || huge.is_some() {
            object = object.with("prealloc", "on");
        }
        self.option("-object", object.0);
    }

    pub(super) fn clock(&mut self) {
        let domain = self.domain;
        let base = match domain.get("clock@offset") {
            None => return,
            Some("localtime") => "localtime",
            _ => "utc",
        };
        let mut rtc = Properties::of(&format!("base={base}"));
        let lost = self.timer("rtc").and_then(|timer| timer.get("@tickpolicy"));
        if lost == Some("catchup") {
            rtc = rtc.with("driftfix", "slew");
        }
        self.option("-rtc", rtc.0);
        let policy = self.timer("pit").and_then(|timer| timer.get("@tickpolicy"));
        if let Some(policy @ ("delay" | "discard")) = policy {
            self.option("-global", format!("kvm-pit.lost_tick_policy={policy}"));
        }
        if domain.get("on_reboot") == Some("destroy") {
            self.flag("-no-reboot");
        }
        // QEMU's defaults.
        for (name, usual) in [("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")] {
            if domain.node.find(name) == Some(usual) {
                domain.ignore(name);
            }
        }
        let bridge = if self.q35 { "ICH9-LPC" } else { "PIIX4_PM" };
        for (path, property) in [("pm/suspend-to-mem", "disable_s3"), ("pm/suspend-to-disk", "disable_s4")] {
            if let Some(enabled) = domain.get(&format!("{path}@enabled")) {
                let value = if enabled == "no" { 1 } else { 0 };
                self.option("-global", format!("{bridge}.{property}={value}"));
            }
        }
    }

    pub(super) fn iothreads(&mut self) {
        let definition = crate::libvirt::iothreads_of(self.domain.node);
        self.domain.get("iothreads");
        for id in definition {
            let number = id.trim_start_matches("iothread");
            let ids = self.domain.child("iothreadids").map(|ids| ids.all("iothread")).unwrap_or_default();
            let said = ids.into_iter().find(|one| one.get("@id") == Some(number));
            let mut object = Properties::of("iothread").with("id", &id);
            for (attribute, property) in
                [("max", "poll-max-ns"), ("grow", "poll-grow"), ("shrink", "poll-shrink")]
            {
                let value = said.and_then(|said| said.get(&format!("poll@{attribute}")));
                object = object.maybe(property, value);
            }
            self.option("-object", object.0);
        }
    }
}
