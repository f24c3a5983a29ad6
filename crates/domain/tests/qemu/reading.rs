//! The definitions read from each.

use crate::summary::{definition, summary};

fn kept(name: &str) {
    let (stem, _) = name.split_once('.').expect("fixtures have an extension");
    insta::assert_snapshot!(stem.to_owned(), summary(&definition(name)));
}

#[test]
fn a_log_of_libvirt() {
    kept("virt-install-q35.log");
}

#[test]
fn what_proxmox_shows() {
    kept("proxmox-showcmd.txt");
}

#[test]
fn a_script_with_380_vcpus() {
    kept("x2avic-380.sh");
}

#[test]
fn one_line() {
    kept("ipi-16.txt");
}

#[test]
fn a_disk_and_nothing_else() {
    kept("plain-hda.txt");
}

#[test]
fn a_microvm_with_one_argument_a_line() {
    kept("microvm.args");
}

#[test]
fn windows_in_a_unit_with_a_configuration_file() {
    kept("windows.service");
}

#[test]
fn arrays_of_a_shell() {
    kept("array.sh");
}

#[test]
fn spellings_of_old() {
    kept("legacy.sh");
}

#[test]
fn block_nodes_nested_as_proxmox_9_does() {
    kept("proxmox-9.txt");
}
