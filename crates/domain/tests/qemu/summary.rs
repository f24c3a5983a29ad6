//! A definition in few lines, for snapshots.

use domain::{Definition, Set};
use std::fmt::Write;

/// Reads a fixture; files that it names are other fixtures.
pub(crate) fn definition(name: &str) -> Definition {
    domain::qemu::read(&text(name), &fixtures()).expect("the fixture is a QEMU command line")
}

/// A fixture.
pub(crate) fn text(name: &str) -> domain::Text {
    let path = folder().join(name);
    domain::Text::new(name, std::fs::read(&path).expect("the fixture is there"))
}

fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qemu")
}

/// Provides the fixtures under any folder.
pub(crate) fn fixtures() -> impl domain::Files {
    struct Fixtures;
    impl domain::Files for Fixtures {
        fn contents(&self, path: &std::path::Path) -> std::io::Result<Vec<u8>> {
            std::fs::read(folder().join(path.file_name().unwrap_or_default()))
        }
    }
    Fixtures
}

fn line<T: std::fmt::Debug>(out: &mut String, name: &str, set: Option<&Set<T>>) {
    if let Some(Set { value, place }) = set {
        writeln!(out, "{name}: {value:?}  <- {}: {}", place.line, place.text).expect("strings take all");
    }
}

/// The summary.
pub(crate) fn summary(vm: &Definition) -> String {
    let mut out = String::new();
    let o = &mut out;
    line(o, "name", vm.name.as_ref());
    line(o, "program", vm.program.as_ref());
    line(o, "machine", vm.machine.kind.as_ref());
    line(o, "accelerator", vm.machine.accelerator.as_ref());
    line(o, "irqchip", vm.machine.irqchip.as_ref());
    line(o, "pit", vm.machine.pit.as_ref());
    line(o, "pic", vm.machine.pic.as_ref());
    line(o, "vmport", vm.machine.vmport.as_ref());
    vm.machine.properties.iter().for_each(|set| line(o, "machine property", Some(set)));
    line(o, "pit ticks", vm.timers.pit.as_ref());
    line(o, "rtc ticks", vm.timers.rtc.as_ref());
    line(o, "hpet", vm.timers.hpet.as_ref());
    line(o, "kvm clock", vm.timers.kvm_clock.as_ref());
    line(o, "Hyper-V clock", vm.timers.hyperv_clock.as_ref());
    let vcpus = &vm.vcpus;
    let levels = [
        ("vcpus", &vcpus.count),
        ("maximum", &vcpus.maximum),
        ("sockets", &vcpus.sockets),
        ("dies", &vcpus.dies),
        ("clusters", &vcpus.clusters),
        ("cores", &vcpus.cores),
        ("threads", &vcpus.threads),
    ];
    levels.iter().for_each(|(name, set)| line(o, name, set.as_ref()));
    line(o, "memory in MiB", vm.memory_mib.as_ref());
    line(o, "cpu", vm.cpu.model.as_ref());
    vm.cpu.features.iter().for_each(|(name, set)| line(o, &format!("feature {name}"), Some(set)));
    line(o, "hv-passthrough", vm.cpu.hyperv.passthrough.as_ref());
    vm.cpu.hyperv.features.iter().for_each(|(name, set)| line(o, &format!("hv {name}"), Some(set)));
    vm.cpu.properties.iter().for_each(|set| line(o, "cpu property", Some(set)));
    for iommu in &vm.iommus {
        writeln!(o, "iommu {}  <- {}: {}", iommu.model, iommu.place.line, iommu.place.text)
            .expect("strings take all");
        line(o, "  remaps", iommu.interrupt_remapping.as_ref());
        line(o, "  wide IDs", iommu.extended_interrupt_mode.as_ref());
        line(o, "  caching mode", iommu.caching_mode.as_ref());
    }
    vm.iothreads.iter().for_each(|thread| writeln!(o, "iothread {}", thread.id).expect("strings take all"));
    for device in &vm.devices {
        let id = device.id.as_deref().unwrap_or("-");
        let (kind, model, place) = (device.kind, &device.model, &device.place);
        writeln!(o, "{kind:?} {model} {id}  <- {}: {}", place.line, place.text).expect("strings take all");
        line(o, "  backend", device.backend.as_ref());
        line(o, "  queues", device.queues.as_ref());
        device.iothreads.iter().for_each(|set| line(o, "  iothread", Some(set)));
        line(o, "  aio", device.aio.as_ref());
        line(o, "  cache", device.cache.as_ref());
        line(o, "  source", device.source.as_ref());
    }
    vm.globals.iter().for_each(|set| line(o, "global", Some(set)));
    vm.other.iter().for_each(|set| line(o, "other", Some(set)));
    vm.doubts.iter().for_each(|doubt| writeln!(o, "doubt: {doubt}").expect("strings take all"));
    writeln!(
        o,
        "in force: {:?}, irqchip {:?}, kernel PIT {:?}, HPET {}, {} of {} vCPUs, x2APIC {}, extended destinations {}",
        vm.accelerator_in_force(),
        vm.irqchip_in_force(),
        vm.kernel_pit_in_force(),
        vm.has_hpet(),
        vm.vcpus_in_force(),
        vm.most_vcpus(),
        vm.x2apic_in_force(),
        vm.extended_destinations_in_force()
    )
    .expect("strings take all");
    out
}
