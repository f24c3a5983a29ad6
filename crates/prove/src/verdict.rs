//! The answer in one sentence.

use conclusions::RelativeChange;
use exits::{counted, grouped};
use probe::Arms;
use probe::measure::Measure;
use probe::run::Arm;

use super::Warning;
use super::outcome::{Effect, ExitTotals, Judgement, MeasureOutcome};
use super::wording::{change_in_words, difference_in_words, emulated_cycles, interval_in_words};

/// Measures that depend on interrupt virtualization, the most relevant first.
const TELLING: [Measure; 7] = [
    Measure::IpiRunning,
    Measure::SelfIpi,
    Measure::Eoi,
    Measure::IpiHalted,
    Measure::TimerFire,
    Measure::TprWrite,
    Measure::Hlt,
];

pub(super) struct Conclusion {
    pub(super) judgement: Judgement,
    pub(super) sentence: String,
    /// The measure whose figure comes first in the sentence.
    pub(super) headline: Option<Measure>,
}

pub(super) fn verdict(
    arms: &Arms,
    measures: &[MeasureOutcome],
    exits: &ExitTotals,
    warnings: &[Warning],
    emulated: Option<&str>,
    switch_cycles: Option<u32>,
) -> Conclusion {
    let telling: Vec<&MeasureOutcome> = TELLING
        .into_iter()
        .filter_map(|wanted| measures.iter().find(|outcome| outcome.measure == wanted))
        .collect();
    let judgement = judge(arms, &telling, warnings);
    let mut sentence = match judgement {
        Judgement::WorthIt => format!(
            "Interrupt virtualization is worth it here: {}{}",
            figure_of(&telling, Effect::Fewer),
            and_exits(exits)
        ),
        Judgement::Mixed => format!(
            "Interrupt virtualization gives and takes here: {}, but {}{}",
            figure_of(&telling, Effect::Fewer),
            figure_of(&telling, Effect::More),
            and_exits(exits)
        ),
        Judgement::Worse => format!(
            "Interrupt virtualization costs more than it saves here: {}{}",
            figure_of(&telling, Effect::More),
            and_exits(exits)
        ),
        Judgement::NoDifference => format!(
            "No significant difference: {}{}",
            telling.first().map(|first| figure(first)).unwrap_or_default(),
            and_exits(exits)
        ),
        Judgement::TooFewRuns => format!(
            "Too few runs for a verdict: {}{}",
            telling.first().map(|first| figure(first)).unwrap_or_default(),
            and_exits(exits)
        ),
        Judgement::OneArm => one_arm(arms, &telling),
        Judgement::Contradicted => {
            "No verdict: the exits that were counted contradict the arms, so interrupt virtualization was not on \
             or not off when it should have been"
                .to_owned()
        }
        Judgement::Nothing => "No verdict: none of the measures that gave samples is of interrupts".to_owned(),
    };
    if let Some(emulator) = emulated {
        let switch = match switch_cycles {
            Some(cycles @ 1..) => format!(", {} instructions for a switch", grouped(cycles.into())),
            _ => String::new(),
        };
        sentence.push_str(&format!(
            "; cycles are {} ({emulator}){switch}, not time on hardware",
            emulated_cycles(emulator)
        ));
    }
    sentence.push('.');
    let headline = match judgement {
        Judgement::WorthIt | Judgement::Mixed => first(&telling, Effect::Fewer),
        Judgement::Worse => first(&telling, Effect::More),
        _ => telling.first().copied(),
    };
    Conclusion { judgement, sentence, headline: headline.map(|outcome| outcome.measure) }
}

fn judge(arms: &Arms, telling: &[&MeasureOutcome], warnings: &[Warning]) -> Judgement {
    let some = |effect| telling.iter().any(|outcome| outcome.effect == effect);
    if !matches!(arms, Arms::Both { .. }) {
        Judgement::OneArm
    } else if warnings.iter().any(Warning::is_grave) {
        Judgement::Contradicted
    } else if telling.is_empty() {
        Judgement::Nothing
    } else {
        match (some(Effect::Fewer), some(Effect::More)) {
            (true, true) => Judgement::Mixed,
            (true, false) => Judgement::WorthIt,
            (false, true) => Judgement::Worse,
            (false, false) if some(Effect::Indistinguishable) || some(Effect::Negligible) => {
                Judgement::NoDifference
            }
            (false, false) => Judgement::TooFewRuns,
        }
    }
}

/// The most relevant measure with this effect.
fn first<'a>(telling: &[&'a MeasureOutcome], effect: Effect) -> Option<&'a MeasureOutcome> {
    telling.iter().copied().find(|outcome| outcome.effect == effect)
}

fn figure_of(telling: &[&MeasureOutcome], effect: Effect) -> String {
    first(telling, effect).map(figure).unwrap_or_default()
}

/// "71 % fewer cycles per IPI to a running vCPU (95 % interval 70 to 72 %, 8 runs an arm)".
fn figure(outcome: &MeasureOutcome) -> String {
    let Some(difference) = &outcome.difference else {
        return format!("{} was measured in one arm only", outcome.measure.title());
    };
    let certainty = match difference.interval {
        Some(interval) => format!("95 % interval {}", interval_in_words(interval)),
        None => "no interval".to_owned(),
    };
    format!(
        "{} cycles per {} ({certainty}, {} an arm)",
        difference_in_words(difference),
        outcome.measure.title(),
        counted(difference.pairs as u64, "run")
    )
}

fn and_exits(exits: &ExitTotals) -> String {
    match exits.change {
        Some(RelativeChange::Percent(percent)) if percent.abs() >= 0.05 => {
            format!(" and {} VM exits over all measures", change_in_words(percent))
        }
        Some(RelativeChange::Percent(_) | RelativeChange::StillNothing) => {
            " and as many VM exits over all measures".to_owned()
        }
        Some(RelativeChange::FromNothing) => " and VM exits where there were none".to_owned(),
        None => String::new(),
    }
}

fn one_arm(arms: &Arms, telling: &[&MeasureOutcome]) -> String {
    let (arm, state, why) = match arms {
        Arms::OnlyOff { why } => (Arm::Off, "off", why),
        Arms::OnlyOn { why } => (Arm::On, "on", why),
        Arms::Both { .. } => return String::new(),
    };
    let cost = telling
        .iter()
        .find_map(|outcome| outcome.cost.of(arm).map(|cost| (outcome.measure, cost)))
        .map(|(measure, cost)| {
            format!("; {} takes {} cycles", measure.title(), grouped(cost.median.round() as u64))
        })
        .unwrap_or_default();
    format!(
        "This host could be measured only with interrupt virtualization {state}, so nothing is compared ({}){cost}",
        why.trim_end_matches('.')
    )
}
