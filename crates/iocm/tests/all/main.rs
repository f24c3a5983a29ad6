//! A daemon under load, with libblkio as its front-end.

#[path = "../blkio_disk/mod.rs"]
mod blkio_disk;
mod control_tree;
mod real_front_end;
