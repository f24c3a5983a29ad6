//! The verdict: as a word, as a sentence, and as a sentence for each arm and workload.

use exits::{agree, counted};

use super::facts::Arm;
use super::figure::{Comparison, Figure, largest};
use super::finding::Finding;
use super::findings::{Findings, Judgement, Verdict};
use super::wording::{accessed, bound, bounds, by, counted_reason, guests, verb};

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
    let good = |good: bool| -> Vec<Main<'_>> {
        let is_so = |(figure, one): &&Main<'_>| one.finding.is_good(figure.better) == Some(good);
        main.iter().filter(is_so).copied().collect()
    };
    let said = |good: &[Main<'_>]| {
        largest(good).map(|(figure, one)| sentence(findings, figure, one)).unwrap_or_default()
    };
    match judgement {
        Judgement::Better | Judgement::Worse => {
            let is_better = judgement == Judgement::Better;
            let (word, found) = (if is_better { "better" } else { "worse" }, good(is_better));
            said(&found) + &beside(word, found.len(), Others::among(main))
        }
        Judgement::Mixed => {
            let (better, worse) = (good(true), good(false));
            format!(
                "Of {} main figures {} {} better and {} worse. {} {}",
                main.len(),
                better.len(),
                agree(better.len() as u64, "is", "are"),
                worse.len(),
                said(&better),
                said(&worse)
            )
        }
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

/// The main figures that are neither better nor worse.
#[derive(Debug, Clone, Copy, Default)]
struct Others {
    not_seen: usize,
    small: usize,
    too_few: usize,
}

impl Others {
    fn among(main: &[Main<'_>]) -> Self {
        let count = |finding| main.iter().filter(|(_, one)| one.finding == finding).count();
        Self {
            not_seen: count(Finding::NotSeen),
            small: count(Finding::Small),
            too_few: count(Finding::TooFew),
        }
    }

    fn count(self) -> usize {
        self.not_seen + self.small + self.too_few
    }

    /// What these figures show, with `others` as the subject: "the others show no difference"; "of the others 2 show no
    /// difference and 1 has too few repeats".
    fn told(self, others: &str) -> String {
        let show = |count: usize, what: &str| format!("{} {what}", agree(count as u64, "shows", "show"));
        let kinds = [
            (self.not_seen, show(self.not_seen, "no difference")),
            (self.small, show(self.small, "too small a difference")),
            (self.too_few, format!("{} too few repeats", agree(self.too_few as u64, "has", "have"))),
        ];
        let kinds: Vec<_> = kinds.into_iter().filter(|(count, _)| *count > 0).collect();
        match &kinds[..] {
            [(_, does)] => format!("{others} {does}"),
            kinds => {
                let each: Vec<String> = kinds.iter().map(|(count, does)| format!("{count} {does}")).collect();
                let (first, last) = each.split_at(each.len().saturating_sub(1));
                format!("of {others} {} and {}", first.join(", "), last.concat())
            }
        }
    }

    /// The same as a separate sentence after a blank: " The other main figure shows no difference."
    fn sentence(self) -> String {
        let told = self.told(&match self.count() {
            0 => return String::new(),
            1 => "the other main figure".to_owned(),
            count => format!("the other {count} main figures"),
        });
        format!(" {}{}.", told[..1].to_uppercase(), &told[1..])
    }
}

/// A sentence about the main figures that a headline does not mention; `found` of all are better or worse.
fn beside(word: &str, found: usize, others: Others) -> String {
    match (found, others.count()) {
        (1, _) => others.sentence(),
        (2, 0) => format!(" Both main figures are {word}; this one changed more."),
        (found, 0) => format!(" All {found} main figures are {word}; this one changed most."),
        (found, rest) => format!(
            " {found} of {} main figures are {word}, this one most; {}.",
            found + rest,
            others.told(agree(rest as u64, "the other", "the others"))
        ),
    }
}

/// The headline if no main figure is better or worse: bounds of their differences. One with too few repeats has no
/// bound.
fn no_difference(findings: &Findings, main: &[Main<'_>]) -> String {
    let (few, judged): (Vec<Main<'_>>, Vec<Main<'_>>) =
        main.iter().copied().partition(|(_, one)| one.finding == Finding::TooFew);
    let few = Others { too_few: few.len(), ..Others::default() }.sentence();
    if let [(figure, one)] = &judged[..] {
        return sentence(findings, figure, one) + &few;
    }
    let changes = judged.iter().map(|(figure, one)| Some((one.change?, figure.unit)));
    let bounds = changes.collect::<Option<Vec<_>>>().and_then(|changes| bounds(&changes));
    let larger = bounds.map(|bounds| format!(" larger than {}", bounds.join(" or "))).unwrap_or_default();
    format!("No difference{larger} was seen in any of {} main figures.{few}", judged.len())
}

/// A comparison as a sentence: "apicv on raised random-read throughput with 1 and 2 VMs by 2.1 % (95 % interval 1.2 to
/// 3.0 %, 8 pairs)."
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

/// Sentences about exits, if they were counted: one for each arm and workload, and one for each unit of work.
fn exits(findings: &Findings) -> Vec<String> {
    let totals =
        findings.figures.iter().filter(|figure| figure.is_exit_total() || figure.is_exit_total_of_work());
    let of = totals.flat_map(|figure| figure.summary().iter().map(move |one| (figure, one)));
    of.filter(|(_, one)| !one.is_aa).map(|(figure, one)| sentence(findings, figure, one)).collect()
}

/// Sentences about reasons, ports and pages whose exits changed significantly, after adjustment because there are so
/// many.
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
        let said =
            |all, found| beside("better", found, Others { not_seen: all - found, ..Others::default() });
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

    #[test]
    fn figures_beside_the_headline_are_told_apart() {
        let said =
            |found, not_seen, small, too_few| beside("worse", found, Others { not_seen, small, too_few });
        assert_eq!(said(1, 0, 0, 1), " The other main figure has too few repeats.");
        assert_eq!(said(1, 0, 2, 0), " The other 2 main figures show too small a difference.");
        assert_eq!(
            said(1, 2, 1, 1),
            " Of the other 4 main figures 2 show no difference, 1 shows too small a difference and 1 has too few repeats."
        );
        assert_eq!(
            said(2, 1, 0, 2),
            " 2 of 5 main figures are worse, this one most; of the others 1 shows no difference and 2 have too few repeats."
        );
    }
}
