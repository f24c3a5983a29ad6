//! The pages.

use exits::printable;
use maud::{DOCTYPE, Markup, html};
use pages::axis::percent;
use pages::document::tile;
use pages::format::{count, counted, per_second, share, time};
use pages::table::{Cell, Column, facts, render};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::course::when;
use super::rows::{Common, Cost, Facts, Figure, Finding, Host, Vm};
use crate::read::LeftOut;

/// The most unreadable files that are named.
const NAMED: usize = 5;
/// The most hosts that are named with a finding.
const LINKED: usize = 20;
/// The characters to encode in values of a query string.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The path of the page of a host, or of one of its VMs.
pub(super) fn path(host: &str, vm: Option<&str>) -> String {
    // Names go into the query string: browsers resolve path segments `.` and `..`, even if encoded.
    let encoded = |name| utf8_percent_encode(name, VALUE).to_string();
    match vm {
        None => format!("/host?name={}", encoded(host)),
        Some(vm) => format!("/vm?host={}&name={}", encoded(host), encoded(vm)),
    }
}

/// The content of the frame that all pages share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    /// The state of the data set that the page shows.
    pub(super) digest: u64,
    pub(super) left_out: &'a [LeftOut],
    /// The number of days that are shown.
    pub(super) days: u32,
}

/// Renders a page.
pub(super) fn page(frame: &Frame<'_>, title: &str, at: &str, sections: &Markup) -> String {
    let link = |path: &str, name: &str| {
        html! { a href=(path) aria-current=[(path == at).then_some("page")] { (name) } }
    };
    let body = html! {
        a.skip href="#main" { "Skip to the content" }
        div.bar {
            nav aria-label="Pages" {
                (link("/", "Hosts")) (link("/findings", "Findings")) (link("/experiments", "Experiments"))
            }
            p #status role="status" { }
        }
        main #main tabindex="-1" {
            (sections)
            (left_out(frame.left_out))
        }
        footer {
            p { "exitless-fleet " (env!("CARGO_PKG_VERSION")) ", of the last " (counted(u64::from(frame.days), "day"))
                ". Times are UTC. Nothing on this page is loaded from elsewhere." }
        }
        script src="/sort.js" {}
        script src="/live.js" {}
    };
    document(title, Some(frame.digest), &body)
}

fn document(title: &str, digest: Option<u64>, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" data-digest=[digest.map(|digest| format!("{digest:016x}"))] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (printable(title)) " · exitless" }
                link rel="stylesheet" href="/style.css";
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Renders the login form.
pub(super) fn login(is_wrong: bool) -> String {
    let body = html! {
        main #main {
            header { h1 { "exitless-fleet" } }
            form.token method="post" action="/login" {
                label for="token" { "Token" }
                input #token name="token" type="password" required autocomplete="current-password" autofocus
                    aria-describedby="hint" aria-invalid=[is_wrong.then_some("true")];
                button type="submit" { "Open" }
                p #hint role=[is_wrong.then_some("alert")] {
                    @if is_wrong { span.bad { "This is not the token. " } }
                    "It is the content of the file that " code { "--token-file" } " names."
                }
            }
        }
    };
    document("Token", None, &body)
}

/// Renders a page that explains an error.
pub(super) fn failure(title: &str, why: &str) -> String {
    let body = html! {
        main #main {
            header { h1 { (title) } }
            p { (printable(why)) }
            p { a href="/" { "All hosts" } }
        }
    };
    document(title, None, &body)
}

/// Takes the place of the charts if there are no exits.
pub(super) fn no_course() -> Markup {
    html! { section #course data-region { h2 { "Exits over time" } p { "No exits were counted on this host in these days." } } }
}

fn left_out(files: &[LeftOut]) -> Markup {
    html! {
        @if !files.is_empty() {
            section #left-out data-region .warnings {
                h2 { (counted(files.len() as u64, "file")) " of the data set could not be read" }
                ul {
                    @for file in files.iter().take(NAMED) { li { (name(&file.file)) ": " (printable(&file.why)) } }
                    @if files.len() > NAMED { li { "and " (files.len() - NAMED) " more" } }
                }
            }
        }
    }
}

fn name(text: &str) -> Markup {
    html! { code { (printable(text)) } }
}

