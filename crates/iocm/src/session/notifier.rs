//! Descriptors by which driver and device wake each other, checked for what they are.

use crate::protocol::RequestError;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// An eventfd. The front-end has the same open file, so that whoever reads it or writes to it may be made to wait, whatever
/// its flags say: a worker does neither.
pub(super) fn eventfd(what: &str, file: Option<OwnedFd>) -> Result<Option<OwnedFd>, RequestError> {
    let Some(file) = file else { return Ok(None) };
    let cannot = |error: rustix::io::Errno| RequestError::Invalid(format!("the {what} descriptor: {error}"));
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).map_err(cannot)?;
    if name.as_bytes() != b"anon_inode:[eventfd]" {
        let is = name.to_string_lossy().into_owned();
        return Err(RequestError::Invalid(format!(
            "the {what} descriptor must be an eventfd, and is {is:?}"
        )));
    }
    Ok(Some(file))
}
