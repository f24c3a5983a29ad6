//! A change of a VM's definition, in the syntax of QEMU's arguments or of libvirt's XML.

use domain::{CpuModel, DefinitionChange, FeatureState, Form, Irqchip, TickPolicy};

/// The change in the syntax of this form, in one line, without the surrounding elements.
#[must_use]
pub(crate) fn change_in_words(change: &DefinitionChange, form: Form) -> String {
    match form {
        Form::Libvirt => in_xml(change),
        // There is no writer for xl.cfg, and QEMU's syntax is the best known.
        _ => in_arguments(change),
    }
}

fn in_arguments(change: &DefinitionChange) -> String {
    match change {
        DefinitionChange::Irqchip(irqchip) => {
            format!("-machine kernel-irqchip={}", irqchip_of_qemu(*irqchip))
        }
        DefinitionChange::PitTickPolicy(policy) => {
            format!("-global kvm-pit.lost_tick_policy={}", policy_of_qemu(*policy))
        }
        DefinitionChange::Hpet(on) => format!("-machine hpet={}", on_off(*on)),
        DefinitionChange::CpuModel(model) => format!("-cpu {}", model_of_qemu(model)),
        DefinitionChange::CpuFeature(name, state) => {
            format!("-cpu ...,{name}={}", on_off(*state != FeatureState::Off))
        }
        DefinitionChange::HyperV(name, on) => format!("-cpu ...,hv-{name}={}", on_off(*on)),
        DefinitionChange::InterruptRemapping => {
            "-device intel-iommu,intremap=on,eim=on,caching-mode=on, with kernel-irqchip=split".to_owned()
        }
        DefinitionChange::DeviceModel { model, .. } => format!("-device {model} in its place"),
        DefinitionChange::Vhost { on, .. } => format!("-netdev ...,vhost={}", on_off(*on)),
        DefinitionChange::Queues { queues, .. } => {
            format!(
                "{} (num-queues={queues}, or queues={queues} and mq=on of a network interface)",
                exits::counted((*queues).into(), "queue")
            )
        }
        DefinitionChange::IoThread { iothread, .. } => {
            format!("-object iothread,id={iothread} -device ...,iothread={iothread}")
        }
        DefinitionChange::Aio { aio, .. } => format!("aio={aio}"),
        DefinitionChange::SharedMemory => {
            "-object memory-backend-memfd,id=mem0,size=...,share=on -machine memory-backend=mem0".to_owned()
        }
        DefinitionChange::Reconnect { .. } => {
            "-chardev socket,...,reconnect-ms=1000 (before QEMU 9.2 reconnect=1)".to_owned()
        }
        other => unknown(other),
    }
}