fn link(path: &str, text: &str) -> Markup {
    html! { a href=(path) { (printable(text)) } }
}

fn or_none(text: Option<&str>) -> String {
    text.map_or_else(|| pages::format::NONE.to_owned(), printable)
}

fn yes(flag: Option<bool>) -> &'static str {
    match flag {
        Some(true) => "yes",
        Some(false) => "no",
        None => pages::format::NONE,
    }
}

/// A count that is highlighted unless it is 0.
fn bad(number: Option<i64>, class: &'static str) -> Cell {
    let text = number.map_or_else(|| pages::format::NONE.to_owned(), |number| count(number.unsigned_abs()));
    let cell = Cell::figure(&text, number.map(|number| number as f64));
    if number.unwrap_or(0) > 0 { cell.class(class) } else { cell }
}

/// Renders the table of all hosts.
pub(super) fn hosts(hosts: &[Host], is_cut: bool, filter: &str) -> Markup {
    let sum = |of: &dyn Fn(&Host) -> i64| hosts.iter().map(of).sum::<i64>().unsigned_abs();
    let idle = hosts.iter().filter(|host| host.capable == Some(true) && host.enabled == Some(false)).count();
    let failing = hosts.iter().filter(|host| host.fail.unwrap_or(0) > 0).count();
    let column = |cell: &dyn Fn(&Host) -> Cell| hosts.iter().map(cell).collect::<Vec<_>>();
    let text = |of: &dyn Fn(&Host) -> String| column(&|host| Cell::of(html! { (of(host)) }, None));
    let figure = |value: Option<f64>, shown: &dyn Fn(f64) -> String| {
        Cell::figure(&value.map_or_else(|| pages::format::NONE.to_owned(), shown), value)
    };
    let columns = [
        Column::names("Host", column(&|host| Cell::of(link(&path(&host.host, None), &host.host), None))),
        Column::names("State", text(&|host| or_none(host.outcome.as_deref()))),
        Column::names(
            "On",
            column(&|host| {
                let is_idle = host.capable == Some(true) && host.enabled == Some(false);
                Cell::of(html! { (yes(host.enabled)) }, None).class(if is_idle { "bad" } else { "" })
            }),
        ),
        Column::figures("Inhibited", column(&|host| bad(Some(host.inhibited), "bad"))),
        Column::figures("Failed", column(&|host| bad(host.fail, "bad"))),
        Column::figures("Warnings", column(&|host| bad(host.warn, ""))),
        Column::figures("VMs", column(&|host| bad(Some(host.vms), ""))),
        Column::figures("Exits", column(&|host| figure(host.per_second, &per_second))),
        Column::figures("CPU for exits", column(&|host| figure(host.cpu_percent, &share))),
        Column::names("Mechanism", text(&|host| or_none(host.mechanism.as_deref()))),
        Column::names("Kernel", text(&|host| or_none(host.kernel.as_deref()))),
        Column::names("Seen", text(&|host| when(&host.seen))),
    ];
    html! {
        header data-region #head {
            h1 { "Hosts" }
            dl.tiles {
                (tile("Hosts", &count(hosts.len() as u64), &format!("{} with failed checks", count(failing as u64))))
                (tile("VMs", &count(sum(&|host| host.vms)), &format!("{} without interrupt virtualization, in part or in full", count(sum(&|host| host.inhibited)))))
                (tile("Switched off", &count(idle as u64), "hosts whose CPU has APICv or AVIC, and whose module has it off"))
            }
        }
        section {
            form.filter method="get" action="/" role="search" {
                label for="filter" { "Hosts, states or kernels with" }
                input #filter type="search" name="with" value=(filter) maxlength="200" autocomplete="off" spellcheck="false";
                button type="submit" { "Show" }
                @if !filter.is_empty() { a href="/" { "Show all" } }
            }
            div #hosts data-region {
                @if hosts.is_empty() {
                    p { @if filter.is_empty() { "The data set has no host in these days." } @else { "No host has " (name(filter)) "." } }
                } @else {
                    (render("Hosts", &columns, 0))
                    p.muted { "Exits, and the CPU time of their handling without HLT in percent of one CPU, are of the "
                        "last hour that was observed of each host." }
                }
                @if is_cut { p.bad { "There are more hosts than are shown; exitless-fleet query has all of them." } }
            }
        }
    }
}

