//! Interrupts of devices, and the processors that handle them.

use crate::interrupt_lines::interrupt_lines;
use crate::root::kind_of;
use crate::{AbsenceKind, CpuSet, Evidence, Fact, Root};

/// The interrupts of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Interrupts of network, storage and assigned devices, by number.
    pub devices: Fact<Vec<Interrupt>>,
    /// The number of remapped device interrupts (their chip's name starts with `IR-`), and of all device
    /// interrupts.
    pub remapped: Fact<(u32, u32)>,
    /// `PIN`: posted-interrupt notifications of all processors since boot (Intel; `arch/x86/kernel/irq.c`);
    /// absent if the kernel does not count them.
    pub posted: Option<u64>,
    /// `PIW`: posted-interrupt wakeups.
    pub posted_wakeups: Option<u64>,
}

/// The kind of an interrupt's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A network device.
    Network,
    /// A storage device (NVMe, virtio-blk, host adapters).
    Storage,
    /// A device assigned to a VM (VFIO).
    Assigned,
}

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The chip that delivers it (`IR-PCI-MSIX-0000:65:00.0`).
    pub chip: String,
    /// The action name (`mlx5_comp3@pci:0000:65:00.0`, `nvme0q4`, `vfio-msix[0](0000:65:00.0)`).
    pub action: String,
    /// The kind of its device.
    pub kind: DeviceKind,
    /// The number of times it occurred since boot, on all processors.
    pub count: u64,
    /// The allowed processors (`/proc/irq/N/smp_affinity_list`).
    pub affinity: Option<CpuSet>,
    /// The effective processors (`/proc/irq/N/effective_affinity_list`).
    pub effective: Option<CpuSet>,
}

impl Interrupt {
    /// Tests whether its affinity is managed: the kernel alone chooses the processors and refuses writes to `/proc/irq`. This
    /// is so for NVMe's I/O queues (`drivers/nvme/host/pci.c`, `PCI_IRQ_AFFINITY`; `nvme0q0` is the admin queue). Queues of
    /// other storage adapters may be managed too, but their names do not show it.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        let queue = self.action.strip_prefix("nvme").and_then(|rest| rest.split_once('q'));
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        queue.is_some_and(|(disk, queue)| is_number(disk) && is_number(queue) && queue != "0")
    }
}

const FILE: &str = "/proc/interrupts";
/// The largest number of interrupts whose affinities are read (two files each).
const MOST_ASKED: usize = 4096;

impl Interrupts {
    pub(super) fn read(root: &Root) -> Self {
        let text = match root.read(FILE) {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = format!("{FILE} cannot be read: {error}");
                let absent = Fact::absent(kind_of(&error), why);
                return Self {
                    remapped: absent.part(|_: &Vec<Interrupt>| (0, 0)),
                    devices: absent,
                    ..Self::default()
                };
            }
        };
        let text = String::from_utf8_lossy(&text);
        let mut found = Self::parse(&text);
        if let Ok(devices) = &mut found.devices.value {
            for one in devices.iter_mut().take(MOST_ASKED) {
                let list = |name: &str| {
                    let path = format!("/proc/irq/{}/{name}", one.number);
                    root.text(&path, "a list such as 0-3").ok().and_then(|text| CpuSet::parse(&text))
                };
                (one.affinity, one.effective) = (list("smp_affinity_list"), list("effective_affinity_list"));
            }
        }
        found
    }

    fn parse(text: &str) -> Self {
        let (mut devices, mut remapped, mut sample, mut count) = (Vec::new(), 0, None, 0);
        let (mut posted, mut wakeups) = (None, None);
        for line in interrupt_lines(text).into_iter().flat_map(|(_, lines)| lines) {
            match line.label {
                "PIN" => posted = Some(line.total()),
                "PIW" => wakeups = Some(line.total()),
                number => {
                    let Ok(number) = number.parse() else { continue };
                    let Some(one) = interrupt(number, line.total(), line.rest) else { continue };
                    count += 1;
                    if one.0.chip.starts_with("IR-") {
                        remapped += 1;
                        sample.get_or_insert_with(|| line.rest.to_owned());
                    }
                    if let (one, Some(kind)) = one {
                        devices.push(Interrupt { kind, ..one });
                    }
                }
            }
        }
        devices.sort_by_key(|one| one.number);
        let text = match sample {
            Some(sample) => format!("{remapped} of {count} remapped, first: {sample}"),
            None => format!("0 of {count} remapped"),
        };
        Self {
            devices: Fact {
                value: Ok(devices),
                evidence: vec![Evidence::new(FILE, exits::counted(u64::from(count), "interrupt"))],
            },
            remapped: if count == 0 {
                Fact::absent(AbsenceKind::NotApplicable, format!("{FILE} lists no interrupt of a device"))
            } else {
                Fact::known((remapped, count), FILE, text)
            },
            posted,
            posted_wakeups: wakeups,
        }
    }
}

