use super::*;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use tempfile::TempDir;

/// A user who is neither root nor the one that runs the tests.
const STRANGER: u32 = 65_534;

fn root() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn make(root: &TempDir, path: &str, mode: u32) -> PathBuf {
    let path = root.path().join(path);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Only root can give a directory to somebody else.
fn give(path: &Path) -> bool {
    let given = chown(path, Some(STRANGER), Some(STRANGER)).is_ok();
    if !given {
        println!("not tested: giving a directory to another user needs root");
    }
    given
}

fn private(root: &TempDir, path: &str) -> Result<Directory, Error> {
    Directory::private(root.path(), Path::new(path), Missing::Refused)
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let root = root();
    make(&root, "a", 0o755);
    let deep = make(&root, "a/b", 0o700);
    private(&root, "/a/b").unwrap();
    for (mode, wanted) in
        [(0o777, "go-w"), (0o702, "go-w"), (0o1777, "go-w"), (0o750, "0700"), (0o705, "0700")]
    {
        make(&root, "a/b", mode);
        let error = private(&root, "/a/b").unwrap_err();
        assert!(matches!(&error, Error::Mode { wanted: found, .. } if *found == wanted), "{mode:o}: {error}");
    }
    make(&root, "a/b", 0o700);
    // Nor may others write to the directory above: they could replace this one.
    make(&root, "a", 0o777);
    assert!(private(&root, "/a/b").is_err());
    make(&root, "a", 0o1777);
    private(&root, "/a/b").unwrap();
    // In a directory with the sticky bit, a subdirectory of another user is refused by name.
    if give(&deep) {
        let error = private(&root, "/a/b").unwrap_err();
        assert!(matches!(&error, Error::Owner { path, .. } if *path == deep), "{error}");
        chown(&deep, Some(0), Some(0)).unwrap();
    }
    assert!(!Directory::open(&deep, Missing::Refused).unwrap().was_made());
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let root = root();
    let above = make(&root, "a", 0o700);
    let deep = make(&root, "a/b", 0o700);
    if !give(&deep) {
        return;
    }
    let error = private(&root, "/a/b").unwrap_err();
    assert!(matches!(error, Error::Owner { owner: STRANGER, .. }), "{error}");
    chown(&deep, Some(0), Some(0)).unwrap();
    private(&root, "/a/b").unwrap();
    give(&above);
    assert!(private(&root, "/a/b").is_err(), "its owner can exchange what is below");
}

#[test]
fn a_link_is_followed_only_where_nobody_else_can_have_put_it() {
    let root = root();
    let place = make(&root, "place", 0o700);
    make(&root, "ours", 0o755);
    symlink("../place", root.path().join("ours/link")).unwrap();
    let found = Directory::trusted(root.path(), Path::new("ours/link"), Missing::Refused).unwrap();
    assert!(found.path().ends_with("place"));
    // An absolute link starts at the root that the walk started at.
    symlink("/place", root.path().join("ours/absolute")).unwrap();
    let found = Directory::trusted(root.path(), Path::new("/ours/absolute"), Missing::Refused).unwrap();
    assert_eq!(found.path(), place);
    symlink("loop", root.path().join("ours/loop")).unwrap();
    assert!(Directory::trusted(root.path(), Path::new("ours/loop"), Missing::Refused).is_err());
    let theirs = make(&root, "theirs", 0o755);
    symlink("../place", theirs.join("link")).unwrap();
    if give(&theirs) {
        let error = Directory::open(&theirs.join("link"), Missing::Refused).unwrap_err();
        assert!(matches!(error, Error::Link { .. }), "{error}");
        // Nor is a directory created in the link's target.
        Directory::open(&theirs.join("link/deeper"), Missing::Made(0o755)).unwrap_err();
        assert!(!place.join("deeper").exists());
    }
}

#[test]
fn an_absolute_link_on_a_relative_path_starts_at_the_root() {
    let root = root();
    let place = make(&root, "place", 0o700).canonicalize().unwrap();
    symlink(&place, root.path().join("link")).unwrap();
    // All tests share the current directory, so another one is in its place.
    let walk = |path: &str, missing| Directory::walk(root.path(), Path::new("/"), Path::new(path), missing);
    assert_eq!(walk("link", Missing::Refused).unwrap().path(), place);
    walk("link/deeper", Missing::Made(0o700)).unwrap();
    assert!(place.join("deeper").exists());
}

#[test]
fn what_is_exchanged_afterwards_leads_nowhere_else() {
    let root = root();
    let theirs = make(&root, "theirs", 0o777);
    let inside = make(&root, "theirs/inside", 0o777);
    let elsewhere = make(&root, "elsewhere", 0o700);
    let directory = Directory::open(&inside, Missing::Refused).unwrap();
    std::fs::rename(&inside, theirs.join("away")).unwrap();
    symlink(&elsewhere, &inside).unwrap();
    std::fs::write(directory.reach(OsStr::new("file")), "x").unwrap();
    assert!(theirs.join("away/file").exists() && !elsewhere.join("file").exists());
}

#[test]
fn missing_directories_are_made_and_others_are_named() {
    let root = root();
    let made = Directory::private(root.path(), Path::new("/a/b/c"), Missing::Made(0o700)).unwrap();
    assert!(made.was_made());
    assert!(!private(&root, "/a/b/c").unwrap().was_made());
    let error = private(&root, "/a/x/c").unwrap_err();
    assert!(error.is_missing() && error.to_string().ends_with("/a/x"), "{error}");
    std::fs::write(root.path().join("a/file"), "").unwrap();
    assert!(private(&root, "/a/file/c").is_err());
}

#[test]
fn a_file_that_is_a_link_is_not_opened() {
    let root = root();
    make(&root, "a", 0o700);
    std::fs::write(root.path().join("secret"), "x").unwrap();
    symlink("../secret", root.path().join("a/journal")).unwrap();
    let directory = private(&root, "/a").unwrap();
    assert!(directory.open_file("journal", OFlags::RDONLY, 0).is_err());
    directory.remove(OsStr::new("journal")).unwrap();
    directory.open_file("journal", OFlags::RDWR | OFlags::CREATE, 0o600).unwrap();
    directory.sync().unwrap();
    assert!(root.path().join("secret").exists());
}

#[test]
fn a_user_in_the_access_control_list_is_not_taken_for_group_root() {
    let root = root();
    let at = make(&root, "a", 0o775);
    if chown(&at, Some(0), Some(0)).is_err() {
        println!("not tested: giving a directory to group root needs root");
        return;
    }
    let trusted = || Directory::trusted(root.path(), Path::new("a"), Missing::Refused);
    trusted().unwrap();
    // Version 2 (include/uapi/linux/posix_acl_xattr.h), then the owner, a user, the group, the mask and others.
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, access, user) in
        [(1u16, 7u16, u32::MAX), (2, 7, STRANGER), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        list.extend([tag.to_le_bytes(), access.to_le_bytes()].concat());
        list.extend(user.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(error) = rustix::fs::setxattr(&at, "system.posix_acl_access", &list, flags) {
        println!("not tested: an access control list: {error}");
        return;
    }
    let error = trusted().unwrap_err();
    assert!(matches!(error, Error::Mode { mode: 0o775, .. }), "{error}");
}
