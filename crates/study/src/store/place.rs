//! The directory of a result: one into which nobody else can put anything.

use std::path::{Path, PathBuf};

use files::{Directory, Error, Missing};

use super::StoreError;

/// A result folder into which nobody but root and this process's user can have put anything.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) directory: Directory,
    /// The folder's path. It goes through the descriptor if others can replace a directory above, so it cannot be
    /// redirected.
    pub(crate) path: PathBuf,
}

impl Place {
    /// Opens or creates the folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::of(folder, Directory::open(folder, Missing::Made(0o755)))
    }

    /// Opens the folder as [`Self::open`] does; `None` if it does not exist.
    pub(crate) fn existing(folder: &Path) -> Result<Option<Self>, StoreError> {
        match Directory::open(folder, Missing::Refused) {
            Err(error) if error.is_missing() => Ok(None),
            opened => Self::of(folder, opened).map(Some),
        }
    }

    fn of(folder: &Path, opened: Result<Directory, Error>) -> Result<Self, StoreError> {
        // Report the path that the user gave, not that of a descriptor.
        let refused = |error| match error {
            Error::Open { source, .. } => StoreError::file("Could not create", folder)(source),
            Error::Owner { owner, expected, .. } => {
                StoreError::Place(Error::Owner { path: folder.to_owned(), owner, expected })
            }
            Error::Mode { mode, wanted, .. } => {
                StoreError::Place(Error::Mode { path: folder.to_owned(), mode, wanted })
            }
            error => StoreError::Place(error),
        };
        let directory = opened.map_err(refused)?;
        // Check only the folder: the directories above may be writable by others.
        Directory::trusted(&directory.itself(), Path::new(""), Missing::Refused).map_err(refused)?;
        let ours = directory.is_ours().map_err(StoreError::file("Could not read", folder))?;
        let path = if ours { folder.to_owned() } else { directory.itself() };
        Ok(Self { directory, path })
    }
}

/// A path with a descriptor resolved to the directory's path, for messages.
pub(super) fn shown(path: &Path) -> PathBuf {
    let descriptors = Path::new("/proc/self/fd");
    let named = || {
        let mut parts = path.strip_prefix(descriptors).ok()?.components();
        let folder = descriptors.join(parts.next()?).read_link().ok()?;
        Some(folder.join(parts))
    };
    named().unwrap_or_else(|| path.to_owned())
}
