//! Where a result folder is: a directory into which nobody else can put anything.

use std::path::{Path, PathBuf};

use files::{Directory, Error, Missing};

use super::StoreError;

/// A result folder into which nobody but root and this process's user can have put anything.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) directory: Directory,
    /// A path that leads nowhere else while this lives, also where others can exchange a directory above.
    pub(crate) path: PathBuf,
}

impl Place {
    /// Finds the folder, or makes it.
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreError> {
        // By the name that was given, and not by that of a descriptor.
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
        let directory = Directory::open(folder, Missing::Made(0o755)).map_err(refused)?;
        // The folder alone: the directories above may be anybody's.
        Directory::trusted(&directory.itself(), Path::new(""), Missing::Refused).map_err(refused)?;
        let ours = directory.is_ours().map_err(StoreError::file("Could not read", folder))?;
        let path = if ours { folder.to_owned() } else { directory.itself() };
        Ok(Self { directory, path })
    }
}

/// A path as it is without this process's descriptors, for messages.
pub(super) fn shown(path: &Path) -> PathBuf {
    let descriptors = Path::new("/proc/self/fd");
    let named = || {
        let mut parts = path.strip_prefix(descriptors).ok()?.components();
        let folder = descriptors.join(parts.next()?).read_link().ok()?;
        Some(folder.join(parts))
    };
    named().unwrap_or_else(|| path.to_owned())
}
