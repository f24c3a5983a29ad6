//! One attempt at a run.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::watch::Watch;
use super::{Engine, EngineError, Phase, facts, failures, scene, together};
use crate::factor::Level;
use crate::record::{Repetition, Run};
use crate::sampling::{REPETITION, SamplePlan, SampledGuest, Samples, guest_processor_time, is_of_exits};
use crate::schedule::{ArmRuns, Slot};
use crate::workload::{Output, Outputs, Step, Steps};
use guests::{Guest, GuestError};

/// The time limit of a script that reads a kernel file.
const SHORT: Duration = Duration::from_secs(60);
const CPU_TIMES: &str = "cat /proc/stat";

/// The end of an attempt.
pub(super) enum Ending {
    Made(Box<Run>),
    Failed(FailedAttempt),
    Interrupted,
}

/// The reason why an attempt failed.
pub(super) struct FailedAttempt {
    pub(super) why: String,
    pub(super) hopeless: bool,
    pub(super) guests_do_not_start: bool,
}

/// The reason why a run cannot continue.
struct Failure {
    why: String,
    hopeless: bool,
    guests_do_not_start: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, hopeless: false, guests_do_not_start: false }
    }
}

impl From<GuestError> for Failure {
    fn from(error: GuestError) -> Self {
        error.to_string().into()
    }
}