/// An interrupt with its chip, and the kind of its device if that is relevant. After the counts there are the
/// chip, the number in the chip with its trigger (`0-edge`), and the action name (`kernel/irq/proc.c`,
/// `show_interrupts`); before about Linux 6.9, names of PCI chips had no address.
fn interrupt(number: u32, count: u64, rest: &str) -> Option<(Interrupt, Option<DeviceKind>)> {
    let mut words = rest.splitn(2, char::is_whitespace);
    let chip = words.next().filter(|chip| !chip.is_empty())?.to_owned();
    let rest = words.next().unwrap_or_default().trim();
    // The number in the chip and its trigger may be separate words.
    let action = rest
        .find("edge")
        .or_else(|| rest.find("fasteoi"))
        .or_else(|| rest.find("level"))
        .map_or(rest, |at| rest[at..].split_once(char::is_whitespace).map_or("", |(_, action)| action));
    let action = action.trim().to_owned();
    let kind = kind(&action);
    let one =
        Interrupt { number, chip, action, kind: DeviceKind::Network, count, affinity: None, effective: None };
    Some((one, kind))
}

/// The kind of a device, by the names that drivers use. Devices of other kinds do not have a queue per
/// processor, and rarely matter.
fn kind(action: &str) -> Option<DeviceKind> {
    const NETWORK: &[&str] = &[
        "mlx5",
        "mlx4",
        "i40e",
        "ixgbe",
        "igb",
        "igc",
        "ice",
        "iavf",
        "e1000",
        "bnxt",
        "bnx2x",
        "ena",
        "enic",
        "tg3",
        "qede",
        "hns3",
        "virtio_net",
        "gve",
        "atlantic",
        "r8169",
        "nfp",
        "sfc",
        "cxgb4",
        "octep",
        "mana",
    ];
    const STORAGE: &[&str] =
        &["nvme", "megasas", "mpt3sas", "mpi3mr", "aacraid", "smartpqi", "hpsa", "lpfc", "qla2xxx", "ahci"];
    if action.contains("vfio-") {
        return Some(DeviceKind::Assigned);
    }
    if STORAGE.iter().any(|name| action.starts_with(name)) {
        return Some(DeviceKind::Storage);
    }
    let of_interface = action
        .split(['-', '@', ' ', ':'])
        .any(|part| NETWORK.iter().any(|name| part.starts_with(name)) || is_interface(part));
    // The names of virtio queues show their purpose.
    if action.starts_with("virtio") {
        if action.contains("req.") || action.contains("request") {
            return Some(DeviceKind::Storage);
        }
        return (action.contains("input") || action.contains("output")).then_some(DeviceKind::Network);
    }
    of_interface.then_some(DeviceKind::Network)
}

/// Tests for names of interfaces by the kernel and by systemd: `eth0`, `enp65s0f0np0`, `eno1`, `ens3f1`.
fn is_interface(part: &str) -> bool {
    let after = ["eth", "enp", "eno", "ens", "enP"].into_iter().find_map(|before| part.strip_prefix(before));
    after.is_some_and(|after| after.bytes().next().is_some_and(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "            CPU0       CPU1\n   8:          0          1  IR-IO-APIC    8-edge      rtc0\n \
        40:        100         11  IR-PCI-MSIX-0000:65:00.0    3-edge      mlx5_comp3@pci:0000:65:00.0\n \
        41:          7          0  IR-PCI-MSI 1048577-edge      nvme0q1\n \
        42:          5          0   PCI-MSIX-0000:03:00.0   1-edge      virtio2-req.0\n \
        43:          6          0   PCI-MSIX-0000:04:00.0   1-edge      virtio3-input.0\n \
        44:          1          2  IR-PCI-MSIX-0000:66:00.0    0-edge      vfio-msix[0](0000:66:00.0)\n \
        45:          1          2  PCI-MSI 12-edge enp3s0f0-TxRx-1\nNMI:   1  2   Non-maskable interrupts\n\
        PIN:          3          4   Posted-interrupt notification event\nPIW:          0          9   x\n";

    #[test]
    fn devices_by_their_names() {
        let found = Interrupts::parse(TEXT);
        let told: Vec<_> =
            found.devices.get().unwrap().iter().map(|one| (one.number, one.kind, one.count)).collect();
        let (network, storage) = (DeviceKind::Network, DeviceKind::Storage);
        let expected = [
            (40, network, 111),
            (41, storage, 7),
            (42, storage, 5),
            (43, network, 6),
            (44, DeviceKind::Assigned, 3),
            (45, network, 3),
        ];
        assert_eq!(told, expected);
        assert_eq!(found.remapped.value, Ok((4, 7)));
        assert_eq!((found.posted, found.posted_wakeups), (Some(7), Some(9)));
        assert_eq!(found.devices.get().unwrap()[0].action, "mlx5_comp3@pci:0000:65:00.0");
        assert_eq!(found.devices.get().unwrap()[1].chip, "IR-PCI-MSI");
        let managed = found.devices.get().unwrap().iter().filter(|one| one.is_managed());
        assert_eq!(managed.map(|one| one.number).collect::<Vec<_>>(), [41]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[A-Z0-9a-z:\\- \n]{0,200}") {
            let _ = Interrupts::parse(&text);
        }
    }
}
