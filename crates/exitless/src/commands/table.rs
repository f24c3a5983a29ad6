//! The common part of commands that print a table of exits.

use clap::Args;
use exits::{BadGrouping, Dimension, Grouping, Order, Profile, Table};

use super::quantity;

/// The rows of a table.
#[derive(Debug, Args)]
pub(crate) struct TableArguments {
    /// Group rows by: reason, vm, vcpu, port, mmio, msr, apic, ipi, nested, or several with commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "reason")]
    by: Vec<Dimension>,
    /// Sort rows by: samples, exits, time, min, max, mean, p99 or name.
    #[arg(long, value_name = "WHAT", default_value_t)]
    sort: Order,
    /// Show only this many rows; one more has the totals of all others.
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// Also count the exits of each row that took this long or longer: 50us, 1ms.
    #[arg(long, value_name = "TIME", value_parser = quantity::bound)]
    threshold: Option<u64>,
}

impl TableArguments {
    /// The grouping of rows, or why it is invalid.
    pub(crate) fn grouping(&self) -> Result<Grouping, BadGrouping> {
        Grouping::new(self.by.iter().copied())
    }

    /// The number of rows asked for.
    pub(crate) const fn top(&self) -> Option<usize> {
        self.top
    }

    /// Tests whether rows are grouped by ports, addresses or registers.
    pub(crate) fn accesses(&self) -> bool {
        self.by.iter().any(|dimension| dimension.is_access())
    }

    /// The table, sorted and cut as requested.
    pub(crate) fn of(&self, profile: &Profile, grouping: Grouping) -> Table {
        let mut table = Table::new(profile, grouping);
        table.sort(self.sort);
        self.top.into_iter().for_each(|count| table.keep_top(count));
        self.threshold.into_iter().for_each(|ns| table.set_threshold(ns));
        table
    }
}
