//! Journals of what was changed of a host, and what is undone by them: nothing but what exitless does, on a host where some of
//! what they tell is as they say. Entries that have to do with each other, with some bytes changed, and any bytes.

#![no_main]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use arbitrary::{Arbitrary, Unstructured};
use knobs::{Actions, Error, Parameters, Recorded, Restore, restore};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const BOOT: &str = "3f1c";
const PATHS: [&str; 12] = [
    "/etc/modprobe.d/exitless.conf",
    "/etc/default/grub",
    "/etc/x",
    "/etc/new/deep/file",
    "/sys/governor",
    "/sys/module/kvm_amd/parameters/avic",
    "/proc/irq/5/smp_affinity_list",
    "/run/exitless/x",
    "/etc/open/away/x",
    "/outside",
    "relative",
    "/etc/../outside",
];
const VALUES: [&str; 6] = ["", "N", "1", "0-3", "performance", "0-1023,0-1023"];
const COMMANDS: [&[&str]; 8] = [
    &["update-grub"],
    &["grubby", "--update-kernel=ALL", "--args=a"],
    &["virsh", "define", "/var/lib/exitless/domains/web.before.xml"],
    &["virsh", "define", "/etc/x"],
    &["xenpm", "set-scaling-minfreq", "3", "2400000"],
    &["kernel-install", "add", "6.12.1", "/usr/lib/modules/6.12.1/vmlinuz"],
    &["timeout", "--kill-after=10", "5.000", "sh", "-c", "echo back"],
    &["sh", "-c", "id"],
];

#[derive(Debug, Arbitrary)]
struct Made {
    lines: Vec<Line>,
    changes: Vec<(u16, u8)>,
    cut: u8,
    run_scripts: bool,
}

#[derive(Debug, Arbitrary)]
enum Line {
    Intend { id: u8, change: Change, other: Option<Change>, now: bool, runs: bool },
    Done { id: u8, value: Option<u8>, module: Option<Option<u8>> },
    Undoing(u8),
    Undone(u8),
}

#[derive(Debug, Arbitrary)]
enum Change {
    File { path: u8, content: u8, old: Option<u8>, missing: bool },
    Value { path: u8, value: u8, old: u8 },
    Load { module: u8, parameter: u8, old: Option<u8> },
    Command { run: Option<u8>, undo: Option<u8> },
    Affinity { tid: i8, ticks: u8, cpus: u8, old: u8 },
}

fn path(number: u8) -> &'static str {
    PATHS[usize::from(number) % PATHS.len()]
}

fn value(number: u8) -> &'static str {
    VALUES[usize::from(number) % VALUES.len()]
}

fn content(number: u8) -> Value {
    if number.is_multiple_of(7) { json!({ "hex": "00ff" }) } else { value(number).into() }
}

fn module(number: u8) -> &'static str {
    ["kvm_amd", "kvm_intel", "kvm", "-rf"][usize::from(number) % 4]
}

fn parameters(number: u8) -> Value {
    json!({ "avic": value(number), "nested": value(number / 8) })
}

impl Change {
    fn change(&self) -> Value {
        let command =
            |number: Option<u8>| number.map(|number| COMMANDS[usize::from(number) % COMMANDS.len()]);
        match *self {
            Self::File { path: at, content: new, .. } => {
                json!({ "kind": "file", "path": path(at), "content": content(new) })
            }
            Self::Value { path: at, value: new, .. } => {
                json!({ "kind": "value", "path": path(at), "value": value(new) })
            }
            Self::Load { module: name, parameter, .. } => {
                json!({ "kind": "load", "module": module(name), "parameters": { "avic": value(parameter) } })
            }
            Self::Command { run, undo } => {
                json!({ "kind": "command", "run": command(run), "undo": command(undo) })
            }
            Self::Affinity { tid, ticks, cpus, .. } => {
                json!({ "kind": "affinity", "tid": tid, "start_ticks": ticks, "cpus": value(cpus) })
            }
        }
    }

    fn before(&self) -> Value {
        match *self {
            Self::File { path: at, old, missing, .. } => {
                let old = old.map(|old| {
                    json!({ "content": content(old), "mode": 0o600 | u32::from(old), "user": 0, "group": 0 })
                });
                let above = Path::new(path(at)).parent().filter(|_| missing);
                let missing: Vec<_> = above.into_iter().map(|above| above.display().to_string()).collect();
                json!({ "kind": "file", "file": old, "missing": missing })
            }
            Self::Value { old, .. } => json!({ "kind": "value", "value": value(old) }),
            Self::Load { old, .. } => json!({ "kind": "module", "parameters": old.map(parameters) }),
            Self::Command { .. } => json!({ "kind": "unknown" }),
            Self::Affinity { old, .. } => json!({ "kind": "affinity", "cpus": value(old) }),
        }
    }
}

