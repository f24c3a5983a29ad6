//! The verdict in a word, in a sentence, and in a sentence for each arm and workload.

use exits::{agree, counted};

use super::facts::Arm;
use super::figure::{Comparison, Figure};
use super::finding::Finding;
use super::findings::{Findings, Judgement, Verdict};
use super::wording::{accessed, bound, by, counted_reason, guests, verb};
use stats::Contrast;

/// A comparison of a main figure.
type Main<'a> = (&'a Figure, &'a Comparison);

pub(super) fn verdict(findings: &Findings) -> Verdict {
    let main: Vec<Main<'_>> = findings
        .main()
        .into_iter()
        .flat_map(|figure| figure.summary().iter().map(move |comparison| (figure, comparison)))
        .collect();
    let real: Vec<Main<'_>> = main.iter().copied().filter(|(_, one)| !one.is_aa).collect();
    if let (true, Some(alarms)) = (real.is_empty(), findings.false_alarms) {
        let sentence = format!(
            "The arms are alike; of {} {} ({:.1} %) gave a p value below {}, where {:.0} % are to be expected, \
             and {} ({:.1} %) passed all gates.",
            counted(alarms.comparisons as u64, "comparison"),
            alarms.below,
            alarms.below_percent,
            findings.gates.level,
            findings.gates.level * 100.0,
            alarms.found,
            alarms.found_percent
        );
        return Verdict { judgement: Judgement::Alike, sentences: Vec::new(), sentence };
    }
    let judgement = judge(&real);
    let mut sentences: Vec<String> =
        real.iter().map(|(figure, one)| sentence(findings, figure, one)).collect();
    sentences.extend(exits(findings));
    sentences.extend(reasons(findings));
    Verdict { judgement, sentence: headline(findings, judgement, &real), sentences }
}

