use std::io::Write as _;
use std::process::{Command, Stdio};

use domain::{NoFiles, Text};

use super::*;
use crate::{Cure, Fact, Facts, Table};

/// A VM with every device and setting that the table changes.
const ARGUMENTS: &str = "qemu-system-x86_64 -accel kvm -M pc,kernel-irqchip=split \
    -cpu qemu64,kvmclock=off,kvm-pv-eoi=off,x2apic=off,tsc-deadline=off,kvm-pv-ipi=off \
    -nodefaults -display none -m 64 \
    -drive if=none,id=d,driver=null-co -device ide-hd,drive=d \
    -netdev user,id=a -device e1000,netdev=a -netdev user,id=b -device rtl8139,netdev=b \
    -netdev user,id=c -device vmxnet3,netdev=c -netdev tap,id=t,script=no,downscript=no,ifname=none0 \
    -device virtio-net-pci,netdev=t -usb -device usb-tablet -device VGA";

const XML: &str = "<domain type='kvm'>
  <name>old</name>
  <memory unit='MiB'>64</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
  </os>
  <features>
    <acpi/>
    <apic eoi='off'/>
    <kvm>
      <pv-ipi state='off'/>
    </kvm>
    <ioapic driver='qemu'/>
  </features>
  <cpu mode='custom' match='exact'>
    <model>qemu64</model>
    <feature policy='disable' name='x2apic'/>
    <feature policy='disable' name='tsc-deadline'/>
  </cpu>
  <clock offset='utc'>
    <timer name='kvmclock' present='no'/>
  </clock>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <source file='/none.img'/>
      <target dev='hda' bus='ide'/>
    </disk>
    <controller type='usb' model='piix3-uhci'/>
    <interface type='bridge'>
      <source bridge='br0'/>
      <model type='e1000'/>
    </interface>
    <interface type='bridge'>
      <source bridge='br0'/>
      <model type='rtl8139'/>
    </interface>
    <interface type='bridge'>
      <source bridge='br0'/>
      <model type='vmxnet3'/>
    </interface>
    <interface type='bridge'>
      <source bridge='br0'/>
      <model type='virtio'/>
      <driver name='qemu'/>
    </interface>
    <input type='tablet' bus='usb'/>
    <video>
      <model type='vga'/>
    </video>
  </devices>
</domain>
";

fn cures() -> Vec<(String, Cure)> {
    let table = Table::load(exits::Hypervisor::Kvm).unwrap();
    let of = |device: crate::Device| {
        let name = move |cure: &Cure| format!("{}/{}", device.id, cure.id);
        device.cures.into_iter().map(move |cure| (name(&cure), cure)).collect::<Vec<_>>()
    };
    table.devices.into_iter().flat_map(of).filter(|(_, cure)| !cure.apply.is_empty()).collect()
}

#[test]
fn every_change_of_the_table_can_be_made_in_both_forms_of_a_definition() {
    let forms = [Text::new("arguments", ARGUMENTS), Text::new("XML", XML)];
    let mut made = 0;
    for (name, cure) in cures() {
        for (form, text) in forms.iter().enumerate() {
            let read = |text: &Text| match form {
                0 => domain::qemu::read(text, &NoFiles).unwrap(),
                _ => domain::libvirt::read(text, &NoFiles).unwrap(),
            };
            let before = read(text);
            let changes = cure.changes(&before);
            assert!(!changes.is_empty(), "{name}: nothing to change in the {}", text.name);
            let edited = match form {
                0 => domain::qemu::apply(text, &changes).unwrap(),
                _ => domain::libvirt::apply(text, &changes).unwrap(),
            };
            assert!(edited.refused.is_empty(), "{name} in the {}: {:?}", text.name, edited.refused);
            assert_ne!(edited.bytes, text.bytes, "{name} changed nothing in the {}", text.name);
            let after = read(&Text::new("after", edited.bytes));
            let facts = Facts::of(&after);
            // Facts that show the change itself; `HostCpu` is another setting.
            let told: Vec<_> = cure.there.iter().filter(|&&fact| fact != Fact::HostCpu).collect();
            let holds = told.is_empty() || told.iter().any(|&&fact| facts.has(fact));
            assert!(holds, "{name} in the {}: {facts:?}", text.name);
            assert_eq!(
                after.doubts.len(),
                before.doubts.len(),
                "{name} in the {}: {:?}",
                text.name,
                after.doubts
            );
            made += 1;
        }
    }
    assert!(made > 30, "{made}");
}

#[test]
fn what_a_program_changes_by_itself_says_the_same_to_people() {
    for (name, cure) in cures() {
        assert!(cure.qemu.is_some() && cure.libvirt.is_some(), "{name}");
        assert_ne!(cure.effect, crate::Effect::Stay, "{name}");
        assert_eq!(cure.windows, cure.apply.iter().any(|one| matches!(one, Action::Hyperv(_))), "{name}");
    }
}

#[test]
fn a_change_concerns_the_devices_that_it_names_and_no_others() {
    let of = |action: &Action, arguments: &str| {
        let text = Text::new("a test", format!("qemu-system-x86_64 -accel kvm {arguments}"));
        action.changes(&domain::qemu::read(&text, &NoFiles).unwrap())
    };
    let vhost = Action::Vhost(true);
    let taps = "-nodefaults -netdev tap,id=a -device virtio-net-pci,netdev=a \
        -netdev tap,id=b,vhost=on -device virtio-net-pci,netdev=b";
    assert_eq!(of(&vhost, taps), [DefinitionChange::Vhost { device: 0, on: true }]);
    let model = Action::Model { from: vec!["e1000*".to_owned()], to: "virtio-net-pci".to_owned() };
    let cards = "-nodefaults -device rtl8139 -device e1000e -device e1000";
    let changed = |device| DefinitionChange::DeviceModel { device, model: "virtio-net-pci".to_owned() };
    assert_eq!(of(&model, cards), [changed(1), changed(2)]);
    assert_eq!(of(&model, "-nodefaults"), []);
}

/// QEMU's error for a command line; `None` if it starts. It uses TCG, because this machine may lack KVM, and drops the
/// options that need KVM.
fn refused_by_qemu(bytes: &[u8]) -> Option<String> {
    let line = String::from_utf8(bytes.to_vec()).unwrap();
    let line = line.replace("-accel kvm", "-accel tcg").replace(",vhost=on", "");
    let line = line.replace("-netdev tap,id=t,script=no,downscript=no,ifname=none0", "-netdev user,id=t");
    let own = |word: &str| {
        word.split(',').filter(|part| !part.starts_with("kernel-irqchip=")).collect::<Vec<_>>().join(",")
    };
    let mut words = line.split_whitespace().map(own);
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .args(["-S", "-monitor", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"quit\n").unwrap_or_default();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

#[test]
fn qemu_takes_every_command_line_that_a_change_of_the_table_gives() {
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        println!("not tested: qemu-system-x86_64 is not installed");
        return;
    }
    let text = Text::new("arguments", ARGUMENTS);
    let before = domain::qemu::read(&text, &NoFiles).unwrap();
    assert_eq!(refused_by_qemu(&text.bytes), None);
    // QEMU refuses Hyper-V enlightenments without KVM, so they cannot be tested with TCG.
    for (name, cure) in cures().into_iter().filter(|(_, cure)| !cure.windows) {
        let edited = domain::qemu::apply(&text, &cure.changes(&before)).unwrap();
        assert_eq!(
            refused_by_qemu(&edited.bytes),
            None,
            "{name}: {}",
            String::from_utf8_lossy(&edited.bytes)
        );
    }
}
