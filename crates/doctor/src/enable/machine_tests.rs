//! Hosts of plain files, and a machine that simulates the programs of their distributions.

use host::Root;
use host::kvm::KEPT_BY_KVM;
use knobs::{Actions, Error, Parameters};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const AMD: &str = "processor : 0\nvendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n\
    model name : AMD EPYC 7713\nflags : svm npt avic\n";
pub(super) const INTEL: &str = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\n\
    model name : Intel Xeon 8480\nflags : vmx\n\
    vmx flags : vnmi preemption_timer posted_intr apicv tsc_offset flexpriority vtpr mtf vapic ept vpid \
    unrestricted_guest vapic_reg vid ple ipi_virt\n";

pub(super) struct Host {
    directory: tempfile::TempDir,
}

impl Host {
    /// An AMD host with kvm_amd loaded, and these files.
    pub(super) fn amd(files: &[(&str, &str)]) -> Self {
        let host = Self { directory: tempfile::tempdir().unwrap() };
        host.write("/proc/cpuinfo", AMD);
        host.write("/proc/sys/kernel/osrelease", "6.12.107\n");
        host.write("/proc/sys/kernel/random/boot_id", "first\n");
        host.write("/proc/cmdline", "root=/dev/sda1 ro quiet\n");
        host.write("/lib/modules/6.12.107/modules.builtin", "kernel/fs/ext4/ext4.ko\n");
        host.module("kvm_amd", &[("avic", "N"), ("npt", "Y"), ("nested", "1")]);
        files.iter().for_each(|(path, text)| host.write(path, text));
        host
    }

    /// A host of files in the form of [`host::fake`].
    pub(super) fn of(text: &str) -> Self {
        let made = Self { directory: tempfile::tempdir().unwrap() };
        host::fake::unpack(text, made.root()).unwrap();
        made
    }

    pub(super) fn intel(files: &[(&str, &str)]) -> Self {
        let host = Self::amd(&[]);
        fs::remove_dir_all(host.path("/sys/module/kvm_amd")).unwrap();
        host.write("/proc/cpuinfo", INTEL);
        host.module("kvm_intel", &[("enable_apicv", "N"), ("enable_ipiv", "N"), ("nested", "Y")]);
        files.iter().for_each(|(path, text)| host.write(path, text));
        host
    }

    pub(super) fn module(&self, name: &str, parameters: &[(&str, &str)]) {
        for (parameter, value) in parameters {
            self.write(&format!("/sys/module/{name}/parameters/{parameter}"), &format!("{value}\n"));
        }
        self.write(&format!("/sys/module/{name}/refcnt"), "0\n");
    }

    /// A boot entry as kernel-install writes it.
    pub(super) fn kernel(&self, release: &str, words: &str) {
        let text = format!("title Debian\nversion {release}\noptions {words}\nlinux /{release}/linux\n");
        self.write(&format!("/boot/efi/loader/entries/m-{release}.conf"), &text);
    }

    /// The entry of a new kernel, as kernel-install writes it.
    pub(super) fn add_kernel(&self, release: &str) {
        let places = ["/etc/kernel/cmdline", "/usr/lib/kernel/cmdline", "/proc/cmdline"];
        let from = places.into_iter().find(|place| self.path(place).exists()).unwrap();
        self.kernel(release, self.text(from).trim_end());
    }

    pub(super) fn root(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub(super) fn inspection(&self) -> host::Inspection {
        host::Inspection::read(&Root::directory(self.root())).unwrap()
    }

    /// All files with their content, except the journal.
    pub(super) fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.root().to_owned()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).unwrap().flatten() {
                let path = entry.path();
                let name = path.strip_prefix(self.root()).unwrap().to_owned();
                if name.ends_with("exitless") || name.ends_with("exitless-journal") {
                    continue;
                }
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
        found
    }
}

/// Simulates modprobe and the boot loaders' programs.
pub(super) struct Machine<'a> {
    pub(super) host: &'a Host,
    pub(super) ran: Vec<String>,
    /// Parameters that cannot be on, for lack of the CPU feature.
    pub(super) unable: &'static [&'static str],
}

impl<'a> Machine<'a> {
    pub(super) fn new(host: &'a Host) -> Self {
        Self { host, ran: Vec::new(), unable: &[] }
    }

    /// Generates a boot loader's file from files of settings.
    fn make(&self, to: &str, from: &[&str]) {
        let mut made = String::new();
        for place in from {
            let path = self.host.path(place);
            let mut files = vec![path.clone()];
            files.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            files.sort();
            files.iter().for_each(|file| made.push_str(&fs::read_to_string(file).unwrap_or_default()));
        }
        self.host.write(to, &made);
    }

