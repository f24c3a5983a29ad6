//! What `exitless diff` shows, against kept copies and a ruler; and its page.

#[allow(dead_code)]
mod synthetic;

use exits::profile_comparison::{ComparisonOptions, ComparisonOrder, ProfileComparison, Recording};
use exits::{Access, Dimension, Direction, ExitReason, Grouping, Profile, SeriesKey, Slice, Span, Vcpu};
use report::{Compared, csv, html, json, terminal};
use traces::{Damage, Format, Options, Origin, Reading, Recordings, Unlike};

const HLT: ExitReason = ExitReason::svm(0x78);
const MSR: ExitReason = ExitReason::svm(0x7c);
const INTERRUPT: ExitReason = ExitReason::svm(0x60);
const VINTR: ExitReason = ExitReason::svm(0x64);
const INCOMPLETE_IPI: ExitReason = ExitReason::svm(0x401);
const NPF: ExitReason = ExitReason::svm(0x400);
const PAUSE: ExitReason = ExitReason::svm(0x77);
const IO: ExitReason = ExitReason::svm(0x7b);

const MILLISECOND: u64 = 1 << 20;

/// A reason, how often it occurs in a millisecond, and how long one takes at least.
type Load = (ExitReason, f64, u64);

/// Interrupt virtualization off and on, as a host would record it.
const OFF: &[Load] = &[
    (INTERRUPT, 50.0, 700),
    (MSR, 48.0, 500),
    (VINTR, 9.0, 700),
    (NPF, 0.2, 1_000),
    (HLT, 0.05, 600_000),
    (PAUSE, 0.004, 900),
    (IO, 0.02, 2_300),
];
const ON: &[Load] = &[
    (INTERRUPT, 3.2, 600),
    (MSR, 1.5, 900),
    (NPF, 0.2, 1_500),
    (HLT, 0.05, 610_000),
    (INCOMPLETE_IPI, 0.06, 2_000),
    (PAUSE, 0.005, 900),
    (IO, 0.02, 2_300),
];

/// The same numbers in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn reading(vm: u32, milliseconds: u64, loads: &[Load]) -> Reading {
    let mut profile = Profile::new();
    let mut chance = Chance(u64::from(vm));
    for &(reason, rate, shortest_ns) in loads {
        let series = profile.timeline.series(SeriesKey { vm: Some(vm), reason });
        for cell in 0..milliseconds {
            // A load that swells and ebbs.
            let swell = 1.0 + 0.4 * (cell as f64 / 90.0).sin();
            let wanted = rate * swell * 1000.0;
            let count = (wanted as u64 + chance.below(1000)) / 1000;
            for number in 0..count {
                let vcpu = Vcpu {
                    vm: Some(vm),
                    number: Some(number as u32 % 2),
                    thread: Some(vm + 1 + number as u32 % 2),
                };
                let spread = chance.below(1000);
                let ns = shortest_ns + shortest_ns * spread.pow(4) / 100_000_000_000;
                let exits = profile.vcpu(vcpu).reasons.entry(reason).or_default();
                exits.count += 1;
                exits.handling.add(ns);
                if reason == IO {
                    let access = Access::Port { port: 0x3f8, direction: Direction::Write };
                    let exits = profile.vcpu(vcpu).accesses.entry(access).or_default();
                    exits.count += 1;
                    exits.handling.add(ns);
                }
                profile.timeline.add(series, cell * MILLISECOND, Slice { count: 1, handling_ns: ns });
            }
        }
    }
    profile.span = Some(Span { first_ns: 0, last_ns: milliseconds * MILLISECOND });
    profile.names.insert(vm, "qemu-system-x86".to_owned());
    profile.events.insert("kvm:kvm_exit".to_owned(), profile.total());
    let origin = Origin {
        version: Some("6.12.107".to_owned()),
        host: Some("host-17".to_owned()),
        kernel: Some("6.12.107".to_owned()),
        processor: Some("AMD EPYC 9654 96-Core Processor".to_owned()),
        bytes: 1 << 20,
        ..Origin::new(Format::PerfData)
    };
    Reading { profile, origin, damage: None, warnings: Vec::new() }
}

fn recordings(name: &str, reading: Reading) -> Recordings {
    let mut recordings = Recordings::new(Options::default());
    recordings.add(name.to_owned(), reading);
    recordings
}

struct Pair {
    before: Vec<Recordings>,
    after: Vec<Recordings>,
    grouping: Grouping,
    comparison: ProfileComparison,
    unlike: Vec<Unlike>,
}

