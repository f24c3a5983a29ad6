//! What an emulator must be able to do to serve a laboratory; runs inside.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use lab::{Emulator, Lab};
use probe::run::Arm;
use probe::{Arms, Config, MicroVm, Verdict};

/// Arguments of the self-test.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The laboratory's name.
    name: String,
}

/// Enters a guest, and checks the interrupt virtualization that the laboratory promises: that it is there, and delivers
/// interrupts as the manual says.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let lab = Lab::find(&arguments.name)?;
    let mut vm = MicroVm::new(&Config::default())?;
    let promised = lab.emulator == Emulator::Bochs;
    if promised {
        if let Arms::OnlyOff { why } = vm.arms() {
            bail!("{} promises APICv, and it is not there: {why}", lab.name);
        }
        vm.switch(Arm::On)?;
        vm.verify_delivery()?;
    }
    let evidence = vm.verify_arm()?;
    let exits = evidence.exits_per_interrupt.map_or("unknown".to_owned(), |exits| format!("{exits:.3}"));
    if evidence.verdict == Verdict::Contradicted {
        bail!("{}: {exits} exits an interrupt, where APICv active is {promised}", lab.name);
    }
    println!("{exits} exits an interrupt");
    Ok(ExitCode::SUCCESS)
}
