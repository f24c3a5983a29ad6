//! The answer, at the top of the page.

use host::Fingerprint;
use maud::{Markup, html};
use prove::{Judgement, Proof};

use crate::format::{self, counted};
use crate::page::eyebrow::{machine, when};
use crate::prove::words;
use crate::text;

pub(crate) fn render(outcome: &Proof) -> Markup {
    html! {
        header {
            p.eyebrow { "What interrupt virtualization is worth on this host" }
            p class={ "judgement " (tone(outcome.judgement)) } { (words::judgement(outcome.judgement)) }
            // No line break between a figure and its unit.
            h1 { (outcome.verdict.replace(" %", "\u{a0}%")) }
            p.muted { (brief(&outcome.fingerprint)) " · " (when(outcome.started)) }
        }
        (tiles(outcome))
        @if !outcome.warnings.is_empty() {
            section.warnings {
                h2 { "Warnings" }
                ul {
                    @for warning in &outcome.warnings {
                        li.grave[warning.is_grave()] { (warning) }
                    }
                }
            }
        }
    }
}

fn tone(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::WorthIt => "good",
        Judgement::Worse | Judgement::Contradicted => "bad",
        _ => "neutral",
    }
}

fn tiles(outcome: &Proof) -> Markup {
    let headline = outcome.measures.iter().find(|row| Some(row.measure) == outcome.headline);
    let headline = headline.and_then(|row| Some((row.measure, row.difference?)));
    let eoi = &outcome.evidence.exits_per_eoi;
    if words::only_arm(&outcome.arms).is_some() {
        return html! {};
    }
    html! {
        dl.tiles {
            @if let Some((measure, difference)) = headline {
                div {
                    dt { "Cycles, " (measure.title()) }
                    dd { (text::minus(&words::percent_of(Some(difference)))) }
                    dd.note {
                        @match difference.interval {
                            Some(interval) => { "95 % interval " (text::minus(&format::interval(interval))) }
                            None => { "no interval: fewer than four runs an arm" }
                        }
                    }
                }
            }
            @if let Some(change) = outcome.exits.change {
                div {
                    dt { "VM exits, all operations" }
                    dd { (text::minus(&format::change(Some(change)))) }
                    dd.note {
                        (format::count_of(outcome.exits.traced.off.or(outcome.exits.statistics.off)))
                        " off, "
                        (format::count_of(outcome.exits.traced.on.or(outcome.exits.statistics.on)))
                        " on"
                    }
                }
            }
            @if let (Some(off), Some(on)) = (eoi.off, eoi.on) {
                div {
                    dt { "Proof of the arms: exits an EOI" }
                    dd { (format!("{off:.2} → {on:.2}")) }
                    dd.note {
                        @if let Some(reason) = &outcome.evidence.reason { "off by inhibit reason " (reason) }
                        @if let Some(events) = outcome.evidence.inhibit_events {
                            ", " (counted(events, "change")) " seen"
                        }
                    }
                }
            }
        }
    }
}

fn brief(fingerprint: &Fingerprint) -> String {
    let parts = machine(fingerprint);
    if parts.is_empty() { "unknown machine".to_owned() } else { parts.join(" · ") }
}
