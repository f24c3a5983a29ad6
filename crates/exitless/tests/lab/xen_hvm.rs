//! An HVM guest of Xen with QEMU in dom0 as its device model, and the live page of its exits.

use std::fs;

use serde_json::Value;

use crate::command::Dom0;
use crate::top::{GIVEN_BACK, TAKEN_OVER, Typist};

/// Lets a paused domain run until the command in the third argument prints the second argument, and pauses it
/// again. The time varies by machine, because each access to the device model has to wake the emulated dom0.
const REACH: &str = "xl unpause $1 || exit\n\
    seconds() { cut -d. -f1 /proc/uptime; }\n\
    end=$(($(seconds) + 400))\n\
    until $3 | grep -qF \"$2\"; do\n\
        [ $(seconds) -lt $end ] || { echo \"$1 never said '$2':\" >&2; $3 | tail -n 9 >&2; exit 1; }\n\
        sleep 0.5\n\
    done\n\
    xl pause $1\n";

/// Counts the exits of an HVM guest live until its firmware starts, then records those until the firmware
/// starts the kernel, then those until user space.
const BOOTED: &str = "xl create -p -q /opt/exitless/guest/hvm.cfg && pgrep -af qemu > processes.txt && \
    exitless stat --json --by vm,reason -- sh reach hvm 'HVM Loader' 'xl dmesg' > stat.json && \
    exitless record -o hvm.exits -- sh reach hvm 'Booting from ROM' 'xl dmesg' && \
    exitless report --json --by vm,reason hvm.exits > reasons.json && \
    exitless report --json --by port hvm.exits > ports.json && \
    exitless report --json --by mmio hvm.exits > mmio.json && \
    log=/var/log/xen/console && touch $log/guest-hvm.log && \
    exitless record -o up.exits -- sh reach hvm 'exitless guest up' \"cat $log/guest-hvm.log\" && \
    exitless report --json --by port up.exits > up.json && \
    exitless report --json --by mmio up.exits > controllers.json && exitless advise --json up.exits > advice.json && \
    cp $log/guest-hvm.log hvc0.txt && cp $log/serial-hvm.log serial.txt";

/// The exits of a table's rows, by a column.
fn exits(document: &Value, column: &str) -> Vec<(String, u64)> {
    let rows = document["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row[column].as_str().expect("a name").to_owned(), row["exits"].as_u64().expect("exits")))
        .collect()
}

fn of(rows: &[(String, u64)], name: &str) -> u64 {
    rows.iter().find(|(known, _)| known == name).map_or(0, |&(_, count)| count)
}

#[test]
fn the_exits_of_an_hvm_guests_boot_are_those_of_its_device_model() {
    let folder = tempfile::tempdir().unwrap();
    let reach = folder.path().join("reach");
    fs::write(&reach, REACH).unwrap();
    let files = [
        "reasons.json",
        "ports.json",
        "mmio.json",
        "stat.json",
        "processes.txt",
        "up.json",
        "controllers.json",
        "advice.json",
        "hvc0.txt",
        "serial.txt",
    ];
    let dom0 = Dom0 { put: &[reach.to_str().unwrap()], ..Dom0::default() };
    let said = dom0.run(BOOTED, &files, folder.path().to_str().unwrap());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let json = |name: &str| -> Value {
        serde_json::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}: {}", text(name)))
    };
    assert!(text("processes.txt").contains("-machine xenfv"), "{}", text("processes.txt"));

    let reasons = json("reasons.json");
    assert_eq!(reasons["losses"]["lost_events"], 0, "{}", reasons["losses"]);
    assert!(reasons.to_string().contains("\"hvm\""), "{reasons}");
    let reasons = exits(&reasons, "reason");
    assert!(of(&reasons, "io") > 1000 && of(&reasons, "npf") > 0, "{reasons:?}");

    // The firmware looks for PCI devices, which QEMU has, and for a TPM, which it lacks.
    let ports = exits(&json("ports.json"), "access");
    let all: u64 = ports.iter().map(|(_, count)| count).sum();
    // The recording may begin or end between an exit and the record of its access.
    assert!(of(&reasons, "io").abs_diff(all) <= 1, "{all} of {reasons:?}: {ports:?}");
    assert!(of(&ports, "0xcf8:POUT") > 100 && of(&ports, "0xcfc:PIN") > 0, "{ports:?}");
    let mmio = exits(&json("mmio.json"), "access");
    assert!(mmio.iter().any(|(address, _)| address.starts_with("0xfed40")), "{mmio:?}");

    let live = exits(&json("stat.json"), "reason");
    assert!(live.iter().map(|(_, count)| count).sum::<u64>() > 10, "{live:?}");

    // The guest reports that it is up on both consoles: the paravirtual one, and the serial port that QEMU
    // emulates, where each character is an exit.
    let (paravirtual, serial) = (text("hvc0.txt"), text("serial.txt"));
    assert!(paravirtual.contains("exitless guest up after "), "{paravirtual}");
    let line = serial.lines().find(|line| line.starts_with("exitless guest up after "));
    let line = line.unwrap_or_else(|| panic!("nothing on the serial port: {serial}"));
    let ports = exits(&json("up.json"), "access");
    assert!(of(&ports, "0x3f8:POUT") >= line.len() as u64, "{line}: {ports:?}");
    let mmio = exits(&json("controllers.json"), "access");
    assert!(mmio.iter().any(|(address, _)| address.starts_with("0xfec000")), "{mmio:?}");
    let advice = json("advice.json");
    let rows = advice["vms"][0]["rows"].as_array().expect("rows");
    for device in ["serial", "pci-config", "rtc", "i8042"] {
        assert!(rows.iter().any(|row| row["device"] == device), "no {device}: {advice:#}");
    }
}

#[test]
fn the_page_leads_from_a_guest_of_xen_to_its_reasons() {
    let mut typist = Typist::in_full("xen");
    typist.until("# ");
    typist.types("stty rows 24 cols 80; export TERM=xterm; before=$(stty -g)\n");
    typist.until("# ");
    typist.types("xl create -q /opt/exitless/guest/pvh.cfg; exitless top --ascii; echo status=$?\n");
    typist.until(TAKEN_OVER);
    typist.until("pvh");
    typist.types("\r");
    typist.until("p50");
    typist.until("interrupt");
    typist.types("q");
    typist.until(GIVEN_BACK);
    typist.until("status=0");
    typist.types("[ \"$before\" = \"$(stty -g)\" ]; echo differs''=$?\n");
    typist.until("differs=0");
    typist.types("exit 5\n");
    assert_eq!(typist.leaves(), Some(5));
}
