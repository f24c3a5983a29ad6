//! QEMU command lines of the shapes that are met, read and changed.

mod reading;
mod summary;
