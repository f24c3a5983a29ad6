//! The workers of a daemon, and the assignment of queues to them.

use crate::queue::{Queue, QueueKey};
use crate::statistics::WorkerFigures;
use crate::worker::{Routes, Worker, WorkerError, WorkerOptions};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The workers of a daemon.
#[derive(Debug)]
pub struct Pool {
    routes: Arc<Routes>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    workers: BTreeMap<u32, Arc<Worker>>,
    /// The worker of each queue.
    assigned: HashMap<QueueKey, u32>,
    next: u32,
    /// The sums of the counters of the workers that were removed.
    removed: WorkerFigures,
}

/// A failure of the pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The worker does not exist.
    #[error("There is no I/O worker {0}")]
    NoWorker(u32),
    /// The last worker cannot be removed while there are queues.
    #[error("I/O worker {0} is the last one, and has queues to serve")]
    Last(u32),
    /// The worker is the last one, which must stay.
    #[error("I/O worker {0} is the last one: make another one first")]
    NoSpare(u32),
    /// A queue is not served.
    #[error("Queue {0} is not served")]
    NoQueue(u64),
    /// A worker failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

impl Default for Pool {
    fn default() -> Self {
        Self { routes: Routes::new(), inner: Mutex::default() }
    }
}

impl Pool {
    /// A pool without workers.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker. Returns its number, which is never used again.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn add_worker(&self, options: &WorkerOptions) -> Result<u32, WorkerError> {
        let mut inner = self.inner();
        let number = inner.next;
        let worker = Worker::start(number, options, &self.routes)?;
        inner.workers.insert(number, Arc::new(worker));
        inner.next += 1;
        Ok(number)
    }

    /// Removes a worker after giving its queues to the others.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; the worker stays then.
    pub fn remove_worker(&self, number: u32) -> Result<(), PoolError> {
        self.inner().remove_worker(number)
    }

    /// The same, unless it is the last one.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; the worker stays then.
    pub(crate) fn remove_spare_worker(&self, number: u32) -> Result<(), PoolError> {
        // Counted under the lock under which it is removed: others may remove one, too.
        let mut inner = self.inner();
        match inner.workers.len() == 1 && inner.workers.contains_key(&number) {
            true => Err(PoolError::NoSpare(number)),
            false => inner.remove_worker(number),
        }
    }

    /// The workers by number.
    #[must_use]
    pub fn workers(&self) -> Vec<Arc<Worker>> {
        self.inner().workers.values().cloned().collect()
    }

    /// The sums of the counters of the workers that were removed.
    pub(crate) fn removed(&self) -> WorkerFigures {
        self.inner().removed
    }

    /// Tests whether every worker takes commands, each within this time.
    #[must_use]
    pub fn answers(&self, within: Duration) -> bool {
        self.workers().iter().all(|worker| worker.answers(within))
    }

    /// A worker.
    ///
    /// # Errors
    /// [`PoolError::NoWorker`].
    pub fn worker(&self, number: u32) -> Result<Arc<Worker>, PoolError> {
        self.inner().workers.get(&number).cloned().ok_or(PoolError::NoWorker(number))
    }

    /// Gives a queue to the wanted worker, or to the one with the fewest queues. Returns the worker's number.
    ///
    /// # Errors
    /// [`PoolError::NoWorker`].
    pub fn serve(&self, queue: Queue, at: Option<u32>) -> Result<u32, PoolError> {
        let mut inner = self.inner();
        let wanted = at.filter(|number| inner.workers.contains_key(number));
        let number = wanted.or_else(|| inner.least(|_| true)).ok_or(PoolError::NoWorker(at.unwrap_or(0)))?;
        inner.assigned.insert(queue.key, number);
        if let Some(worker) = inner.workers.get(&number) {
            worker.add(queue);
        }
        Ok(number)
    }

    /// Moves a queue to another worker, between two of its requests.
    ///
    /// # Errors
    ///
    /// [`PoolError`]; the queue stays where it is then.
    pub fn move_queue(&self, key: QueueKey, to: u32) -> Result<(), PoolError> {
        match self.move_queues([key], to)?.first() {
            Some(missing) => Err(PoolError::NoQueue(missing.0)),
            None => Ok(()),
        }
    }

    /// Moves queues to another worker, each between two of its requests. Returns those that are not served.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn move_queues(
        &self,
        keys: impl IntoIterator<Item = QueueKey>,
        to: u32,
    ) -> Result<Vec<QueueKey>, PoolError> {
        // Before the lock is taken: `keys` may take locks under which others call this pool.
        let moves = keys.into_iter().map(|key| (key, to)).collect();
        self.inner().move_queues(&moves)
    }

    /// The worker of a queue.
    #[must_use]
    pub fn worker_of(&self, key: QueueKey) -> Option<u32> {
        self.inner().assigned.get(&key).copied()
    }

    /// Stops serving a queue once its requests in flight have completed.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn end(&self, key: QueueKey) -> Result<Queue, PoolError> {
        // Draining may wait for a disk, so the lock is not held; a move in the meantime finds no queue.
        let worker = self.leave(key)?;
        worker.take_drained(key)?.ok_or(PoolError::NoQueue(key.0))
    }

    fn leave(&self, key: QueueKey) -> Result<Arc<Worker>, PoolError> {
        let mut inner = self.inner();
        let number = inner.assigned.remove(&key).ok_or(PoolError::NoQueue(key.0))?;
        inner.workers.get(&number).cloned().ok_or(PoolError::NoWorker(number))
    }

    /// Calls a function on a queue, between two of its requests.
    ///
    /// # Errors
    /// [`PoolError`].
    pub fn with<T: Send + 'static>(
        &self,
        key: QueueKey,
        act: impl FnOnce(&mut Queue) -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let mut act = act;
        loop {
            // The lock is not held during the call.
            match self.serving_worker(key)?.with(key, act)? {
                Ok(done) => return Ok(done),
                // It moved to another worker meanwhile.
                Err(again) => act = again,
            }
        }
    }

    fn serving_worker(&self, key: QueueKey) -> Result<Arc<Worker>, PoolError> {
        let inner = self.inner();
        let number = inner.assigned.get(&key).copied().ok_or(PoolError::NoQueue(key.0))?;
        inner.workers.get(&number).cloned().ok_or(PoolError::NoWorker(number))
    }
}

