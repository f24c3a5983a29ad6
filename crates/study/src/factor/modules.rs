//! Parameters of kernel modules: requested and current values, and waiting until a module can be reloaded.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use host::kvm::KEPT_BY_KVM;
use host::vms::Vms;
use host::{parameter_path, switch};

use super::{ApplyError, Level, Setting};

/// Parameters of one module by name.
pub(super) type Wanted = BTreeMap<String, Setting>;

/// The time for which a module may stay in use after a guest has ended: the kernel destroys a VM later than its
/// process.
const PATIENCE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(50);

/// The parameters of all levels combined: a module that is reloaded for one level must keep those of the others.
pub(super) fn wanted(levels: &[&Level]) -> Result<BTreeMap<String, Wanted>, ApplyError> {
    let mut modules: BTreeMap<String, Wanted> = BTreeMap::new();
    for (module, parameters) in levels.iter().flat_map(|level| &level.module_parameters) {
        let wanted = modules.entry(module.clone()).or_default();
        for (name, value) in parameters {
            let other = wanted.insert(name.clone(), value.clone());
            if let Some(other) = other.filter(|other| !other.is(&value.to_string())) {
                let what = format!("{name} of the module {module}");
                return Err(ApplyError::Conflict { what, one: other.to_string(), other: value.to_string() });
            }
        }
    }
    Ok(modules)
}

/// The parameters whose values differ from the requested ones.
pub(super) fn differing(root: &Path, module: &str, wanted: &Wanted) -> Result<Wanted, ApplyError> {
    if !root.join("sys/module").join(module).is_dir() {
        return Err(ApplyError::NoModule { module: module.to_owned() });
    }
    let mut differing = Wanted::new();
    for (name, value) in wanted {
        let path = root.join(parameter_path(module, name).trim_start_matches('/'));
        if !path.exists() {
            let (module, parameter) = (module.to_owned(), name.clone());
            return Err(ApplyError::NoParameter { module, parameter, path });
        }
        if !value.is(&found(root, module, name)) {
            differing.insert(name.clone(), value.clone());
        }
    }
    Ok(differing)
}

/// Parameters to set in addition: if the module was loaded with APICv or AVIC off, `kvm` has cleared them, and a reload
/// does not set them again.
pub(super) fn cleared(
    root: &Path,
    module: &str,
    wanted: &Wanted,
    differing: &Wanted,
) -> Vec<(String, String)> {
    let is_on =
        |name| differing.get(name).and_then(|value: &Setting| switch(&value.to_string())) == Some(true);
    if !is_on("avic") && !is_on("enable_apicv") {
        return Vec::new();
    }
    let off = |name: &&str| switch(&found(root, module, name)) == Some(false);
    let names = KEPT_BY_KVM.iter().filter(|name| !wanted.contains_key(**name)).filter(|name| off(name));
    names.map(|name| ((*name).to_owned(), "1".to_owned())).collect()
}

/// The current value of a parameter.
pub(super) fn found(root: &Path, module: &str, name: &str) -> String {
    value(root, &parameter_path(module, name)).unwrap_or_else(|| "not readable".to_owned())
}

/// The content of a kernel file, or the selected choice of a list (`always [madvise] never`).
pub(super) fn value(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()?;
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Some(chosen.unwrap_or(text.trim()).to_owned())
}

/// Tests whether all of these parameters can be changed without reloading the module.
pub(super) fn writable(root: &Path, module: &str, parameters: &Wanted) -> bool {
    parameters.keys().all(|name| {
        let path = root.join(parameter_path(module, name).trim_start_matches('/'));
        fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o200 != 0)
    })
}

/// Waits until the module is no longer in use, for at most [`PATIENCE`].
pub(super) fn wait_until_free(root: &Path, module: &str) -> Result<(), ApplyError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let Some(users) = users(root, module) else { return Ok(()) };
        let running = Vms::discover(root).map(|found| found.vms).unwrap_or_default();
        // Do not wait for running VMs, which would not end in time.
        if !running.is_empty() || Instant::now() >= end {
            let named: Vec<String> =
                running.iter().map(|vm| format!("the VM {} (process {})", vm.name, vm.pid)).collect();
            let users = if named.is_empty() { users } else { named.join(", ") };
            return Err(ApplyError::InUse { module: module.to_owned(), users });
        }
        std::thread::sleep(STEP);
    }
}

/// The users of the module that the kernel reports: other modules, or a count.
fn users(root: &Path, module: &str) -> Option<String> {
    let home = root.join("sys/module").join(module);
    let holders = fs::read_dir(home.join("holders")).into_iter().flatten().flatten();
    let holders: Vec<String> =
        holders.map(|entry| format!("the module {}", entry.file_name().to_string_lossy())).collect();
    let count: u64 = fs::read_to_string(home.join("refcnt")).ok()?.trim().parse().ok()?;
    match (count, holders.is_empty()) {
        (0, _) => None,
        (_, false) => Some(holders.join(", ")),
        (count, true) => Some(format!("{count} users, such as processes that have /dev/kvm open")),
    }
}
