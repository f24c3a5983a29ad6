//! `exitless stat` on a Xen host.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use exits::{Grouping, Profile, Span};
use live::pause;
use traces::Sums;

use super::{Arguments, Pace, print};
use crate::commands::workload::Workload;
use crate::commands::xen::{self, Following, XenHost};

/// Prints a table for each interval until a signal or the requested number of tables.
pub(super) fn run(
    mut host: XenHost,
    arguments: &Arguments,
    grouping: &Grouping,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    xen::refuse(arguments.self_cost, "--self-cost")?;
    let mut watched = XenHost::watched(&arguments.watch);
    let sums = Sums::default();
    let following = host.follow(sums.clone())?;
    let mut since_ns = live::monotonic_ns();
    let mut show = |host: &mut XenHost, warnings: Vec<String>| -> anyhow::Result<()> {
        let now_ns = live::monotonic_ns();
        let mut profile = sums.take();
        profile.span = Some(Span { first_ns: since_ns, last_ns: now_ns });
        since_ns = now_ns;
        host.name(&mut profile);
        show(host, profile, warnings, arguments, grouping)
    };
    let mut status = None;
    if let Some(mut workload) = Workload::start(&arguments.command)? {
        loop {
            if let Some(ended) = workload.ended(stop)? {
                status = Some(ended);
                break;
            }
            if following.has_ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    } else {
        let mut pace = Pace::begin(arguments);
        while pause(pace.next(), stop) && !pace.is_over() && !following.has_ended() {
            show(&mut host, Vec::new())?;
            // After the table: asking `xl` takes time, which would lengthen the interval.
            if watched.have_ended() {
                break;
            }
        }
    }
    let warnings = end(following)?;
    show(&mut host, warnings)?;
    let ended = watched.status();
    Ok(status.unwrap_or(ExitCode::from(ended)))
}

fn end(following: Following<Sums>) -> anyhow::Result<Vec<String>> {
    let (reading, _) = following.finish()?;
    let damage = reading.damage.map(|damage| {
        format!(
            "The output of xentrace is damaged at byte {}: {}; what follows is missing",
            damage.offset, damage.what
        )
    });
    Ok(reading.warnings.into_iter().chain(damage).collect())
}

fn show(
    host: &XenHost,
    profile: Profile,
    warnings: Vec<String>,
    arguments: &Arguments,
    grouping: &Grouping,
) -> anyhow::Result<()> {
    let recordings = host.recordings(xen::only(profile, arguments.watch.wanted()), warnings);
    let table = arguments.rows.of(&recordings.profile, grouping.clone());
    print(&recordings, &table, None, arguments)
}
