//! Tests that an emulator meets a laboratory's requirements; runs inside.

use std::io::Write as _;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use lab::{Emulator, Lab};
use probe::clock::{self, Promise};
use probe::run::Arm;
use probe::{Agreement, Arms, Config, MicroVm};

/// Arguments of the self-test.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The lab's name.
    name: String,
    /// Measure only the clock, and print the result.
    #[arg(long)]
    clock: bool,
}

/// The rate that the laboratory promises for its emulator's clock, if any.
fn promise(lab: &Lab) -> Option<Promise> {
    match lab.emulator {
        Emulator::Bochs => Some(Promise { rate: 1.0, tolerance: 0.03, beside_busy_cpus: true }),
        // Debian's QEMU has no port for the cost of a switch, and its guests' clock is the host's.
        Emulator::Qemu if !matches!(lab::switch_cost::get(), Ok(Some(_))) => None,
        Emulator::Qemu => Some(Promise { rate: 8.0, tolerance: 0.03, beside_busy_cpus: true }),
    }
}

/// Checks that an instruction takes the promised time, even while other CPUs are busy.
fn check_clock(lab: &Lab, print: bool) -> anyhow::Result<()> {
    let promise = promise(lab);
    if promise.is_none() && !print {
        return Ok(());
    }
    let rows = clock::measure().context("Could not measure the clock")?;
    if print {
        for row in &rows {
            writeln!(std::io::stdout(), "{row}")?;
        }
    }
    let Some(promise) = promise else { return Ok(()) };
    let broken: Vec<String> =
        rows.iter().filter(|row| !promise.holds(row)).map(ToString::to_string).collect();
    if !broken.is_empty() {
        let Promise { rate, tolerance, .. } = promise;
        bail!("{} promises {rate} ticks an instruction, within {tolerance}: {}", lab.name, broken.join("; "));
    }
    Ok(())
}

/// Checks that this is the control domain of a Xen that runs guests with hardware virtualization, and that
/// Xen found the features that the laboratory promises.
fn run_below_xen(lab: &Lab) -> anyhow::Result<ExitCode> {
    const HYPERVISOR: &str = "/sys/hypervisor/properties/capabilities";
    const DOMAIN: &str = "/proc/xen/capabilities";
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("Could not read {path}"));
    let (guests, domain) = (read(HYPERVISOR)?, read(DOMAIN)?);
    if !domain.contains("control_d") {
        bail!("{DOMAIN} does not say control_d, as in a privileged domain: {domain:?}");
    }
    if !guests.contains("hvm-3.0-x86_64") {
        bail!("{HYPERVISOR} does not list hvm-3.0-x86_64: {guests:?}");
    }
    if lab.apicv {
        find_apicv()?;
    }
    writeln!(std::io::stdout(), "{}", guests.trim())?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that Xen's log lists the features that it calls APICv.
fn find_apicv() -> anyhow::Result<()> {
    const FEATURES: [&str; 3] =
        ["APIC Register Virtualization", "Virtual Interrupt Delivery", "Posted Interrupt Processing"];
    let said = Command::new("xl").arg("dmesg").output().context("Could not start `xl dmesg`")?;
    let log = String::from_utf8_lossy(&said.stdout);
    let missing = FEATURES.iter().find(|feature| !log.lines().any(|line| line.ends_with(*feature)));
    match missing {
        None => Ok(()),
        Some(missing) => {
            let listed: Vec<&str> = log.lines().filter(|line| line.contains("  - ")).collect();
            bail!("`xl dmesg` does not list {missing:?} among the features of VMX: {listed:?}")
        }
    }
}

/// Checks the clock, enters a guest, and checks that the interrupt virtualization that the laboratory
/// promises exists, and delivers interrupts as the manual specifies.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let lab = Lab::find(&arguments.name)?;
    if arguments.clock {
        check_clock(lab, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    if lab.is_xen() {
        return run_below_xen(lab);
    }
    check_clock(lab, false)?;
    let mut vm = MicroVm::new(&Config::default())?;
    if lab.apicv {
        if let Arms::OnlyOff { why } = vm.arms() {
            bail!("{} promises APICv, and it is not there: {why}", lab.name);
        }
        vm.switch(Arm::On)?;
        vm.verify_delivery()?;
    }
    let evidence = vm.verify_arm()?;
    let exits = evidence.exits_per_interrupt.map_or("unknown".to_owned(), |exits| format!("{exits:.3}"));
    if evidence.verdict == Agreement::Contradicted {
        bail!("{}: {exits} exits an interrupt, where APICv active is {}", lab.name, lab.apicv);
    }
    writeln!(std::io::stdout(), "{exits} exits an interrupt")?;
    Ok(ExitCode::SUCCESS)
}
