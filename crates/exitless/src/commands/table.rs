//! What all commands share that print a table of exits.

use clap::Args;
use exits::{BadGrouping, Dimension, Grouping, Order, Profile, Table};

/// The rows of a table.
#[derive(Debug, Args)]
pub(crate) struct TableArguments {
    /// What rows are told apart by: reason, vm, vcpu, port, mmio, msr, apic, ipi, or several with commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "reason")]
    by: Vec<Dimension>,
    /// What rows are ordered by: samples, exits, time, min, max, mean, p99 or name.
    #[arg(long, value_name = "WHAT", default_value_t)]
    sort: Order,
    /// Only the first rows; one more has the sums of all others.
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
}

impl TableArguments {
    /// What rows are told apart by, once it is known to make sense.
    pub(crate) fn grouping(&self) -> Result<Grouping, BadGrouping> {
        Grouping::new(self.by.iter().copied())
    }

    /// Whether rows are told apart by ports, addresses or registers.
    pub(crate) fn accesses(&self) -> bool {
        self.by.iter().any(|dimension| dimension.is_access())
    }

    /// The table, in order and cut as asked for.
    pub(crate) fn of(&self, profile: &Profile, grouping: Grouping) -> Table {
        let mut table = Table::new(profile, grouping);
        table.sort(self.sort);
        self.top.into_iter().for_each(|count| table.keep_top(count));
        table
    }
}
