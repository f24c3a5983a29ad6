//! The VMM of a VM, and the VM's name.

use super::arguments::{properties, property, values};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The program that runs a VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Vmm {
    /// QEMU under any of its names (`qemu-system-x86_64`, `qemu-kvm`, `kvm`).
    Qemu,
    /// cloud-hypervisor.
    CloudHypervisor,
    /// crosvm.
    Crosvm,
    /// firecracker, also inside its jailer.
    Firecracker,
    /// Another VMM, identified by the process's name.
    #[default]
    Other,
}

impl Vmm {
    /// The VMM by the executable, the first argument, or the process's name, in this order: any program can
    /// change its name.
    pub(super) fn of(executable: Option<&str>, command: &str, arguments: &[String]) -> Self {
        let names = [executable, arguments.first().map(String::as_str), Some(command)];
        let known = |path: &str| Self::by_name(Path::new(path).file_name()?.to_str()?);
        names.into_iter().flatten().find_map(known).unwrap_or(Self::Other)
    }

    fn by_name(name: &str) -> Option<Self> {
        // The kernel cuts `comm` at 15 characters, so compare prefixes.
        match name {
            "kvm" => Some(Self::Qemu),
            name if name.starts_with("qemu-system-") || name.starts_with("qemu-kvm") => Some(Self::Qemu),
            name if name.starts_with("cloud-hyperviso") => Some(Self::CloudHypervisor),
            name if name.starts_with("crosvm") => Some(Self::Crosvm),
            name if name.starts_with("firecracker") => Some(Self::Firecracker),
            _ => None,
        }
    }
}

/// The limit of a VM's name, in characters, because a command line has up to 1 MiB and the name is printed for each VM.
/// Managers' names are shorter.
const LONGEST: usize = 256;

/// A name's first [`LONGEST`] characters.
pub(super) fn shortened(name: &str) -> &str {
    name.char_indices().nth(LONGEST).map_or(name, |(end, _)| &name[..end])
}

/// The full name on the command line. Use [`shortened`] unless you need its parts.
pub(super) fn of(vmm: Vmm, arguments: &[String]) -> Option<String> {
    let name = match vmm {
        Vmm::Qemu => {
            let name = properties(values(arguments, &["name"]).last()?, "guest");
            property(&name, "guest")?.to_owned()
        }
        Vmm::Crosvm => last(arguments, &["name"]).or_else(|| socket_stem(arguments, &["socket", "s"]))?,
        Vmm::Firecracker | Vmm::CloudHypervisor => {
            last(arguments, &["id"]).or_else(|| socket_stem(arguments, &["api-socket", "api-sock"]))?
        }
        // With Dragonball, Kata's shim is the VMM.
        Vmm::Other if program(arguments) == Some("containerd-shim-kata-v2") => last(arguments, &["id"])?,
        Vmm::Other => last(arguments, &["name"])?,
    };
    Some(name).filter(|name| !name.is_empty())
}

fn last(arguments: &[String], names: &[&str]) -> Option<String> {
    values(arguments, names).last().map(|&value| value.to_owned())
}

fn program(arguments: &[String]) -> Option<&str> {
    Path::new(arguments.first()?).file_name()?.to_str()
}

