//! libvirt's XML in its common variants: read, changed, and converted to QEMU's arguments and back.

mod conversion;
mod damaged;
mod defined;
mod programs;
mod reading;
