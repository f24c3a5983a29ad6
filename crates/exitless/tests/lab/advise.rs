//! Advice on live exits of a real KVM.

use serde_json::Value;

use crate::command::run;

#[test]
fn ports_of_a_running_vm_come_out_with_their_devices() {
    // A machine without an operating system: its firmware causes thousands of port exits, and starts over
    // when it finds nothing to boot.
    let qemu = "qemu-system-x86_64 -name guest -accel kvm -M pc,hpet=off -m 32 -display none -nodefaults -vga std \
                -boot reboot-timeout=500 \
                -device isa-debugcon,iobase=0x402,chardev=c -chardev null,id=c";
    let script = format!(
        "exitless advise --duration 8 --json >advice.json & advise=$!; sleep 1; \
         timeout 9 {qemu} >qemu.txt 2>&1; wait $advise; echo status $?; sed 's/^/advice /' advice.json; \
         sed 's/^/qemu /' qemu.txt"
    );
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", &script]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    let lines: Vec<&str> = said.out.lines().filter_map(|line| line.strip_prefix("advice ")).collect();
    let document: Value = serde_json::from_str(&lines.join("\n")).unwrap_or_else(|error| {
        panic!("{error}: {}\n{}", said.out, said.err);
    });
    let vms = document["vms"].as_array().expect("vms");
    let vm = vms.iter().find(|vm| vm["name"] == "guest").unwrap_or_else(|| panic!("no guest: {document:#}"));
    assert_eq!(vm["has_definition"], true);
    let rows = vm["rows"].as_array().expect("rows");
    let row = |device: &str| {
        rows.iter().find(|row| row["device"] == device).unwrap_or_else(|| panic!("no {device}: {vm:#}"))
    };
    for device in ["debug-port", "rtc", "pci-config", "fw-cfg"] {
        assert!(row(device)["exits"].as_u64().expect("exits") > 0, "{device}");
    }
    // SeaBIOS writes its log to the debug port; each byte is an exit.
    assert!(row("debug-port")["exits"].as_u64() > Some(100), "{vm:#}");
    assert!(said.out.contains("status 0"), "{}", said.out);
}
