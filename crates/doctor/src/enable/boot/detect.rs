//! The boot loader of a host, by its programs and files.

use super::super::files::Files;
use super::{Boot, Counts, entries};

const PROGRAMS: [&str; 6] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];
const COMMAND_LINE: &str = "/etc/kernel/cmdline";
/// The file that is read if there is no [`COMMAND_LINE`].
const VENDORS_COMMAND_LINE: &str = "/usr/lib/kernel/cmdline";
const GRUB: &str = "/etc/default/grub";

/// A boot loader; `None` if the host uses another one. `Err` is the reason why its settings cannot be
/// changed.
type Found = Result<Option<Boot>, String>;

impl Files {
    fn program(&self, name: &str) -> bool {
        PROGRAMS.iter().any(|folder| self.has(&format!("{folder}/{name}")))
    }

    fn command_line(&self, counts: Counts, refresh: &[&str]) -> Found {
        self.command_line_from(COMMAND_LINE, counts, refresh)
    }

    /// [`COMMAND_LINE`], with the present text from another file.
    fn command_line_from(&self, file: &str, counts: Counts, refresh: &[&str]) -> Found {
        let refresh = refresh.iter().map(|&word| word.to_owned()).collect();
        let found = |text| Boot::CommandLine { path: COMMAND_LINE.to_owned(), text, counts, refresh };
        Ok(self.text(file)?.map(found))
    }

    /// The command line of entries that kernel-install generates. Without a file it takes the running kernel's arguments, so
    /// removed words would return (systemd's src/kernel-install/90-loaderentry.install.in).
    fn generated(&self, lines: Vec<String>) -> Found {
        for file in [COMMAND_LINE, VENDORS_COMMAND_LINE] {
            if let Some(found) = self.command_line_from(file, Counts::All, &knobs::ADD_ALL)? {
                return Ok(Some(found));
            }
        }
        Ok(Some(Boot::ByHand {
            lines,
            why: format!(
                "kernel-install takes the running kernel's arguments, as there is no {COMMAND_LINE}"
            ),
            next: Some("write them to that file, without BOOT_IMAGE= and initrd=, and run this again"),
        }))
    }

    /// The settings of grub-mkconfig. Debian's version also reads a directory of them.
    fn grub(&self, refresh: Option<Vec<String>>) -> Found {
        let Some(text) = self.text(GRUB)? else { return Ok(None) };
        let mut files = vec![(GRUB.to_owned(), text)];
        if self.program("update-grub") {
            let folder = "/etc/default/grub.d";
            for name in self.names(folder).iter().filter(|name| name.ends_with(".cfg")) {
                let path = format!("{folder}/{name}");
                files.extend(self.text(&path)?.map(|text| (path, text)));
            }
        }
        Ok(Some(Boot::Grub { files, refresh }))
    }

    /// Tests whether GRUB's menu consists of boot entries, which grub-mkconfig leaves as they are.
    fn grub_reads_entries(&self) -> bool {
        let text = self.shown(GRUB);
        let mut values = text.lines().filter_map(|line| line.trim().strip_prefix("GRUB_ENABLE_BLSCFG="));
        values.next_back().is_some_and(|value| value.trim_matches(['"', '\'']) == "true")
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
    pub(in super::super) fn detect(files: &Files) -> Self {
        match Self::find(files) {
            Ok(found) => found.unwrap_or(Self::Unknown),
            Err(why) => Self::ByHand { lines: Vec::new(), why, next: None },
        }
    }

    fn find(host: &Files) -> Found {
        let written = knobs::boot_entries(&host.directory);
        let linux = || written.iter().map(|(_, text)| text).filter(|text| entries::boots_linux(text));
        let environment = host.shown("/boot/grub2/grubenv");
        let options = || {
            let all: Option<_> = linux().map(|text| entries::expanded(text, &environment)).collect();
            all.unwrap_or_default()
        };
        if host.are_of_nixos() {
            // Entries of earlier generations must stay unchanged.
            return Ok(Some(Self::ByHand {
                lines: Vec::new(),
                why: "NixOS makes the boot loader's files from its configuration".to_owned(),
                next: Some("change boot.kernelParams there, and run nixos-rebuild"),
            }));
        }
        if host.has("/run/ostree-booted") && host.program("rpm-ostree") {
            // The others, to which one can go back, keep their arguments.
            let newest = linux().max_by_key(|text| entries::deployment(text));
            let options = newest.and_then(|text| entries::expanded(text, &environment));
            return Ok(Some(Self::RpmOstree(options.into_iter().collect())));
        }
        // Only GRUB passes this to the kernel.
        let by_grub = host.shown("/proc/cmdline").contains("BOOT_IMAGE=");
        // proxmox-boot-tool copies kernels to one or more boot partitions, with GRUB or systemd-boot. The installer writes the
        // settings of both.
        if host.program("proxmox-boot-tool") && host.has("/etc/kernel/proxmox-boot-uuids") {
            let refresh = ["proxmox-boot-tool", "refresh"];
            let program = refresh.iter().map(|&word| word.to_owned()).collect();
            let (line, grub) = (host.command_line(Counts::First, &refresh)?, host.grub(Some(program))?);
            return Ok(if by_grub { grub.or(line) } else { line.or(grub) });
        }
        if host.program("kernelstub")
            && let Some(configuration) = host.text("/etc/kernelstub/configuration")?
        {
            return Ok(Some(Self::Kernelstub(configuration)));
        }
        if host.program("grubby") {
            let tuned = linux().find_map(|text| entries::of_tuned(text, &environment));
            return Ok(Some(Self::Grubby {
                options: options(),
                tuned: tuned.unwrap_or_default().to_owned(),
            }));
        }
        if host.program("sdbootutil")
            && let Some(found) = host.command_line(Counts::First, &["sdbootutil", "update-all-entries"])?
        {
            return Ok(Some(found));
        }
        // Entries that systemd-boot would read may be of another system, or left from before.
        if by_grub && host.has(GRUB) && !host.grub_reads_entries() {
            return host.grub(host.grub_program());
        }
        // Hosts with unified kernel images may also have entries of other systems.
        if linux().next().is_some() {
            let add_all = knobs::ADD_ALL.map(str::to_owned);
            let by_program =
                host.program("kernel-install") && !knobs::commands(&host.directory, &add_all).is_empty();
            return if by_program { host.generated(options()) } else { Ok(Some(Self::Entries(written))) };
        }
        if host.has(GRUB) {
            return host.grub(host.grub_program());
        }
        if host.program("mkinitcpio") {
            host.command_line(Counts::NoComments, &["mkinitcpio", "-P"])
        } else {
            Ok(None)
        }
    }
}
