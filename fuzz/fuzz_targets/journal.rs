//! Journals of what was changed of a host, and what is undone by them: nothing but what exitless does.

#![no_main]

use std::path::Path;

use knobs::{Actions, Error, Parameters, Recorded, Restore, restore};
use libfuzzer_sys::fuzz_target;

/// A host on which nothing may be run but what exitless knows, and no script at all.
struct Host;

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
        const KNOWN: [&str; 11] = [
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
        ];
        let program = command.first().map(String::as_str);
        assert!(program.is_some_and(|program| KNOWN.contains(&program) || program == "xenpm"), "{command:?}");
        Ok(())
    }

    fn affinity(&self, _: i32) -> Result<String, Error> {
        Ok("0".to_owned())
    }

    fn set_affinity(&mut self, tid: i32, _: &str) -> Result<(), Error> {
        assert!(tid > 0);
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let recorded = Recorded::parse(Path::new("journal"), bytes);
    assert!(recorded.damage.iter().all(|damage| damage.offset < bytes.len()));
    if recorded.entries.is_empty() {
        return;
    }
    let root = tempfile::tempdir().expect("a directory");
    let home = root.path().join("var/lib/exitless");
    std::fs::create_dir_all(&home).expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&home, mode).expect("a directory of our own");
    let journal = home.join("journal");
    std::fs::write(&journal, bytes).expect("room");
    std::fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a file of our own");
    for how in [Restore { dry_run: true, ..Restore::default() }, Restore { force: true, ..Restore::default() }] {
        let _ = restore(root.path(), &mut Host, how);
    }
});