impl Engine<'_> {
    pub(super) fn attempt(
        &mut self,
        runs: &ArmRuns,
        slot: &Slot,
        attempt: u32,
    ) -> Result<Ending, EngineError> {
        let folder = self.sink.folder()?;
        let mut run = self.blank(slot, attempt);
        let workload = &self.plan.workloads[slot.workload];
        let limit = self.plan.run_limit(&runs.guests, slot.cell.guests, workload);
        let watch = Watch::new(self.stop, limit, self.is_past);
        let made = watch.over(|| self.make(runs, slot, attempt, &folder, &mut run, &watch));
        // A run that exceeded its limit has failed, although its output may look complete.
        let made = watch.overdue().map_or(made, |limit| Err(self.overdue(limit).into()));
        if self.stopped() {
            // An interrupted run is not a failure, so nothing of it is kept.
            let _ = fs::remove_dir_all(&folder);
            return Ok(Ending::Interrupted);
        }
        run.spent = self.spent();
        let Err(failure) = made else {
            self.sink.keep(&run, &folder)?;
            return Ok(Ending::Made(Box::new(run)));
        };
        run.failure = Some(failure.why.clone());
        self.sink.keep(&run, &folder)?;
        Ok(Ending::Failed(FailedAttempt {
            why: failure.why,
            hopeless: failure.hopeless,
            guests_do_not_start: failure.guests_do_not_start,
        }))
    }

    fn blank(&mut self, slot: &Slot, attempt: u32) -> Run {
        let fingerprint = self.rig.fingerprint();
        Run { fingerprint, ..Run::begun(slot.cell.clone(), slot.position, attempt) }
    }

    fn make(
        &mut self,
        runs: &ArmRuns,
        slot: &Slot,
        attempt: u32,
        folder: &Path,
        run: &mut Run,
        watch: &Watch<'_>,
    ) -> Result<(), Failure> {
        let levels: Vec<&Level> = self.plan.levels(&runs.arm).collect();
        watch.cut_if_needed(self.running.guests.iter().filter_map(|guest| guest.cut()));
        self.ensure_guests(runs, slot, attempt, &levels, watch)?;
        run.guest_facts = self.running.facts.iter().map(|facts| facts.known.clone()).collect();
        self.check_programs(slot.workload)?;
        let steps = scene::steps(&self.plan.workloads[slot.workload], &levels, &self.running.guests);
        self.prepare(slot, attempt, &steps, folder, watch)?;
        if !self.running.warm.contains(&slot.workload) {
            for _ in 0..self.plan.order.warm_up {
                self.tell(slot, attempt, Phase::WarmUp);
                let mut outputs = vec![Outputs::default(); steps.len()];
                let ran = self.together(&steps, &mut outputs, None, watch);
                if ran.is_err() {
                    write_outputs(folder, &outputs, run);
                }
                ran?;
                if watch.ending().load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            self.running.warm.insert(slot.workload);
        }
        self.tell(slot, attempt, Phase::Run);
        self.measured(slot, &levels, &steps, folder, run, watch)?;
        let Some(samples) = self.plan.samples.of_repetition() else { return Ok(()) };
        if watch.ending().load(Ordering::Relaxed) {
            return Ok(());
        }
        self.tell(slot, attempt, Phase::Repetition);
        self.repeated(slot, &samples, &steps, folder, run, watch).map_err(|failure| Failure {
            why: format!("in the repetition that counts exits: {}", failure.why),
            ..failure
        })
    }

    fn ensure_guests(
        &mut self,
        runs: &ArmRuns,
        slot: &Slot,
        attempt: u32,
        levels: &[&Level],
        watch: &Watch<'_>,
    ) -> Result<(), Failure> {
        let there = u32::try_from(self.running.guests.len()).unwrap_or(u32::MAX);
        let more = slot.cell.guests.saturating_sub(there);
        if more == 0 {
            return Ok(());
        }
        let hopeless = |why| Failure { why, hopeless: true, guests_do_not_start: true };
        if let Some(why) = self.left_out.get(&(slot.cell.arm.clone(), slot.cell.guests)) {
            return Err(hopeless(failures::not_tried(why)));
        }
        self.tell(slot, attempt, Phase::Guests);
        let started = self.rig.start(&runs.guests, levels, there, more, watch.ending());
        let started = started.map_err(|error| Failure { hopeless: false, ..hopeless(error.to_string()) })?;
        // More guests share the host now, so the running ones must warm up again.
        self.running.warm.clear();
        watch.cut_if_needed(started.iter().filter_map(|guest| guest.cut()));
        // Register all of them first, so that they are stopped if asking one for its facts fails.
        self.running.guests.extend(started);
        for guest in &mut self.running.guests[self.running.facts.len()..] {
            self.running.facts.push(facts::ask(guest.as_mut(), &self.plan.workloads)?);
        }
        Ok(())
    }

    fn check_programs(&self, workload: usize) -> Result<(), Failure> {
        let workload = &self.plan.workloads[workload];
        for (guest, facts) in self.running.guests.iter().zip(&self.running.facts) {
            if let Some(program) = facts::lacking(workload, facts) {
                let why = format!(
                    "the guest {} has no {}; install the Debian package {} in it",
                    guest.name(),
                    program.name,
                    program.package
                );
                return Err(Failure { why, hopeless: true, guests_do_not_start: false });
            }
        }
        Ok(())
    }

    /// Runs the prepare steps of guests that have not run them since their start.
    fn prepare(
        &mut self,
        slot: &Slot,
        attempt: u32,
        steps: &[Steps],
        folder: &Path,
        watch: &Watch<'_>,
    ) -> Result<(), Failure> {
        for (number, steps) in steps.iter().enumerate() {
            if steps.prepare.is_empty() || self.running.prepared.contains(&(number, slot.workload)) {
                continue;
            }
            self.tell(slot, attempt, Phase::Prepare);
            for step in &steps.prepare {
                let machine = scene::machine(step, number, &mut self.running.guests, &mut self.host)?;
                let mut armed = machine.arm(&step.script, step.limit)?;
                armed.release()?;
                let output = armed.finish(watch.ending())?.output;
                if output.status != 0 {
                    let outputs = Outputs { steps: [(step.name.to_owned(), output.clone())].into() };
                    let _ = write_guest(folder, number, &outputs);
                    return Err(status(step.name, number, &output).into());
                }
            }
            self.running.prepared.insert((number, slot.workload));
        }
        Ok(())
    }

    fn measured(
        &mut self,
        slot: &Slot,
        levels: &[&Level],
        steps: &[Steps],
        folder: &Path,
        run: &mut Run,
        watch: &Watch<'_>,
    ) -> Result<(), Failure> {
        let mut outputs = vec![Outputs::default(); steps.len()];
        let samples = self.plan.samples.of_measured();
        let ran = self.together(steps, &mut outputs, Some((&mut *run, &samples)), watch);
        write_outputs(folder, &outputs, run);
        let samples = ran?;
        if watch.ending().load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(samples) = samples {
            run.host = samples.metrics();
            run.sampled = Some(samples.seconds());
            run.exits_counted = samples.exits_seconds();
            run.warnings.extend(samples.warnings());
            if let Err(error) = samples.write(folder) {
                run.warnings.push(format!("The samples could not be written: {error}"));
            }
        }
        let in_force = self.rig.in_force(levels, &self.sampled());
        run.warnings.extend(in_force.unverified);
        if !in_force.contradictions.is_empty() {
            return Err(in_force.contradictions.join("; ").into());
        }
        let workload = &self.plan.workloads[slot.workload];
        run.warnings.extend(workload.warning());
        for (number, outputs) in outputs.iter().enumerate() {
            let metrics = workload.parse(outputs).map_err(|error| error.to_string())?;
            match run.guests.get_mut(number) {
                Some(guest) => guest.splice(0..0, metrics).for_each(drop),
                None => run.guests.push(metrics),
            }
        }
        Ok(())
    }

    /// Carries out the workload of a measured run again, and counts exits. Nothing else of it is used.
    fn repeated(
        &mut self,
        slot: &Slot,
        samples: &SamplePlan,
        steps: &[Steps],
        folder: &Path,
        run: &mut Run,
        watch: &Watch<'_>,
    ) -> Result<(), Failure> {
        let folder = folder.join(REPETITION);
        let mut outputs = vec![Outputs::default(); steps.len()];
        let mut again = Run::begun(slot.cell.clone(), run.position, run.attempt);
        let ran = self.together(steps, &mut outputs, Some((&mut again, samples)), watch);
        write_outputs(&folder, &outputs, &mut again);
        warn_once(run, again.warnings);
        let counted = ran?;
        if watch.ending().load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(counted) = counted {
            run.host.extend(counted.metrics().into_iter().filter(|metric| is_of_exits(&metric.name)));
            run.exits_counted = Some(counted.exits_seconds().unwrap_or_else(|| counted.seconds()));
            warn_once(run, counted.warnings());
            if let Err(error) = fs::create_dir_all(&folder).and_then(|()| counted.write(&folder)) {
                run.warnings.push(format!("The counted exits could not be written: {error}"));
            }
        }
        let workload = &self.plan.workloads[slot.workload];
        let guests: Result<Vec<_>, _> = outputs.iter().map(|outputs| workload.parse(outputs)).collect();
        let guests = guests.map_err(|error| error.to_string())?;
        run.counted = Some(Repetition { took: again.took, guests });
        Ok(())
    }

    /// Runs the steps of all guests simultaneously, with their servers. If there is a `run`, samples the host and
    /// records the times in it.
    fn together(
        &mut self,
        steps: &[Steps],
        outputs: &mut [Outputs],
        mut run: Option<(&mut Run, &SamplePlan)>,
        watch: &Watch<'_>,
    ) -> Result<Option<Box<dyn Samples>>, Failure> {
        let serve: Vec<&[Step]> = steps.iter().map(|steps| &steps.serve[..]).collect();
        let measure: Vec<&[Step]> = steps.iter().map(|steps| &steps.run[..]).collect();
        let (serving, ending) = (AtomicBool::new(false), AtomicBool::new(false));
        let interrupted = watch.ending();
        thread::scope(|scope| {
            let mut servers = together::arm(&serve, &mut self.running.guests, &mut self.host)?;
            together::release(&mut servers)?;
            let servers = together::wait(scope, servers, &serving);
            // End the servers on every way out of here: the scope waits for the threads that wait for them.
            let _ends_servers = SetOnDrop(&serving);
            let mut waiting = together::arm(&measure, &mut self.running.guests, &mut self.host)?;
            let before = run.is_some().then(|| cpu_times(&mut self.running.guests)).transpose()?;
            let sampling = match &mut run {
                Some((run, samples)) => self.start_sampling(samples, run),
                None => None,
            };
            let released = together::release(&mut waiting);
            if released.is_err() {
                ending.store(true, Ordering::Relaxed);
            }
            let receiver = together::wait(scope, waiting, &ending);
            let left = together::collect(&receiver, interrupted, &ending);
            let samples = sampling.map(super::rig::Sampling::stop);
            let after = match (&before, left.is_empty()) {
                (Some(_), false) if !ending.load(Ordering::Relaxed) => {
                    Some(cpu_times(&mut self.running.guests))
                }
                _ => None,
            };
            let told_ns = live::monotonic_ns();
            serving.store(true, Ordering::Relaxed);
            let served = together::collect(&servers, interrupted, &serving);
            let mut times = Vec::new();
            // Its clients may have reached another server on its port.
            let failed = together::failed_before(&served, told_ns).map(|(step, guest, output)| {
                format!("a server ended before its clients: {}", status(step, guest, output))
            });
            // Check servers first: the failure of a server explains those of its clients.
            let serving = together::sort(served, outputs, &mut Vec::new());
            let running = together::sort(left, outputs, &mut times);
            released?;
            failed.map_or(Ok(()), Err)?;
            running.map_err(|error| serving.err().unwrap_or(error))?;
            let Some((run, _)) = run else { return Ok(None) };
            // The times of an interrupted step mean nothing.
            if watch.ending().load(Ordering::Relaxed) {
                return Ok(None);
            }
            note_times(run, &times);
            if let (Some(before), Some(after)) = (before, after) {
                note_cpu(run, &before, &after?);
            }
            Ok(samples)
        })
    }

    fn overdue(&self, limit: Duration) -> String {
        let what = match self.phase {
            Phase::Levels | Phase::Guests => "the guests' start",
            Phase::Prepare => "the preparation",
            Phase::WarmUp => "the warm-up",
            Phase::Run => "the measured step",
            Phase::Repetition => "the repetition that counts exits",
        };
        format!("{what} was still running at the run's limit of {} s (order.run_limit)", limit.as_secs())
    }

    /// The guests that are processes of this machine, and can be sampled.
    fn sampled(&self) -> Vec<SampledGuest> {
        let sampled = |guest: &dyn Guest| {
            Some(SampledGuest { name: guest.name().to_owned(), process: guest.process()? })
        };
        self.running.guests.iter().filter_map(|guest| sampled(guest.as_ref())).collect()
    }

    fn start_sampling(
        &mut self,
        samples: &SamplePlan,
        run: &mut Run,
    ) -> Option<Box<dyn super::rig::Sampling>> {
        let sampled = self.sampled();
        match self.rig.sample(samples, &sampled) {
            Ok(sampling) => Some(sampling),
            Err(why) => {
                run.warnings.push(format!("The host was not sampled: {why}"));
                None
            }
        }
    }
}