/// Renders a host: its facts, VMs, exits over time, and findings.
pub(super) fn host(host: &str, known: &Facts, vms: &[Vm], course: &Markup, findings: &[Finding]) -> Markup {
    let text = |value: &Option<String>| html! { (or_none(value.as_deref())) };
    let rows = [
        ("CPU", text(&known.cpu_model)),
        (
            "CPUs",
            html! { (known.online_cpus.map_or_else(|| pages::format::NONE.to_owned(), |cpus| count(cpus.unsigned_abs()))) },
        ),
        ("Kernel", text(&known.kernel)),
        ("Module", text(&known.module)),
        (
            "Interrupt virtualization",
            html! { (or_none(known.mechanism.as_deref())) ": the CPU has it: " (yes(known.capable)) ", on: " (yes(known.enabled)) },
        ),
        (
            "Last seen",
            html! { (if known.seen.is_empty() { pages::format::NONE.to_owned() } else { when(&known.seen) }) },
        ),
    ];
    html! {
        header data-region #head {
            p.eyebrow { a href="/" { "Hosts" } }
            h1 { (printable(host)) }
            @if let Some(sentence) = &known.sentence { p.judgement { (printable(sentence)) } }
            @if let Some(step) = &known.next_step { p { "Next step:" } (copied("next", step)) }
            (facts(rows, Some("text")))
        }
        section #vms data-region {
            h2 { "VMs" }
            @if vms.is_empty() { p { "The last look saw no VM." } } @else { (table_of_vms(host, vms)) }
        }
        (course)
        (table_of_findings(known, findings))
    }
}

fn table_of_vms(host: &str, vms: &[Vm]) -> Markup {
    let column =
        |cell: &dyn Fn(&Vm) -> Markup| vms.iter().map(|vm| Cell::of(cell(vm), None)).collect::<Vec<_>>();
    let columns = [
        Column::names("VM", column(&|vm| link(&path(host, Some(&vm.vm)), &vm.vm))),
        Column::names(
            "State",
            vms.iter()
                .map(|vm| {
                    Cell::of(html! { (or_none(vm.state.as_deref())) }, None)
                        .class(class_of(vm.state.as_deref()))
                })
                .collect(),
        ),
        Column::names("By", column(&|vm| html! { (or_none(vm.mode.as_deref())) })),
        Column::names("Inhibited by", column(&|vm| html! { (or_none(reasons(vm).as_deref())) })),
        Column::figures("vCPUs", vms.iter().map(|vm| bad(vm.vcpus, "")).collect()),
        Column::names("VMM", column(&|vm| html! { (or_none(vm.vmm.as_deref())) })),
        Column::names("Seen", column(&|vm| html! { (when(&vm.seen)) })),
    ];
    render("VMs", &columns, 0)
}

fn reasons(vm: &Vm) -> Option<String> {
    vm.inhibit_reasons.as_ref().filter(|reasons| !reasons.is_empty()).map(|reasons| reasons.join(", "))
}

fn class_of(state: Option<&str>) -> &'static str {
    match state {
        Some("active") => "good",
        Some("inhibited" | "partly") => "bad",
        _ => "",
    }
}

/// Renders a VM.
pub(super) fn vm(host: &str, vm: &str, looks: &[Vm], course: &Markup) -> Markup {
    html! {
        header data-region #head {
            p.eyebrow { a href="/" { "Hosts" } " / " (link(&path(host, None), host)) }
            h1 { (printable(vm)) }
            @for (number, look) in looks.iter().enumerate() {
                (facts([
                    ("Interrupt virtualization", html! { span class=(class_of(look.state.as_deref())) { (or_none(look.state.as_deref())) } ", by " (or_none(look.mode.as_deref())) }),
                    ("Inhibited by", html! { (or_none(reasons(look).as_deref())) }),
                    ("vCPUs", html! { (look.active_vcpus.unwrap_or(0)) " of " (look.vcpus.unwrap_or(0)) " with it" }),
                    ("VMM", html! { (or_none(look.vmm.as_deref())) @if let Some(pid) = look.pid { ", process " (pid) } }),
                    ("Last seen", html! { (when(&look.seen)) }),
                ], Some("text")))
                (fixes(&format!("vm-{number}"), look.fixes.as_deref().unwrap_or_default()))
            }
            @if looks.is_empty() { p { "The last look at this host did not see it." } }
        }
        (course)
    }
}

