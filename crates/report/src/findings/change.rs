//! A change of a VM's definition, in the syntax of QEMU's arguments or of libvirt's XML.

use domain::{Change, CpuModel, FeatureState, Form, Irqchip, TickPolicy};

/// The change in the syntax of this form, in one line, without its surroundings.
#[must_use]
pub(crate) fn change_in_words(change: &Change, form: Form) -> String {
    match form {
        Form::Libvirt => in_xml(change),
        // xl.cfg is not written; QEMU's syntax is the best known.
        _ => in_arguments(change),
    }
}

fn in_arguments(change: &Change) -> String {
    match change {
        Change::Irqchip(irqchip) => format!("-machine kernel-irqchip={}", irqchip_of_qemu(*irqchip)),
        Change::PitTickPolicy(policy) => {
            format!("-global kvm-pit.lost_tick_policy={}", policy_of_qemu(*policy))
        }
        Change::Hpet(on) => format!("-machine hpet={}", on_off(*on)),
        Change::CpuModel(model) => format!("-cpu {}", model_of_qemu(model)),
        Change::CpuFeature(name, state) => format!("-cpu ...,{name}={}", on_off(*state != FeatureState::Off)),
        Change::HyperV(name, on) => format!("-cpu ...,hv-{name}={}", on_off(*on)),
        Change::InterruptRemapping => {
            "-device intel-iommu,intremap=on,eim=on,caching-mode=on, with kernel-irqchip=split".to_owned()
        }
        Change::DeviceModel { model, .. } => format!("-device {model} in its place"),
        Change::Vhost { on, .. } => format!("-netdev ...,vhost={}", on_off(*on)),
        Change::Queues { queues, .. } => {
            format!(
                "{} (num-queues={queues}, or queues={queues} and mq=on of a network interface)",
                exits::counted((*queues).into(), "queue")
            )
        }
        Change::IoThread { iothread, .. } => {
            format!("-object iothread,id={iothread} -device ...,iothread={iothread}")
        }
        Change::Aio { aio, .. } => format!("aio={aio}"),
        Change::SharedMemory => {
            "-object memory-backend-memfd,id=mem0,size=...,share=on -machine memory-backend=mem0".to_owned()
        }
        Change::Reconnect { .. } => "-chardev socket,...,reconnect=1".to_owned(),
        other => unknown(other),
    }
}

fn in_xml(change: &Change) -> String {
    match change {
        Change::Irqchip(Irqchip::Split) => "<features><ioapic driver='qemu'/></features>".to_owned(),
        Change::Irqchip(Irqchip::Kernel) => "<features><ioapic driver='kvm'/></features>".to_owned(),
        Change::Irqchip(Irqchip::UserSpace) => "kernel-irqchip=off has no equal in libvirt".to_owned(),
        Change::PitTickPolicy(policy) => {
            format!("<clock><timer name='pit' tickpolicy='{}'/></clock>", policy_of_libvirt(*policy))
        }
        Change::Hpet(on) => format!("<clock><timer name='hpet' present='{}'/></clock>", yes_no(*on)),
        Change::CpuModel(CpuModel::Host) => "<cpu mode='host-passthrough'/>".to_owned(),
        Change::CpuModel(CpuModel::Maximum) => "<cpu mode='maximum'/>".to_owned(),
        Change::CpuModel(CpuModel::HostModel) => "<cpu mode='host-model'/>".to_owned(),
        Change::CpuModel(CpuModel::Named(name)) => {
            format!("<cpu mode='custom'><model>{name}</model></cpu>")
        }
        Change::CpuFeature(name, state) => {
            let policy = match state {
                FeatureState::On => "require",
                FeatureState::Optional => "optional",
                FeatureState::Off => "disable",
            };
            format!("<cpu><feature policy='{policy}' name='{name}'/></cpu>")
        }
        Change::HyperV(name, on) => {
            // libvirt nests these two under the one before.
            match name.as_str() {
                "stimer-direct" => {
                    format!("<hyperv><stimer state='on'><direct state='{}'/></stimer></hyperv>", on_off(*on))
                }
                "time" => format!("<clock><timer name='hypervclock' present='{}'/></clock>", yes_no(*on)),
                name => format!("<hyperv><{name} state='{}'/></hyperv>", on_off(*on)),
            }
        }
        Change::InterruptRemapping => {
            "<iommu model='intel'><driver intremap='on' caching_mode='on' eim='on'/></iommu>".to_owned()
        }
        Change::DeviceModel { model, .. } => format!("the model {model} in its place"),
        Change::Vhost { on, .. } => format!("<driver name='{}'/>", if *on { "vhost" } else { "qemu" }),
        Change::Queues { queues, .. } => format!("<driver queues='{queues}'/>"),
        Change::IoThread { iothread, .. } => {
            format!("<iothreads>, and <driver iothread='{}'/>", iothread.trim_start_matches("iothread"))
        }
        Change::Aio { aio, .. } => format!("<driver io='{aio}'/>"),
        Change::SharedMemory => {
            "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>".to_owned()
        }
        Change::Reconnect { .. } => "<source ...><reconnect enabled='yes' timeout='1'/></source>".to_owned(),
        other => unknown(other),
    }
}

fn unknown(change: &Change) -> String {
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
