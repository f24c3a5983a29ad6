//! Errors of a result folder.

use std::io;
use std::path::{Path, PathBuf};

use super::place::shown;

/// An error of a result folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read, written or moved.
    #[error("{what} {}", path.display())]
    File {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others can put files into the folder, or could have put a link in its place.
    #[error(transparent)]
    Place(files::Error),
    /// The connection to the machine with the folder failed.
    #[error(transparent)]
    Link(Box<dyn std::error::Error + Send + Sync>),
    /// A run belongs to another plan.
    #[error("A run for {} does not belong to its plan: {why}", folder.display())]
    Stranger {
        /// The folder.
        folder: PathBuf,
        /// The part that the plan lacks.
        why: String,
    },
    /// The folder does not contain a study.
    #[error("{} is not the result of a study: it has no readable study.json, and no readable plan.toml with a run", folder.display())]
    NoStudy {
        /// The folder.
        folder: PathBuf,
    },
    /// A newer version wrote the folder.
    #[error("{} has format {found}; this exitless reads format {}; use a newer one", folder.display(), super::STUDY_FORMAT)]
    Format {
        /// The folder.
        folder: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The folder contains files that do not belong to a study.
    #[error("{} holds {found:?}, which does not belong to a study; name an empty folder, or one that does not exist", folder.display())]
    Strange {
        /// The folder.
        folder: PathBuf,
        /// One of the files.
        found: String,
    },
    /// Another process is writing the folder.
    #[error("Another exitless process is writing {}; wait until it ends", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// `study.json` is damaged, so the target and the host are unknown.
    #[error(
        "study.json in {0} is damaged; its runs can be reported (`exitless experiment report {0}`) and not \
         continued: use another folder", folder.display()
    )]
    Undescribed {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder contains a study of another plan.
    #[error(
        "{} holds a study of another plan, which differs in: {}. Give the same plan, or another folder", folder.display(),
        fields.join("; ")
    )]
    OtherPlan {
        /// The folder.
        folder: PathBuf,
        /// Fields that differ, with both values.
        fields: Vec<String>,
    },
    /// The study was started on another target.
    #[error("The study in {} was started with --target {then}, not {now}; give the same target, or another folder", folder.display())]
    OtherTarget {
        /// The folder.
        folder: PathBuf,
        /// The target on which it was started.
        then: String,
        /// The target on which it was to continue.
        now: String,
    },
    /// The host or the version of exitless is not the one that the study was started with.
    #[error(
        "The host or the version of exitless differs from that of the runs in {}: {}. Such runs must not be compared; \
         to continue nevertheless, which is recorded, give --allow-unlike", folder.display(), differences(unlike)
    )]
    OtherHost {
        /// The folder.
        folder: PathBuf,
        /// Fields that differ: name, earlier value, current value.
        unlike: Vec<host::Difference>,
    },
}

impl StoreError {
    /// Tests whether another command line would avoid the error.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::File { .. } | Self::Link(_) | Self::Stranger { .. })
    }

    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = shown(path);
        move |source| Self::File { what, path, source }
    }

    pub(super) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Self + use<> {
        let path = shown(path);
        move |error| Self::File { what: "Could not write", path, source: error.into() }
    }
}

fn differences(unlike: &[host::Difference]) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let one =
        |(field, then, now): &host::Difference| format!("{field} was {}, is {}", value(then), value(now));
    unlike.iter().map(one).collect::<Vec<_>>().join("; ")
}
