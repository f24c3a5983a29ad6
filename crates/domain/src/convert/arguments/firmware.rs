//! Firmware, boot devices, and SMBIOS.

use super::{Properties, Writing, escaped};

impl Writing<'_, '_> {
    /// The block nodes of UEFI and its variables.
    pub(super) fn pflash(&mut self) -> Vec<String> {
        let domain = self.domain;
        let Some(loader) = domain.get("os/loader").filter(|path| !path.is_empty()) else {
            if domain.get("os@firmware") == Some("efi") {
                self.note(
                    "libvirt chooses the UEFI firmware by itself; add it: -drive \
                     if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE.fd and its variables behind it.",
                );
                domain.ignore("os/firmware");
            }
            return Vec::new();
        };
        for path in ["os/loader@secure", "os@firmware", "os/nvram@template", "os/nvram@templateFormat"] {
            domain.get(path);
        }
        if domain.get("os/loader@type") != Some("pflash") {
            self.option("-bios", loader);
            return Vec::new();
        }
        let node = |number: usize, path: &str, format: Option<&str>, read_only: bool| {
            let node = Properties::of(&format!("driver={}", format.unwrap_or("raw")));
            let node = node.with("node-name", format!("pflash{number}"));
            let node = node.with("read-only", if read_only { "on" } else { "off" });
            node.with("file.driver", "file").with("file.filename", path).0
        };
        let read_only = domain.get("os/loader@readonly") != Some("no");
        let mut nodes = vec![node(0, loader, domain.get("os/loader@format"), read_only)];
        let nvram = domain
            .get("os/nvram")
            .filter(|path| !path.is_empty())
            .or_else(|| domain.get("os/nvram/source@file"));
        domain.get("os/nvram@type");
        match nvram {
            Some(path) => nodes.push(node(1, path, domain.get("os/nvram@format"), false)),
            None => self.note(
                "libvirt makes the file of the UEFI variables from a template; without one they are lost at power-off.",
            ),
        }
        nodes
    }

    pub(super) fn firmware(&mut self) {
        let domain = self.domain;
        for (path, option) in [
            ("os/kernel", "-kernel"),
            ("os/initrd", "-initrd"),
            ("os/cmdline", "-append"),
            ("os/dtb", "-dtb"),
        ] {
            if let Some(value) = domain.get(path).filter(|value| !value.is_empty()) {
                self.option(option, value);
            }
        }
        let mut boot = Properties::of("strict=on");
        if let Some(enable) = domain.get("os/bootmenu@enable") {
            boot = boot.with("menu", if enable == "yes" { "on" } else { "off" });
            boot = boot.maybe("splash-time", domain.get("os/bootmenu@timeout"));
        }
        boot = boot.maybe("reboot-timeout", domain.get("os/bios@rebootTimeout"));
        self.option("-boot", boot.0);
        self.smbios();
    }

    /// The position of a kind of device in the boot order (`<os><boot dev=>`).
    pub(super) fn boot_order(&self, kind: &str) -> Option<usize> {
        let boots = self.domain.child("os")?.all("boot");
        boots.iter().position(|boot| boot.get("@dev") == Some(kind)).map(|position| position + 1)
    }

    fn smbios(&mut self) {
        let domain = self.domain;
        if domain.get("os/smbios@mode") != Some("sysinfo") {
            return;
        }
        domain.get("sysinfo@type");
        let Some(sysinfo) = domain.child("sysinfo") else { return };
        for (name, kind) in [("bios", 0), ("system", 1), ("baseBoard", 2), ("chassis", 3)] {
            for block in sysinfo.all(name) {
                let mut said = format!("type={kind}");
                for entry in block.all("entry") {
                    if let (Some(key), Some(value)) = (entry.get("@name"), entry.get("")) {
                        said += &format!(",{key}={}", escaped(value));
                    }
                }
                self.option("-smbios", said);
            }
        }
    }
}
