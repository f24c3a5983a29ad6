//! Kernel modules: their parameters, and reloading them.

use crate::{Actions, Error, Parameters, cut_short, kernel_install, under};
use std::fs;
use std::path::Path;

/// The parameters of a module; `None` if it is not loaded.
pub(crate) fn parameters(root: &Path, module: &str) -> Option<Parameters> {
    let home = under(root, "/sys/module").join(module);
    if !home.is_dir() {
        return None;
    }
    let mut parameters = Parameters::new();
    for entry in fs::read_dir(home.join("parameters")).into_iter().flatten().flatten() {
        if let Ok(bytes) = fs::read(entry.path()) {
            let value = String::from_utf8_lossy(&bytes).trim().to_owned();
            parameters.insert(entry.file_name().to_string_lossy().into_owned(), value);
        }
    }
    Some(parameters)
}

/// Loads the module with these parameters, after removing it if it is loaded.
pub(crate) fn reload(
    root: &Path,
    actions: &mut impl Actions,
    module: &str,
    given: &Parameters,
) -> Result<(), Error> {
    unload(root, actions, module)?;
    cut_short::here().map_err(Error::access("load", under(root, "/sys/module").join(module)))?;
    actions.load(module, given)
}

/// Removes the module if it is loaded; an error if it is in use.
pub(crate) fn unload(root: &Path, actions: &mut impl Actions, module: &str) -> Result<(), Error> {
    let home = under(root, "/sys/module").join(module);
    if !home.is_dir() {
        return Ok(());
    }
    // The kernel would refuse too, but only after rmmod has run.
    let users = fs::read_to_string(home.join("refcnt")).ok().and_then(|text| text.trim().parse().ok());
    if let Some(users @ 1..) = users {
        return Err(Error::ModuleInUse { module: module.to_owned(), users });
    }
    cut_short::here().map_err(Error::access("remove", home))?;
    actions.unload(module)
}

/// Reloads the module so that all parameters have their values of `before`. `first` are those to pass in the
/// first try.
///
/// Parameters from modprobe.d need not be passed. Those that were once passed by hand show only as differences after
/// the first try, and are passed in a second one.
pub(crate) fn give_back(
    root: &Path,
    actions: &mut impl Actions,
    module: &str,
    before: &Parameters,
    first: Parameters,
) -> Result<(), Error> {
    reload(root, actions, module, &first)?;
    let differing = differences(root, module, before);
    if differing.is_empty() {
        return Ok(());
    }
    let mut given = first.clone();
    given.extend(differing);
    if let Err(error) = reload(root, actions, module, &given) {
        // The kernel may not accept a value that it prints. Load the module anyway: without it the host
        // cannot run VMs.
        if parameters(root, module).is_none() {
            let _ = actions.load(module, &first);
        }
        return Err(error);
    }
    let differing = differences(root, module, before);
    if differing.is_empty() {
        return Ok(());
    }
    let now = parameters(root, module).unwrap_or_default();
    let told = differing.iter().map(|(name, old)| {
        format!("{name} was {old} and is {}", now.get(name).map_or("not there", String::as_str))
    });
    Err(Error::Parameters { module: module.to_owned(), parameters: told.collect::<Vec<_>>().join(", ") })
}

fn differences(root: &Path, module: &str, before: &Parameters) -> Parameters {
    let now = parameters(root, module).unwrap_or_default();
    let differing = before.iter().filter(|&(name, value)| now.get(name) != Some(value));
    differing.map(|(name, value)| (name.clone(), value.clone())).collect()
}

pub(crate) fn run(root: &Path, actions: &mut impl Actions, command: &[String]) -> Result<(), Error> {
    for command in kernel_install::commands(root, command) {
        cut_short::here().map_err(Error::access("run", command.join(" ")))?;
        actions.run(&command)?;
    }
    Ok(())
}
