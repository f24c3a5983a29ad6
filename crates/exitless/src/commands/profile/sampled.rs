//! Hot spots of this host, sampled now.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::bail;
use exits::Profile;
use host::vms::{Vm, Vms};
use hotspots::Recording;
use live::pause;
use live::{Error, Profiler};

use super::{Hot, SamplingArguments};
use crate::commands::watching::{HOST, VmNames, WatchArguments, for_a_time};
use crate::commands::xen::XenHost;
use crate::console::StatusLine;
use crate::interrupt;

/// The interval of reading samples; their buffer fills far more slowly.
const STEP: Duration = Duration::from_millis(50);
/// The interval of searching for new VMs.
const LOOK: Duration = Duration::from_secs(1);

/// Samples until the time is over or a signal arrives; uses all samples until then.
pub(super) fn of_this_host(watch: &WatchArguments, sampling: &SamplingArguments) -> anyhow::Result<Hot> {
    if XenHost::find(watch).is_some() {
        bail!(
            "This is a host of Xen, which gives no samples of its own code: record exits with `exitless record`, and \
             name the recording to `exitless profile` for the guests' code that they left"
        );
    }
    let stop = interrupt::flag()?;
    let end = Duration::from_nanos(sampling.duration);
    let watched = watch.watch(false)?;
    let attach = || Profiler::attach(Path::new(HOST), &watched, &sampling.sampling());
    let Some(profiler) = watch.start(&stop, attach)? else {
        bail!("KVM was not loaded before this was stopped")
    };
    let (recording, _) = run(profiler, watched.processes.as_deref(), end, &stop, |_| ())?;
    Ok(Hot { name: "this host".to_owned(), recording, is_damaged: false })
}

/// Runs a profiler for a duration. Calls `look` with the host's VMs after each search for them.
pub(in crate::commands) fn run(
    mut profiler: Profiler,
    processes: Option<&[u32]>,
    duration: Duration,
    stop: &AtomicBool,
    mut look: impl FnMut(&[Vm]),
) -> Result<(Recording, Profile), Error> {
    let line = StatusLine::new();
    line.step(for_a_time("Sampling", duration));
    let end = Instant::now() + duration;
    let (mut followed, mut names) = (BTreeSet::new(), BTreeMap::new());
    let mut next_look = Instant::now();
    loop {
        let now = Instant::now();
        if now >= next_look {
            next_look = now + LOOK;
            let vms = Vms::discover(Path::new(HOST)).map(|found| found.vms).unwrap_or_default();
            // In a container, process IDs differ from those that the eBPF programs see.
            if live::in_first_pid_namespace(Path::new(HOST)) {
                follow(&mut profiler, &vms, processes, &mut followed, &mut names)?;
            }
            look(&vms);
        }
        profiler.drain()?;
        if now >= end || !pause(end.min(now + STEP), stop) {
            break;
        }
    }
    drop(line);
    let (mut recording, profile) = profiler.finish()?;
    recording.head.kernel =
        host::Fingerprint::read(Path::new(HOST)).ok().and_then(|host| host.kernel_release);
    let vms: BTreeSet<u32> = recording.measured.keys().filter_map(|key| key.0).collect();
    let unnamed = vms.iter().copied().filter(|vm| !names.contains_key(vm)).collect();
    names.extend(VmNames::default().of(&unnamed));
    names.retain(|vm, _| vms.contains(vm));
    recording.names = names;
    Ok((recording, profile))
}

/// Makes the profiler sample the other threads of these VMs too.
fn follow(
    profiler: &mut Profiler,
    vms: &[Vm],
    processes: Option<&[u32]>,
    followed: &mut BTreeSet<u32>,
    names: &mut BTreeMap<u32, String>,
) -> Result<(), Error> {
    for vm in vms {
        let Ok(process) = u32::try_from(vm.pid) else { continue };
        if processes.is_some_and(|wanted| !wanted.contains(&process)) || !followed.insert(process) {
            continue;
        }
        let kernel = vm.vhost.iter().filter(|worker| worker.kernel);
        let workers: Vec<u32> = kernel.filter_map(|worker| u32::try_from(worker.tid).ok()).collect();
        profiler.follow(process, &workers)?;
        names.insert(process, vm.name.clone());
    }
    Ok(())
}
