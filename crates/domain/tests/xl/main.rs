//! Definitions of Xen's guests, compared with `xl` itself.
//!
//! Each file of the corpus has the output of `xl create -n` of Xen 4.20 next to it, without the random
//! `uuid`, except those that it refused. A test in the lab runs a real `xl` and compares again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use domain::{Definition, Device, DeviceKind, Text};
use serde_json::{Value, json};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xl/corpus")
}

/// Names, this crate's definitions, and xl's output.
fn cases() -> Vec<(String, Definition, Option<Value>)> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cfg"));
    files.sort();
    let case = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let definition = domain::xl::read(&Text::new(name.clone(), fs::read(&path).unwrap())).ok()?;
        let printed = fs::read(path.with_extension("json")).ok();
        Some((name, definition, printed.map(|text| serde_json::from_slice(&text).unwrap())))
    };
    files.into_iter().filter_map(case).collect()
}

fn devices(vm: &Definition, kind: DeviceKind) -> impl Iterator<Item = &Device> {
    vm.devices.iter().filter(move |device| device.kind == kind)
}

fn property<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    device.properties.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn list(printed: &Value, name: &str) -> Vec<Value> {
    printed[name].as_array().cloned().unwrap_or_default()
}

#[test]
fn what_xl_refuses_has_doubts_and_what_it_takes_has_none() {
    let mut refused = 0;
    for (name, vm, printed) in cases() {
        // xl ignores an invalid number with a warning; this crate ignores it with a doubt.
        let doubted = printed.is_none() || name == "bad-number";
        assert_eq!(!vm.doubts.is_empty(), doubted, "{name}: {:?}", vm.doubts);
        refused += usize::from(printed.is_none());
    }
    assert!(refused >= 4, "{refused}");
    // A file with wrong line ends is not a definition.
    let text = fs::read(corpus().join("bad-return.cfg")).unwrap();
    assert!(domain::xl::read(&Text::new("bad-return.cfg", text)).is_err());
}

#[test]
fn plain_settings_are_those_of_xl() {
    for (name, vm, printed) in cases() {
        let Some(printed) = printed else { continue };
        let (made, built) = (&printed["c_info"], &printed["b_info"]);
        assert_eq!(json!(vm.name.as_ref().map(|set| &set.value)), made["name"], "{name}");
        assert_eq!(json!(vm.xen_type().name().to_lowercase()), made["type"], "{name}");
        let memory = vm.memory_mib.as_ref().map(|set| set.value * 1024);
        assert_eq!(json!(memory), built["target_memkb"], "{name}");
        let count = vm.vcpus.count.as_ref().map(|set| set.value);
        assert_eq!(json!(count.map(|count| (0..count).collect::<Vec<_>>())), built["avail_vcpus"], "{name}");
        let most = vm.vcpus.maximum.as_ref().map(|set| set.value).or(count);
        assert_eq!(json!(most), built["max_vcpus"], "{name}");
        let hpet = vm.timers.hpet.as_ref().map(|set| if set.value { "True" } else { "False" });
        assert_eq!(json!(hpet), built["type.hvm"]["hpet"], "{name}");
        let pins: Vec<BTreeSet<u64>> = vm.vcpu_pins.iter().map(|set| processors(&set.value.1)).collect();
        let theirs = list(built, "vcpu_hard_affinity");
        assert_eq!(json!(pins), Value::Array(theirs), "{name}");
        for (setting, theirs) in [
            ("kernel", &built["kernel"]),
            ("ramdisk", &built["ramdisk"]),
            ("extra", &built["cmdline"]),
            ("on_poweroff", &printed["on_poweroff"]),
        ] {
            let ours = vm.other.iter().find(|set| set.value.0 == setting).map(|set| &set.value.1);
            assert_eq!(json!(ours), *theirs, "{name}: {setting}");
        }
    }
}

/// The processors in `1-3,^2`.
fn processors(text: &str) -> BTreeSet<u64> {
    let mut named = BTreeSet::new();
    for part in text.split(',') {
        let (not, range) = part.strip_prefix('^').map_or((false, part), |rest| (true, rest));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for processor in first.parse().unwrap()..=last.parse::<u64>().unwrap() {
            if not {
                named.remove(&processor)
            } else {
                named.insert(processor)
            };
        }
    }
    named
}

#[test]
fn disks_are_those_of_xl() {
    for (name, vm, printed) in cases() {
        let Some(printed) = printed else { continue };
        let ours: Vec<Value> = devices(&vm, DeviceKind::Disk)
            .map(|disk| {
                json!({
                    "path": disk.source.as_ref().map(|set| &set.value),
                    "vdev": disk.id,
                    "format": property(disk, "format").filter(|format| !format.is_empty()).unwrap_or("raw"),
                    "cd": property(disk, "cdrom").is_some() || property(disk, "devtype") == Some("cdrom"),
                    "script": property(disk, "script"),
                    "backend": property(disk, "backendtype"),
                })
            })
            .collect();
        let theirs: Vec<Value> = list(&printed, "disks")
            .iter()
            .map(|disk| {
                json!({
                    "path": disk["pdev_path"],
                    "vdev": disk["vdev"],
                    "format": disk["format"],
                    "cd": disk["is_cdrom"] == 1,
                    "script": disk["script"],
                    "backend": disk["backend"],
                })
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn network_interfaces_and_devices_of_the_host_are_those_of_xl() {
    for (name, vm, printed) in cases() {
        let Some(printed) = printed else { continue };
        let ours: Vec<Value> = devices(&vm, DeviceKind::Network)
            .map(|nic| {
                let kind = property(nic, "type").map(|kind| if kind == "ioemu" { "vif_ioemu" } else { kind });
                json!([
                    property(nic, "mac").map(str::to_lowercase),
                    nic.source.as_ref().map(|set| &set.value),
                    property(nic, "model"),
                    nic.id,
                    kind,
                ])
            })
            .collect();
        let printed_nics = list(&printed, "nics");
        let theirs = printed_nics.iter().map(|nic| {
            json!([
                nic["mac"].as_str().map(str::to_lowercase),
                nic["bridge"],
                nic["model"],
                nic["ifname"],
                nic["nictype"]
            ])
        });
        assert_eq!(ours, theirs.collect::<Vec<_>>(), "{name}");

        let ours: Vec<Value> = devices(&vm, DeviceKind::Assigned)
            .map(|device| {
                let address = device.source.as_ref().unwrap().value.clone();
                let on = |name: &str| property(device, name).map(|value| value == "1");
                json!([address, on("permissive"), on("seize")])
            })
            .collect();
        let printed_devices = list(&printed, "pcidevs");
        let theirs = printed_devices.iter().map(|device| {
            let number = |name: &str| device[name].as_u64().unwrap_or(0);
            let address = format!("{:02x}:{:02x}.{}", number("bus"), number("dev"), number("func"));
            let whole = format!("{:04x}:{address}", number("domain"));
            let slot = number("vdevfn") >> 3;
            let written = if slot > 0 { format!("{whole}@{slot}") } else { address };
            json!([written, device["permissive"], device["seize"]])
        });
        assert_eq!(ours, theirs.collect::<Vec<_>>(), "{name}");
    }
}