fn judge(main: &[Main<'_>]) -> Judgement {
    let some = |good| main.iter().any(|(figure, one)| one.finding.is_good(figure.better) == Some(good));
    if main.is_empty() {
        return Judgement::Nothing;
    }
    match (some(true), some(false)) {
        (true, true) => Judgement::Mixed,
        (true, false) => Judgement::Better,
        (false, true) => Judgement::Worse,
        (false, false) if main.iter().any(|(_, one)| one.finding != Finding::TooFew) => {
            Judgement::NoDifference
        }
        (false, false) => Judgement::TooFewRepeats,
    }
}

fn headline(findings: &Findings, judgement: Judgement, main: &[Main<'_>]) -> String {
    let largest = |good: bool| {
        let found = main.iter().filter(|(figure, one)| one.finding.is_good(figure.better) == Some(good));
        let sized = |change: &Option<Contrast>| change.map_or(0.0, |change| change.estimate.abs());
        found.max_by(|a, b| sized(&a.1.change).total_cmp(&sized(&b.1.change)))
    };
    let said = |good| largest(good).map(|(figure, one)| sentence(findings, figure, one)).unwrap_or_default();
    let count =
        |good| main.iter().filter(|(figure, one)| one.finding.is_good(figure.better) == Some(good)).count();
    match judgement {
        Judgement::Better | Judgement::Worse => {
            let good = judgement == Judgement::Better;
            let word = if good { "better" } else { "worse" };
            said(good) + &beside(word, main.len(), count(good))
        }
        Judgement::Mixed => format!(
            "Of {} main figures {} {} better and {} worse. {} {}",
            main.len(),
            count(true),
            agree(count(true) as u64, "is", "are"),
            count(false),
            said(true),
            said(false)
        ),
        Judgement::NoDifference => no_difference(findings, main),
        Judgement::TooFewRepeats => {
            "There are too few repeats for an interval of the difference; at least three are needed."
                .to_owned()
        }
        Judgement::Alike => String::new(),
        Judgement::Nothing => {
            "Nothing was compared: no figure is there for the baseline and another arm.".to_owned()
        }
    }
}

/// The main figures beside the one that a headline tells of, where `found` of `all` are better or worse.
fn beside(word: &str, all: usize, found: usize) -> String {
    match (all, found) {
        (1, _) => String::new(),
        (2, 2) => format!(" Both main figures are {word}; this one changed more."),
        (2, _) => " The other main figure shows no difference.".to_owned(),
        (all, found) if all == found => format!(" All {all} main figures are {word}; this one changed most."),
        (all, 1) => format!(" The other {} main figures show no difference.", all - 1),
        (all, found) => format!(
            " {found} of {all} main figures are {word}, this one most; the {} no difference.",
            agree((all - found) as u64, "other shows", "others show")
        ),
    }
}

fn no_difference(findings: &Findings, main: &[Main<'_>]) -> String {
    if let [(figure, one)] = main {
        return sentence(findings, figure, one);
    }
    let sized = |change: &Contrast| {
        change.interval.map_or(0.0, |interval| interval.low.abs().max(interval.high.abs()))
    };
    let widest = main
        .iter()
        .filter_map(|(figure, one)| Some((figure, one.change?)))
        .max_by(|a, b| sized(&a.1).total_cmp(&sized(&b.1)));
    let bound = widest.and_then(|(figure, change)| bound(&change, figure.unit));
    match bound {
        Some(bound) => {
            format!("No difference larger than {bound} was seen in any of {} main figures.", main.len())
        }
        None => format!("No difference was seen in any of {} main figures.", main.len()),
    }
}

/// "apicv on raised random-read throughput with 1 and 2 VMs by 2.1 % (95 % interval 1.2 to 3.0 %, 8 pairs)."
fn sentence(findings: &Findings, figure: &Figure, one: &Comparison) -> String {
    let counts = figure.counts_of(one.arm);
    let with = match guests(&counts, findings.study.are_vms) {
        guests if guests.is_empty() || counts == [0] => String::new(),
        guests => format!(" with {guests}"),
    };
    let name = figure.name();
    let arm = arm(findings, one.arm);
    let Some(change) = one.change else { return format!("{arm}: no block has {name}{with} in both arms.") };
    match one.finding {
        Finding::Raised | Finding::Lowered => {
            format!("{arm} {} {name}{with} {}.", verb(one.finding), by(&change, figure.unit))
        }
        Finding::Small => format!(
            "{arm} changed {name}{with} too little to matter or to stand out of the repeats' scatter: {}.",
            by(&change, figure.unit)
        ),
        Finding::NotSeen => match bound(&change, figure.unit) {
            Some(bound) => {
                format!(
                    "{arm}: no difference larger than {bound} was seen in {name}{with} ({}).",
                    counted(change.repeats as u64, "pair")
                )
            }
            None => format!("{arm}: no difference was seen in {name}{with}."),
        },
        Finding::TooFew => {
            format!("{arm}: too few repeats: {} of {name}{with}.", counted(change.repeats as u64, "repeat"))
        }
    }
}

/// The changes of exits, if counted: a sentence for each arm and workload, and one for each unit of work.
fn exits(findings: &Findings) -> Vec<String> {
    let totals =
        findings.figures.iter().filter(|figure| figure.is_exit_total() || figure.is_exit_total_of_work());
    let of = totals.flat_map(|figure| figure.summary().iter().map(move |one| (figure, one)));
    of.filter(|(_, one)| !one.is_aa).map(|(figure, one)| sentence(findings, figure, one)).collect()
}

/// The exits that changed significantly, adjusted for the many comparisons: there is one for each reason,
/// port and page.
fn reasons(findings: &Findings) -> Vec<String> {
    let of_reasons =
        |figure: &&Figure| counted_reason(&figure.metric).is_some() || accessed(&figure.metric).is_some();
    let all = findings.figures.iter().filter(of_reasons);
    let of = all.flat_map(|figure| figure.summary().iter().map(move |one| (figure, one)));
    of.filter(|(_, one)| !one.is_aa && one.finding.is_found())
        .filter(|(_, one)| one.p_holm.is_some_and(|p| p < findings.gates.level))
        .map(|(figure, one)| sentence(findings, figure, one))
        .collect()
}

fn arm(findings: &Findings, arm: usize) -> String {
    findings.arms.get(arm).map_or_else(String::new, |arm: &Arm| arm.full_name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_figure_beside_the_headline_is_not_many() {
        let said = |all, found| beside("better", all, found);
        assert_eq!(said(2, 1), " The other main figure shows no difference.");
        assert_eq!(said(3, 1), " The other 2 main figures show no difference.");
        assert_eq!(
            said(3, 2),
            " 2 of 3 main figures are better, this one most; the other shows no difference."
        );
        assert_eq!(
            said(5, 2),
            " 2 of 5 main figures are better, this one most; the others show no difference."
        );
        assert_eq!(
            [said(1, 1), said(2, 2)].concat(),
            " Both main figures are better; this one changed more."
        );
    }
}
