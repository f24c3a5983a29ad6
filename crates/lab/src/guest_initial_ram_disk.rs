//! The initial RAM disk of guests: kernel modules and their loading order. The agent is added when a guest
//! starts, so that the image does not depend on the agent's version.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::archive::Archive;
use crate::assemble::{files_below, unpacked_module};
use crate::error::Error;
use crate::guest_recipe::MODULES;

/// The folder of the uncompressed modules in the initial RAM disk.
const MODULE_FOLDER: &str = "/exitless/modules";

/// For each module of the recipe, the files to load, in loading order.
pub(crate) type Loading = BTreeMap<String, Vec<String>>;

/// Makes the initial RAM disk from the tree. depmod must have run there.
pub(crate) fn make(root: &Path, release: &str) -> Result<Vec<u8>, Error> {
    let folder = root.join("usr/lib/modules").join(release);
    let loading = loading(&folder, &MODULES)?;
    let in_memory = || Error::file("Could not make the", "initial RAM disk");
    let available = files_below(&folder);
    let mut archive = Archive::default();
    for at in ["/proc", "/sys", "/dev"] {
        archive.folder(at).map_err(in_memory())?;
    }
    let mut files: Vec<&String> = loading.values().flatten().collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        let contents = unpacked_module(&folder, &available, file)?;
        archive.file(&format!("{MODULE_FOLDER}/{file}"), 0o644, &contents).map_err(in_memory())?;
    }
    let order = serde_json::to_vec(&loading).unwrap_or_default();
    archive.file(&format!("{MODULE_FOLDER}/loading.json"), 0o644, &order).map_err(in_memory())?;
    archive.finish().map_err(in_memory())
}

/// The loading order of these modules, from depmod's lists in the kernel's folder. Built-in modules have no
/// files. A module that is missing is an error.
pub(crate) fn loading(folder: &Path, wanted: &[&str]) -> Result<Loading, Error> {
    let read = |path: &Path| fs::read_to_string(path).map_err(Error::file("Could not read", path));
    let path = folder.join("modules.dep");
    let found = among(&read(&path)?, wanted);
    let built_in = read(&folder.join("modules.builtin"))?;
    let built_in: Vec<String> = built_in.lines().filter_map(|line| module_of(&file_of(line))).collect();
    let is_there = |name: &str| found.contains_key(name) || built_in.iter().any(|module| module == name);
    match wanted.iter().find(|name| !is_there(name)) {
        Some(missing) => Err(Error::Kernel { path, problem: format!("it has no module {missing}") }),
        None => Ok(found),
    }
}

/// The files of these modules and their dependencies, each once, in loading order.
pub(crate) fn with_needs(order: &Loading, names: &[&str]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for file in names.iter().filter_map(|&name| order.get(name)).flatten() {
        if !files.contains(file) {
            files.push(file.clone());
        }
    }
    files
}

/// Finds these modules in depmod's `PATH: PATH PATH` lines. The dependencies of a module are listed so that
/// the last must be loaded first (modules.dep(5)).
fn among(dependencies: &str, wanted: &[&str]) -> Loading {
    let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter_map(|(module, needed)| {
            let file_name = file_of(module);
            let name = module_of(&file_name)?;
            let needed = needed.split_whitespace().rev().map(file_of);
            wanted.contains(&name.as_str()).then(|| (name, needed.chain([file_name.clone()]).collect()))
        })
        .collect()
}

/// The file name of the uncompressed module in a line of depmod's lists.
fn file_of(path: &str) -> String {
    let name = path.trim().rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".xz").unwrap_or(name).to_owned()
}

/// The kernel's name for the module in this file.
fn module_of(file: &str) -> Option<String> {
    file.strip_suffix(".ko").map(|name| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_before_it() {
        let dependencies = "kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/net/net_failover.ko.xz \
                            kernel/net/core/failover.ko.xz\n\
                            kernel/drivers/char/hw_random/virtio-rng.ko.xz:\n\
                            kernel/fs/unasked.ko.xz:\n";
        let order = |files: &[&str]| files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>();
        let expected = Loading::from([
            ("virtio_net".to_owned(), order(&["failover.ko", "net_failover.ko", "virtio_net.ko"])),
            ("virtio_rng".to_owned(), order(&["virtio-rng.ko"])),
        ]);
        assert_eq!(among(dependencies, &MODULES), expected);
    }

    #[test]
    fn a_module_that_two_need_is_loaded_once_and_first() {
        let order = |files: &[&str]| files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>();
        let loading = Loading::from([
            ("igb".to_owned(), order(&["dca.ko", "igb.ko"])),
            ("igbvf".to_owned(), order(&["dca.ko", "igbvf.ko"])),
        ]);
        assert_eq!(
            with_needs(&loading, &["igbvf", "igb", "absent"]),
            order(&["dca.ko", "igbvf.ko", "igb.ko"])
        );
    }
}
