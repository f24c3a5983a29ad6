//! Devices of xl.cfg: the guest's view, with QEMU's names for those that QEMU emulates.

use super::pins;
use super::settings::{Setting, Value};
use crate::{Backend, Definition, Device, DeviceKind, Place, Set};
use exits::XenGuestType;

/// Reads a setting of devices; `false` for others.
pub(super) fn add(vm: &mut Definition, setting: &Setting) -> bool {
    let make: fn(&str, XenGuestType) -> Made = match setting.name.as_str() {
        "disk" => disk,
        "vif" => network,
        "pci" => assigned,
        "usbdevice" => usb,
        "cpus" if matches!(setting.value, Value::List(_)) => {
            pins::fill_from_list(vm, &setting.value);
            return false;
        }
        _ => return false,
    };
    let guest = vm.xen_type();
    if setting.name == "pci" {
        doubt_addresses(vm, setting);
    }
    let devices = specifications(setting).into_iter().map(|(text, place)| make(&text, guest).at(place));
    vm.devices.extend(devices);
    true
}

/// Adds a doubt for each assigned device without a valid address: `xl` refuses the file (libxlu_pci.c,
/// `parse_bdf`). A device in the form `name=` needs no address.
fn doubt_addresses(vm: &mut Definition, setting: &Setting) {
    for (text, place) in specifications(setting) {
        let made = assigned(&text, XenGuestType::Hvm);
        let good = made.property("name").is_some() || made.property("bdf").is_some_and(is_address);
        if !good {
            vm.doubts.push(format!(
                "Line {}: {:?} is not a device address such as 0000:03:10.0; `xl` refuses the file.",
                place.line,
                text.chars().take(LONGEST_QUOTE).collect::<String>()
            ));
        }
    }
}

/// The largest number of characters of an invalid text to quote.
const LONGEST_QUOTE: usize = 60;

/// Tests whether a text is `[DOMAIN:]BUS:DEVICE.FUNCTION[@SLOT]`, with `*` for all functions.
fn is_address(text: &str) -> bool {
    let (address, slot) = text.split_once('@').map_or((text, "0"), |(address, slot)| (address, slot));
    let hexadecimal = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    // A bus has 32 devices.
    let device_number =
        |part: &str| hexadecimal(part, 2) && u8::from_str_radix(part, 16).is_ok_and(|number| number < 32);
    let Some((place, function)) = address.rsplit_once('.') else { return false };
    let parts: Vec<&str> = place.split(':').collect();
    let placed = match parts[..] {
        [bus, device] => hexadecimal(bus, 2) && device_number(device),
        [domain, bus, device] => hexadecimal(domain, 4) && hexadecimal(bus, 2) && device_number(device),
        _ => false,
    };
    let functions = |part: &str| matches!(part.as_bytes(), [b'0'..=b'7'] | [b'0'..=b'7', b'-', b'0'..=b'7']);
    placed && device_number(slot) && (function == "*" || function.split(',').all(functions))
}

/// The items of a list, or a single item.
fn specifications(setting: &Setting) -> Vec<(String, Place)> {
    match &setting.value {
        Value::Atom(text) => vec![(text.clone(), setting.place.clone())],
        Value::List(items) => items.iter().map(|(item, place)| (item.text(), place.clone())).collect(),
    }
}

#[derive(Default)]
struct Made {
    kind: Option<DeviceKind>,
    model: String,
    id: Option<String>,
    backend: Option<Backend>,
    source: Option<String>,
    properties: Vec<(String, String)>,
}

impl Made {
    fn at(self, place: Place) -> Device {
        Device {
            id: self.id,
            backend: self.backend.map(|backend| Set::new(backend, place.clone())),
            source: self.source.map(|source| Set::new(source, place.clone())),
            properties: self.properties,
            ..Device::new(self.kind.unwrap_or(DeviceKind::Other), self.model, place)
        }
    }

    fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// `key=value` and bare words, separated by commas. `target=` takes the rest of the text
/// (xl-disk-configuration(5)).
fn properties(text: &str, positional: &[&str]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut free = positional.iter();
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start();
        if let Some(target) = trimmed.strip_prefix("target=").filter(|_| positional.contains(&"target")) {
            found.push(("target".to_owned(), target.to_owned()));
            return found;
        }
        let (part, behind) =
            trimmed.split_once(',').map_or((trimmed, None), |(part, rest)| (part, Some(rest)));
        let part = part.trim();
        match part.split_once('=') {
            Some((name, value)) => found.push((name.trim().to_owned(), value.trim().to_owned())),
            None if FLAGS.contains(&part) => found.push((part.to_owned(), String::new())),
            None => match free.next() {
                Some(name) if !part.is_empty() => found.push(((*name).to_owned(), part.to_owned())),
                Some(_) => {}
                None if !part.is_empty() => found.push((part.to_owned(), String::new())),
                None => {}
            },
        }
        match behind {
            Some(behind) => rest = behind,
            None => return found,
        }
    }
}

