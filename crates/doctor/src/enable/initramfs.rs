//! Modules that the initramfs loads, with the modprobe.d that it contains, before the root file system is
//! mounted.

use super::files::Files;
use super::plan::{Effect, Standing, Step};
use super::target::Target;

/// dracut(8): without the second option only for the running kernel.
const DRACUT: &str = "dracut --force --regenerate-all";
/// The files or directories that configure the initramfs, and the command that builds it for all kernels: another than the
/// running one or the newest may boot next. update-initramfs(8), -k.
const PACKERS: [(&str, &str); 5] = [
    ("/etc/initramfs-tools/modules", "update-initramfs -u -k all"),
    ("/etc/dracut.conf", DRACUT),
    ("/etc/dracut.conf.d", DRACUT),
    ("/etc/mkinitcpio.conf", "mkinitcpio -P"),
    ("/etc/mkinitcpio.conf.d", "mkinitcpio -P"),
];

/// The suggestion to rebuild the initramfs, if the plan changes modprobe.d and the initramfs contains the module. That
/// is left to people: it takes minutes, and can fill /boot.
pub(super) fn suggestion(files: &Files, target: &Target, steps: &[Step]) -> Option<Step> {
    steps.iter().find(|step| step.name == "modprobe-options" && !step.changes.is_empty())?;
    let (file, command) =
        PACKERS.iter().find_map(|&(place, command)| Some((names(files, place, target.module)?, command)))?;
    // dracut cannot write to a deployment of ostree.
    let of_ostree = command == DRACUT && files.has("/run/ostree-booted");
    let command = if of_ostree { "rpm-ostree initramfs --enable" } else { command };
    let mut step = Step::of(files, "initramfs", Effect::NextBoot, Standing::Suggested, Vec::new());
    step.commands.push(command.to_owned());
    let why =
        format!("{file} includes {}, which is then loaded with the modprobe.d of that moment", target.module);
    Some(step.called("Rebuild the initial RAM disk", why))
}

fn names(files: &Files, place: &str, module: &str) -> Option<String> {
    let inside = files.names(place).into_iter().map(|name| format!("{place}/{name}"));
    let packs = |path: &String| {
        files.shown(path).lines().map(|line| line.split('#').next().unwrap_or_default()).any(|line| {
            let words = line
                .split(|character: char| !character.is_alphanumeric() && !['-', '_'].contains(&character));
            words.map(|word| word.replace('-', "_")).any(|word| word == module)
        })
    };
    std::iter::once(place.to_owned()).chain(inside).find(packs)
}
