//! The input of `xl create` for one domain: its definition, and the hotplug scripts of its disk and its network.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use guest::{Network, Port, Settings};

use super::super::GuestFiles;
use super::super::addresses::{PREFIX, measured_network};
use super::super::kernel::command_line;
use super::super::plan::{XenDomainType, XenImagePlan, XlValue};
use crate::shell::quoted;

/// Kernel arguments of these domains. The kernel's log shares the console with the agent's frames, so its level is low.
const KERNEL_ARGUMENTS: &str = "console=hvc0 loglevel=3";

/// The hotplug script for the root disk. Xen's own scripts for disks and networks look for other users of a disk and
/// for bridges, which takes longer on an emulated CPU than xl waits; ours only set what the backends need. A root that
/// is a file gets a loop device.
const DISK_SCRIPT: &str = "#!/bin/sh
set -e
root={root}
case \"$1\" in
add)
    [ -b \"$root\" ] || { root=$(losetup --read-only --find --show \"$root\"); echo \"$root\" > {loop}; }
    xenstore-write \"$XENBUS_PATH/physical-device\" \"$(stat -L -c %t:%T \"$root\")\" \\
        \"$XENBUS_PATH/hotplug-status\" connected;;
remove)
    [ ! -e {loop} ] || { losetup -d \"$(cat {loop})\"; rm {loop}; };;
esac
";
const NETWORK_SCRIPT: &str = "#!/bin/sh
set -e
[ \"$1\" = online ] || exit 0
ip addr add {host}/{prefix} dev \"$vif\"
ip link set \"$vif\" up
xenstore-write \"$XENBUS_PATH/hotplug-status\" connected
";

/// The path of a domain's definition, and its network addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) path: PathBuf,
    pub(super) host: Option<IpAddr>,
}

/// Writes the definition of domain `index`, and its scripts, into `folder`.
///
/// # Errors
/// The file that could not be written, or whose path xl cannot read.
pub(super) fn write(
    plan: &XenImagePlan,
    index: u32,
    name: &str,
    files: &GuestFiles,
    folder: &Path,
) -> Result<Definition, String> {
    let named = [&files.kernel, &files.compressed_kernel, &files.initial_ram_disk, &files.root];
    for path in named.into_iter().map(PathBuf::as_path).chain([folder]) {
        if shown(path).contains(['"', '\\', ',', '\n']) {
            return Err(format!(
                "The path {path:?} has a quotation mark, a backslash, a comma or a line end, which xl.cfg(5) cannot have \
                 in the path of a disk or script; use a folder without them"
            ));
        }
    }
    let put = |file: &str, text: &str, mode: u32| {
        let path = folder.join(file);
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
        written
            .map(|()| path)
            .map_err(|error| format!("Could not write {}: {error}", folder.join(file).display()))
    };
    let (host, _) = measured_network(index);
    let root = quoted(&shown(&files.root));
    let disk = DISK_SCRIPT.replace("{root}", &root).replace("{loop}", &quoted(&shown(&folder.join("loop"))));
    let network =
        NETWORK_SCRIPT.replace("{host}", &host.to_string()).replace("{prefix}", &PREFIX.to_string());
    let disk = put("disk", &disk, 0o755)?;
    let network = if plan.net { Some(put("network", &network, 0o755)?) } else { None };
    let text = definition(plan, index, name, files, &disk, network.as_deref());
    Ok(Definition { path: put("xl.cfg", &text, 0o644)?, host: plan.net.then_some(host) })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The text of the definition (xl.cfg(5)).
pub(super) fn definition(
    plan: &XenImagePlan,
    index: u32,
    name: &str,
    files: &GuestFiles,
    disk: &Path,
    network: Option<&Path>,
) -> String {
    let kernel = match plan.kind {
        XenDomainType::Pvh => &files.kernel,
        XenDomainType::Hvm => &files.compressed_kernel,
    };
    // The check of the plan and `write` refuse what a string cannot hold.
    let string = |text: &str| format!("\"{text}\"");
    let list = |texts: Vec<String>| format!("[ {} ]", texts.join(", "));
    let disk = format!(
        "format=raw,vdev=xvda,access=ro,backendtype=phy,script={},target={}",
        disk.display(),
        files.root.display()
    );
    let mut settings: Vec<(&str, String)> = vec![
        ("name", string(name)),
        ("type", string(plan.kind.name())),
        ("kernel", string(&shown(kernel))),
        ("ramdisk", string(&shown(&files.initial_ram_disk))),
        ("extra", string(&kernel_arguments(plan, index))),
        ("memory", (plan.memory.bytes() >> 20).to_string()),
        ("vcpus", plan.vcpus.to_string()),
        ("disk", list(vec![string(&disk)])),
        ("on_poweroff", string("destroy")),
        ("on_reboot", string("destroy")),
        ("on_crash", string("destroy")),
    ];
    if let Some(network) = network {
        let [_, _, high, low] = index.to_be_bytes();
        let network = network.display();
        let rate = plan.net_rate.map_or_else(String::new, |rate| format!(",rate={}B/s", rate.bytes()));
        let vif = format!("mac=00:16:3e:18:{high:02x}:{low:02x},type=vif,script={network}{rate}");
        settings.push(("vif", list(vec![string(&vif)])));
    }
    if !plan.pin.is_empty() {
        let first = u64::from(index) * u64::from(plan.vcpus);
        let turns = (first..).take(plan.vcpus as usize);
        let cpus = turns.filter_map(|turn| plan.pin.get(usize::try_from(turn).ok()? % plan.pin.len()));
        settings.push(("cpus", list(cpus.map(|cpu| string(&cpu.to_string())).collect())));
    }
    if plan.kind == XenDomainType::Hvm {
        let none =
            [("vga", string("none")), ("nographic", "1".into()), ("vnc", "0".into()), ("usb", "0".into())];
        settings.extend(none);
    }
    // If a setting occurs twice, xl uses the last one, so the plan's settings come last.
    settings.extend(plan.settings.iter().map(|(name, value)| {
        let value = match value {
            XlValue::Number(number) => number.to_string(),
            XlValue::Text(text) => string(text),
            XlValue::List(texts) => list(texts.iter().map(|text| string(text)).collect()),
        };
        (name.as_str(), value)
    }));
    settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
}

fn kernel_arguments(plan: &XenImagePlan, index: u32) -> String {
    let mut modules = vec!["overlay".to_owned(), "xen_blkfront".to_owned()];
    modules.extend(plan.net.then(|| "xen_netfront".to_owned()));
    let (host, address) = measured_network(index);
    let network = plan.net.then_some(Network::Static { address, prefix: PREFIX, host });
    let settings = Settings { modules, port: Port::XenConsole, data: false, network };
    command_line(KERNEL_ARGUMENTS, &settings, &plan.kernel_arguments)
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
