//! A load on several threads, each with its own connections, which start at the same time.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::LoadError;
use super::tally::Tally;

/// The pause between the last thread's opening of its connections and the first request.
const PAUSE: Duration = Duration::from_millis(20);

/// The part of one thread: opens its connections, then measures from a given time.
pub(super) trait Part: Send {
    fn open(&mut self) -> Result<(), LoadError>;

    fn measure(self, begin: Instant) -> Result<Tally, LoadError>;
}

/// Runs all parts, each on a thread. They start to measure together, once all have opened their connections and
/// `when_opened` has returned; the first error ends all of them.
pub(super) fn run<P: Part>(parts: Vec<P>, when_opened: impl FnOnce()) -> Result<Tally, LoadError> {
    thread::scope(|scope| {
        let (opened, all_opened) = mpsc::channel();
        let (starts, threads): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|mut part| {
                let opened = opened.clone();
                let (start, started) = mpsc::channel::<Instant>();
                let thread = scope.spawn(move || {
                    let result = part.open();
                    // Fails only if another part has failed and the receiver is gone.
                    let _ = opened.send(result);
                    drop(opened);
                    match started.recv() {
                        Ok(begin) => part.measure(begin),
                        Err(_) => Ok(Tally::default()),
                    }
                });
                (start, thread)
            })
            .unzip();
        drop(opened);
        let opened = all_opened.iter().collect::<Result<Vec<()>, LoadError>>()?;
        // A thread that has panicked sends nothing; joining it reports that.
        if opened.len() == threads.len() {
            when_opened();
            let begin = Instant::now() + PAUSE;
            for start in &starts {
                let _ = start.send(begin);
            }
        }
        // Threads without a start measure nothing.
        drop(starts);
        let mut all = Tally::default();
        let mut failed = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(tally)) => all.merge(&tally),
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        failed.map_or(Ok(all), Err)
    })
}

/// Part `index`'s share of `whole`, divided among `parts`.
pub(super) fn share(whole: u32, index: u32, parts: u32) -> u32 {
    whole / parts + u32::from(index < whole % parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (whole, parts) in [(10, 3), (2, 2), (7, 1), (3, 8)] {
            assert_eq!((0..parts).map(|index| share(whole, index, parts)).sum::<u32>(), whole);
        }
    }

    enum Bad {
        Fails,
        Panics,
        Opens,
    }

    impl Part for Bad {
        fn open(&mut self) -> Result<(), LoadError> {
            match self {
                Self::Fails => Err(LoadError::Settings { field: "x", why: "fails".to_owned() }),
                Self::Panics => panic!("as this test wants"),
                Self::Opens => Ok(()),
            }
        }

        fn measure(self, _: Instant) -> Result<Tally, LoadError> {
            Ok(Tally::default())
        }
    }

    #[test]
    fn one_that_cannot_open_ends_all() {
        assert!(run(vec![Bad::Fails, Bad::Fails], || ()).is_err());
    }

    #[test]
    fn one_that_panics_while_it_opens_ends_all() {
        let parts = vec![Bad::Opens, Bad::Panics, Bad::Opens];
        let ended = std::panic::catch_unwind(|| run(parts, || unreachable!("not all have opened")));
        let Err(panic) = ended else { panic!("it did not panic") };
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as this test wants"));
    }
}