impl Inner {
    fn queues_of(&self, number: u32) -> impl Iterator<Item = QueueKey> {
        self.assigned.iter().filter(move |(_, at)| **at == number).map(|(key, _)| *key)
    }

    fn least(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        let numbers = self.workers.keys().copied().filter(|number| may(*number));
        numbers.min_by_key(|number| self.queues_of(*number).count())
    }

    fn remove_worker(&mut self, number: u32) -> Result<(), PoolError> {
        if !self.workers.contains_key(&number) {
            return Err(PoolError::NoWorker(number));
        }
        let others = self.workers.keys().filter(|other| **other != number);
        let mut counts: BTreeMap<u32, usize> =
            others.map(|other| (*other, self.queues_of(*other).count())).collect();
        let mut moves = BTreeMap::new();
        for key in self.queues_of(number) {
            let (to, count) =
                counts.iter_mut().min_by_key(|(_, count)| **count).ok_or(PoolError::Last(number))?;
            moves.insert(key, *to);
            *count += 1;
        }
        self.move_queues(&moves)?;
        // Its thread ends after the last reference is dropped, which may wait for a disk: do not wait for that.
        if let Some(gone) = self.workers.remove(&number) {
            self.removed += gone.counters().read();
            gone.leave_behind();
        }
        Ok(())
    }

