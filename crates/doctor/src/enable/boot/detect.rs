//! The boot loader of a host, by its programs and files.

use super::{Boot, entries};
use std::fs;
use std::path::Path;

const PROGRAMS: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
const COMMAND_LINE: &str = "/etc/kernel/cmdline";
const GRUB: &str = "/etc/default/grub";

struct Host<'a>(&'a Path);

impl Host<'_> {
    fn has(&self, path: &str) -> bool {
        self.0.join(path.trim_start_matches('/')).exists()
    }

    fn program(&self, name: &str) -> bool {
        PROGRAMS.iter().any(|folder| self.has(&format!("{folder}/{name}")))
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.0.join(path.trim_start_matches('/'))).ok()
    }

    fn command_line(&self, refresh: &[&str]) -> Option<Boot> {
        let text = self.text(COMMAND_LINE)?;
        let refresh = refresh.iter().map(|&word| word.to_owned()).collect();
        Some(Boot::CommandLine { path: COMMAND_LINE.to_owned(), text, refresh })
    }

    /// Settings of grub-mkconfig. Debian's reads a folder of them besides.
    fn grub(&self, refresh: Option<Vec<String>>) -> Option<Boot> {
        let mut files = vec![(GRUB.to_owned(), self.text(GRUB)?)];
        if self.program("update-grub") {
            let folder = "/etc/default/grub.d";
            let entries = fs::read_dir(self.0.join(&folder[1..])).into_iter().flatten().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            for name in names.iter().filter(|name| name.ends_with(".cfg")) {
                let path = format!("{folder}/{name}");
                files.extend(self.text(&path).map(|text| (path, text)));
            }
        }
        Some(Boot::Grub { files, refresh })
    }

    fn grub_program(&self) -> Option<Vec<String>> {
        let make = |name: &str, to: &str| vec![name.to_owned(), "-o".to_owned(), to.to_owned()];
        if self.program("update-grub") {
            Some(vec!["update-grub".to_owned()])
        } else if self.program("grub2-mkconfig") {
            Some(make("grub2-mkconfig", "/boot/grub2/grub.cfg"))
        } else if self.program("grub-mkconfig") {
            Some(make("grub-mkconfig", "/boot/grub/grub.cfg"))
        } else {
            None
        }
    }
}

impl Boot {
    pub(in super::super) fn detect(root: &Path) -> Self {
        Self::find(&Host(root)).unwrap_or(Self::Unknown)
    }

    fn find(host: &Host<'_>) -> Option<Self> {
        let written = knobs::boot_entries(host.0);
        let linux = || written.iter().map(|(_, text)| text).filter(|text| entries::boots_linux(text));
        let environment = host.text("/boot/grub2/grubenv").unwrap_or_default();
        let options = || {
            let all: Option<_> = linux().map(|text| entries::expanded(text, &environment)).collect();
            all.unwrap_or_default()
        };
        if host.has("/run/ostree-booted") && host.program("rpm-ostree") {
            return Some(Self::RpmOstree(options()));
        }
        // It copies kernels to one or more boot partitions, with either loader. The installer writes the settings of both, and
        // GRUB is the one that names the image.
        if host.program("proxmox-boot-tool") && host.has("/etc/kernel/proxmox-boot-uuids") {
            let refresh = ["proxmox-boot-tool", "refresh"];
            let program = refresh.iter().map(|&word| word.to_owned()).collect();
            let by_grub = host.text("/proc/cmdline").is_some_and(|line| line.contains("BOOT_IMAGE="));
            let (line, grub) = (host.command_line(&refresh), host.grub(Some(program)));
            return if by_grub { grub.or(line) } else { line.or(grub) };
        }
        if host.program("kernelstub") {
            if let Some(configuration) = host.text("/etc/kernelstub/configuration") {
                return Some(Self::Kernelstub(configuration));
            }
        }
        if host.program("grubby") {
            let tuned = linux().find_map(|text| entries::of_tuned(text, &environment));
            return Some(Self::Grubby { options: options(), tuned: tuned.unwrap_or_default().to_owned() });
        }
        if host.program("sdbootutil") {
            if let Some(found) = host.command_line(&["sdbootutil", "update-all-entries"]) {
                return Some(found);
            }
        }
        if !written.is_empty() {
            let add_all = knobs::ADD_ALL.map(str::to_owned);
            let by_program = host.program("kernel-install") && !knobs::commands(host.0, &add_all).is_empty();
            let generated = by_program.then(|| host.command_line(&knobs::ADD_ALL));
            return generated.flatten().or(Some(Self::Entries(written)));
        }
        if host.has(GRUB) {
            return host.grub(host.grub_program());
        }
        host.program("mkinitcpio").then(|| host.command_line(&["mkinitcpio", "-P"])).flatten()
    }
}
