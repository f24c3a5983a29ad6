//! I/O workers: threads that each serve the queues of many devices.

mod backoff;
mod deadline;
mod entry;
pub(crate) mod mailbox;
mod rest;
pub(crate) mod run;
pub(crate) mod scheduling;
mod share;
mod signals;
mod threads;
mod uring;

use crate::queue::{Queue, QueueKey};
use crate::statistics::WorkerCounters;
use host::CpuSet;
use mailbox::{Command, Mailbox, Reply};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

pub use backoff::{DEFAULT_NAP_NS, Polling};
pub use mailbox::Routes;
pub(crate) use share::WEIGHTS;
pub use uring::io_uring;

/// The options of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Host CPUs that it may run on; empty for all.
    pub cpus: CpuSet,
    /// Polling when it finds nothing to do.
    pub polling: Polling,
    /// Use threads for disk I/O, as on a host without io_uring.
    pub without_uring: bool,
}

/// A failure of a worker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The kernel refused a thread, or something that a thread needs.
    #[error("Cannot make an I/O worker: {what}")]
    Cannot {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Its thread has ended.
    #[error("The I/O worker has ended")]
    Gone,
}

/// An I/O worker. Dropping it ends its thread, and waits for that; the queues that it has are dropped, too.
#[derive(Debug)]
pub struct Worker {
    number: u32,
    mailbox: Arc<Mailbox>,
    counters: Arc<WorkerCounters>,
    thread_id: Arc<AtomicI32>,
    thread: Option<JoinHandle<()>>,
    routes: Arc<Routes>,
    polling: Mutex<Polling>,
    /// The longest nap that was last set, nanoseconds; 0 if none was. It stays while the worker polls otherwise.
    nap_ns: AtomicU64,
    /// The CPUs that it was told to run on; empty for all.
    told_cpus: Mutex<CpuSet>,
    /// Dropping it does not wait for its thread.
    left_behind: AtomicBool,
}

impl Worker {
    /// Starts a worker.
    ///
    /// # Errors
    /// [`WorkerError::Cannot`].
    pub fn start(number: u32, options: &WorkerOptions, routes: &Arc<Routes>) -> Result<Self, WorkerError> {
        let cannot = |what| move |source: io::Error| WorkerError::Cannot { what, source };
        let mailbox = Arc::new(Mailbox::new().map_err(cannot("no eventfd for waking it"))?);
        let counters = Arc::<WorkerCounters>::default();
        let thread_id = Arc::new(AtomicI32::new(0));
        let (told, ready) = mpsc::channel();
        let body = {
            let (mailbox, counters, routes) =
                (Arc::clone(&mailbox), Arc::clone(&counters), Arc::clone(routes));
            let (options, thread_id) = (options.clone(), Arc::clone(&thread_id));
            move || {
                thread_id.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Release);
                match run::Run::new(&options, mailbox, counters, routes) {
                    Ok(mut run) => {
                        let _ = told.send(Ok(()));
                        run.until_stopped();
                    }
                    Err(error) => {
                        let _ = told.send(Err(error));
                    }
                }
            }
        };
        let name = format!("io-worker-{number}");
        let thread = crate::fatal::spawn(name, body).map_err(cannot("no thread"))?;
        let worker = Self {
            number,
            mailbox,
            counters,
            thread_id,
            thread: Some(thread),
            routes: Arc::clone(routes),
            polling: Mutex::new(options.polling),
            nap_ns: AtomicU64::new(options.polling.nap_ns().unwrap_or(0)),
            told_cpus: Mutex::new(options.cpus.clone()),
            left_behind: AtomicBool::new(false),
        };
        ready.recv().map_err(|_| WorkerError::Gone)??;
        Ok(worker)
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The ID of its thread.
    #[must_use]
    pub fn thread_id(&self) -> i32 {
        self.thread_id.load(Ordering::Acquire)
    }

