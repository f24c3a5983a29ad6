//! QEMU command lines in their common variants, read and changed.

mod changing;
mod damaged;
mod hostile;
mod reading;
mod refusing;
mod spellings;
mod summary;
