//! Percentages in words.

use stats::Interval;

use super::Difference;

/// The number of decimals that the interval's width justifies: "71 %", but "1.4 %" if the interval is narrow.
fn decimals(interval: Option<Interval>) -> usize {
    match interval.map(|interval| interval.high - interval.low) {
        // At most one decimal: no interval includes the variation between proofs on one host.
        Some(width) if width < 2.0 => 1,
        _ => 0,
    }
}

/// A change of a count by `percent` in words: "71 % fewer", "3 % more".
pub fn change_in_words(percent: f64) -> String {
    change(percent, if percent.abs() < 10.0 { 1 } else { 0 })
}

fn change(percent: f64, decimals: usize) -> String {
    let word = if percent < 0.0 { "fewer" } else { "more" };
    format!("{} % {word}", number(percent.abs(), decimals))
}

/// A difference in words, with the decimals that its interval justifies: "71 % fewer".
pub(super) fn difference_in_words(difference: &Difference) -> String {
    change(difference.percent, decimals(difference.interval))
}

/// An interval in words: "70 to 72 %" if both ends have the sign of the estimate, else "2 % fewer to 1 %
/// more"; "narrower than 0.1 %" if both ends round to the same number.
pub fn interval_in_words(interval: Interval) -> String {
    let decimals = decimals(Some(interval));
    let Interval { low, high } = interval;
    if low > 0.0 || high < 0.0 {
        let (least, most) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
        match (number(least, decimals), number(most, decimals)) {
            (least, most) if least == most => "narrower than 0.1 %".to_owned(),
            (least, most) => format!("{least} to {most} %"),
        }
    } else {
        format!("{} to {}", change(low, decimals), change(high, decimals))
    }
}

/// The unit of this emulator's cycles. In labs, Bochs advances the TSC by one per instruction, and QEMU by eight.
pub fn emulated_cycles(emulator: &str) -> &'static str {
    if emulator.starts_with("Bochs") {
        "instructions of an emulator"
    } else {
        "eighths of an emulator's instruction"
    }
}

/// The cycles from VMRUN to the end of its #VMEXIT on an AMD EPYC: 1,344 to 1,376 (Michael Roth on the Linux kernel's
/// mailing list, "x86/kvm/svm: use direct vmload/vmsave", December 2020).
pub const EPYC_SWITCH_CYCLES: u32 = 1350;

/// The cost of a switch between guest and host that the emulator was configured to charge: "1,350 instructions for each VM
/// exit with its entry, an AMD EPYC's cycles". `None` if none was configured.
pub fn charged_switch(cycles: Option<u32>) -> Option<String> {
    let cycles = cycles.filter(|&cycles| cycles > 0)?;
    let whose = if cycles == EPYC_SWITCH_CYCLES { ", an AMD EPYC's cycles" } else { "" };
    Some(format!("{} instructions for each VM exit with its entry{whose}", exits::grouped(cycles.into())))
}

/// Formats a number. A small negative number rounds to "0", not "-0".
fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| matches!(c, '0' | '.')) => rest.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_decides_the_decimals() {
        let words = |low, high| interval_in_words(Interval { low, high });
        assert_eq!(words(-72.2, -69.8), "70 to 72 %");
        assert_eq!(words(-71.4, -70.9), "70.9 to 71.4 %");
        assert_eq!(words(-71.164, -71.16), "narrower than 0.1 %");
        assert_eq!(words(-3.2, 1.4), "3 % fewer to 1 % more");
        assert_eq!(words(12.0, 15.0), "12 to 15 %");
    }

    #[test]
    fn changes_are_said_with_their_direction() {
        assert_eq!(change_in_words(-71.2), "71 % fewer");
        assert_eq!(change_in_words(1.44), "1.4 % more");
        assert_eq!(change_in_words(-0.0), "0.0 % more");
    }
}
