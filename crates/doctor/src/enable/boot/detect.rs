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
    /// `release` is the running kernel's.
    pub(in super::super) fn detect(root: &Path, release: &str) -> Self {
        Self::find(&Host(root), release).unwrap_or(Self::Unknown)
    }

    fn find(host: &Host<'_>, release: &str) -> Option<Self> {
        let written = entries::read(host.0);
        let options = || written.iter().map(|(_, text)| entries::options(text)).collect::<Vec<_>>();
        if host.has("/run/ostree-booted") && host.program("rpm-ostree") {
            return Some(Self::RpmOstree(options()));
        }
        // It copies kernels to one or more boot partitions, with either loader.
        if host.program("proxmox-boot-tool") && host.has("/etc/kernel/proxmox-boot-uuids") {
            let refresh = ["proxmox-boot-tool", "refresh"];
            let program = refresh.iter().map(|&word| word.to_owned()).collect();
            return host.command_line(&refresh).or_else(|| host.grub(Some(program)));
        }
        if host.program("kernelstub") {
            if let Some(configuration) = host.text("/etc/kernelstub/configuration") {
                return Some(Self::Kernelstub(configuration));
            }
        }
        if host.program("grubby") {
            return Some(Self::Grubby(options()));
        }
        if host.program("sdbootutil") {
            if let Some(found) = host.command_line(&["sdbootutil", "update-all-entries"]) {
                return Some(found);
            }
        }
        if !written.is_empty() {
            let image = format!("/usr/lib/modules/{release}/vmlinuz");
            let installed = host.program("kernel-install") && host.has(&image);
            let generated = installed.then(|| host.command_line(&["kernel-install", "add", release, &image]));
            return generated.flatten().or(Some(Self::Entries(written)));
        }
        if host.has(GRUB) {
            return host.grub(host.grub_program());
        }
        host.program("mkinitcpio").then(|| host.command_line(&["mkinitcpio", "-P"])).flatten()
    }
}