    /// Moves queues with one command to each worker that has some of them, because each reply takes milliseconds if
    /// there are as many runnable threads as queues. Returns the queues that are not served.
    fn move_queues(&mut self, moves: &BTreeMap<QueueKey, u32>) -> Result<Vec<QueueKey>, PoolError> {
        let mut missing = Vec::new();
        let mut by_worker: BTreeMap<u32, Vec<(QueueKey, u32)>> = BTreeMap::new();
        for (&key, &to) in moves {
            if !self.workers.contains_key(&to) {
                return Err(PoolError::NoWorker(to));
            }
            match self.assigned.get(&key) {
                None => missing.push(key),
                Some(from) if *from == to => {}
                Some(from) => by_worker.entry(*from).or_default().push((key, to)),
            }
        }
        for (from, leaving) in by_worker {
            let old = self.workers.get(&from).ok_or(PoolError::NoWorker(from))?;
            let to = |(key, to): &(QueueKey, u32)| self.workers.get(to).map(|worker| (*key, worker.as_ref()));
            let absent = old.hand_over(leaving.iter().filter_map(to))?;
            for (key, to) in leaving {
                match absent.contains(&key) {
                    true => missing.push(key),
                    false => drop(self.assigned.insert(key, to)),
                }
            }
        }
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{
        Carrier, Handler, Notifiers, QueueState, Submission, Submitter, Token, Virtqueue, WorkDone,
    };
    use crate::ring::RingFeatures;
    use crate::testing::Driver;
    use std::io::{PipeReader, Write as _, pipe};
    use std::os::fd::AsRawFd as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// A device with one request, whose disk is a pipe: it answers when something is written there.
    struct Slow {
        disk: PipeReader,
        asked: bool,
        in_flight: usize,
    }

    impl Handler for Slow {
        fn serve(&mut self, _: &mut Virtqueue, submitter: &mut Submitter<'_>, _: u32) -> WorkDone {
            if !std::mem::replace(&mut self.asked, true) {
                let byte = Box::leak(Box::new(0_u8));
                let piece = libc::iovec { iov_base: std::ptr::from_mut(byte).cast(), iov_len: 1 };
                let pieces = &raw const *Box::leak(Box::new(piece));
                let read = Submission::Read { file: self.disk.as_raw_fd(), pieces, count: 1, offset: 0 };
                // SAFETY: the byte and the piece are never freed, and the file stays open until the queue has drained.
                unsafe { submitter.submit(read, Token(0), Carrier::Kernel) }.unwrap();
                self.in_flight = 1;
            }
            WorkDone::default()
        }

        fn complete(&mut self, _: &mut Virtqueue, _: Token, result: i32) {
            assert_eq!(result, 1);
            self.in_flight = 0;
        }

        fn in_flight(&self) -> usize {
            self.in_flight
        }
    }

    /// A pool of this many workers. The first one serves a queue with this handler.
    fn serving(workers: usize, handler: Box<dyn Handler>) -> (Arc<Pool>, QueueKey, Driver) {
        let pool = Pool::new();
        for _ in 0..workers {
            pool.add_worker(&WorkerOptions::default()).unwrap();
        }
        let driver = Driver::new(8, RingFeatures { packed: false, event_index: true, indirect: true });
        let state = Arc::<QueueState>::default();
        let queue = Queue::new(driver.ring().unwrap(), Notifiers::default(), handler, state);
        let key = queue.key;
        assert_eq!(pool.serve(queue, Some(0)).unwrap(), 0);
        (pool, key, driver)
    }

    #[test]
    fn nobody_who_looks_at_a_removed_worker_waits_for_its_disk() {
        if let Err(error) = crate::worker::io_uring() {
            return println!("not tested: this host gives no io_uring: {error}");
        }
        let (disk, mut answers) = pipe().unwrap();
        let (pool, key, _driver) = serving(2, Box::new(Slow { disk, asked: false, in_flight: 0 }));
        let late = Instant::now() + Duration::from_secs(20);
        while pool.with(key, |queue| queue.in_flight()).unwrap() == 0 {
            assert!(Instant::now() < late);
        }
        let (told, heard) = channel();
        let seen = pool.workers();
        let removing = Arc::clone(&pool);
        std::thread::spawn(move || {
            removing.remove_worker(0).unwrap();
            told.send("the caller").unwrap();
            drop(seen);
            told.send("who looked").unwrap();
        });
        let limit = Duration::from_secs(10);
        assert_eq!(
            [heard.recv_timeout(limit), heard.recv_timeout(limit)],
            [Ok("the caller"), Ok("who looked")]
        );
        answers.write_all(&[1]).unwrap();
        assert_eq!(pool.end(key).unwrap().in_flight(), 0);
    }

    #[test]
    fn a_queue_is_found_however_often_it_moves() {
        let (disk, _answers) = pipe().unwrap();
        let (pool, key, _driver) = serving(3, Box::new(Slow { disk, asked: true, in_flight: 0 }));
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for first in 0..4 {
                let (pool, end) = (&pool, &end);
                scope.spawn(move || {
                    for turn in first.. {
                        if end.load(Ordering::Relaxed) {
                            break;
                        }
                        pool.move_queue(key, turn % 3).unwrap();
                    }
                });
            }
            let late = Instant::now() + Duration::from_secs(4);
            let mut found = Ok(0);
            while Instant::now() < late && found.is_ok() {
                found = pool.with(key, |_| ()).map(|()| 0);
            }
            end.store(true, Ordering::Relaxed);
            found.unwrap();
        });
    }

    #[test]
    fn what_workers_did_is_known_after_they_were_removed() {
        let pool = Pool::new();
        let add = || pool.add_worker(&WorkerOptions::default()).unwrap();
        add();
        for (useful, sum) in [(7, 7), (5, 12)] {
            let number = add();
            // It has no queues, so its own thread does not add to this counter.
            pool.worker(number).unwrap().counters().useful_ticks.add(useful);
            pool.remove_worker(number).unwrap();
            assert_eq!(pool.removed().useful_ticks, sum);
        }
    }

    #[test]
    fn the_queues_to_be_moved_are_asked_for_without_the_lock() {
        let pool = Pool::new();
        let keys = std::iter::once_with(|| {
            assert!(pool.inner.try_lock().is_ok());
            QueueKey(1)
        });
        assert!(matches!(pool.move_queues(keys, 0), Err(PoolError::NoWorker(0))));
    }
}