/// Adds warnings of the repetition, without those that the run has already: the report counts the runs that have one.
fn warn_once(run: &mut Run, warnings: Vec<String>) {
    for warning in warnings {
        if !run.warnings.contains(&warning) {
            run.warnings.push(warning);
        }
    }
}

/// Sets the flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn cpu_times(guests: &mut [Box<dyn Guest>]) -> Result<Vec<String>, GuestError> {
    guests.iter_mut().map(|guest| Ok(guest.run(CPU_TIMES, SHORT)?.stdout)).collect()
}

fn note_times(run: &mut Run, times: &[(u64, u64)]) {
    let seconds = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from)).as_secs_f64();
    let began = times.iter().map(|&(began, _)| began);
    let (Some(first), Some(last)) = (began.clone().min(), began.max()) else { return };
    let ended = times.iter().map(|&(_, ended)| ended).max().unwrap_or(last);
    run.took = seconds(first, ended);
    run.start_skew = (times.len() > 1).then(|| seconds(first, last));
}

fn note_cpu(run: &mut Run, before: &[String], after: &[String]) {
    for (number, (before, after)) in before.iter().zip(after).enumerate() {
        match guest_processor_time(before, after) {
            Ok(metrics) => run.guests.push(metrics),
            Err(error) => {
                run.guests.push(Vec::new());
                run.warnings.push(format!("Guest {number}: {error}"));
            }
        }
    }
}

fn status(step: &str, number: usize, output: &Output) -> String {
    let said = programs::last_lines(&output.stderr, 1).pop();
    let said = said.unwrap_or("nothing on standard error");
    format!("the step {step:?} of guest {number} ended with status {}: {said}", output.status)
}

fn write_outputs(folder: &Path, outputs: &[Outputs], run: &mut Run) {
    for (number, outputs) in outputs.iter().enumerate() {
        if let Err(error) = write_guest(folder, number, outputs) {
            run.warnings.push(format!("The outputs of guest {number} could not be written: {error}"));
        }
    }
}

fn write_guest(folder: &Path, number: usize, outputs: &Outputs) -> std::io::Result<()> {
    let folder = folder.join(format!("guest-{number}"));
    fs::create_dir_all(&folder)?;
    for (step, output) in &outputs.steps {
        fs::write(folder.join(format!("{step}.out")), &output.stdout)?;
        if !output.stderr.is_empty() {
            fs::write(folder.join(format!("{step}.err")), &output.stderr)?;
        }
    }
    Ok(())
}
