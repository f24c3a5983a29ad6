//! All devices, including the small ones.

use super::Writing;
use super::buses::{controller, property};
use crate::qemu::given::GivenOption;
use crate::xml::New;
use crate::{Device, DeviceKind};

impl Writing<'_> {
    pub(super) fn all_devices(&mut self) {
        let definition = self.definition;
        if let Some(program) = definition.program.as_ref().map(|set| set.value.as_str()) {
            if program.starts_with('/') {
                self.devices.push(New::named("emulator").saying(program));
            } else {
                self.note(format!("libvirt starts the QEMU that it finds; for another one than its {program}, name it by <emulator>."));
            }
        }
        for device in definition.devices.iter().filter(|device| device.kind == DeviceKind::Disk) {
            self.disk(device);
        }
        for device in &definition.devices {
            self.controller(device);
        }
        let has = |wanted: &str| {
            definition
                .devices
                .iter()
                .any(|device| controller(&device.model).is_some_and(|(kind, _)| kind == wanted))
        };
        if !has("scsi") && definition.devices.iter().any(|device| device.model.starts_with("scsi-")) {
            // The controller of `-drive if=scsi` (`pci_create_scsi` of the PC machines).
            let scsi = New::named("controller").with("type", "scsi").with("index", "0");
            self.devices.push(scsi.with("model", "lsilogic"));
        }
        // `-usbdevice` enables the machine's controller, as `-usb` does.
        let needs_usb =
            !has("usb") && definition.devices.iter().any(|device| device.model.starts_with("usb-"));
        if self.take("usb").is_some() || needs_usb {
            self.devices.push(New::named("controller").with("type", "usb").with("index", "0"));
        } else if !has("usb") {
            // libvirt adds one to a domain unless told otherwise.
            self.devices.push(New::named("controller").with("type", "usb").with("model", "none"));
        }
        for device in &definition.devices {
            match device.kind {
                DeviceKind::Network => self.interface(device),
                DeviceKind::Serial => self.character(device),
                DeviceKind::Input => self.input(device),
                DeviceKind::Display => self.video(device),
                DeviceKind::Sound => self.sound(device),
                DeviceKind::Assigned => self.assigned(device),
                _ if device.model == "usb-host" => self.assigned(device),
                DeviceKind::Other => self.other(device),
                _ => {}
            }
        }
        // `-nodefaults` and similar options need no element: libvirt starts every domain with them.
        for name in ["vga", "serial", "parallel", "net", "nic"] {
            for option in
                self.all(name).filter(|option| option.said == "none" || option.get("type") == Some("none"))
            {
                option.used.set(true);
            }
        }
        self.graphics();
        self.audio();
        for iommu in &definition.iommus {
            self.iommu(&iommu.model, &iommu.place);
        }
        if self.is_wide() {
            self.wide_iommu();
        }
        self.watchdog();
        if !definition.devices.iter().any(|device| device.model.starts_with("virtio-balloon")) {
            self.devices.push(New::named("memballoon").with("model", "none"));
        }
    }

    fn controller(&mut self, device: &Device) {
        let Some((kind, model)) = controller(&device.model) else { return };
        let Some(origin) = self.origin(device).filter(|option| option.name == "device") else { return };
        origin.used.set(true);
        let mut element = New::named("controller").with("type", kind);
        if let Some(number) = device.id.as_deref().and_then(|id| self.buses.number(id)) {
            element = element.with("index", number.to_string());
        }
        if let Some(model) = model {
            element = element.with("model", model);
        }
        if let Some(ports) = property(device, "p2").filter(|_| kind == "usb") {
            element = element.with("ports", ports);
        }
        if kind == "pci" {
            if device.model == "ioh3420" {
                element = element.holding(New::named("model").with("name", "ioh3420"));
            }
            let mut target = New::named("target");
            for (name, attribute) in [("chassis", "chassis"), ("chassis_nr", "chassisNr"), ("port", "port")] {
                if let Some(value) = property(device, name) {
                    // JSON has no hexadecimal numbers, and libvirt writes this one as hexadecimal.
                    let value = match value.parse::<u32>() {
                        Ok(number) if attribute == "port" => format!("{number:#x}"),
                        _ => value.to_owned(),
                    };
                    target = target.with(attribute, value);
                }
            }
            if !target.attributes.is_empty() {
                element = element.holding(target);
            }
        }
        let mut driver = New::named("driver");
        if let Some(queues) = property(device, "num_queues").filter(|_| kind == "scsi") {
            driver = driver.with("queues", queues);
        }
        if let Some(thread) = device.iothreads.first().filter(|_| kind == "scsi") {
            driver = driver.with("iothread", self.thread(&thread.value));
        }
        if !driver.attributes.is_empty() {
            element = element.holding(driver);
        }
        element.children.extend(self.buses.address(device));
        self.unsaid(device, &["p2", "p3", "chassis", "chassis_nr", "port", "num_queues", "iothread"]);
        self.devices.push(element);
    }

    fn iommu(&mut self, model: &str, place: &crate::Place) {
        let same = |option: &&GivenOption| option.place == *place && option.name == "device";
        let Some(option) = self.options.iter().find(same) else { return };
        option.used.set(true);
        let mut iommu = New::named("iommu").with("model", model.trim_end_matches("-iommu"));
        let mut driver = New::named("driver");
        for (name, attribute) in [
            ("intremap", "intremap"),
            ("caching-mode", "caching_mode"),
            ("eim", "eim"),
            ("device-iotlb", "iotlb"),
            ("aw-bits", "aw_bits"),
        ] {
            match option.get(name) {
                // Only a number is different from a switch; `auto` is the default.
                Some("true") => driver = driver.with(attribute, "on"),
                Some("false") => driver = driver.with(attribute, "off"),
                Some("auto") | None => {}
                Some(value) => driver = driver.with(attribute, value),
            }
        }
        if !driver.attributes.is_empty() {
            iommu = iommu.holding(driver);
        }
        self.devices.push(iommu);
    }

    /// With more than 255 vCPUs libvirt requires an IOMMU with `eim`, even if QEMU does not need one or has
    /// it by default.
    fn wide_iommu(&mut self) {
        if !self.q35 {
            return self.note("libvirt takes more than 255 vCPUs with machines of type q35 alone.");
        }
        let at = self.devices.iter().position(|device| device.name == "iommu");
        let mut iommu =
            at.map_or_else(|| New::named("iommu").with("model", "intel"), |at| self.devices.remove(at));
        let model = iommu.attribute("model").unwrap_or_default();
        let note = match (model, at) {
            ("intel", None) => {
                "libvirt takes more than 255 vCPUs only with an IOMMU that has eim: the guest sees an Intel IOMMU, \
                 which the command line does not have."
                    .to_owned()
            }
            ("intel", Some(_)) => {
                "libvirt takes more than 255 vCPUs only with intremap='on' and eim='on' of the IOMMU.".to_owned()
            }
            (other, _) => format!(
                "libvirt takes more than 255 vCPUs only with an Intel IOMMU that has eim, and this VM has one of model \
                 {other}."
            ),
        };
        if model == "intel" {
            let driver = iommu.children.iter().position(|child| child.name == "driver");
            let driver = driver.map_or_else(|| New::named("driver"), |at| iommu.children.remove(at));
            // QEMU assigns a device only if the guest reports its mappings.
            let driver = if at.is_none() { driver.set("caching_mode", "on") } else { driver };
            iommu = iommu.holding(driver.set("intremap", "on").set("eim", "on"));
        }
        self.note(note);
        self.devices.push(iommu);
    }

    fn watchdog(&mut self) {
        let action = self.option("action").and_then(|option| option.get("watchdog"));
        let action = action.or_else(|| self.option("watchdog-action").map(|option| option.said.as_str()));
        let action = action.unwrap_or("reset").to_owned();
        let itco = self.all("global").find(|option| option.said == "ICH9-LPC.noreboot=off");
        let device = self
            .definition
            .devices
            .iter()
            .find(|device| matches!(device.model.as_str(), "i6300esb" | "ib700"));
        let model = match (device, itco) {
            (Some(device), _) => {
                if let Some(origin) = self.origin(device) {
                    origin.used.set(true);
                }
                device.model.clone()
            }
            (None, Some(option)) => {
                option.used.set(true);
                "itco".into()
            }
            _ => return,
        };
        for name in ["action", "watchdog-action"] {
            self.take(name);
        }
        self.devices.push(New::named("watchdog").with("model", model).with("action", action));
    }
}
