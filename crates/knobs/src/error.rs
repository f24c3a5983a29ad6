//! The errors of changing a host.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A failure to change a host, or to change it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal could not be written, so the change was not made.
    #[error("Cannot write the journal {path}, so nothing was changed; {}", next_step(source))]
    JournalWrite {
        /// The journal or its directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Other users can write to the journal, so they could make this process change anything.
    #[error("The journal of changes is not used, because others could have written it; nothing was changed")]
    JournalPlace(#[source] files::Error),
    /// The journal belongs to root, and this user may not read it.
    #[error("The journal belongs to root; run this command with sudo, as in `sudo exitless restore`")]
    JournalOfRoot,
    /// The change is not supported.
    #[error("Such a change is not supported, and nothing was changed: {why}")]
    Unknown {
        /// The reason.
        why: String,
    },
    /// The change was made, but the journal's line about it could not be written.
    #[error("The journal {path} does not say that a change was made; {outcome}; {}", next_step(source))]
    JournalDone {
        /// The journal.
        path: PathBuf,
        /// What becomes of the change.
        outcome: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A change was undone, but the journal's line about that could not be written.
    #[error(
        "Change {id} is undone, but the journal {path} does not say so; {}, then run `exitless restore`",
        next_step(source)
    )]
    JournalUndone {
        /// The change.
        id: u64,
        /// The journal.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The journal could not be read.
    #[error("Cannot read the journal {path}; run as root, or see the cause")]
    JournalRead {
        /// The journal.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another exitless holds the lock.
    #[error("Another exitless has held {path} for {seconds} s; let it end, then try again")]
    Locked {
        /// The lock.
        path: PathBuf,
        /// The time that this process waited, in seconds.
        seconds: u64,
    },
    /// The cause for which each of several changes stays.
    #[error(transparent)]
    OfSeveral(Arc<Error>),
    /// A file or thread of the host could not be read or changed.
    #[error("Cannot {doing} {path}; {}", next_step(source))]
    Access {
        /// The attempt, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file is not a regular file.
    #[error("{path} is {found}, expected a regular file; change what it stands for instead")]
    Kind {
        /// The file.
        path: PathBuf,
        /// Its kind.
        found: String,
    },
    /// A path does not name one file of the host.
    #[error("`{path}` cannot be changed; expected the absolute path of a file, without `..`")]
    Path {
        /// The path.
        path: String,
    },
    /// A file is too large to be kept in the journal.
    #[error("{path} has {size} bytes, and the journal keeps files of at most {limit}; change it by hand")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A program could not be run.
    #[error("Cannot run `{command}`; install the program, or see the cause")]
    Start {
        /// The program with its arguments.
        command: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("`{command}` failed ({status}): {said}")]
    Command {
        /// The program with its arguments.
        command: String,
        /// The exit status.
        status: String,
        /// The last lines of its messages.
        said: String,
    },
    /// A module is in use.
    #[error(
        "The module {module} is in use (its count is {users}); end the VMs and close what has /dev/kvm open"
    )]
    ModuleInUse {
        /// The module.
        module: String,
        /// Its use count.
        users: u64,
    },
    /// A module did not get its old parameters back.
    #[error(
        "The module {module} did not take its old parameters back: {parameters}; reload it by hand, or reboot"
    )]
    Parameters {
        /// The module.
        module: String,
        /// Names with both values.
        parameters: String,
    },
    /// A thread has ended, or its ID belongs to another thread now.
    #[error("Thread {tid} has ended, or its number belongs to another thread now; list the threads again")]
    ThreadGone {
        /// The thread.
        tid: i32,
    },
    /// A text is not a list of CPUs.
    #[error("`{cpus}` is not a list of CPUs; expected numbers and ranges such as 0-3,6")]
    Cpus {
        /// The list.
        cpus: String,
    },
    /// A thread may run on CPUs that it could not be given back.
    #[error(
        "Thread {tid} stays where it is: it may run on CPUs {cpus}, and only threads whose CPUs are all below {limit} can \
         be restored; bind it by hand, for example with taskset"
    )]
    ManyCpus {
        /// The thread.
        tid: i32,
        /// The list of its CPUs.
        cpus: String,
        /// The number of CPUs that can be set.
        limit: usize,
    },
    /// A change was to be extended by one of something else.
    #[error("Change {id} cannot be extended: it is of something else, or was undone; make a new change")]
    Another {
        /// The change.
        id: u64,
    },
    /// A later change depends on the one to be undone.
    #[error("Cannot undo change {id} before change {later}, which rests on it")]
    RestedOn {
        /// The change.
        id: u64,
        /// The later one.
        later: u64,
    },
    /// Others changed the file or the program's output from which the new content was derived.
    #[error("{what} has changed since its new content was worked out, and stays as it is; try again")]
    Outdated {
        /// The file or the program's output.
        what: String,
    },
    /// Others changed the value that was to be changed again.
    #[error("Change {id} is not made again, for others changed it since: {what}")]
    ChangedSince {
        /// The change.
        id: u64,
        /// The present state.
        what: String,
    },
    /// A change failed, and its first steps could not be undone.
    #[error("A change failed and is left half made; run `exitless restore`: {failure}")]
    HalfMade {
        /// The reason why it could not be undone.
        failure: String,
        /// The reason why it failed.
        #[source]
        source: Box<Error>,
    },
}

impl Error {
    /// The error for a journal directory that the user `who` must not or cannot use.
    pub(crate) fn place(error: files::Error, who: u32) -> Self {
        match error {
            files::Error::Open { path, source } => Self::JournalWrite { path, source },
            files::Error::Owner { owner: 0, .. } if who != 0 => Self::JournalOfRoot,
            refused => Self::JournalPlace(refused),
        }
    }

    /// The message with its cause, for texts that do not show the cause by themselves.
    pub(crate) fn told(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self} ({cause})"),
            None => self.to_string(),
        }
    }

    pub(crate) fn access(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Access { doing, path, source }
    }
}

fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run as root",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only: mount it writable first",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on its file system",
        io::ErrorKind::NotFound => "it is not there",
        io::ErrorKind::InvalidInput => "the kernel does not take the value",
        _ => "see the cause",
    }
}
