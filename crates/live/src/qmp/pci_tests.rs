use super::*;
use crate::qmp::fake::Fake;
use proptest::prelude::*;
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const LONG: Duration = Duration::from_secs(20);

fn device(slot: i64, regions: serde_json::Value) -> serde_json::Value {
    json!({
        "bus": 0, "slot": slot, "function": 0, "irq": 11, "irq_pin": 1, "qdev_id": "net0",
        "class_info": { "desc": "Ethernet controller", "class": 512 },
        "id": { "device": 4110, "vendor": 32902 }, "regions": regions,
    })
}

#[test]
fn regions_with_an_address_are_found_behind_bridges_too() {
    let memory = json!({ "bar": 0, "type": "memory", "address": 4_273_799_168_i64, "size": 131_072, "prefetch": false });
    let unset = json!({ "bar": 1, "type": "io", "address": -1, "size": 64 });
    let ports = json!({ "bar": 1, "type": "io", "address": 49_152, "size": 64 });
    let mut bridge = device(2, json!([]));
    let behind = [device(1, json!([ports]))];
    bridge["pci_bridge"] =
        json!({ "bus": { "number": 0, "secondary": 1, "subordinate": 1 }, "devices": behind });
    let answer = json!([{ "bus": 0, "devices": [device(3, json!([memory, unset])), bridge] }]);
    let told: Vec<_> = bars(&answer.to_string()).unwrap();
    let told: Vec<_> =
        told.iter().map(|bar| (bar.address.as_str(), bar.is_ports, bar.start, bar.size)).collect();
    assert_eq!(told, [("00:03.0", false, 0xfebd_0000, 0x2_0000), ("01:01.0", true, 0xc000, 0x40)]);
    assert!(bars(r#"{ "bus": 0 }"#).is_err());
}

#[test]
fn monitors_that_do_not_answer_share_the_time() {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let fake = Fake::raw(move |_taken| assert!(ended.recv().is_err()));
    let monitor = |path: &str| host::vms::Monitor { path: Some(path.to_owned()), used: MonitorUse::Open };
    let monitors = ["/qmp", "/none", "/qmp"].map(monitor).to_vec();
    let vm = Vm { pid: 40, name: "web".to_owned(), monitors, ..Vm::default() };
    match pci_bars(fake.root(), &vm, Duration::from_millis(60)).unwrap_err() {
        PciError::Qmp(QmpError::Busy { waited, .. }) => assert_eq!(waited, Duration::from_millis(20)),
        other => panic!("{other}"),
    }
    drop(end);
    fake.end();
}

/// Kills the QEMU of a test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_qemu_tells_where_its_firmware_put_its_devices() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp.sock");
    let started = Command::new("qemu-system-x86_64")
        .args("-accel tcg -M pc -m 32 -display none -nodefaults -netdev user,id=n -device e1000,netdev=n,id=net0".split(' '))
        .arg("-qmp")
        .arg(format!("unix:{},server=on,wait=off", socket.display()))
        .stdin(Stdio::null())
        .spawn();
    let Ok(child) = started else {
        println!("not tested: qemu-system-x86_64 is not installed");
        return;
    };
    let _ended = Ended(child);
    let begun = Instant::now();
    // SeaBIOS assigns addresses within its first second, but the machine may be busy.
    let found = loop {
        let answer = Monitor::connect(&socket, LONG).and_then(ask);
        let found = answer.map_err(PciError::from).and_then(|answer| bars(answer.get())).unwrap_or_default();
        if found.iter().filter(|bar| bar.id == "net0").count() >= 2
            || begun.elapsed() > Duration::from_secs(120)
        {
            break found;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let of_card: Vec<_> = found.iter().filter(|bar| bar.id == "net0").collect();
    assert!(
        of_card.iter().all(|bar| (bar.vendor, bar.device, bar.class) == (0x8086, 0x100e, 0x200)),
        "{found:?}"
    );
    let memory = of_card.iter().find(|bar| !bar.is_ports && bar.number == 0).unwrap();
    assert_eq!((memory.size, memory.start % memory.size), (0x2_0000, 0));
    let ports = of_card.iter().find(|bar| bar.is_ports).unwrap();
    assert_eq!((ports.number, ports.size), (1, 0x40));
}

proptest! {
    #[test]
    fn no_answer_panics(number in any::<i64>(), kind in "io|memory|.{0,3}", depth in 0_usize..40) {
        let region = json!([{ "bar": number, "type": kind, "address": number, "size": number }]);
        let mut one = device(number, region);
        for _ in 0..depth {
            let mut bridge = device(number, json!([]));
            bridge["pci_bridge"] = json!({ "bus": { "secondary": number }, "devices": [one] });
            one = bridge;
        }
        let _ = bars(&json!([{ "bus": number, "devices": [one] }]).to_string());
    }
}
