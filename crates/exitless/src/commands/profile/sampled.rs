//! Hot spots of this host, sampled now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
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

/// The interval of reading samples. Ticks of 512 busy CPUs fill their buffer in a second.
const STEP: Duration = Duration::from_millis(50);
/// The pause between two searches for new VMs.
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

/// Runs a profiler for a duration. Calls `look` with the host's VMs after searches for them, in a thread of its own.
pub(in crate::commands) fn run(
    profiler: Profiler,
    processes: Option<&[u32]>,
    duration: Duration,
    stop: &AtomicBool,
    mut look: impl FnMut(&[Vm]) + Send,
) -> anyhow::Result<(Recording, Profile)> {
    const NO_THREAD: &str = "Could not start a thread that looks for VMs";
    let line = StatusLine::new();
    line.step(for_a_time("Sampling", duration));
    let end = Instant::now() + duration;
    let search = || Vms::discover(Path::new(HOST)).map(|found| found.vms).unwrap_or_default();
    let found = searched(search).context(NO_THREAD)?;
    let sampled = std::thread::scope(|scope| {
        let (seen, to_see) = channel::<Vec<Vm>>();
        let see = move || {
            while let Ok(vms) = to_see.recv() {
                look(&to_see.try_iter().last().unwrap_or(vms));
            }
        };
        std::thread::Builder::new().name("seen".to_owned()).spawn_scoped(scope, see).context(NO_THREAD)?;
        anyhow::Ok(sample(profiler, processes, &found, seen, end, stop)?)
    });
    drop(line);
    let (mut recording, profile, mut names) = sampled?;
    recording.head.kernel =
        host::Fingerprint::read(Path::new(HOST)).ok().and_then(|host| host.kernel_release);
    let vms: BTreeSet<u32> = recording.measured.keys().filter_map(|key| key.0).collect();
    let unnamed = vms.iter().copied().filter(|vm| !names.contains_key(vm)).collect();
    names.extend(VmNames::default().of(&unnamed));
    names.retain(|vm, _| vms.contains(vm));
    recording.names = names;
    Ok((recording, profile))
}

/// Runs `search` again and again in a thread of its own, until nobody receives the VMs any more. Processes of the host can
/// delay a search without limit: the samples' buffer would overflow meanwhile, and the end must not wait for it.
fn searched(search: impl Fn() -> Vec<Vm> + Send + 'static) -> std::io::Result<Receiver<Vec<Vm>>> {
    let (found, receiver) = channel();
    let searching = move || {
        while found.send(search()).is_ok() {
            std::thread::sleep(LOOK);
        }
    };
    std::thread::Builder::new().name("vms".to_owned()).spawn(searching)?;
    Ok(receiver)
}

/// Samples until `end` or until `stop` is set. Passes the VMs on that are found, and returns their names too.
fn sample(
    mut profiler: Profiler,
    processes: Option<&[u32]>,
    found: &Receiver<Vec<Vm>>,
    seen: Sender<Vec<Vm>>,
    end: Instant,
    stop: &AtomicBool,
) -> Result<(Recording, Profile, BTreeMap<u32, String>), Error> {
    // In a container, process IDs differ from those that the eBPF programs see.
    let follows = live::in_first_pid_namespace(Path::new(HOST));
    let mut followed = Followed::default();
    loop {
        let now = Instant::now();
        for vms in found.try_iter() {
            if follows {
                followed.add(&vms, processes);
            }
            // Fails only if the thread that looks at them has ended.
            let _ = seen.send(vms);
        }
        followed.follow(&mut profiler, now + STEP)?;
        profiler.drain()?;
        if now >= end || !pause(end.min(now + STEP), stop) {
            break;
        }
    }
    let (recording, profile) = profiler.finish()?;
    Ok((recording, profile, followed.names))
}

/// The VMs whose other threads are sampled too.
#[derive(Debug, Default)]
struct Followed {
    names: BTreeMap<u32, String>,
    /// Those whose threads are not sampled yet.
    waiting: VecDeque<(u32, Vec<u32>)>,
}

impl Followed {
    fn add(&mut self, vms: &[Vm], processes: Option<&[u32]>) {
        for vm in vms {
            let Ok(process) = u32::try_from(vm.pid) else { continue };
            let is_wanted = processes.is_none_or(|wanted| wanted.contains(&process));
            if !is_wanted || self.names.contains_key(&process) {
                continue;
            }
            let kernel = vm.vhost.iter().filter(|worker| worker.kernel);
            let workers = kernel.filter_map(|worker| u32::try_from(worker.tid).ok()).collect();
            self.names.insert(process, vm.name.clone());
            self.waiting.push_back((process, workers));
        }
    }

    /// Makes the profiler sample threads of waiting VMs, at least of one. The rest waits for the next call if it is later
    /// than `until`, because each VM's mappings are read.
    fn follow(&mut self, profiler: &mut Profiler, until: Instant) -> Result<(), Error> {
        while let Some((process, workers)) = self.waiting.pop_front() {
            profiler.follow(process, &workers)?;
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn neither_samples_nor_the_end_wait_for_a_search() {
        let (let_go, held) = sync_channel::<()>(0);
        let search = move || {
            let _ = held.recv();
            vec![Vm { pid: 7, ..Vm::default() }]
        };
        let found = searched(search).unwrap();
        // The search lasts until its caller, which would read samples here, lets it go on.
        assert!(found.try_recv().is_err());
        let_go.send(()).unwrap();
        assert_eq!(found.recv().unwrap().iter().map(|vm| vm.pid).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn each_wanted_vm_is_followed_once() {
        let vms = [7, 8, 9].map(|pid| Vm { pid, name: format!("vm{pid}"), ..Vm::default() });
        let mut followed = Followed::default();
        followed.add(&vms[..2], Some(&[7, 9]));
        followed.add(&vms, Some(&[7, 9]));
        assert_eq!(followed.waiting.iter().map(|(vm, _)| *vm).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(followed.names.into_values().collect::<Vec<_>>(), ["vm7", "vm9"]);
    }
}
