//! libvirt's XML in its common variants: read and changed.

mod damaged;
mod defined;
mod programs;
mod reading;
