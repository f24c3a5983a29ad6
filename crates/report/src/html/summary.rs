//! The answer, at the top of the page.

use experiment::prove::{Judgement, Outcome};
use host::Fingerprint;
use maud::{Markup, html};

use crate::figure;
use crate::quantity::counted;

pub(super) fn render(outcome: &Outcome) -> Markup {
    html! {
        header {
            p.eyebrow { "What interrupt virtualization is worth on this host" }
            p class={ "judgement " (tone(outcome.judgement)) } { (figure::judgement(outcome.judgement)) }
            // A line must not end between a figure and its unit.
            h1 { (outcome.verdict.replace(" %", "\u{a0}%")) }
            p.muted { (machine(&outcome.fingerprint)) " · " (when(outcome.started)) }
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

fn tiles(outcome: &Outcome) -> Markup {
    let headline = outcome.measures.iter().find(|row| Some(row.measure) == outcome.headline);
    let headline = headline.and_then(|row| Some((row.measure, row.difference?)));
    let eoi = &outcome.evidence.exits_per_eoi;
    if figure::only_arm(&outcome.arms).is_some() {
        return html! {};
    }
    html! {
        dl.tiles {
            @if let Some((measure, difference)) = headline {
                div {
                    dt { "Cycles, " (measure.title()) }
                    dd { (figure::minus(&figure::percent_of(Some(difference)))) }
                    dd.note {
                        @match difference.interval {
                            Some(interval) => { "95 % interval " (figure::minus(&figure::interval(interval))) }
                            None => { "no interval: fewer than four runs an arm" }
                        }
                    }
                }
            }
            @if let Some(change) = outcome.exits.change {
                div {
                    dt { "VM exits, all operations" }
                    dd { (figure::minus(&figure::change(Some(change)))) }
                    dd.note {
                        (figure::count_of(outcome.exits.traced.off.or(outcome.exits.statistics.off)))
                        " off, "
                        (figure::count_of(outcome.exits.traced.on.or(outcome.exits.statistics.on)))
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

fn machine(fingerprint: &Fingerprint) -> String {
    let model = fingerprint.cpu.as_ref().and_then(|cpu| cpu.name.clone());
    let kernel = fingerprint.kernel_release.as_ref().map(|release| format!("Linux {release}"));
    let cpus = fingerprint.online_cpus.map(|count| counted(count.into(), "CPU"));
    let parts: Vec<String> = [model, cpus, kernel].into_iter().flatten().collect();
    if parts.is_empty() { "unknown machine".to_owned() } else { parts.join(" · ") }
}

/// A date and time: "2025-06-15 15:06:40 UTC".
fn when(seconds: u64) -> String {
    // The formatter accepts dates up to the year 9999 only.
    const LAST: u64 = 253_402_300_799;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.min(LAST));
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
}