impl Pair {
    fn new(
        before: Vec<Recordings>,
        after: Vec<Recordings>,
        by: &[Dimension],
        operations: Option<(u64, u64)>,
    ) -> Self {
        let grouping = Grouping::new(by.iter().copied()).unwrap();
        let [a, b] = [&before, &after].map(|side| {
            side.iter()
                .map(|one| Recording { observed: one.observed(), ..(&one.profile).into() })
                .collect::<Vec<_>>()
        });
        let options = ComparisonOptions { grouping: grouping.clone(), operations, seed: 0 };
        let comparison = ProfileComparison::new(&a, &b, &options);
        let unlike = traces::unlike(&before, &after);
        Self { before, after, grouping, comparison, unlike }
    }

    fn compared(&self) -> Compared<'_> {
        Compared {
            comparison: &self.comparison,
            grouping: &self.grouping,
            before: &self.before,
            after: &self.after,
            unlike: &self.unlike,
        }
    }
}

const REASON: &[Dimension] = &[Dimension::Reason];

fn virtualized() -> Pair {
    let before = recordings("off.perf.data", reading(366, 800, OFF));
    let after = recordings("on.perf.data", reading(402, 1_000, ON));
    Pair::new(vec![before], vec![after], REASON, None)
}

fn doubtful() -> Pair {
    let mut before = reading(366, 300, OFF);
    before.profile.losses.lost_events = 9_794;
    before.profile.losses.undecoded = 3;
    before.damage = Some(Damage { offset: 9_000_001, what: "a record of length zero".to_owned() });
    let mut after = reading(402, 12, ON);
    after.origin.kernel = Some("6.13.1".to_owned());
    after.warnings.push("The clock of the recording is not the monotonic one.".to_owned());
    let third = Vcpu { vm: Some(7), number: Some(0), thread: Some(8) };
    after.profile.vcpu(third).reasons.entry(PAUSE).or_default().count = 2;
    let (before, after) = (recordings("off.perf.data", before), recordings("on.perf.data", after));
    Pair::new(vec![before], vec![after], &[Dimension::Vm, Dimension::Reason], None)
}

fn repeated() -> Pair {
    let side = |first: u32, loads: &[Load]| -> Vec<Recordings> {
        (first..first + 3)
            .map(|vm| recordings(&format!("{vm}.dat"), reading(vm, 200 + u64::from(vm) % 7, loads)))
            .collect()
    };
    Pair::new(side(10, OFF), side(20, ON), REASON, Some((30_000, 31_500)))
}

fn empty() -> Pair {
    let nothing = |name| recordings(name, Reading { profile: Profile::new(), ..reading(1, 1, &[]) });
    Pair::new(vec![nothing("a")], vec![nothing("b")], REASON, None)
}

fn shown(pair: &Pair, width: usize) -> String {
    let text = terminal::comparison(&pair.compared(), width, false);
    assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    text
}

#[test]
fn a_comparison_in_80_columns() {
    insta::assert_snapshot!(shown(&virtualized(), 80));
}

#[test]
fn a_comparison_in_120_columns() {
    insta::assert_snapshot!(shown(&virtualized(), 120));
}

#[test]
fn whatever_is_doubtful_is_said() {
    insta::assert_snapshot!(shown(&doubtful(), 120));
}

#[test]
fn repeated_recordings_by_operation() {
    insta::assert_snapshot!(shown(&repeated(), 80));
}

#[test]
fn nothing_on_either_side() {
    insta::assert_snapshot!(shown(&empty(), 80));
}

#[test]
fn the_top_and_the_rest() {
    let mut pair = virtualized();
    pair.comparison.keep_top(3, ComparisonOrder::Time);
    insta::assert_snapshot!(shown(&pair, 80));
}

#[test]
fn only_changes_that_are_certain_have_a_colour() {
    let text = terminal::comparison(&virtualized().compared(), 120, true);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("vintr").contains("\u{1b}[32m"));
    assert!(line("avic_incomplete_ipi").contains("\u{1b}[31m"));
    assert!(!line("pause").contains('\u{1b}'), "{}", line("pause"));
    assert!(!terminal::comparison(&virtualized().compared(), 120, false).contains('\u{1b}'));
}