fn in_xml(change: &DefinitionChange) -> String {
    match change {
        DefinitionChange::Irqchip(Irqchip::Split) => {
            "<features><ioapic driver='qemu'/></features>".to_owned()
        }
        DefinitionChange::Irqchip(Irqchip::Kernel) => {
            "<features><ioapic driver='kvm'/></features>".to_owned()
        }
        DefinitionChange::Irqchip(Irqchip::UserSpace) => {
            "kernel-irqchip=off has no equal in libvirt".to_owned()
        }
        DefinitionChange::PitTickPolicy(policy) => {
            format!("<clock><timer name='pit' tickpolicy='{}'/></clock>", policy_of_libvirt(*policy))
        }
        DefinitionChange::Hpet(on) => {
            format!("<clock><timer name='hpet' present='{}'/></clock>", yes_no(*on))
        }
        DefinitionChange::CpuModel(CpuModel::Host) => "<cpu mode='host-passthrough'/>".to_owned(),
        DefinitionChange::CpuModel(CpuModel::Maximum) => "<cpu mode='maximum'/>".to_owned(),
        DefinitionChange::CpuModel(CpuModel::HostModel) => "<cpu mode='host-model'/>".to_owned(),
        DefinitionChange::CpuModel(CpuModel::Named(name)) => {
            format!("<cpu mode='custom'><model>{name}</model></cpu>")
        }
        DefinitionChange::CpuFeature(name, state) => feature_in_xml(name, *state),
        DefinitionChange::HyperV(name, on) => {
            // libvirt nests `direct` in `stimer`, and has `time` among the clock's timers.
            match name.as_str() {
                "stimer-direct" => {
                    format!("<hyperv><stimer state='on'><direct state='{}'/></stimer></hyperv>", on_off(*on))
                }
                "time" => format!("<clock><timer name='hypervclock' present='{}'/></clock>", yes_no(*on)),
                name => format!("<hyperv><{name} state='{}'/></hyperv>", on_off(*on)),
            }
        }
        DefinitionChange::InterruptRemapping => {
            "<iommu model='intel'><driver intremap='on' caching_mode='on' eim='on'/></iommu>".to_owned()
        }
        DefinitionChange::DeviceModel { model, .. } => format!("the model {model} in its place"),
        DefinitionChange::Vhost { on, .. } => {
            format!("<driver name='{}'/>", if *on { "vhost" } else { "qemu" })
        }
        DefinitionChange::Queues { queues, .. } => format!("<driver queues='{queues}'/>"),
        DefinitionChange::IoThread { iothread, .. } => {
            format!("<iothreads>, and <driver iothread='{}'/>", iothread.trim_start_matches("iothread"))
        }
        DefinitionChange::Aio { aio, .. } => format!("<driver io='{aio}'/>"),
        DefinitionChange::SharedMemory => {
            "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>".to_owned()
        }
        DefinitionChange::Reconnect { .. } => {
            "<source ...><reconnect enabled='yes' timeout='1'/></source>".to_owned()
        }
        other => unknown(other),
    }
}

/// KVM's features and the PMU are no CPU features for libvirt.
fn feature_in_xml(name: &str, state: FeatureState) -> String {
    let on = state != FeatureState::Off;
    let switch = on_off(on);
    match name {
        "kvm" => format!("<features><kvm><hidden state='{}'/></kvm></features>", on_off(!on)),
        "kvm-pv-eoi" => format!("<features><apic eoi='{switch}'/></features>"),
        "kvm-pv-unhalt" => format!("<features><pvspinlock state='{switch}'/></features>"),
        "pmu" => format!("<features><pmu state='{switch}'/></features>"),
        "kvmclock" => format!("<clock><timer name='kvmclock' present='{}'/></clock>", yes_no(on)),
        _ => {
            let policy = match state {
                FeatureState::On => "require",
                FeatureState::Optional => "optional",
                FeatureState::Off => "disable",
            };
            format!("<cpu><feature policy='{policy}' name='{name}'/></cpu>")
        }
    }
}

fn unknown(change: &DefinitionChange) -> String {
    format!("{change:?}")
}

const fn irqchip_of_qemu(irqchip: Irqchip) -> &'static str {
    match irqchip {
        Irqchip::Kernel => "on",
        Irqchip::Split => "split",
        Irqchip::UserSpace => "off",
    }
}

const fn policy_of_qemu(policy: TickPolicy) -> &'static str {
    match policy {
        TickPolicy::Delay => "delay",
        TickPolicy::Discard => "discard",
        TickPolicy::CatchUp => "slew",
        TickPolicy::Merge => "merge",
    }
}

const fn policy_of_libvirt(policy: TickPolicy) -> &'static str {
    match policy {
        TickPolicy::CatchUp => "catchup",
        other => policy_of_qemu(other),
    }
}

fn model_of_qemu(model: &CpuModel) -> &str {
    match model {
        CpuModel::Host | CpuModel::HostModel => "host",
        CpuModel::Maximum => "max",
        CpuModel::Named(name) => name,
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

const fn yes_no(on: bool) -> &'static str {
    if on { "yes" } else { "no" }
}
