//! The cost of counting exits on the host.

use live::{Cost, ProgramCost};

use crate::format::counted;
use crate::terminal::wrapped;

/// One sentence on the programs that count exits, at most `width` columns wide.
#[must_use]
pub fn terminal(cost: &Cost, width: usize) -> String {
    let Some(each) = cost.ns_per_exit() else {
        return wrapped("The counting took no time: there was no exit.", width, "", "");
    };
    let of = |program: &ProgramCost| {
        let mean = program.total_ns as f64 / program.runs.max(1) as f64;
        format!("{} {mean:.0} ns ({})", program.program, counted(program.runs, "run"))
    };
    let programs: Vec<String> = cost.programs.iter().map(of).collect();
    let text = format!(
        "The counting took {each:.0} ns an exit since it began, as the kernel measures its programs: {}.",
        programs.join(", ")
    );
    wrapped(&text, width, "", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_unit() {
        let program = |name: &str, runs, total_ns| ProgramCost { program: name.to_owned(), runs, total_ns };
        let both =
            Cost { programs: vec![program("raw_entry", 1000, 70_000), program("raw_exit", 1000, 81_400)] };
        assert_eq!(
            terminal(&both, 80),
            "The counting took 151 ns an exit since it began, as the kernel measures its\n\
             programs: raw_entry 70 ns (1,000 runs), raw_exit 81 ns (1,000 runs).\n"
        );
        assert!(terminal(&Cost::default(), 80).contains("no exit"));
    }
}