    /// The `nice` value of its thread; `None` if the thread has ended.
    #[must_use]
    pub fn nice(&self) -> Option<i32> {
        let thread = rustix::process::Pid::from_raw(self.thread_id())?;
        rustix::process::getpriority_process(Some(thread)).ok()
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Gives it a queue to serve.
    pub fn add(&self, queue: Queue) {
        self.routes.give(queue, &self.mailbox);
    }

    /// Hands queues over to other workers with the same routes, each between two requests. Requests in flight continue,
    /// and their completions reach the worker that has the queue by then. Returns the queues that this worker does not
    /// have.
    ///
    /// # Errors
    /// [`WorkerError::Gone`].
    pub fn hand_over<'a>(
        &self,
        queues: impl IntoIterator<Item = (QueueKey, &'a Self)>,
    ) -> Result<Vec<QueueKey>, WorkerError> {
        let queues = queues.into_iter().map(|(key, to)| (key, Arc::clone(&to.mailbox))).collect();
        self.ask(|reply| Command::HandOver { queues, reply })
    }

    /// Takes a queue away once all requests that were taken have completed. Until then the queue takes no new ones.
    ///
    /// # Errors
    /// [`WorkerError::Gone`].
    pub(crate) fn take_drained(&self, key: QueueKey) -> Result<Option<Queue>, WorkerError> {
        let taken = self.ask(|reply| Command::Take { key, reply })?;
        if taken.is_some() {
            self.routes.forget(key);
        }
        Ok(taken)
    }

    /// Calls a function on a queue, between two requests. If the worker does not have the queue, the function is
    /// returned.
    ///
    /// # Errors
    /// [`WorkerError::Gone`].
    pub fn with<T: Send + 'static, A: FnOnce(&mut Queue) -> T + Send + 'static>(
        &self,
        key: QueueKey,
        act: A,
    ) -> Result<Result<T, A>, WorkerError> {
        self.ask(|reply| Command::With {
            key,
            act: Box::new(move |queue| {
                let _ = reply.send(match queue {
                    Some(queue) => Ok(act(queue)),
                    None => Err(act),
                });
            }),
        })
    }

    /// Polling when it finds nothing to do.
    #[must_use]
    pub fn polling(&self) -> Polling {
        *self.polling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host CPUs on which the kernel lets it run; none when its thread has ended.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        let thread = rustix::thread::Pid::from_raw(self.thread_id());
        let allowed = thread.and_then(|thread| rustix::thread::sched_getaffinity(Some(thread)).ok());
        let is_allowed = |cpu: &u32| allowed.as_ref().is_some_and(|set| set.is_set(*cpu as usize));
        (0..rustix::thread::CpuSet::MAX_CPU as u32).filter(is_allowed).collect()
    }

    /// The longest nap that was last set, nanoseconds, however it polls now.
    pub(crate) fn last_nap_ns(&self) -> Option<u64> {
        Some(self.nap_ns.load(Ordering::Relaxed)).filter(|nap| *nap > 0)
    }

    /// The CPUs that it was told to run on; empty for all.
    pub(crate) fn told_cpus(&self) -> CpuSet {
        self.told_cpus.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the polling mode.
    pub(crate) fn set_polling(&self, polling: Polling) {
        if let Some(nap) = polling.nap_ns() {
            self.nap_ns.store(nap, Ordering::Relaxed);
        }
        *self.polling.lock().unwrap_or_else(PoisonError::into_inner) = polling;
        self.mailbox.send(Command::Polling(polling));
    }

    /// Restricts it to these host CPUs; an empty set allows all.
    ///
    /// # Errors
    ///
    /// [`WorkerError::Cannot`] when the kernel refuses; the worker stays where it is then.
    pub fn pin(&self, cpus: CpuSet) -> Result<(), WorkerError> {
        let told = cpus.clone();
        let pinned = self.ask(|reply| Command::Pin { cpus, reply })?;
        pinned.map_err(|source| WorkerError::Cannot { what: "it may not run on these CPUs", source })?;
        *self.told_cpus.lock().unwrap_or_else(PoisonError::into_inner) = told;
        Ok(())
    }

    /// Lets its drop not wait for its thread, which ends after its requests in flight. The last reference may belong to
    /// anybody who looked at the workers, who must not wait for a disk.
    pub(crate) fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::Release);
    }

    /// Tests whether it takes commands: a worker that neither blocks nor has ended answers between two requests.
    #[must_use]
    pub fn answers(&self, within: Duration) -> bool {
        let (reply, answer) = mpsc::channel();
        self.mailbox.send(Command::HandOver { queues: Vec::new(), reply });
        answer.recv_timeout(within).is_ok()
    }

    /// Stops it, and returns its queues. It waits for its requests in flight first.
    ///
    /// # Errors
    /// [`WorkerError::Gone`].
    pub fn stop(mut self) -> Result<Vec<Queue>, WorkerError> {
        let queues = self.ask(|reply| Command::Stop { reply })?;
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| WorkerError::Gone)?;
        }
        Ok(queues)
    }

    fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, WorkerError> {
        let (reply, answer) = mpsc::channel();
        self.mailbox.send(command(reply));
        answer.recv().map_err(|_| WorkerError::Gone)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let (reply, _) = mpsc::channel();
            self.mailbox.send(Command::Stop { reply });
            if !self.left_behind.load(Ordering::Acquire) {
                let _ = thread.join();
            }
        }
    }
}

/// Restricts this thread to these CPUs; an empty set allows all.
fn pin_thread(cpus: &CpuSet) -> io::Result<()> {
    const MAX: usize = rustix::thread::CpuSet::MAX_CPU;
    if let Some(beyond) = cpus.iter().find(|cpu| *cpu as usize >= MAX) {
        let why = format!("there is no CPU {beyond}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut set = rustix::thread::CpuSet::new();
    let wanted = |cpu: &usize| cpus.is_empty() || cpus.contains(*cpu as u32);
    (0..MAX).filter(wanted).for_each(|cpu| set.set(cpu));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
#[path = "worker/worker_tests.rs"]
mod tests;