fn table_of_findings(known: &Facts, findings: &[Finding]) -> Markup {
    let of = |state: &str| findings.iter().filter(|one| one.state == state).collect::<Vec<_>>();
    let number = |number: Option<i64>| count(number.unwrap_or(0).unsigned_abs());
    html! {
        section #findings data-region {
            h2 { "Findings of doctor" }
            @if findings.is_empty() {
                p { "doctor has not examined this host in these days." }
            } @else {
                p.muted { (number(known.fail)) " failed, " (number(known.warn)) " warnings, " (findings.len()) " checks in all." }
                @for (state, title) in [("fail", "Failed"), ("warn", "Warnings")] {
                    @let all = of(state);
                    @if !all.is_empty() {
                        h3 { (title) }
                        @for finding in all { (one_finding(finding)) }
                    }
                }
                @for (state, title) in [("skip", "Not checked"), ("pass", "Passed")] {
                    @let all = of(state);
                    @if !all.is_empty() {
                        details #{ "all-" (state) } {
                            summary { (title) ": " (all.len()) }
                            ul { @for finding in all { li { strong { (printable(&finding.title)) } ": " (printable(&finding.found)) } } }
                        }
                    }
                }
            }
        }
    }
}

fn one_finding(finding: &Finding) -> Markup {
    let key = format!("{}-{}", finding.section, finding.rule);
    html! {
        article.finding.(if finding.state == "fail" { "failed" } else { "warned" }) {
            h4 { (printable(&finding.title)) " " span.muted { "in " (printable(&finding.section_title)) } }
            p { (printable(&finding.found)) }
            (fixes(&key, finding.fixes.as_deref().unwrap_or_default()))
            details data-key=(printable(&key)) {
                summary { "Why it matters" }
                p { (printable(&finding.why)) }
                @if let Some(evidence) = &finding.evidence {
                    ul { @for one in evidence { li { (name(one)) } } }
                }
            }
        }
    }
}

fn fixes(key: &str, fixes: &[String]) -> Markup {
    html! {
        @if !fixes.is_empty() {
            p.fix-head { @if fixes.len() == 1 { "Fix:" } @else { "Fixes, each enough alone:" } }
            @for (number, fix) in fixes.iter().enumerate() { (copied(&format!("{key}-{number}"), fix)) }
        }
    }
}

/// A text with a button that copies it; a script makes the button visible.
fn copied(key: &str, text: &str) -> Markup {
    html! {
        div.copied {
            pre tabindex="0" { code { (printable(text)) } }
            button.copy type="button" hidden data-key=(printable(key)) { "Copy" }
        }
    }
}

/// Renders the findings of all hosts.
pub(super) fn findings(all: &[Common], is_cut: bool) -> Markup {
    html! {
        header { h1 { "Findings of doctor" } p.muted { "What fails or is warned of by the last look at each host, the most frequent first." } }
        section #findings data-region {
            @if all.is_empty() { p { "No check fails, and there is no warning." } }
            @for (number, one) in all.iter().enumerate() {
                article.finding.(if one.state == "fail" { "failed" } else { "warned" }) {
                    h2 { (printable(&one.title)) " " span.muted { @if one.state == "fail" { "fails on " } @else { "is warned of on " } (counted(one.hosts.len() as u64, "host")) } }
                    p { (printable(&one.why)) }
                    (fixes(&format!("{}-{number}", one.rule), one.fixes.as_deref().unwrap_or_default()))
                    p.hosts {
                        @for (at, host) in one.hosts.iter().take(LINKED).enumerate() {
                            @if at > 0 { ", " }
                            a href={ (path(host, None)) "#findings" } { (printable(host)) }
                        }
                        @if one.hosts.len() > LINKED { " and " (one.hosts.len() - LINKED) " more" }
                    }
                }
            }
            @if is_cut { p.bad { "There are more than are shown." } }
        }
    }
}