#[test]
fn csv_of_a_comparison() {
    let text = csv::comparison(&virtualized().compared());
    let fields = text.lines().next().unwrap().split(',').count();
    assert!(text.lines().all(|line| line.split(',').count() == fields), "{text}");
    insta::assert_snapshot!(text.lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn json_of_a_comparison() {
    let mut pair = virtualized();
    pair.comparison.keep_top(1, ComparisonOrder::Time);
    insta::assert_json_snapshot!(json::comparison(&pair.compared()));
}

fn pages() -> Vec<String> {
    let mut pages: Vec<String> = [virtualized(), doubtful(), repeated(), empty()]
        .iter()
        .map(|pair| html::comparison(&pair.compared()))
        .collect();
    let all = [
        synthetic::whole(),
        synthetic::broken(),
        synthetic::part(),
        synthetic::without_exits(),
        synthetic::after_the_end(),
    ];
    for recordings in all {
        for by in [&[Dimension::Reason][..], &[Dimension::Vcpu, Dimension::Reason], &[Dimension::Port]] {
            let grouping = Grouping::new(by.iter().copied()).unwrap();
            pages.push(html::profile(&recordings, &exits::Table::new(&recordings.profile, grouping)));
        }
        for figure in [exits::TimelineFigure::Exits, exits::TimelineFigure::Time] {
            let grouping = Grouping::new([Dimension::Vm, Dimension::Reason]).unwrap();
            let mut rows = exits::TimelineRows::new(&recordings.profile.timeline, &grouping, figure);
            rows.keep_top(4);
            pages.push(html::timeline(&recordings, &rows, &grouping, figure));
        }
    }
    pages
}

#[test]
fn nothing_is_loaded_and_no_script_runs_but_the_one_that_sorts() {
    for page in pages() {
        for load in ["http://", "https://", "//cdn", "<link", "<img", "@import", "url(", "src="] {
            assert!(!page.contains(load), "{load}");
        }
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("default-src 'none'") && page.contains("script-src 'sha256-"));
    }
}

#[test]
fn no_figure_is_nonsense() {
    for page in pages() {
        // The script knows the word NaN.
        let page = page.split("<script").next().unwrap();
        for nonsense in ["NaN", "inf%", "inf\"", "infH", "-nan", "18,446,744,073"] {
            assert!(!page.contains(nonsense), "{nonsense}");
        }
    }
}

#[test]
fn every_chart_has_words() {
    for page in pages() {
        for chart in page.split("<svg role=\"img\"").skip(1) {
            let label = chart.split("aria-label=\"").nth(1).and_then(|label| label.split('"').next());
            assert!(label.is_some_and(|label| !label.is_empty()), "{chart:.200}");
        }
    }
}

#[test]
fn hostile_text_stays_text() {
    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";
    let hostile = |vm| {
        let mut one = reading(vm, 60, OFF);
        one.profile.names.insert(vm, HOSTILE.to_owned());
        one.profile.events.insert(HOSTILE.to_owned(), 1);
        one.profile.losses.lost_events = 1;
        one.origin = Origin {
            version: Some(HOSTILE.to_owned()),
            host: Some(format!("{HOSTILE}{vm}")),
            kernel: Some(format!("{HOSTILE}{vm}")),
            processor: Some(format!("{HOSTILE}{vm}")),
            command: Some(HOSTILE.to_owned()),
            ..one.origin
        };
        one.warnings.push(HOSTILE.to_owned());
        one.damage = Some(Damage { offset: 1, what: HOSTILE.to_owned() });
        recordings(HOSTILE, one)
    };
    let one = hostile(3);
    let by_vcpu = Grouping::new([Dimension::Vcpu, Dimension::Reason]).unwrap();
    let rows = exits::TimelineRows::new(&one.profile.timeline, &by_vcpu, exits::TimelineFigure::Exits);
    let pages = [
        html::profile(&one, &exits::Table::new(&one.profile, by_vcpu.clone())),
        html::timeline(&one, &rows, &by_vcpu, exits::TimelineFigure::Exits),
        html::comparison(
            &Pair::new(vec![hostile(1)], vec![hostile(2)], &[Dimension::Vm, Dimension::Reason], None)
                .compared(),
        ),
    ];
    for page in pages {
        assert_eq!(page.matches("<script").count(), 1);
        assert!(!page.contains("<img") && page.contains("&lt;img"));
    }
}

#[test]
fn a_page_of_a_comparison_as_it_was_when_it_was_last_looked_at() {
    let mut pair = virtualized();
    pair.comparison.keep_top(2, ComparisonOrder::Time);
    insta::assert_snapshot!(lines(&html::comparison(&pair.compared())));
}

#[test]
fn a_page_of_a_profile_as_it_was_when_it_was_last_looked_at() {
    let recordings = synthetic::broken();
    let table = exits::Table::new(&recordings.profile, Grouping::by_reason());
    insta::assert_snapshot!(lines(&html::profile(&recordings, &table)));
}

/// One element a line, so that a change is seen where it is; without the styles, the script and the outlines.
fn lines(page: &str) -> String {
    let body = page.split("<body>").nth(1).unwrap_or_default().split("<script>").next().unwrap_or_default();
    let mut text = String::new();
    for line in body.replace("><", ">\n<").lines() {
        let outline = line.split_once(" d=\"");
        text += outline.map_or(line, |(before, _)| before);
        text.push('\n');
    }
    text
}