/// The name of a VM from the path of its socket: `web` for `/run/web.sock` or `path=/run/web.sock`.
///
/// Some managers give all sockets one name, and the directory that of the VM: Kata (virtcontainers/clh.go; runtime-rs
/// ch/utils.rs) and cuttlefish, which has a second VM, the access point (`cuttlefish_config_instance.cpp`). libvirt adds to
/// the name (`ch_monitor.c`).
fn socket_stem(arguments: &[String], names: &[&str]) -> Option<String> {
    let value = properties(values(arguments, names).last()?, "path");
    let path = Path::new(property(&value, "path")?);
    let stem = path.file_stem()?.to_string_lossy();
    let mut above = path.ancestors().skip(1).filter_map(Path::file_name).map(|name| name.to_string_lossy());
    let mut folder = || above.find(|name| name != "internal");
    let name = match &*stem {
        "clh-api" | "ch-api" | "crosvm_control" => folder().map(|name| name.into_owned()),
        "ap_control" => folder().map(|name| format!("{name}-ap")),
        _ if path.parent().is_some_and(|folder| folder.ends_with("libvirt/ch")) => {
            path.file_name()?.to_string_lossy().strip_suffix("-socket").map(str::to_owned)
        }
        _ => None,
    };
    Some(name.unwrap_or_else(|| stem.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(vmm: Vmm, line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of(vmm, &arguments)
    }

    #[test]
    fn names_of_every_vmm() {
        let table = [
            (Vmm::Qemu, "kvm -name guest=web,debug-threads=on -smp 2", Some("web")),
            (Vmm::Qemu, "kvm -name web,process=x", Some("web")),
            (Vmm::Qemu, "kvm --name a,,b", Some("a,b")),
            (Vmm::Qemu, "kvm -name debug-threads=on", None),
            (Vmm::Qemu, "kvm -name", None),
            (Vmm::Crosvm, "crosvm run --name web -s /run/x.sock", Some("web")),
            (Vmm::Crosvm, "crosvm run --socket=/run/x.sock", Some("x")),
            (Vmm::Firecracker, "firecracker --api-sock /run/a.socket --id web", Some("web")),
            (Vmm::Firecracker, "firecracker --api-sock /run/a.socket", Some("a")),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket path=/run/web.sock", Some("web")),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket=/run/web.sock", Some("web")),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket fd=3", None),
            (
                Vmm::CloudHypervisor,
                "cloud-hypervisor --api-socket /run/vc/vm/0a1b/clh-api.sock",
                Some("0a1b"),
            ),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket /run/kata/0a1b/ch-api.sock", Some("0a1b")),
            (Vmm::CloudHypervisor, "cloud-hypervisor --api-socket ch-api.sock", Some("ch-api")),
            (
                Vmm::CloudHypervisor,
                "cloud-hypervisor --api-socket /run/libvirt/ch/web.1-socket",
                Some("web.1"),
            ),
            (Vmm::Crosvm, "crosvm run --socket=/cf/cvd-1/internal/crosvm_control.sock", Some("cvd-1")),
            (Vmm::Crosvm, "crosvm run --socket=/cf/cvd-1/internal/ap_control.sock", Some("cvd-1-ap")),
            (Vmm::Other, "/opt/kata/bin/containerd-shim-kata-v2 -namespace k8s.io -id 0a1b", Some("0a1b")),
            (Vmm::Other, "lkvm run --name web", Some("web")),
            (Vmm::Other, "lkvm run --id web", None),
            (Vmm::Other, "exitless probe", None),
        ];
        for (vmm, line, expected) in table {
            assert_eq!(name(vmm, line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        for text in ["", "web", &"x".repeat(LONGEST), &"é".repeat(LONGEST)] {
            assert_eq!(shortened(text), text);
            let longer = format!("{}é", text.repeat(LONGEST));
            assert_eq!(shortened(&longer), longer.chars().take(LONGEST).collect::<String>());
        }
    }

    #[test]
    fn the_file_counts_before_the_names() {
        let arguments = ["firecracker".to_owned()];
        assert_eq!(Vmm::of(Some("/usr/bin/qemu-system-x86_64"), "x", &arguments), Vmm::Qemu);
        assert_eq!(Vmm::of(Some("/opt/firecracker-v1.7.0-x86_64"), "fc", &[]), Vmm::Firecracker);
        assert_eq!(Vmm::of(Some("/exe"), "crosvm", &arguments), Vmm::Firecracker);
        assert_eq!(Vmm::of(None, "cloud-hyperviso", &[]), Vmm::CloudHypervisor);
        assert_eq!(Vmm::of(None, "kvm-spice", &[]), Vmm::Other);
    }
}
