//! A machine of plain files, for tests.

use crate::{Actions, Error, Parameters, cut_short, under};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const MODULE: &str = "kvm_amd";
const DEFAULTS: [(&str, &str); 3] = [("avic", "N"), ("nested", "1"), ("npt", "Y")];

/// Simulates threads, modprobe, rmmod, virsh, and `copy FROM TO` for programs that generate files from
/// others.
pub(crate) struct Machine {
    pub(crate) root: PathBuf,
    pub(crate) ran: Vec<String>,
    pub(crate) affinity: BTreeMap<i32, String>,
    /// The CPU list that `set_affinity` refuses.
    pub(crate) refuses: Option<String>,
    /// Runs, with the root, before a thread gets its CPUs.
    pub(crate) before_set: fn(&Path),
    /// Runs, with the root, before a program shows its output.
    pub(crate) before_shown: fn(&Path),
}

impl Machine {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            ran: Vec::new(),
            affinity: BTreeMap::new(),
            refuses: None,
            before_set: |_| {},
            before_shown: |_| {},
        }
    }

    fn home(&self, module: &str) -> PathBuf {
        under(&self.root, "/sys/module").join(module)
    }

    fn fail(command: &str) -> Error {
        Error::Command {
            command: command.to_owned(),
            status: "exit status: 1".to_owned(),
            said: "no".to_owned(),
        }
    }
}

impl Actions for Machine {
    fn load(&mut self, module: &str, parameters: &Parameters) -> Result<(), Error> {
        self.ran.push(format!("load {module} {parameters:?}"));
        let mut values: Parameters =
            DEFAULTS.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        for (name, value) in parameters {
            let Some(old) = values.get_mut(name) else { return Err(Self::fail("modprobe")) };
            // The kernel prints booleans as Y and N.
            *old = match (old.as_str(), value.as_str()) {
                ("Y" | "N", "1") => "Y".to_owned(),
                ("Y" | "N", "0") => "N".to_owned(),
                _ => value.clone(),
            };
        }
        let home = self.home(module).join("parameters");
        fs::create_dir_all(&home).unwrap();
        for (name, value) in values {
            fs::write(home.join(name), format!("{value}\n")).unwrap();
        }
        fs::write(self.home(module).join("refcnt"), "0\n").unwrap();
        Ok(())
    }

    fn unload(&mut self, module: &str) -> Result<(), Error> {
        self.ran.push(format!("unload {module}"));
        fs::remove_dir_all(self.home(module)).map_err(|_| Self::fail("rmmod"))
    }

    fn run(&mut self, command: &[String]) -> Result<(), Error> {
        self.ran.push(command.join(" "));
        match command {
            [copy, from, to] if copy == "copy" => {
                let made = fs::read(under(&self.root, from)).unwrap_or_default();
                fs::write(under(&self.root, to), made).map_err(|_| Self::fail("copy"))
            }
            // libvirt reformats the definitions that it keeps.
            [virsh, define, from] if virsh == "virsh" && define == "define" => {
                let xml = fs::read_to_string(under(&self.root, from)).map_err(|_| Self::fail("virsh"))?;
                fs::write(under(&self.root, "/domain.xml"), format!("<!-- -->{xml}"))
                    .map_err(|_| Self::fail("virsh"))
            }
            _ => Err(Self::fail(&command.join(" "))),
        }
    }

    fn shown(&self, command: &[String]) -> Result<Vec<u8>, Error> {
        assert_eq!(command, ["virsh", "dumpxml", "--inactive", "--security-info", "--domain", "web"]);
        (self.before_shown)(&self.root);
        fs::read(under(&self.root, "/domain.xml")).map_err(|_| Self::fail("virsh dumpxml"))
    }

    fn affinity(&self, tid: i32) -> Result<String, Error> {
        self.affinity.get(&tid).cloned().ok_or(Error::ThreadGone { tid })
    }

    fn set_affinity(&mut self, tid: i32, cpus: &str) -> Result<(), Error> {
        (self.before_set)(&self.root);
        cut_short::here().map_err(Error::access("set", "affinity"))?;
        if self.refuses.as_deref() == Some(cpus) {
            return Err(Error::access("set", "affinity")(std::io::ErrorKind::InvalidInput.into()));
        }
        self.affinity.insert(tid, cpus.to_owned());
        Ok(())
    }
}

/// A host with a loaded module, configuration, and a file of sysfs.
pub(crate) fn host() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in [
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet\"\n"),
        ("/boot/grub.cfg", "GRUB_CMDLINE_LINUX=\"quiet\"\n"),
        ("/etc/modules", "kvm\n"),
        ("/sys/governor", "powersave\n"),
        ("/proc/sys/kernel/random/boot_id", "first\n"),
        ("/proc/41/stat", "41 (vcpu) S 1 0 0 0 -1 4 5 6 7 8 9 10 11 12 20 0 6 0 341 796274688"),
    ] {
        let path = under(root.path(), path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    Machine::new(root.path()).load(MODULE, &Parameters::new()).unwrap();
    root
}

/// All files below the root with their content, except the journal.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            if ["var", "run"].iter().any(|place| name.starts_with(place)) {
                continue;
            }
            if path.is_dir() {
                found.insert(name, None);
                open.push(path);
            } else {
                found.insert(name, Some(fs::read(&path).unwrap()));
            }
        }
    }
    found
}
