use super::*;

fn level(text: &str) -> Level {
    toml::from_str(&format!("name = \"x\"\n{text}")).unwrap()
}

#[test]
fn every_part_is_read() {
    let read = level(
        "module_parameters = { kvm_intel = { enable_apicv = \"N\", ple_gap = 0 } }\n\
         files = { \"/sys/kernel/mm/ksm/run\" = 0 }\n\
         kernel_settings = { \"kernel.numa_balancing\" = false }\n\
         frequency = { cpus = \"1\", governor = \"userspace\", minimum = \"1200MHz\", maximum = \"1.2GHz\" }\n\
         commands = [{ before = \"systemctl stop irqbalance\", after = \"systemctl start irqbalance\" }]\n\
         interrupt_virtualization = \"off\"\n\
         inhibit = \"pit-reinject\"\n\
         guests = { vcpus = 4, disk = { cache = \"none\" } }\n",
    );
    assert_eq!(read.check(), Ok(()));
    assert_eq!(read.module_parameters["kvm_intel"]["ple_gap"], Setting::Number(0));
    assert_eq!(read.kernel_settings["kernel.numa_balancing"].to_string(), "0");
    let frequency = read.frequency.as_ref().unwrap();
    assert_eq!(frequency.minimum, frequency.maximum);
    assert_eq!(read.interrupt_virtualization, Some(Switch::Off));
    assert_eq!(read.inhibit, Some(Inhibit::PitReinject));
    assert_eq!(read.guests["vcpus"].as_integer(), Some(4));
    let again: Level = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(again, read);
}

#[test]
fn a_command_needs_the_one_that_takes_it_back() {
    let text = "name = \"x\"\ncommands = [{ before = \"swapoff -a\" }]";
    let error = toml::from_str::<Level>(text).unwrap_err().to_string();
    assert!(error.contains("missing field `after`"), "{error}");
    let level = level("commands = [{ before = \"swapoff -a\", after = \" \" }]");
    assert!(level.check().unwrap_err().to_string().contains("takes it back"));
}

#[test]
fn what_cannot_be_put_in_force_is_named() {
    for (text, named) in [
        ("module_parameters = { \"kvm/../x\" = { a = 1 } }", "kvm/../x"),
        ("module_parameters = { kvm = { \"a b\" = 1 } }", "a b"),
        ("module_parameters = { kvm = { a = \"1 nested=0\" } }", "1 nested=0"),
        ("files = { \"/etc/passwd\" = 1 }", "/etc/passwd"),
        ("files = { \"/sys/../etc/passwd\" = 1 }", "/sys/../etc/passwd"),
        ("kernel_settings = { \"kernel..x\" = 1 }", "kernel..x"),
        ("kernel_settings = { \"../x\" = 1 }", "../x"),
        ("frequency = { cpus = \"3-1\" }", "3-1"),
        ("frequency = { cpus = \"0-4294967295\" }", "0-4294967295"),
        ("frequency = { minimum = \"2GHz\", maximum = \"1GHz\" }", "2GHz"),
    ] {
        let error = level(text).check().unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn kernel_settings_have_their_files() {
    assert_eq!(setting_path("net.core.rmem_max").as_deref(), Some("/proc/sys/net/core/rmem_max"));
    assert_eq!(
        setting_path("net/ipv4/conf/eth0.1/forwarding").as_deref(),
        Some("/proc/sys/net/ipv4/conf/eth0.1/forwarding")
    );
}

#[test]
fn what_the_level_says_of_guests_goes_before_what_an_inhibit_takes() {
    let level =
        level("inhibit = \"hyperv-auto-eoi\"\nguests = { cpu = \"Skylake-Client,hv-vpindex,hv-synic\" }");
    let settings = level.guest_settings();
    assert_eq!(settings["cpu"].as_str(), Some("Skylake-Client,hv-vpindex,hv-synic"));
    assert_eq!(settings["irqchip"].as_str(), Some("on"));
}
