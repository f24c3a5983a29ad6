//! Modules that are loaded before the root file system is there, with the copy of modprobe.d that was packed.

use super::plan::{Effect, Standing, Step};
use super::target::Target;
use std::fs;
use std::path::Path;

/// Files that say what is packed, folder or file, and the program that packs.
const PACKERS: [(&str, &str); 5] = [
    ("etc/initramfs-tools/modules", "update-initramfs -u"),
    ("etc/dracut.conf", "dracut --force"),
    ("etc/dracut.conf.d", "dracut --force"),
    ("etc/mkinitcpio.conf", "mkinitcpio -P"),
    ("etc/mkinitcpio.conf.d", "mkinitcpio -P"),
];

/// A suggestion, where a plan changes modprobe.d and the module is packed. Packing is left to people: it takes minutes,
/// and can fill /boot.
pub(super) fn suggestion(root: &Path, target: &Target, steps: &[Step]) -> Option<Step> {
    steps.iter().find(|step| step.name == "modprobe-options")?;
    let (file, command) =
        PACKERS.iter().find_map(|&(place, command)| Some((names(root, place, target.module)?, command)))?;
    let mut step = Step::of(root, "initramfs", Effect::NextBoot, Standing::Suggested, Vec::new());
    step.commands.push(command.to_owned());
    let why =
        format!("{file} includes {}, which is then loaded with the modprobe.d of that moment", target.module);
    Some(step.called("Rebuild the initial RAM disk", why))
}

fn names(root: &Path, place: &str, module: &str) -> Option<String> {
    let path = root.join(place);
    let mut files = vec![(format!("/{place}"), path.clone())];
    for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
        files.push((format!("/{place}/{}", entry.file_name().to_string_lossy()), entry.path()));
    }
    files.sort();
    let packs = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| line.split('#').next().unwrap_or_default()).any(|line| {
            let words = line
                .split(|character: char| !character.is_alphanumeric() && !['-', '_'].contains(&character));
            words.map(|word| word.replace('-', "_")).any(|word| word == module)
        })
    };
    files.into_iter().find(|(_, path)| packs(path)).map(|(name, _)| name)
}
