//! Everything before `<devices>`.

use super::Writing;
use crate::Accelerator;
use crate::xml::New;

impl Writing<'_> {
    pub(super) fn head(&mut self) -> New {
        let definition = self.definition;
        let kind = match definition.accelerator_in_force() {
            Accelerator::Kvm => "kvm",
            Accelerator::Xen => "xen",
            _ => "qemu",
        };
        for name in
            ["machine", "accel", "enable-kvm", "no-kvm", "smp", "cpu", "name", "m", "no-hpet", "no-acpi"]
        {
            self.take(name);
        }
        for name in ["no-kvm-irqchip", "no-kvm-pit-reinjection"] {
            self.take(name);
        }
        let name = definition.name.as_ref().map_or("vm", |set| set.value.as_str());
        let mut domain = New::named("domain").with("type", kind);
        // libvirt stores a domain in a file with its name.
        domain = domain.holding(New::named("name").saying(name.replace('/', "-")));
        if let Some(uuid) = self.take("uuid") {
            domain = domain.holding(New::named("uuid").saying(&uuid.said));
        }
        domain.children.extend(self.memory());
        domain.children.extend(self.vcpus());
        let (sysinfo, smbios) = self.sysinfo();
        domain.children.extend(sysinfo);
        domain = domain.holding(self.system(smbios));
        domain = domain.holding(self.features());
        domain.children.extend(self.processor());
        domain = domain.holding(self.clock());
        if self.take("no-reboot").is_some() {
            domain = domain.holding(New::named("on_reboot").saying("destroy"));
        }
        domain.children.extend(self.sleep());
        domain
    }

    fn memory(&mut self) -> Vec<New> {
        let mut found = Vec::new();
        // QEMU's own default (`mc->default_ram_size`).
        let mebibytes = self.definition.memory_mib.as_ref().map_or(128, |set| set.value);
        found.push(New::named("memory").with("unit", "MiB").saying(mebibytes.to_string()));
        let mut backing = New::named("memoryBacking");
        let properties = &self.definition.machine.properties;
        let named = properties
            .iter()
            .rev()
            .find(|set| set.value.0 == "memory-backend")
            .map(|set| set.value.1.clone());
        let object = named.and_then(|id| self.named("object", "id", &id));
        if let Some(object) = object {
            let on = |key: &str| matches!(object.get(key), Some("on" | "true" | "yes"));
            if on("hugetlb") {
                let mut pages = New::named("hugepages");
                if let Some((size, unit)) = object.get("hugetlbsize").and_then(split_unit) {
                    pages = pages.holding(New::named("page").with("size", size).with("unit", unit));
                }
                backing = backing.holding(pages);
            } else if object.get("qom-type") == Some("memory-backend-memfd") {
                backing = backing.holding(New::named("source").with("type", "memfd"));
            } else if object.get("qom-type") == Some("memory-backend-file") {
                backing = backing.holding(New::named("source").with("type", "file"));
                let path = object.get("mem-path").unwrap_or_default().to_owned();
                self.loss(
                    format!("mem-path={path}"),
                    "libvirt chooses the folder: memory_backing_dir in qemu.conf.",
                );
            }
            if on("share") {
                backing = backing.holding(New::named("access").with("mode", "shared"));
            }
            if on("prealloc") && !on("hugetlb") {
                backing = backing.holding(New::named("allocation").with("mode", "immediate"));
            }
        }
        if self.option("overcommit").is_some_and(|option| option.get("mem-lock") == Some("on")) {
            backing = backing.holding(New::named("locked"));
        }
        // Unlocked memory is the default.
        self.take("overcommit");
        if properties.iter().any(|set| set.value.0 == "mem-merge" && set.value.1 == "off") {
            backing = backing.holding(New::named("nosharepages"));
        }
        if !backing.children.is_empty() {
            found.push(backing);
        }
        found
    }

    fn vcpus(&mut self) -> Vec<New> {
        let count = self.definition.vcpus_in_force();
        let most = self.definition.most_vcpus();
        let mut vcpu = New::named("vcpu");
        if most != count {
            vcpu = vcpu.with("current", count.to_string());
        }
        let mut found = vec![vcpu.saying(most.to_string())];
        let mut ids = New::named("iothreadids");
        let names: Vec<String> = self.definition.iothreads.iter().map(|thread| thread.id.clone()).collect();
        let own = |name: &str| name.strip_prefix("iothread").and_then(|number| number.parse::<u32>().ok());
        let mut taken: Vec<u32> = names.iter().filter_map(|name| own(name)).collect();
        for name in names {
            let number = own(&name).unwrap_or_else(|| {
                let free = (1..).find(|number| !taken.contains(number)).unwrap_or(1);
                taken.push(free);
                free
            });
            let object = self.named("object", "id", &name);
            let mut thread = New::named("iothread").with("id", number.to_string());
            let mut poll = New::named("poll");
            for (key, attribute) in [("poll-max-ns", "max"), ("poll-grow", "grow"), ("poll-shrink", "shrink")]
            {
                if let Some(value) = object.and_then(|object| object.get(key)) {
                    poll = poll.with(attribute, value);
                }
            }
            if !poll.attributes.is_empty() {
                thread = thread.holding(poll);
            }
            if own(&name).is_none() {
                self.note(format!(
                    "The I/O thread {name} is number {number} for libvirt, which has no names for them."
                ));
            }
            ids = ids.holding(thread);
            self.threads.push((name, number));
        }
        if !self.threads.is_empty() {
            found.push(New::named("iothreads").saying(self.threads.len().to_string()));
            found.push(ids);
        }
        found
    }

    fn sysinfo(&mut self) -> (Option<New>, bool) {
        const TYPES: [(&str, &str); 4] =
            [("0", "bios"), ("1", "system"), ("2", "baseBoard"), ("3", "chassis")];
        const ENTRIES: [&str; 11] = [
            "vendor",
            "version",
            "date",
            "release",
            "manufacturer",
            "product",
            "serial",
            "uuid",
            "sku",
            "family",
            "asset",
        ];
        let mut sysinfo = New::named("sysinfo").with("type", "smbios");
        for option in self.all("smbios") {
            let kind = option.get("type").and_then(|kind| TYPES.iter().find(|(number, _)| *number == kind));
            let known = |(name, _): &&(String, String)| name != "type";
            let simple = option.pairs.iter().filter(known).all(|(name, _)| ENTRIES.contains(&name.as_str()));
            let Some((_, element)) = kind.filter(|_| simple) else { continue };
            let mut block = New::named(*element);
            for (name, value) in option.pairs.iter().filter(known) {
                block = block.holding(New::named("entry").with("name", name).saying(value));
            }
            option.used.set(true);
            sysinfo = sysinfo.holding(block);
        }
        let any = !sysinfo.children.is_empty();
        (any.then_some(sysinfo), any)
    }

    fn system(&mut self, smbios: bool) -> New {
        let program = self.definition.program.as_ref().map_or("", |set| set.value.as_str());
        let architecture = if program.ends_with("i386") { "i686" } else { "x86_64" };
        let kind = self.definition.machine.kind.as_ref().map_or("pc", |set| set.value.as_str());
        let mut system = New::named("os");
        // Proxmox marks its machine types, which other QEMUs do not have.
        let kind = kind.split('+').next().unwrap_or(kind);
        system =
            system.holding(New::named("type").with("arch", architecture).with("machine", kind).saying("hvm"));
        system.children.extend(self.firmware());
        for (option, element) in
            [("kernel", "kernel"), ("initrd", "initrd"), ("append", "cmdline"), ("dtb", "dtb")]
        {
            if let Some(option) = self.take(option) {
                system = system.holding(New::named(element).saying(&option.said));
            }
        }
        if let Some(boot) = self.take("boot") {
            let numbered = self
                .definition
                .devices
                .iter()
                .any(|device| super::buses::property(device, "bootindex").is_some());
            for letter in boot.get("order").unwrap_or_default().chars().filter(|_| !numbered) {
                let device = match letter {
                    'a' => "fd",
                    'c' => "hd",
                    'd' => "cdrom",
                    'n' => "network",
                    _ => continue,
                };
                system = system.holding(New::named("boot").with("dev", device));
            }
            if let Some(menu) = boot.get("menu") {
                let menu = if menu == "on" { "yes" } else { "no" };
                let mut element = New::named("bootmenu").with("enable", menu);
                if let Some(time) = boot.get("splash-time") {
                    element = element.with("timeout", time);
                }
                system = system.holding(element);
            }
            if let Some(time) = boot.get("reboot-timeout") {
                system = system.holding(New::named("bios").with("rebootTimeout", time));
            }
            for key in ["splash", "once"] {
                if let Some(value) = boot.get(key) {
                    self.loss(format!("-boot {key}={value}"), "libvirt has no element for it.");
                }
            }
        }
        if smbios {
            system = system.holding(New::named("smbios").with("mode", "sysinfo"));
        }
        system
    }

    fn firmware(&mut self) -> Vec<New> {
        let mut found = Vec::new();
        if let Some(bios) = self.take("bios") {
            found.push(New::named("loader").with("type", "rom").saying(&bios.said));
        }
        let mut images = Vec::new();
        for option in self.all("drive").filter(|option| option.get("if") == Some("pflash")) {
            option.used.set(true);
            let file = option.get("file").unwrap_or_default().to_owned();
            images.push((file, option.get("readonly").is_some_and(|value| value == "on")));
        }
        let properties = &self.definition.machine.properties;
        let nodes: Vec<String> = properties
            .iter()
            .filter(|set| matches!(set.value.0.as_str(), "pflash0" | "pflash1"))
            .map(|set| set.value.1.clone())
            .collect();
        for node in nodes {
            let chain = self.chain(&node);
            let file = chain
                .iter()
                .find_map(|option| option.get("filename").or_else(|| option.get("file.filename")));
            let read_only = chain.iter().any(|option| matches!(option.get("read-only"), Some("on" | "true")));
            images.push((file.unwrap_or_default().to_owned(), read_only));
        }
        for (number, (file, read_only)) in images.into_iter().enumerate() {
            found.push(match number {
                0 => {
                    let loader = New::named("loader").with("readonly", if read_only { "yes" } else { "no" });
                    loader.with("type", "pflash").saying(file)
                }
                1 => New::named("nvram").saying(file),
                _ => continue,
            });
        }
        found
    }

    fn sleep(&mut self) -> Option<New> {
        let mut pm = New::named("pm");
        for (property, element) in [("disable_s3", "suspend-to-mem"), ("disable_s4", "suspend-to-disk")] {
            for option in self.all("global") {
                let Some((driver, rest)) = option.said.split_once('.') else { continue };
                let bridge = matches!(driver, "ICH9-LPC" | "PIIX4_PM");
                if let Some(value) = rest.strip_prefix(property).filter(|_| bridge) {
                    option.used.set(true);
                    let enabled = if matches!(value, "=1" | "=on") { "no" } else { "yes" };
                    pm = pm.holding(New::named(element).with("enabled", enabled));
                }
            }
        }
        (!pm.children.is_empty()).then_some(pm)
    }
}

/// A QEMU size with libvirt's unit: `2M` is 2048 KiB.
fn split_unit(size: &str) -> Option<(String, &'static str)> {
    let digits = size.trim_end_matches(|one: char| one.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    Some(match size[digits.len()..].to_ascii_lowercase().as_str() {
        "g" => (number.to_string(), "GiB"),
        "m" => ((number * 1024).to_string(), "KiB"),
        "k" => (number.to_string(), "KiB"),
        "" => ((number / 1024).to_string(), "KiB"),
        _ => return None,
    })
}