/// A difference with its interval, drawn around zero on a scale that its table shares.
fn difference(value: Option<f64>, low: Option<f64>, high: Option<f64>, widest: f64, label: &str) -> Cell {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return Cell::drawing(html! {});
    };
    let place = |value: f64| percent((value / widest.max(f64::MIN_POSITIVE)).clamp(-1.0, 1.0) / 2.0 + 0.5);
    let (low, high) = (low.unwrap_or(value), high.unwrap_or(value));
    Cell::drawing(html! {
        svg role="img" width="100%" height="16" aria-label=(label) {
            title { (label) }
            line.zero x1="50%" x2="50%" y1="0" y2="16" {}
            line.interval x1=(place(low)) x2=(place(high)) y1="8" y2="8" {}
            circle.on cx=(place(value)) cy="8" r="3.5" {}
        }
    })
}

fn signed(value: Option<f64>, unit: &str) -> String {
    match value {
        None => pages::format::NONE.to_owned(),
        Some(value) if value.abs() < 0.05 => format!("0.0{unit}"),
        Some(value) => format!("{value:+.1}{unit}"),
    }
}

fn ends(low: Option<f64>, high: Option<f64>, unit: &str) -> String {
    match (low, high) {
        (None, None) => String::new(),
        (low, high) => format!("{} to {}", signed(low, ""), signed(high, unit)),
    }
}

fn number(value: f64) -> String {
    if value.abs() >= 1000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", count(value.abs().round().min(1e18) as u64));
    }
    format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Renders studies and costs: A/B results.
pub(super) fn experiments(figures: &[Figure], costs: &[Cost], is_cut: bool) -> Markup {
    let studies = figures.chunk_by(|one, other| {
        (&one.host, &one.started, &one.study) == (&other.host, &other.started, &other.study)
    });
    let by_host = costs.chunk_by(|one, other| (&one.host, &one.seen) == (&other.host, &other.seen));
    html! {
        header { h1 { "Experiments" } p.muted { "Studies that compare arms, and what operations cost with interrupt virtualization on and off. Intervals are of 95 %." } }
        @if figures.is_empty() && costs.is_empty() { section #none data-region { p { "The data set has no experiment in these days." } } }
        @for (number, study) in studies.enumerate() { (one_study(number, study)) }
        @for (number, costs) in by_host.enumerate() { (one_proof(number, costs)) }
        @if is_cut { p.bad { "There are more than are shown." } }
    }
}

fn emulated(by: Option<&str>) -> Markup {
    html! {
        @if let Some(by) = by {
            p.bad { "Measured in an emulated host (" (printable(by)) "): counts carry over to hardware, times and rates do not." }
        }
    }
}

fn widest(ends: impl Iterator<Item = Option<f64>>) -> f64 {
    ends.flatten().filter(|end| end.is_finite()).map(f64::abs).fold(0.0, f64::max)
}

fn one_study(place: usize, figures: &[Figure]) -> Markup {
    let Some(first) = figures.first() else { return html! {} };
    let ratio = |figure: &&Figure| figure.change_scale.as_deref() == Some("ratio");
    let widest =
        widest(figures.iter().filter(ratio).flat_map(|one| [one.change, one.change_low, one.change_high]));
    let column = |cell: &dyn Fn(&Figure) -> Cell| figures.iter().map(cell).collect::<Vec<_>>();
    let text = |of: &dyn Fn(&Figure) -> String| column(&|one| Cell::of(html! { (of(one)) }, None));
    let unit =
        |one: &Figure| if ratio(&one) { " %".to_owned() } else { format!(" {}", printable(&one.unit)) };
    let columns = [
        Column::names("Workload", text(&|one| printable(&one.workload))),
        Column::names("Metric", text(&|one| printable(&one.metric))),
        Column::figures("VMs", column(&|one| Cell::figure(&one.guests.to_string(), Some(one.guests as f64)))),
        Column::names("Arm", text(&|one| printable(&one.arm))),
        Column::figures("Runs", column(&|one| Cell::figure(&one.runs.to_string(), Some(one.runs as f64)))),
        Column::figures(
            "Mean",
            column(&|one| Cell::figure(&number_with(one.mean, &one.unit), Some(one.mean))),
        ),
        Column::figures(
            "Change",
            column(&|one| match one.is_baseline {
                true => Cell::figure("baseline", None),
                false => Cell::figure(&signed(one.change, &unit(one)), one.change).class(judged(one)),
            }),
        ),
        Column::figures(
            "Interval",
            column(&|one| Cell::figure(&ends(one.change_low, one.change_high, &unit(one)), None)),
        ),
        Column::drawings(
            html! { "Change in %" },
            column(&|one| match ratio(&one) {
                true => difference(
                    one.change,
                    one.change_low,
                    one.change_high,
                    widest,
                    &format!("{} {}", signed(one.change, " %"), ends(one.change_low, one.change_high, " %")),
                ),
                false => difference(None, None, None, 0.0, ""),
            }),
        ),
        Column::names("Finding", text(&|one| or_none(one.finding.as_deref()))),
    ];
    html! {
        section #{ "study-" (place) } data-region {
            h2 { (printable(&first.study)) }
            p.muted {
                (when(&first.started)) ", " (printable(&first.host)) ", " (name(&first.target))
                @if let Some(kernel) = &first.kernel { ", Linux " (printable(kernel)) }
            }
            (emulated(first.emulated.as_deref()))
            (render(&format!("Study {}", printable(&first.study)), &columns, 0))
        }
    }
}

