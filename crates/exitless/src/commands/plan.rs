//! The plan of a measurement, from the command line.

use clap::{Args, ValueEnum};
use probe::measure::Measure;
use probe::run::{ApicMode, Irqchip};
use prove::Plan;

/// The irqchip mode.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum IrqchipName {
    /// Local APICs in the kernel, the rest in user space.
    Split,
    /// Everything in the kernel.
    Kernel,
}

/// The guest's access to its local APIC.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ApicName {
    /// Model-specific registers.
    X2apic,
    /// Memory-mapped registers.
    Xapic,
}

/// The parts of a plan that can be chosen.
#[derive(Debug, Args)]
pub(crate) struct PlanArguments {
    /// Run only this measurement; may be given more than once [default: all].
    #[arg(long = "measure", value_name = "NAME")]
    measures: Vec<Measure>,
    /// vCPUs of the micro VM; IPIs go from the first to each of the others in turn.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=64))]
    vcpus: u16,
    /// The irqchip mode: the place of the emulated interrupt controllers.
    #[arg(long, value_enum, default_value = "split")]
    irqchip: IrqchipName,
    /// The guest's access to its local APIC.
    #[arg(long, value_enum, default_value = "x2apic")]
    apic: ApicName,
    /// Samples of each run.
    #[arg(long, value_name = "COUNT")]
    samples: Option<u32>,
    /// Operations at the start of each run that are not timed.
    #[arg(long, value_name = "COUNT")]
    warm_up: Option<u32>,
    /// Blocks of four runs, off on on off, of each measure.
    #[arg(long, value_name = "COUNT")]
    blocks: Option<u32>,
    /// Leave the vCPUs to the host's scheduler instead of pinning each to a CPU.
    #[arg(long)]
    no_pin: bool,
}

impl PlanArguments {
    /// The plan. Numbers that were not given are those of `base`.
    pub(crate) fn plan(&self, base: Plan) -> Plan {
        let samples = self.samples.unwrap_or(base.samples);
        Plan {
            measures: if self.measures.is_empty() { Measure::ALL.to_vec() } else { self.measures.clone() },
            vcpus: self.vcpus,
            irqchip: match self.irqchip {
                IrqchipName::Split => Irqchip::Split,
                IrqchipName::Kernel => Irqchip::Kernel,
            },
            apic: match self.apic {
                ApicName::X2apic => ApicMode::X2apic,
                ApicName::Xapic => ApicMode::Xapic,
            },
            pin: !self.no_pin,
            samples,
            counted_samples: samples,
            only: base.only,
            warm_up: self.warm_up.unwrap_or(base.warm_up),
            blocks: self.blocks.unwrap_or(base.blocks),
        }
    }
}
