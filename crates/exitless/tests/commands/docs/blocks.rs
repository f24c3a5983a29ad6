//! Output shown in the pages is what the program prints, or has a comment that says where it comes from.
//!
//! A block whose first line is `$ exitless ...` is run on the tests' files; a line `...` matches any number
//! of lines. Any other output has a comment above its block:
//!
//! | comment | the output is |
//! |---|---|
//! | `<!-- lab: NAME -->` | from this emulated host |
//! | `<!-- host: WHICH -->` | from a real machine |
//! | `<!-- test: NAME -->` | checked by this test |
//! | `<!-- form -->` | no output: the form of a folder or a file |
//! | `<!-- made up -->` | made up, and the page says so |

use std::path::Path;

use super::pages::{Block, for_users, top};
use crate::command::{command, text_files};

const LABS: [&str; 5] = ["intel-apicv", "amd-svm", "amd-avic", "xen", "xen-apicv"];

/// The definition in the examples of `vm lint` for Xen.
const WEB_CFG: &str = "name = \"web\"\ntype = \"pv\"\nmemory = 1024\n";

/// Files of the Debian host in the example of `enable`.
const DEBIAN: &str = "
== /proc/cpuinfo
vendor_id : AuthenticAMD
flags : svm npt avic
== /proc/cmdline
root=/dev/sda1 ro amd_iommu=off quiet
== /sys/module/kvm_amd/parameters/avic
N
== /sys/module/kvm_amd/refcnt
0
== /usr/sbin/update-grub
== /etc/default/grub
# If you change this file
GRUB_TIMEOUT=5
GRUB_CMDLINE_LINUX_DEFAULT=\"quiet amd_iommu=off\"
GRUB_CMDLINE_LINUX=\"\"
== /boot/grub/grub.cfg
== /etc/modprobe.d/kvm.conf
# nested guests
options kvm-amd nested=1 avic=0
== /etc/initramfs-tools/modules
kvm_amd
";

/// A folder with the files that the pages' commands name.
pub(super) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let recordings = top().join("crates/traces/tests/fixtures/perf");
    for file in std::fs::read_dir(recordings).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_str().unwrap().ends_with(".perf.data.zst") {
            std::os::unix::fs::symlink(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    std::fs::copy(top().join("crates/report/src/fixed/page.xml"), folder.path().join("web.xml")).unwrap();
    std::fs::write(folder.path().join("web.cfg"), WEB_CFG).unwrap();
    let (_, zen2) = host::fake::HOSTS.iter().find(|(name, _)| *name == "zen2").unwrap();
    for (name, text) in [("zen2", *zen2), ("debian", DEBIAN)] {
        host::fake::unpack(text, &folder.path().join(name)).unwrap();
    }
    folder
}

/// The standard output of a command line.
fn printed(line: &str, folder: &Path) -> Vec<String> {
    let line = line.split(" #").next().unwrap();
    let arguments: Vec<&str> = line.split_whitespace().skip(2).collect();
    let output = command(&arguments).current_dir(folder).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Tests whether `shown` equals the whole text, where lines `...` stand for omitted lines.
fn shows(shown: &[String], whole: &[String]) -> Result<(), String> {
    let pieces: Vec<&[String]> = shown.split(|line| line.trim() == "...").collect();
    let mut rest = whole;
    for (number, piece) in pieces.iter().enumerate() {
        let (first, last) = (number == 0, number + 1 == pieces.len());
        let at = if first {
            rest.starts_with(piece).then_some(0)
        } else if last {
            rest.ends_with(piece).then(|| rest.len() - piece.len())
        } else {
            (0..rest.len()).find(|at| rest[*at..].starts_with(piece))
        };
        let at = at.ok_or_else(|| format!("these lines are not printed there:\n{}", piece.join("\n")))?;
        rest = &rest[at + piece.len()..];
        if first && last && !rest.is_empty() {
            return Err(format!("more is printed:\n{}", rest.join("\n")));
        }
    }
    Ok(())
}

fn check_mark(mark: &str, sources: &[String]) -> Result<(), String> {
    match mark.split_once(": ") {
        Some(("lab", lab)) if LABS.contains(&lab) => Ok(()),
        Some(("host", host)) if !host.is_empty() => Ok(()),
        Some(("test", name)) if sources.iter().any(|source| source.contains(&format!("fn {name}("))) => {
            Ok(())
        }
        None if ["form", "made up"].contains(&mark) => Ok(()),
        _ => Err(format!("no such origin: {mark}")),
    }
}

/// Tests whether a block has only commands, whose output is not shown.
fn is_input(block: &Block) -> bool {
    let (mut continued, mut quoted) = (false, false);
    block.lines.iter().all(|line| {
        let is = continued || quoted || line.starts_with("$ ") || line.starts_with("# ");
        continued = line.ends_with('\\');
        quoted ^= line.matches('\'').count() % 2 == 1;
        is
    })
}

#[test]
fn every_output_in_a_page_is_printed_or_says_where_it_comes_from() {
    let folder = folder();
    let sources = text_files(&top().join("crates"), "rs");
    let (mut ran, mut marked, mut wrong) = (0, 0, Vec::new());
    for page in for_users() {
        for block in
            page.blocks().iter().filter(|block| ["text", "console", ""].contains(&&block.language[..]))
        {
            let checked = match &block.mark {
                Some(mark) => {
                    marked += 1;
                    check_mark(mark, &sources)
                }
                None if is_input(block) => continue,
                None if block.lines[0].starts_with("$ exitless ") => {
                    ran += 1;
                    shows(&block.lines[1..], &printed(&block.lines[0], folder.path()))
                }
                None => Err("where this comes from is not said: <!-- lab: NAME --> above it".to_owned()),
            };
            if let Err(why) = checked {
                wrong.push(format!("{}:{}: {why}", page.name(), block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran >= 12 && marked >= 20, "{ran} {marked}");
}

#[test]
fn what_is_left_out_is_said_and_what_is_shown_is_whole() {
    let lines = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let whole = lines("a b c d e");
    for right in ["a b c d e", "a ... d e", "... c ...", "a ... c ... e", "..."] {
        assert!(shows(&lines(right), &whole).is_ok(), "{right}");
    }
    for wrong in ["a b c d", "b c d e", "a c ...", "... d", "a ... c b ...", "... e ... a ..."] {
        assert!(shows(&lines(wrong), &whole).is_err(), "{wrong}");
    }
}
