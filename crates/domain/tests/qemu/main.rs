//! QEMU command lines of the shapes that are met, read and changed.

mod changing;
mod damaged;
mod hostile;
mod reading;
mod refusing;
mod spellings;
mod summary;