/// Flags of disks.
const FLAGS: &[&str] = &["cdrom", "discard", "no-discard", "direct-io-safe", "specification"];

fn disk(text: &str, guest: XenGuestType) -> Made {
    let mut made = Made { kind: Some(DeviceKind::Disk), ..Made::default() };
    let (rest, prefixed) = without_prefixes(text);
    // Disks with a prefix have no format in the positional form.
    let all = ["target", "format", "vdev", "access"];
    let positional = if rest.len() < text.trim_start().len() { &[all[0], all[2], all[3]][..] } else { &all };
    made.properties = properties(rest, positional);
    if let Some((name, value)) = prefixed {
        made.properties.push((name.to_owned(), value));
    }
    let vdev = made.property("vdev").unwrap_or_default().to_owned();
    let cd = made.property("cdrom").is_some() || made.property("devtype") == Some("cdrom");
    made.model = match (guest, vdev.get(..2)) {
        (XenGuestType::Hvm, _) if cd => "ide-cd",
        (XenGuestType::Hvm, Some("hd")) => "ide-hd",
        (XenGuestType::Hvm, Some("sd")) => "scsi-hd",
        _ => "xen-vbd",
    }
    .to_owned();
    made.source = made.property("target").map(str::to_owned);
    let format = made.property("format").unwrap_or("raw");
    let file = made.source.as_deref().is_some_and(|path| path.starts_with('/') && !path.starts_with("/dev/"));
    // Block devices use the kernel's backend; files, and images with a format, use QEMU (libxl_disk.c,
    // libxl__device_disk_set_backend).
    made.backend = match made.property("backendtype") {
        Some("qdisk") => Some(Backend::Vmm),
        Some(_) => None,
        None => (format != "raw" || file).then_some(Backend::Vmm),
    };
    made.id = Some(vdev).filter(|vdev| !vdev.is_empty());
    made
}

/// A disk without the deprecated prefixes of its target, and their meaning (`libxlu_disk_l.l` of Xen 4.20,
/// "deprecated prefixes").
fn without_prefixes(text: &str) -> (&str, Option<(&'static str, String)>) {
    const FORMATS: [&str; 5] = ["raw", "qcow", "qcow2", "vhd", "qed"];
    const SCRIPTS: [&str; 4] = ["iscsi", "nbd", "enbd", "drbd"];
    const NOTHING: [&str; 6] = ["phy", "file", "tap", "tap2", "aio", "tapdisk"];
    let (mut rest, mut found) = (text.trim_start(), None);
    while let Some((prefix, behind)) = rest.split_once(':') {
        if FORMATS.contains(&prefix) {
            found = Some(("format", prefix.to_owned()));
        } else if SCRIPTS.contains(&prefix) {
            found = Some(("script", format!("block-{prefix}")));
        } else if !NOTHING.contains(&prefix) {
            break;
        }
        rest = behind;
    }
    (rest, found)
}

fn network(text: &str, guest: XenGuestType) -> Made {
    let mut made = Made { kind: Some(DeviceKind::Network), ..Made::default() };
    made.properties = properties(text, &[]);
    let emulated = guest == XenGuestType::Hvm && made.property("type") != Some("vif");
    made.model = match made.property("model") {
        _ if !emulated => "xen-netfront",
        Some(model) => model,
        None => "rtl8139",
    }
    .to_owned();
    made.source = made.property("bridge").map(str::to_owned);
    made.id = made.property("vifname").map(str::to_owned);
    made
}

fn assigned(text: &str, _: XenGuestType) -> Made {
    let mut made = Made { kind: Some(DeviceKind::Assigned), model: "xen-pci".to_owned(), ..Made::default() };
    made.properties = properties(text, &["bdf"]);
    made.source = made.property("bdf").map(str::to_owned);
    made
}

fn usb(text: &str, _: XenGuestType) -> Made {
    Made {
        kind: Some(DeviceKind::Input),
        model: format!("usb-{text}"),
        properties: vec![("device".to_owned(), text.to_owned())],
        ..Made::default()
    }
}
