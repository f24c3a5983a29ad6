//! Fixes by the settings of programs that start QEMU: QEMU must accept them, and our own rules must find them
//! fixed.

use doctor::lint::{HostSide, lint};
use doctor::managed::{ROWS, Setting, Words};
use doctor::{Finding, State};
use domain::{NoFiles, Text};
use exits::Isa;
use host::vms::Manager;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-system-x86_64";

/// QEMU's complaint about arguments; `None` if it starts with them, `Err` if there is no QEMU.
fn complaint(arguments: &[&str]) -> Result<Option<String>, ErrorKind> {
    let fixed = ["-M", "q35", "-accel", "tcg", "-S", "-display", "none", "-nodefaults", "-monitor", "stdio"];
    let started = Command::new(QEMU)
        .args(fixed)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut qemu = started.map_err(|error| error.kind())?;
    let _ = qemu.stdin.take().unwrap().write_all(b"quit\n");
    let output = qemu.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then_some(text))
}

/// The arguments in the table, and the CPU flags that Proxmox VE passes to QEMU unchanged.
fn tried() -> BTreeSet<Vec<String>> {
    let passed_on = ROWS.iter().filter_map(|row| match row.words {
        Words::Arguments(words) => Some(words.iter().map(|&word| word.to_owned()).collect()),
        _ => None,
    });
    let flags = ["+hv-avic", "-hv-vapic", "+x2apic", "-x2apic", "+topoext", "-svm"];
    let flags = flags.iter().map(|flag| vec!["-cpu".to_owned(), format!("EPYC,{flag}")]);
    passed_on.chain(flags).collect()
}

#[test]
fn qemu_accepts_what_managers_pass_on() {
    let all = tried();
    assert!(all.len() > 8, "{all:?}");
    for arguments in all {
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        match complaint(&words) {
            Err(kind) => {
                assert_eq!(kind, ErrorKind::NotFound);
                println!("not tested: there is no {QEMU}");
                return;
            }
            Ok(complaint) => assert_eq!(complaint, None, "{words:?}"),
        }
    }
    let wrong = complaint(&["-global", "kvm-pit.lost_tick_policy=sometimes"]).unwrap();
    let other = complaint(&["-machine", "hpet=perhaps"]).unwrap();
    assert!(wrong.is_some() || other.is_some(), "QEMU refuses nothing, so the test shows nothing");
}

fn findings(arguments: &[&str]) -> Vec<Finding> {
    let mut bytes = arguments.join("\0").into_bytes();
    bytes.push(0);
    let definition = domain::qemu::read(&Text::new("test", bytes), &NoFiles).unwrap();
    lint(&definition, &HostSide::of_vendor(Isa::Svm))
}

#[test]
fn our_rules_find_nothing_more_after_the_fix() {
    let before = [QEMU, "-machine", "pc-q35-9.2,accel=kvm,hpet=on", "-cpu", "host"];
    for (setting, rule) in [
        (Setting::SplitIrqchip, "pit-lost-ticks"),
        (Setting::DiscardPitTicks, "pit-lost-ticks"),
        (Setting::NoHpet, "hpet"),
    ] {
        let state = |arguments: &[&str]| {
            let found = findings(arguments);
            found.into_iter().find(|one| one.rule == rule).unwrap().state
        };
        assert_ne!(state(&before), State::Pass, "{rule}");
        for manager in [Manager::Proxmox, Manager::Ovirt, Manager::Incus] {
            let row = ROWS.iter().find(|row| row.manager == manager && row.setting == setting).unwrap();
            let Words::Arguments(words) = row.words else { panic!("{row:?}") };
            assert_eq!(state(&[&before[..], words].concat()), State::Pass, "{manager:?} {setting:?}");
        }
    }
}
