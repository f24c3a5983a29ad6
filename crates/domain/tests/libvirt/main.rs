//! libvirt's XML in the shapes that are met: read, changed, and converted to QEMU's arguments and back.

mod conversion;
mod programs;
mod reading;