impl Line {
    fn json(&self) -> Value {
        match self {
            Self::Intend { id, change, other, now, runs } => {
                let before = other.as_ref().filter(|_| *id > 250).unwrap_or(change).before();
                let pid = if *runs { 41 } else { 42 };
                let boot = if *now { BOOT } else { "another" };
                let owner = json!({ "pid": pid, "start_ticks": 341, "boot": boot });
                let intent = json!({
                    "id": id, "time": 0, "owner": owner, "command": ["exitless"], "temporary": id % 2 == 1,
                    "change": change.change(), "before": before,
                });
                json!({ "format": 1, "intend": intent })
            }
            Self::Done { id, value: new, module } => {
                let after = match (new, module) {
                    (Some(new), _) => json!({ "kind": "value", "value": value(*new) }),
                    (None, Some(module)) => json!({ "kind": "module", "parameters": module.map(parameters) }),
                    (None, None) => json!({ "kind": "as-asked" }),
                };
                json!({ "format": 1, "done": { "id": id, "after": after } })
            }
            Self::Undoing(id) => json!({ "format": 1, "undoing": { "id": id } }),
            Self::Undone(id) => json!({ "format": 1, "undone": { "id": id, "how": "undone" } }),
        }
    }
}

impl Made {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in self.lines.iter().take(20) {
            bytes.extend(format!("{}\n", line.json()).into_bytes());
        }
        for (at, value) in self.changes.iter().take(4) {
            let at = usize::from(*at) % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *value;
            }
        }
        bytes.truncate(bytes.len() - usize::from(self.cut / 4).min(bytes.len()));
        bytes
    }
}

/// A host on which nothing may be run but what exitless knows, and no script unless it is asked for.
struct Host {
    run_scripts: bool,
}

impl Actions for Host {
    fn load(&mut self, module: &str, parameters: &Parameters) -> Result<(), Error> {
        let is_word = |text: &str| !text.starts_with('-') && !text.contains(['/', '=', ' ', '\0']);
        assert!(is_word(module) && parameters.keys().all(|name| is_word(name)), "{module} {parameters:?}");
        Ok(())
    }

    fn unload(&mut self, module: &str) -> Result<(), Error> {
        self.load(module, &Parameters::new())
    }

    fn run(&mut self, command: &[String]) -> Result<(), Error> {
        const KNOWN: [&str; 12] = [
            "update-grub",
            "grub-mkconfig",
            "grub2-mkconfig",
            "proxmox-boot-tool",
            "sdbootutil",
            "kernel-install",
            "mkinitcpio",
            "rpm-ostree",
            "grubby",
            "kernelstub",
            "virsh",
            "xenpm",
        ];
        let program = command.first().map_or("", String::as_str);
        assert!(KNOWN.contains(&program) || self.run_scripts && program == "timeout", "{command:?}");
        assert!(program != "virsh" || command[2].starts_with("/var/lib/exitless/domains/"), "{command:?}");
        Ok(())
    }

    fn affinity(&self, _: i32) -> Result<String, Error> {
        Ok("0-3".to_owned())
    }

    fn set_affinity(&mut self, tid: i32, _: &str) -> Result<(), Error> {
        assert!(tid > 0);
        Ok(())
    }
}

/// What a journal may tell of is there: files, values, a module and processes.
fn furnish(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        fs::write(path, text).expect("room");
    };
    for (path, text) in [
        ("etc/modprobe.d/exitless.conf", "1"),
        ("etc/x", "performance"),
        ("etc/default/grub", "N"),
        ("sys/governor", "performance"),
        ("sys/module/kvm_amd/parameters/avic", "N\n"),
        ("sys/module/kvm_amd/parameters/nested", "1\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("proc/irq/5/smp_affinity_list", "0-3"),
        ("proc/sys/kernel/random/boot_id", BOOT),
        ("outside", "left alone"),
        ("elsewhere/x", "left alone"),
    ] {
        write(path, text);
    }
    for process in [41, 3] {
        let zeros = "0 ".repeat(18);
        write(&format!("proc/{process}/stat"), &format!("{process} (exitless) S {zeros}341 0"));
        write(&format!("proc/{process}/cgroup"), "0::/vm\n");
    }
    write("sys/fs/cgroup/vm/cpuset.cpus.effective", "0-2\n");
    // Whoever may write to a directory of a path can lead it elsewhere; links in root's own are root's.
    let open = root.join("etc/open");
    fs::create_dir_all(&open).expect("a directory");
    symlink("../../elsewhere", open.join("away")).expect("a link");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("a directory of our own");
}

fn undo(bytes: &[u8], run_scripts: bool) {
    let recorded = Recorded::parse(Path::new("journal"), bytes);
    assert!(recorded.damage.iter().all(|damage| damage.offset < bytes.len()));
    if recorded.entries.is_empty() {
        return;
    }
    let root = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let root = root.path();
    furnish(root);
    let home = root.join("var/lib/exitless");
    fs::create_dir_all(&home).expect("a directory");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("a directory of our own");
    let journal = home.join("journal");
    fs::write(&journal, bytes).expect("room");
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o600)).expect("a file of our own");
    let mut host = Host { run_scripts };
    for how in [
        Restore { dry_run: true, ..Restore::default() },
        Restore { run_scripts, ..Restore::default() },
        Restore { force: true, run_scripts, ..Restore::default() },
    ] {
        let _ = restore(root, &mut host, how);
    }
    assert_eq!(
        fs::read(root.join("elsewhere/x")).ok().as_deref(),
        Some(&b"left alone"[..]),
        "a link was followed"
    );
}

fuzz_target!(|bytes: &[u8]| {
    // A journal begins with a bracket.
    if bytes.first().is_some_and(|&first| first == b'{' || first == b'\n') {
        undo(bytes, false);
    } else if let Ok(made) = Made::arbitrary_take_rest(Unstructured::new(bytes)) {
        undo(&made.bytes(), made.run_scripts);
    }
});
