//! `exitless stat` on a Xen host.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

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
    if let Some(workload) = Workload::start(&arguments.command, stop)? {
        // The end of xentrace must not end the command.
        let mut counts = true;
        status = Some(workload.wait(stop, || {
            if counts && following.has_ended() {
                counts = false;
                tracing::warn!("xentrace has ended, and nothing is counted any more; the command goes on");
            }
        })?);
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
    // What was counted until xentrace ended early is shown, too.
    let (warnings, failure) = match end(following) {
        Ok(warnings) => (warnings, None),
        Err(error) => (vec!["Exits are missing, because counting failed".to_owned()], Some(error)),
    };
    show(&mut host, warnings)?;
    failure.map_or(Ok(()), Err)?;
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