    /// Changes, as grubby does, GRUB's environment block and the entries that do not use its variable.
    fn entries(&self, change: impl Fn(&str) -> String) {
        let block = "/boot/grub2/grubenv";
        if self.host.path(block).exists() {
            let text = self.host.text(block);
            let old = text.lines().find_map(|line| line.strip_prefix("kernelopts=")).unwrap();
            self.host.write(block, &text.replace(old, &change(old)));
        }
        let folder = self.host.path("/boot/loader/entries");
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap();
            let lines = text.lines().map(|line| match line.strip_prefix("options ") {
                Some(options) if !options.contains("$kernelopts") => {
                    format!("options {}\n", change(options))
                }
                _ => format!("{line}\n"),
            });
            fs::write(entry.path(), lines.collect::<String>()).unwrap();
        }
    }

    /// Changes, as rpm-ostree does, the deployment that boots next.
    fn newest_deployment(&self, changes: &[&str]) {
        let place = "/boot/loader/entries/ostree-2.conf";
        let text = self.host.text(place);
        let old = text.lines().find_map(|line| line.strip_prefix("options ")).unwrap();
        let new = changes.iter().fold(old.to_owned(), |all, change| match change.split_once('=').unwrap() {
            ("--delete-if-present", word) => without(&all, word),
            ("--append-if-missing", word) => format!("{} {word}", without(&all, word)),
            _ => panic!("{change}"),
        });
        self.host.write(place, &text.replace(old, &new));
    }

    fn kernelstub(&self, option: &str, word: &str) {
        let path = "/etc/kernelstub/configuration";
        let mut all: serde_json::Value = serde_json::from_str(&self.host.text(path)).unwrap();
        let words = all["user"]["kernel_options"].as_array_mut().unwrap();
        words.retain(|one| one != word);
        if option == "--add-options" {
            words.push(word.into());
        }
        self.host.write(path, &all.to_string());
    }
}

/// The file for a parameter's value that survives the removal of the module.
pub(super) fn kept(name: &str) -> String {
    format!("/exitless/kvm/{name}")
}

/// The options without those that have the name of one of the words: grubby replaces them.
fn without_names(options: &str, words: &str) -> String {
    let name = |word: &str| word.split('=').next().map(str::to_owned);
    let stays = |one: &&str| words.split(' ').all(|word| name(word) != name(one));
    options.split(' ').filter(stays).collect::<Vec<_>>().join(" ")
}

fn without(options: &str, word: &str) -> String {
    options.split(' ').filter(|one| *one != word).collect::<Vec<_>>().join(" ")
}

impl Actions for Machine<'_> {
    fn load(&mut self, module: &str, given: &Parameters) -> Result<(), Error> {
        let given: Vec<_> = given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        self.ran.push(format!("modprobe {module} {}", given.join(" ")));
        let defaults: &[(&str, &str)] = match module {
            "kvm_amd" => &[("avic", "N"), ("npt", "Y"), ("nested", "1")],
            _ => &[("enable_apicv", "Y"), ("enable_ipiv", "Y"), ("nested", "Y")],
        };
        let kept = KEPT_BY_KVM.into_iter().filter(|name| self.host.path(&kept(name)).exists());
        let value = |name: &str, default: &str| {
            let given = given.iter().find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
            match given.unwrap_or(default) {
                "1" | "Y" if self.unable.contains(&name) => "N".to_owned(),
                "1" if name != "nested" => "Y".to_owned(),
                "0" if name != "nested" => "N".to_owned(),
                other => other.to_owned(),
            }
        };
        let mut values: Vec<_> =
            defaults.iter().map(|&(name, default)| (name, value(name, default))).collect();
        let on = values[0].1 == "Y";
        for name in kept {
            let now = if on { value(name, &self.host.text(&self::kept(name))) } else { "N".to_owned() };
            self.host.write(&self::kept(name), &now);
            values.retain(|(other, _)| *other != name);
            values.push((name, now));
        }
        let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.host.module(module, &values);
        Ok(())
    }

    fn unload(&mut self, module: &str) -> Result<(), Error> {
        self.ran.push(format!("rmmod {module}"));
        fs::remove_dir_all(self.host.path("/sys/module").join(module)).unwrap();
        Ok(())
    }

    fn run(&mut self, command: &[String]) -> Result<(), Error> {
        self.ran.push(command.join(" "));
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        match &words[..] {
            ["update-grub"] => {
                self.make("/boot/grub/grub.cfg", &["/etc/default/grub", "/etc/default/grub.d"])
            }
            ["grub2-mkconfig", "-o", to] => self.make(to, &["/etc/default/grub"]),
            ["proxmox-boot-tool", "refresh"] => {
                self.make("/boot/efi/cmdline", &["/etc/kernel/cmdline"]);
                self.make("/boot/efi/grub.cfg", &["/etc/default/grub", "/etc/default/grub.d"]);
            }
            ["kernel-install", "add", release, image] => {
                self.host.text(image);
                self.host.add_kernel(release);
            }
            ["kernelstub", option, word] => self.kernelstub(option, word),
            ["rpm-ostree", "kargs", changes @ ..] => self.newest_deployment(changes),
            ["grubby", "--update-kernel=ALL", changes @ ..] => {
                for change in changes {
                    match change.split_once('=') {
                        Some(("--remove-args", words)) => {
                            self.entries(|options| {
                                words.split(' ').fold(options.to_owned(), |all, word| without(&all, word))
                            });
                        }
                        Some(("--args", words)) => {
                            self.entries(|options| format!("{} {words}", without_names(options, words)));
                        }
                        _ => panic!("{change}"),
                    }
                }
            }
            _ => return Err(Error::ThreadGone { tid: 0 }),
        }
        Ok(())
    }

    fn affinity(&self, tid: i32) -> Result<String, Error> {
        Err(Error::ThreadGone { tid })
    }

    fn set_affinity(&mut self, tid: i32, _: &str) -> Result<(), Error> {
        Err(Error::ThreadGone { tid })
    }
}
