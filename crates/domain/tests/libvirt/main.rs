//! libvirt's XML in the shapes that are met: read, changed, and converted to QEMU's arguments and back.

mod conversion;
mod damaged;
mod defined;
mod programs;
mod reading;
