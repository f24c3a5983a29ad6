//! Questions about processes of the host, which can delay an answer without limit, while the kernel's buffers overflow if
//! their reader waits.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time for which the end of a recording waits for answers. They take longer only if processes block them.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A thread that answers questions of type `Q`, in order.
#[derive(Debug)]
pub struct Aside<Q, A> {
    questions: Sender<Q>,
    answers: Receiver<A>,
    thread: JoinHandle<()>,
}

impl<Q: Send + 'static, A: Send + 'static> Aside<Q, A> {
    /// Starts the thread. `answer` gets a question, and those that wait behind it; it may take these, and answer them too.
    ///
    /// # Errors
    /// If the host refuses a thread.
    pub fn start(
        name: &str,
        mut answer: impl FnMut(Q, &mut dyn Iterator<Item = Q>) -> A + Send + 'static,
    ) -> io::Result<Self> {
        let (questions, asked) = channel::<Q>();
        let (answered, answers) = channel();
        let answer_all = move || {
            while let Ok(question) = asked.recv() {
                if answered.send(answer(question, &mut asked.try_iter())).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(answer_all)?;
        Ok(Self { questions, answers, thread })
    }

    /// Asks a question.
    pub fn ask(&self, question: Q) {
        // Fails only if the thread has ended.
        let _ = self.questions.send(question);
    }

    /// The answers since the last call.
    pub fn answers(&self) -> impl Iterator<Item = A> + '_ {
        self.answers.try_iter()
    }

    /// Waits for the answers to all questions, up to `patience`. Returns the answers since the last call, and `false` if
    /// some are missing; then the thread is left behind.
    #[must_use]
    pub fn finish(self, patience: Duration) -> (Vec<A>, bool) {
        let end = Instant::now() + patience;
        drop(self.questions);
        let mut answers = Vec::new();
        loop {
            match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(answer) => answers.push(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.thread.join();
                    return (answers, true);
                }
                Err(RecvTimeoutError::Timeout) => return (answers, false),
            }
        }
    }
}
