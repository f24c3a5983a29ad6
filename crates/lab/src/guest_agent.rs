//! The first process of guests: the small program `exitless-agent` if it is installed, or else this program.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::elf::{PT_INTERP, PT_LOAD, loaded, program_headers};
use crate::error::Error;
use crate::snapshot::identity;

/// The name of the small program.
pub(crate) const NAME: &str = "exitless-agent";

/// The small program, read from its file.
#[derive(Debug)]
pub(crate) struct GuestAgent {
    /// Identifies the program's file.
    pub(crate) identity: [u64; 4],
    /// The loadable part of the program.
    pub(crate) program: Vec<u8>,
}

impl GuestAgent {
    /// The small program in the folder of this program's file, or the reason why guests use this larger program. If it
    /// exists but cannot be used, also warns.
    pub(crate) fn beside_this_program() -> Result<Self, String> {
        // The name of the file may be stale, because this program may have been replaced; the folder is
        // right.
        let own = std::env::current_exe();
        let owner = fs::metadata("/proc/self/exe").map(|metadata| metadata.uid());
        let (own, owner) = own.and_then(|own| Ok((own, owner?))).map_err(|error| {
            format!("{NAME} was not found, because the folder of exitless is not known: {error}")
        })?;
        let place = own.with_file_name(NAME);
        match Self::beside(&own, owner) {
            Ok(found) => found.ok_or_else(|| format!("{} does not exist", place.display())),
            Err(why) => {
                let why = format!("{} {why}", place.display());
                tracing::warn!("Guests get all of exitless, which takes them longer to boot: {why}");
                Err(why)
            }
        }
    }

    /// The small program next to `program`, whose file `owner` owns. `None` if there is none, an error if it
    /// cannot be used.
    fn beside(program: &Path, owner: u32) -> Result<Option<Self>, String> {
        let unread = |error: io::Error| format!("could not be read: {error}");
        // O_NONBLOCK, because opening a named pipe would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = match open(program.with_file_name(NAME), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err("is a symbolic link".to_owned()),
            Err(error) => return Err(unread(error.into())),
        };
        let metadata = file.metadata().map_err(unread)?;
        if !metadata.is_file() {
            return Err("is not a regular file".to_owned());
        }
        if metadata.mode() & 0o002 != 0 {
            return Err("may be written by everyone; `chmod o-w` it if it is what was built".to_owned());
        }
        // Whoever owns this program's file is trusted with the small program too.
        let trusted = [0, rustix::process::geteuid().as_raw(), owner];
        if !trusted.contains(&metadata.uid()) {
            return Err(format!("belongs to the user {}, and exitless does not", metadata.uid()));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unread)?;
        let is = |kind| program_headers(&bytes).any(|header| header.kind == kind);
        if !is(PT_LOAD) || is(PT_INTERP) {
            return Err("is not statically linked".to_owned());
        }
        Ok(Some(Self { identity: identity(&metadata), program: loaded(bytes) }))
    }
}

/// The program for the first process of study guests.
#[derive(Debug)]
pub struct GuestProgram {
    /// The loadable part of the program.
    pub bytes: Vec<u8>,
    /// The reason why it is all of exitless, if it is not `exitless-agent`: that file, and what is wrong with it.
    pub without_agent: Option<String>,
}

/// The program for the first process of study guests: `exitless-agent` if it is next to this program,
/// otherwise this program.
///
/// # Errors
/// If this program's file cannot be read; [`Error::NotStatic`] if it is dynamically linked.
pub fn guest_program() -> Result<GuestProgram, Error> {
    Ok(match GuestAgent::beside_this_program() {
        Ok(agent) => GuestProgram { bytes: agent.program, without_agent: None },
        Err(why) => GuestProgram { bytes: own_program()?, without_agent: Some(why) },
    })
}

/// The loadable part of this program's file, as the first process of another machine.
pub(crate) fn own_program() -> Result<Vec<u8>, Error> {
    let path = PathBuf::from("/proc/self/exe");
    let program = fs::read(&path).map_err(Error::file("Could not read", &path))?;
    if program_headers(&program).any(|header| header.kind == PT_INTERP) {
        return Err(Error::NotStatic { path: fs::read_link(&path).unwrap_or(path) });
    }
    Ok(loaded(program))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A 64-bit file with one program header, followed by other bytes.
    fn elf(kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            fs::write(folder.at("exitless"), elf(PT_LOAD)).unwrap();
            folder
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, contents: &[u8], mode: u32) {
            let agent = self.at(NAME);
            fs::write(&agent, contents).unwrap();
            fs::set_permissions(agent, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn agent(&self) -> Result<Option<GuestAgent>, String> {
            let program = self.at("exitless");
            GuestAgent::beside(&program, program.metadata().unwrap().uid())
        }

        fn choice(&self) -> Result<Option<Vec<u8>>, String> {
            self.agent().map(|found| found.map(|agent| agent.program))
        }
    }

    #[test]
    fn the_small_program_is_taken_from_beside_this_one_and_told_from_another() {
        let folder = Folder::new();
        folder.put(&elf(PT_LOAD), 0o755);
        assert_eq!(folder.choice(), Ok(Some(elf(PT_LOAD))));
        let identity = || folder.agent().unwrap().unwrap().identity;
        let before = identity();
        assert_eq!(identity(), before);
        folder.put(&[elf(PT_LOAD), vec![1]].concat(), 0o755);
        assert_ne!(identity(), before);
    }

    #[test]
    fn without_it_guests_get_this_program() {
        assert_eq!(Folder::new().choice(), Ok(None));
        // There is no small program next to a test program.
        let found = guest_program().unwrap();
        assert!(found.bytes == own_program().unwrap());
        let place = std::env::current_exe().unwrap().with_file_name(NAME);
        assert_eq!(found.without_agent, Some(format!("{} does not exist", place.display())));
    }

    #[test]
    fn what_everyone_may_write_and_what_is_a_link_is_not_taken() {
        let folder = Folder::new();
        folder.put(&elf(PT_LOAD), 0o757);
        assert!(folder.choice().unwrap_err().contains("everyone"));
        folder.put(&elf(PT_LOAD), 0o775);
        assert!(folder.choice().unwrap().is_some());
        fs::rename(folder.at(NAME), folder.at("elsewhere")).unwrap();
        symlink("elsewhere", folder.at(NAME)).unwrap();
        assert!(folder.choice().unwrap_err().contains("link"));
        fs::remove_file(folder.at(NAME)).unwrap();
        fs::create_dir(folder.at(NAME)).unwrap();
        assert!(folder.choice().unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn what_a_guest_cannot_start_is_not_taken() {
        let folder = Folder::new();
        for contents in [Vec::new(), b"#!/bin/sh\n".to_vec(), elf(PT_INTERP)] {
            folder.put(&contents, 0o755);
            assert!(folder.choice().unwrap_err().contains("not statically linked"), "{contents:?}");
        }
    }

    #[test]
    fn what_belongs_to_another_user_is_not_taken() {
        if !rustix::process::geteuid().is_root() {
            println!("not tested: files can be given away by root alone");
            return;
        }
        let folder = Folder::new();
        folder.put(&elf(PT_LOAD), 0o755);
        std::os::unix::fs::chown(folder.at(NAME), Some(65534), None).unwrap();
        assert!(folder.choice().unwrap_err().contains("65534"));
        std::os::unix::fs::chown(folder.at("exitless"), Some(65534), None).unwrap();
        assert!(folder.choice().unwrap().is_some());
    }
}
