//! The FUSE requests of the kernel to the control tree.

use crate::control::access::Access;
use crate::control::attribute::Mode;
use crate::control::error::{ControlError, Errno};
use crate::control::facts::Control;
use crate::control::request::LONGEST_LINE;
use crate::control::tree::Node;
use crate::control::tree::{self, NodeKind};
use crate::daemon::Daemon;
use crate::log_limit::LogLimit;
use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// The file system.
pub(super) struct Tree {
    daemon: Weak<Daemon>,
    access: Access,
    group: u32,
    made: SystemTime,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Open>>,
    /// The limit of log lines that writers can cause.
    log: Arc<LogLimit>,
}

/// The content of an open file or directory, kept so that several reads see a single state.
enum Open {
    File(Arc<Vec<u8>>),
    Directory(Arc<Vec<(u64, FileType, String)>>),
}

/// The kernel must not cache anything: the values change by themselves.
const KEPT: Duration = Duration::ZERO;
/// The size that stat(2) reports, as in sysfs: the real one is only known when the file is read.
const SIZE: u64 = 4096;

fn told(error: &ControlError) -> fuser::Errno {
    fuser::Errno::from_i32(error.errno.code())
}

impl Tree {
    pub(super) fn new(daemon: Weak<Daemon>, access: Access) -> Self {
        let group = access.owner_group();
        let (next, open, log) = (AtomicU64::new(1), Mutex::default(), Arc::default());
        Self { daemon, access, group, made: SystemTime::now(), next, open, log }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, open: Open) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open().insert(number, open);
        FileHandle(number)
    }

    fn daemon(&self) -> Result<Arc<Daemon>, ControlError> {
        self.daemon.upgrade().ok_or_else(|| ControlError::new(Errno::Failed, "The daemon ends"))
    }

    fn node(&self, number: INodeNo) -> Result<(Arc<Daemon>, Node), ControlError> {
        let daemon = self.daemon()?;
        let node = Node::of_number(number.0).filter(|node| node.object().exists(&*daemon));
        Ok((daemon, node.ok_or_else(|| ControlError::missing("such file"))?))
    }

    fn attributes(&self, node: Node) -> FileAttr {
        let group = self.access.group.is_some();
        let (kind, perm, size) = match node.kind() {
            NodeKind::Directory => (FileType::Directory, if group { 0o550 } else { 0o500 }, 0),
            NodeKind::Attribute(mode) => (FileType::RegularFile, mode.permissions(group), SIZE),
        };
        FileAttr {
            ino: INodeNo(node.number()),
            size,
            blocks: 0,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.access.user,
            gid: self.group,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, ControlError> {
        let (daemon, node) = self.node(parent)?;
        let name = name.to_str().ok_or_else(|| ControlError::missing("such file"))?;
        let child = node.child(&*daemon, name)?.ok_or_else(|| ControlError::missing(name))?;
        Ok(self.attributes(child))
    }

    fn listed(&self, number: INodeNo) -> Result<Vec<(u64, FileType, String)>, ControlError> {
        let (daemon, node) = self.node(number)?;
        let above = match node {
            Node::Object(object) => Node::Object(object.parent()),
            Node::Group(object, _) | Node::Attribute(object, _) => Node::Object(object),
        };
        let mut all = vec![
            (node.number(), FileType::Directory, ".".to_owned()),
            (above.number(), FileType::Directory, "..".to_owned()),
        ];
        all.extend(tree::list(&*daemon, node)?.into_iter().map(|entry| {
            let attributes = self.attributes(entry.node);
            (attributes.ino.0, attributes.kind, entry.name)
        }));
        Ok(all)
    }

    fn content(&self, number: INodeNo) -> Result<Vec<u8>, ControlError> {
        let (daemon, node) = self.node(number)?;
        Ok(tree::read(&*daemon, node)?.text().into_bytes())
    }

    fn may_open(&self, number: INodeNo) -> Result<(), ControlError> {
        match self.node(number)?.1.kind() {
            NodeKind::Attribute(Mode::Read | Mode::ReadWrite | Mode::Write) => Ok(()),
            NodeKind::Directory => Err(ControlError::new(Errno::IsDirectory, "It is a directory")),
        }
    }
}

impl Filesystem for Tree {
    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.entry(parent, name) {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(told(&error)),
        }
    }

    fn getattr(&self, _: &fuser::Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(number) {
            Ok((_, node)) => reply.attr(&KEPT, &self.attributes(node)),
            Err(error) => reply.error(told(&error)),
        }
    }

    /// Ignores the size, which O_TRUNC sets before a write. Nothing else can be set.
    fn setattr(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.node(number) {
            _ if mode.is_some() || uid.is_some() || gid.is_some() => reply.error(fuser::Errno::EPERM),
            Ok((_, node)) => reply.attr(&KEPT, &self.attributes(node)),
            Err(error) => reply.error(told(&error)),
        }
    }

    fn open(&self, _: &fuser::Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.may_open(number) {
            Ok(()) => reply.opened(self.keep(Open::File(Arc::default())), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(told(&error)),
        }
    }

    fn read(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if offset == 0 {
            match self.content(number) {
                Ok(content) => drop(self.open().insert(handle.0, Open::File(Arc::new(content)))),
                Err(error) => return reply.error(told(&error)),
            }
        }
        let content = match self.open().get(&handle.0) {
            Some(Open::File(content)) => Arc::clone(content),
            _ => return reply.error(fuser::Errno::EBADF),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let to = from.saturating_add(size as usize).min(content.len());
        reply.data(&content[from..to]);
    }

    /// Each write takes effect at once, as in sysfs.
    fn write(
        &self,
        _: &fuser::Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let size = data.len();
        if offset != 0 {
            return reply.error(fuser::Errno::EINVAL);
        }
        if size > LONGEST_LINE {
            return reply.error(fuser::Errno::E2BIG);
        }
        let (outcome, text) = (self.node(number), String::from_utf8(data.to_vec()));
        let log = Arc::clone(&self.log);
        let act = move || {
            let done = outcome.and_then(|(daemon, node)| {
                let text = text.map_err(|_| ControlError::invalid("The value is not UTF-8 text"))?;
                daemon.apply(tree::write(&*daemon, node, &text)?)
            });
            match done {
                Ok(_) => reply.written(size as u32),
                Err(error) => {
                    // The writer only sees the error number.
                    log.warn(|| format!("The control tree refuses what was written: {error}"));
                    reply.error(told(&error));
                }
            }
        };
        // A write may wait for a disk, while others must be answered: use a thread. If there is none, dropping the
        // reply answers EIO.
        if let Err(error) = crate::fatal::spawn("control-write", act) {
            self.log.warn(|| format!("No thread for a change: {error}"));
        }
    }

    fn flush(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &fuser::Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.listed(number) {
            Ok(entries) => reply.opened(self.keep(Open::Directory(Arc::new(entries))), FopenFlags::empty()),
            Err(error) => reply.error(told(&error)),
        }
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match self.open().get(&handle.0) {
            Some(Open::Directory(entries)) => Arc::clone(entries),
            _ => return reply.error(fuser::Errno::EBADF),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (number, kind, name)) in entries.iter().enumerate().skip(from) {
            if reply.add(INodeNo(*number), index as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open().remove(&handle.0);
        reply.ok();
    }

    fn access(&self, _: &fuser::Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself.
        reply.ok();
    }
}

/// The inode number of the root is fixed by the kernel.
const _: () = assert!(INodeNo::ROOT.0 == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::object::Object;

    #[test]
    fn the_root_is_where_the_kernel_begins() {
        assert_eq!(Node::Object(Object::Root).number(), INodeNo::ROOT.0);
    }
}
