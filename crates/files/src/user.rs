//! Directories of the user who runs this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const PASSWD: &str = "/etc/passwd";

/// The user's cache directory: `$XDG_CACHE_HOME`; else `~/.cache`, with the home directory from `$HOME` or passwd(5);
/// else a directory with the user's ID in the directory of temporary files. Others may have created the last: see
/// [`Directory::trusted()`](crate::Directory::trusted).
#[must_use]
pub fn user_cache() -> PathBuf {
    cache(&|name| std::env::var_os(name), Path::new(PASSWD))
}

fn cache(variable: &dyn Fn(&str) -> Option<OsString>, passwd: &Path) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let known = || {
        let users = std::fs::read_to_string(passwd).ok()?;
        let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let own = fields.find(|fields| fields.get(2).and_then(|number| number.parse().ok()) == Some(user))?;
        own.get(5).map(PathBuf::from).filter(|home| home.is_absolute())
    };
    let home = || absolute("HOME").or_else(known).map(|home| home.join(".cache"));
    let found = absolute("XDG_CACHE_HOME").or_else(home);
    found.unwrap_or_else(|| std::env::temp_dir().join(format!("exitless-{user}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_home_in_the_environment_the_hosts_users_are_asked() {
        let root = tempfile::tempdir().unwrap();
        let passwd = root.path().join("passwd");
        let user = rustix::process::geteuid().as_raw();
        std::fs::write(&passwd, format!("odd\nx:x:7{user}:0::/no:\nme:x:{user}:0:a:/my/home:/bin/sh\n"))
            .unwrap();
        let nothing = |_: &str| None;
        assert_eq!(cache(&nothing, &passwd), Path::new("/my/home/.cache"));
        let relative = |_: &str| Some(OsString::from("x"));
        assert_eq!(cache(&relative, &passwd), Path::new("/my/home/.cache"));
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/h"));
        assert_eq!(cache(&home, &passwd), Path::new("/h/.cache"));
        let both = |name: &str| Some(OsString::from(format!("/{name}")));
        assert_eq!(cache(&both, &passwd), Path::new("/XDG_CACHE_HOME"));
        let last = cache(&nothing, Path::new("/no/such"));
        assert!(last.ends_with(format!("exitless-{user}")), "{}", last.display());
    }
}
