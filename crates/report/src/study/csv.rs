//! Every comparison of a study as comma-separated values.

use study::analysis::{Comparison, Figure, Findings};

use crate::csv::Line;

/// One line for each figure, number of guests and arm other than the baseline. `guests` is empty in lines over all numbers
/// of guests. Means and levels are in the figure's unit without a prefix. Changes are between the levels, in percent if
/// `scale` is `ratio`, else in that unit.
pub fn csv(findings: &Findings) -> String {
    let mut text = String::from(
        "workload,metric,source,unit,guests,arm,baseline_mean,arm_mean,scale,change,low,high,percent,noise,repeats,p,p_holm,test,\
         finding,alike,baseline_level,arm_level\n",
    );
    for figure in &findings.figures {
        for point in &figure.points {
            for one in &point.comparisons {
                let mean =
                    |arm: usize| point.arms.get(arm).and_then(Option::as_ref).map(|values| values.mean);
                let means = [one.baseline, one.arm].map(mean);
                line(&mut text, findings, figure, Some(point.guests), means, one);
            }
        }
        for one in &figure.overall {
            line(&mut text, findings, figure, None, [None; 2], one);
        }
    }
    text
}

fn line(
    text: &mut String,
    findings: &Findings,
    figure: &Figure,
    guests: Option<u32>,
    means: [Option<f64>; 2],
    one: &Comparison,
) {
    let change = one.change;
    let interval = change.and_then(|change| change.interval);
    let mut line = Line::default();
    line.field(&figure.workload).field(&figure.metric).word(Some(&figure.source)).word(Some(&figure.unit));
    line.optional(guests).field(findings.arms.get(one.arm).map_or("", |arm| &arm.full_name));
    line.optional(means[0])
        .optional(means[1])
        .word(change.map(|change| change.scale).as_ref())
        .optional(change.map(|change| change.estimate));
    line.optional(interval.map(|interval| interval.low)).optional(interval.map(|interval| interval.high));
    line.optional(one.percent).optional(one.noise).optional(change.map(|change| change.repeats));
    line.optional(change.and_then(|change| change.p_value)).optional(one.p_holm);
    line.word(change.and_then(|change| change.test).as_ref());
    line.word(Some(&one.finding)).field(one.is_aa);
    line.optional(one.levels.map(|levels| levels[0])).optional(one.levels.map(|levels| levels[1]));
    line.end(text);
}
