//! Emulated and virtio devices.

use super::*;

pub(super) fn of_devices() -> Vec<Cases> {
    vec![
        row(
            "emulated-disk",
            vec![
                (any(), |vm| vm.devices.push(device(DeviceKind::Disk, "ide-hd"))),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "lsi53c895a"));
                }),
            ],
            vec![
                (any(), |vm| disk(vm, |_| {})),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Disk, "ide-cd"));
                }),
            ],
        ),
        row(
            "disk-iothread",
            vec![
                (any(), |vm| disk(vm, |disk| disk.iothreads.clear())),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "virtio-scsi-pci"));
                }),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.iothreads.clear();
                        property(disk, "ioeventfd", "off");
                    });
                }),
            ],
            vec![
                (any(), |vm| disk(vm, |_| {})),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.iothreads.clear();
                        disk.backend = Some(said(Backend::VhostUser, "vhost-user"));
                    });
                }),
            ],
        ),
        row(
            "disk-queues",
            vec![
                (any(), |vm| {
                    vcpus(vm, 4);
                    disk(vm, |disk| disk.queues = Some(said(1, "num-queues=1")));
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    vm.machine.kind = Some(said("pc-i440fx-5.1".to_owned(), "pc-i440fx-5.1"));
                    disk(vm, |_| {});
                }),
            ],
            vec![
                (any(), |vm| {
                    vcpus(vm, 3);
                    disk(vm, |disk| disk.queues = Some(said(1, "num-queues=1")));
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    disk(vm, |_| {});
                }),
                // A type of a distribution that is not known: most are new ones.
                (any(), |vm| {
                    vcpus(vm, 8);
                    vm.machine.kind = Some(said("pc-q35-nosuch".to_owned(), "pc-q35-nosuch"));
                    disk(vm, |_| {});
                }),
                (any(), |vm| disk(vm, |disk| disk.queues = Some(said(1, "num-queues=1")))),
            ],
        ),
        row(
            "vhost-workers",
            vec![
                (any(), |vm| {
                    vcpus(vm, 8);
                    vhost_scsi(vm, |_| {});
                }),
                (any(), |vm| vhost_scsi(vm, |scsi| scsi.queues = Some(said(3, "num_queues=3")))),
            ],
            vec![
                (any(), |vm| vhost_scsi(vm, |scsi| scsi.queues = Some(said(2, "num_queues=2")))),
                (any(), |vm| {
                    vhost_scsi(vm, |scsi| {
                        scsi.queues = Some(said(8, "num_queues=8"));
                        scsi.properties = vec![("worker_per_virtqueue".to_owned(), "on".to_owned())];
                    });
                }),
                (any(), |vm| {
                    vm.form = Form::Libvirt;
                    vcpus(vm, 8);
                    let own = ("override@worker_per_virtqueue".to_owned(), "true".to_owned());
                    vhost_scsi(vm, |scsi| scsi.properties = vec![own.clone()]);
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    vm.machine.kind = Some(said("pc-i440fx-5.1".to_owned(), "pc-i440fx-5.1"));
                    vhost_scsi(vm, |_| {});
                }),
            ],
        ),
        row(
            "disk-aio",
            vec![
                (any(), |vm| disk(vm, direct)),
                (any(), |vm| {
                    disk(vm, |disk| {
                        direct(disk);
                        disk.cache = Some(said("writeback".to_owned(), "cache=writeback"));
                        disk.aio = Some(said("native".to_owned(), "aio=native"));
                    });
                }),
            ],
            vec![
                (any(), |vm| disk(vm, |_| {})),
                (any(), |vm| {
                    disk(vm, |disk| {
                        direct(disk);
                        disk.resource = Some("rbd".to_owned());
                    });
                }),
                // libvirt's name of an image in a Ceph pool is not a path, and has no colon.
                (any(), |vm| {
                    disk(vm, |disk| {
                        direct(disk);
                        disk.source = Some(said("pool/image".to_owned(), "name='pool/image'"));
                        disk.resource = Some("network".to_owned());
                    });
                }),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.cache = Some(said("none".to_owned(), "cache=none"));
                        disk.aio = Some(said("io_uring".to_owned(), "aio=io_uring"));
                    });
                }),
                (any(), |vm| {
                    disk(vm, |disk| {
                        disk.cache = Some(said("none".to_owned(), "cache=none"));
                        disk.source = Some(said("rbd:pool/image".to_owned(), "file=rbd:pool/image"));
                    });
                }),
            ],
        ),
        row(
            "emulated-network",
            vec![
                (any(), |vm| vm.devices.push(device(DeviceKind::Network, "e1000e"))),
                (any(), |vm| vm.devices.push(device(DeviceKind::Network, "rtl8139"))),
            ],
            vec![(any(), |vm| network(vm, |_| {}))],
        ),
        row(
            "network-vhost",
            vec![
                (any(), |vm| network(vm, |network| network.backend = None)),
                (any(), |vm| {
                    network(vm, |network| {
                        network.backend = Some(said(Backend::Vmm, r#"-netdev {"type":"user","id":"n"}"#));
                        network.resource = Some("user".to_owned());
                    });
                }),
            ],
            vec![
                (any(), |vm| network(vm, |_| {})),
                (any(), |vm| {
                    vm.form = Form::Libvirt;
                    network(vm, |network| network.backend = None);
                }),
                (any(), |vm| {
                    network(vm, |network| {
                        network.backend = Some(said(Backend::Vmm, "-netdev socket,id=n"));
                        network.resource = Some("socket".to_owned());
                    });
                }),
            ],
        ),
        row(
            "network-queues",
            vec![
                (any(), |vm| {
                    vcpus(vm, 4);
                    network(vm, |_| {});
                }),
                // libvirt needs the number to switch mq on.
                (any(), |vm| {
                    vm.form = Form::Libvirt;
                    vcpus(vm, 8);
                    network(vm, |network| network.backend = Some(said(Backend::Vdpa, "type='vdpa'")));
                }),
            ],
            vec![
                (any(), |vm| {
                    vcpus(vm, 3);
                    network(vm, |_| {});
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    network(vm, |network| network.backend = Some(said(Backend::Vdpa, "type=vhost-vdpa")));
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    network(vm, |network| network.queues = Some(said(4, "queues=4")));
                }),
            ],
        ),
        row(
            "virtio-ioeventfd",
            vec![
                (any(), |vm| disk(vm, |disk| property(disk, "ioeventfd", "off"))),
                (any(), |vm| disk(vm, |disk| property(disk, "driver@ioeventfd", "off"))),
            ],
            vec![(any(), |vm| disk(vm, |disk| property(disk, "ioeventfd", "on")))],
        ),
        row(
            "virtio-msix",
            vec![(any(), |vm| network(vm, |network| property(network, "vectors", "0")))],
            vec![(any(), |vm| network(vm, |network| property(network, "vectors", "10")))],
        ),
        row(
            "serial-ports",
            vec![
                (any(), |vm| serial(vm, &[], &[])),
                (any(), |vm| serial(vm, &[], &[("nr", "1")])),
                (any(), |vm| serial(vm, &[("max_ports", "16")], &[("nr", "7")])),
                // libvirt adds the controller.
                (any(), |vm| {
                    vm.form = Form::Libvirt;
                    vm.devices.push(device(DeviceKind::Serial, "virtserialport"));
                }),
            ],
            vec![
                (any(), |vm| serial(vm, &[("max_ports", "2")], &[("nr", "1")])),
                (any(), |vm| serial(vm, &[("max_ports", "9")], &[])),
                (any(), |vm| serial(vm, &[("@ports", "4")], &[])),
                (any(), |vm| serial(vm, &[], &[("address@port", "30")])),
                (any(), |vm| serial(vm, &[("max_ports", "4294967295")], &[("nr", "4294967295")])),
            ],
        ),
        row(
            "vhost-user-memory",
            vec![
                (any(), |vm| vhost_user(vm, |_| {})),
                (any(), |vm| {
                    vhost_user(vm, |_| {});
                    vm.shared_memory = Some(said(false, "share=off"));
                }),
            ],
            vec![
                (any(), |_| {}),
                (any(), |vm| {
                    vhost_user(vm, |_| {});
                    vm.shared_memory = Some(said(true, "share=on"));
                }),
            ],
        ),
        row(
            "vhost-user-queues",
            vec![(any(), |vm| {
                vcpus(vm, 4);
                vhost_user(vm, |disk| disk.queues = Some(said(1, "num-queues=1")));
            })],
            vec![
                (any(), |vm| {
                    vcpus(vm, 3);
                    vhost_user(vm, |disk| disk.queues = Some(said(1, "num-queues=1")));
                }),
                (any(), |vm| {
                    vcpus(vm, 8);
                    vhost_user(vm, |_| {});
                }),
            ],
        ),
        row(
            "vhost-user-reconnect",
            vec![(any(), |vm| vhost_user(vm, |disk| disk.reconnects = Some(false)))],
            vec![
                (any(), |vm| vhost_user(vm, |disk| disk.reconnects = Some(true))),
                // A file system device has no reconnect setting in libvirt.
                (any(), |vm| vhost_user(vm, |disk| disk.kind = DeviceKind::Other)),
            ],
        ),
        row(
            "emulated-display",
            vec![(any(), |vm| vm.devices.push(device(DeviceKind::Display, "cirrus-vga")))],
            vec![(any(), |vm| vm.devices.push(device(DeviceKind::Display, "virtio-vga")))],
        ),
        row(
            "usb-controller",
            vec![
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "piix3-usb-uhci"));
                    vm.devices.push(device(DeviceKind::Input, "usb-tablet"));
                }),
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "ich9-usb-ehci1"));
                    vm.devices.push(device(DeviceKind::Controller, "ich9-usb-uhci1"));
                    vm.devices.push(device(DeviceKind::Input, "usb-kbd"));
                }),
            ],
            vec![
                (any(), |vm| {
                    vm.devices.push(device(DeviceKind::Controller, "qemu-xhci"));
                    vm.devices.push(device(DeviceKind::Input, "usb-tablet"));
                }),
                (any(), |vm| vm.devices.push(device(DeviceKind::Controller, "piix3-usb-uhci"))),
            ],
        ),
        row(
            "floppy",
            vec![
                (any(), |vm| vm.devices.push(device(DeviceKind::Disk, "floppy"))),
                (any(), |vm| {
                    let place = Place::default();
                    vm.devices.push(Device { place, ..device(DeviceKind::Disk, "floppy") });
                }),
            ],
            vec![(any(), |_| {})],
        ),
    ]
}
