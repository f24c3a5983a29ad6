//! Network interfaces and their backends.

use super::backends::Backends;
use super::items::Item;
use super::models;
use super::reading::{Origin, Reading};
use crate::{Device, DeviceKind, Set};

/// Adds the settings of the backend with this number to an interface.
pub(super) fn join(
    reading: &Reading<'_>,
    item: &Item,
    backends: &Backends,
    number: usize,
    device: &mut Device,
) {
    if !backends.may_read(number) {
        return;
    }
    let backend = &reading.items[number];
    Backends::describe_network(reading, backend, device);
    let Some(queues) = Backends::queues(reading, backend) else { return };
    // The device uses all pairs only with mq=on (`virtio_net_properties`: mq is off).
    let multiqueue = !device.model.starts_with("virtio-net") || item.properties.switch("mq") == Some(true);
    device.queues = Some(if multiqueue { queues } else { Set::new(1, queues.place) });
}

/// The interface of `-nic` or of `-net nic`; `None` for backends alone.
pub(super) fn device(reading: &Reading<'_>, number: usize, backends: &Backends) -> Option<(Device, Origin)> {
    let item = &reading.items[number];
    let kind = item.value("type").unwrap_or_default();
    let nic = item.name == "nic";
    if kind == "none" || (!nic && kind != "nic") {
        return None;
    }
    let model = match item.value("model") {
        Some(model) => models::network(model),
        None => reading.definition.default_network_model().unwrap_or("e1000"),
    };
    let mut device = Device::new(DeviceKind::Network, model, item.place.clone());
    device.id = item.text("id");
    device.properties = item.pairs();
    let named = item.value("netdev").and_then(|id| backends.network(id));
    let backend = if nic { Some(number) } else { named.or(backends.hub()) };
    if let Some(backend) = backend {
        join(reading, item, backends, backend, &mut device);
    }
    Some((device, Origin { item: Some(number), backend, image: None }))
}
