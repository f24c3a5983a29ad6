//! Unpacked sosreports (<https://github.com/sosreport/sos>): facts that sos keeps only as the output of
//! commands.
//!
//! A sosreport has most files of /proc, /sys and /etc under their own names. It lacks the files of processes, so
//! running VMs are unknown.

use std::io;

/// The directory that every sosreport has.
pub(super) const MARK: &str = "sos_commands";

const UNAME: &str = "/sos_commands/kernel/uname_-a";

/// The content of a file that the report lacks, from another file of the report. `None` if no other file has
/// it.
pub(super) fn read(path: &str, read: impl Fn(&str) -> io::Result<Vec<u8>>) -> Option<io::Result<Vec<u8>>> {
    // sos/report/plugins/{kernel,processor}.py; file names are commands with `_` instead of blanks.
    match path {
        "/exitless/dmesg" => Some(read("/sos_commands/kernel/dmesg")),
        "/exitless/cpuid" => Some(read("/sos_commands/processor/cpuid_-r")),
        "/proc/sys/kernel/osrelease" => Some(of_uname(&read, |uname| uname.release)),
        "/proc/sys/kernel/version" => Some(of_uname(&read, |uname| uname.version)),
        "/proc/sys/kernel/arch" => Some(of_uname(&read, |uname| uname.machine)),
        _ => None,
    }
    .filter(|found| !found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound))
}

fn of_uname(
    read: &impl Fn(&str) -> io::Result<Vec<u8>>,
    field: impl Fn(Uname) -> String,
) -> io::Result<Vec<u8>> {
    let text = read(UNAME)?;
    let uname = Uname::parse(&String::from_utf8_lossy(&text));
    uname.map(|uname| field(uname).into_bytes()).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The output of `uname -a`: `Linux NODE RELEASE VERSION MACHINE [PROCESSOR PLATFORM] GNU/Linux`.
struct Uname {
    release: String,
    version: String,
    machine: String,
}

impl Uname {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.lines().next()?.split_whitespace().collect();
        let machine = words.iter().position(|word| matches!(*word, "x86_64" | "i686" | "aarch64"))?;
        Some(Self {
            release: (*words.get(2)?).to_owned(),
            version: words.get(3..machine)?.join(" "),
            machine: words[machine].to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Root;
    use std::fs;

    #[test]
    fn facts_are_found_under_the_names_of_sos() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "sos_commands/kernel/uname_-a",
            "Linux kvm3 6.12.0-55.el10.x86_64 #1 SMP PREEMPT_DYNAMIC Mon May 12 x86_64 GNU/Linux\n",
        );
        write("sos_commands/kernel/dmesg", "[    0.000000] Linux version 6.12\n[    1.5] odd\n");
        write(
            "sos_commands/processor/cpuid_-r",
            "CPU 0:\n   0x00000001 0x00: eax=0x00000001 ebx=0x00000000 ecx=0x80000000 edx=0x00000000\n",
        );
        let root = Root::directory(folder.path());
        assert!(root.is_sosreport());
        let text = |path| root.text(path, "a text").unwrap();
        assert_eq!(text("/proc/sys/kernel/osrelease"), "6.12.0-55.el10.x86_64");
        assert_eq!(text("/proc/sys/kernel/version"), "#1 SMP PREEMPT_DYNAMIC Mon May 12");
        assert_eq!(text("/proc/sys/kernel/arch"), "x86_64");
        assert_eq!(root.cpuid(1, 0), Some([1, 0, 0x8000_0000, 0]));
        assert_eq!(root.messages(|_| true).get().unwrap().wanted[0].text, "Linux version 6.12");
        assert!(root.read("/proc/cmdline").is_err());

        write("sos_commands/kernel/uname_-a", "cut");
        assert!(root.read("/proc/sys/kernel/osrelease").is_err());
        write("proc/sys/kernel/osrelease", "6.1\n");
        assert_eq!(text("/proc/sys/kernel/osrelease"), "6.1", "its own file comes first");
    }
}