fn number_with(value: f64, unit: &str) -> String {
    match unit {
        "per-second" => format!("{}/s", number(value)),
        "seconds" => time(value.abs() * 1e9),
        unit => format!("{} {}", number(value), printable(unit)),
    }
}

/// The class of a change, if its interval does not include zero.
fn judged(one: &Figure) -> &'static str {
    let (Some(low), Some(high)) = (one.change_low, one.change_high) else { return "" };
    match (one.better.as_str(), low > 0.0, high < 0.0) {
        ("higher", true, _) | ("lower", _, true) => "good",
        ("higher", _, true) | ("lower", true, _) => "bad",
        _ => "",
    }
}

fn one_proof(place: usize, costs: &[Cost]) -> Markup {
    let Some(first) = costs.first() else { return html! {} };
    let widest = widest(costs.iter().flat_map(|one| [one.change_percent, one.change_low, one.change_high]));
    let column = |cell: &dyn Fn(&Cost) -> Cell| costs.iter().map(cell).collect::<Vec<_>>();
    let figure = |value: Option<f64>, shown: &dyn Fn(f64) -> String| {
        Cell::figure(&value.map_or_else(|| pages::format::NONE.to_owned(), shown), value)
    };
    let columns = [
        Column::names("Operation", column(&|one| Cell::name(&printable(&one.measure)))),
        Column::names(
            "Interrupt virtualization",
            column(&|one| Cell::of(html! { (printable(&one.arm)) }, None)),
        ),
        Column::figures("Cycles, median", column(&|one| figure(Some(one.median_cycles), &number))),
        Column::figures("Time", column(&|one| figure(one.median_ns, &time))),
        Column::figures(
            "Exits each",
            column(&|one| figure(one.exits_per_operation, &|value| format!("{value:.3}"))),
        ),
        Column::figures(
            "Change",
            column(&|one| Cell::figure(&signed(one.change_percent, " %"), one.change_percent)),
        ),
        Column::figures(
            "Interval",
            column(&|one| Cell::figure(&ends(one.change_low, one.change_high, " %"), None)),
        ),
        Column::drawings(
            html! { "Change in %" },
            column(&|one| {
                let label = format!(
                    "{} {}",
                    signed(one.change_percent, " %"),
                    ends(one.change_low, one.change_high, " %")
                );
                difference(one.change_percent, one.change_low, one.change_high, widest, &label)
            }),
        ),
        Column::names("Effect", column(&|one| Cell::of(html! { (or_none(one.effect.as_deref())) }, None))),
    ];
    html! {
        section #{ "cost-" (place) } data-region {
            h2 { "Costs on " (printable(&first.host)) }
            p.muted { (when(&first.seen)) ", by exitless prove or probe" }
            (emulated(first.emulated.as_deref()))
            (render("Costs of operations", &columns, 0))
        }
    }
}
