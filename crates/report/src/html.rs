//! Pages: one file each, without scripts, fonts or pictures from elsewhere.

mod axis;
mod beside;
mod comparison;
mod costs;
mod course;
mod distributions;
mod document;
mod evaluation;
mod exit_rows;
mod exits;
mod histogram;
mod host;
mod method;
mod order;
mod profile;
mod recording;
mod simulated;
mod stacked;
mod study;
mod summary;
mod table;
mod timeline_rows;
mod vcpus;

pub use self::comparison::comparison;
pub use self::evaluation::evaluation;
pub use self::profile::{profile, timeline};
pub use self::simulated::{Moment, simulated};
pub use self::study::study;

use ::host::Fingerprint;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use probe::run::Arm;
use prove::{Outcome, Recording};

use crate::format::counted;
use crate::proved;

const STYLE: &str = include_str!("html/style.css");

/// Nothing may be loaded from anywhere, even if some text should get into the page as markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The outcome of a proof as one page that opens offline, follows the reader's dark mode, fits a phone and prints.
///
/// `recording` is the source of `outcome`: the distributions and the order of the runs are drawn from it. The
/// page links to `result.json`, `recording.json` and `samples.parquet` in its folder.
pub fn prove(outcome: &Outcome, recording: &Recording) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                title { "Interrupt virtualization: " (proved::judgement(outcome.judgement)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (summary::render(outcome))
                    (costs::render(outcome))
                    (costs::over_costs(outcome))
                    (exits::render(outcome))
                    (distributions::render(outcome, recording))
                    (order::render(outcome, recording))
                    (method::render(outcome))
                    (host::render(outcome))
                }
                footer {
                    p {
                        "Made by exitless " (outcome.version) ". Beside this page: "
                        a href="result.json" { "result.json" } " (every figure), "
                        a href="recording.json" { "recording.json" } " (every run) and "
                        a href="samples.parquet" { "samples.parquet" } " (every sample)."
                    }
                }
            }
        }
    };
    page.into_string()
}

/// The available arms, in the order of the tables.
fn arms(outcome: &Outcome) -> Vec<Arm> {
    match proved::only_arm(&outcome.arms) {
        None => vec![Arm::Off, Arm::On],
        Some(arm) => vec![arm],
    }
}

/// A chart's frame: its alternative text, the width of the page, and its height in pixels.
///
/// Horizontal positions are percentages, so that the chart fits any width while its letters keep their size.
fn chart(height: u32, title: &str, description: &str, content: &Markup) -> Markup {
    html! {
        svg role="img" width="100%" height=(height) aria-label=(format!("{title}. {description}")) {
            title { (title) }
            desc { (description) }
            (content)
        }
    }
}

/// The legend of colours and shapes of the arms.
fn legend(outcome: &Outcome) -> Markup {
    html! {
        p.legend {
            @for arm in arms(outcome) {
                span.(proved::arm(arm)) {
                    svg width="12" height="12" aria-hidden="true" { (mark(arm, "6", 6.0)) }
                    "interrupt virtualization " (proved::arm(arm))
                }
            }
        }
    }
}

/// A round mark for off, a square one for on, because not everyone can distinguish the colours.
fn mark(arm: Arm, x: &str, y: f64) -> Markup {
    let y = format!("{y:.1}");
    match arm {
        Arm::Off => html! { circle.off cx=(x) cy=(y) r="4" {} },
        Arm::On => html! { rect.on x=(x) y=(y) width="7" height="7" transform="translate(-3.5 -3.5)" {} },
    }
}

/// CPU model, number of CPUs and kernel of a host, as far as they are known.
fn machine(fingerprint: &Fingerprint) -> Vec<String> {
    let model = fingerprint.cpu.as_ref().and_then(|cpu| cpu.name.clone());
    let cpus = fingerprint.online_cpus.map(|count| counted(count.into(), "CPU"));
    let kernel = fingerprint.kernel_release.as_ref().map(|release| format!("Linux {release}"));
    [model, cpus, kernel].into_iter().flatten().collect()
}

/// A date and time: "2025-06-15 15:06:40 UTC".
fn when(seconds: u64) -> String {
    // The formatter accepts dates up to the year 9999 only.
    const LAST: u64 = 253_402_300_799;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.min(LAST));
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
}
