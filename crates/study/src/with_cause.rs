//! Errors as text.

use std::error::Error;

/// An error with its cause, where only text is kept of it.
pub(crate) fn with_cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
