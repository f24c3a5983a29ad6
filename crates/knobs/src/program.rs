//! The programs that changes may run: a closed set. A journal entry with any other is rejected.

use crate::kernel_install;

/// The directory in which definitions of domains are kept for `virsh define`.
const DOMAINS: &str = "/var/lib/exitless/domains/";

/// Commands that are allowed exactly as they are.
const WHOLE: [&[&str]; 7] = [
    &["update-grub"],
    &["grub-mkconfig", "-o", "/boot/grub/grub.cfg"],
    &["grub2-mkconfig", "-o", "/boot/grub2/grub.cfg"],
    &["proxmox-boot-tool", "refresh"],
    &["sdbootutil", "update-all-entries"],
    &["mkinitcpio", "-P"],
    &kernel_install::ADD_ALL,
];

/// Tests whether exitless runs this program with these arguments.
pub(crate) fn is_known(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if WHOLE.contains(&&words[..]) || cfg!(test) && matches!(words[..], ["copy", _, _] | ["false"]) {
        return true;
    }
    match words[..] {
        // From journals of earlier versions.
        ["kernel-install", "add", release, image] => {
            !release.contains('/') && image == format!("/usr/lib/modules/{release}/vmlinuz")
        }
        ["rpm-ostree", "kargs", ref options @ ..] => {
            all_begin(options, &["--delete-if-present=", "--append-if-missing="])
        }
        ["grubby", "--update-kernel=ALL", ref options @ ..] => {
            all_begin(options, &["--remove-args=", "--args="])
        }
        ["kernelstub", "--add-options" | "--delete-options", word] => !word.starts_with('-'),
        ["virsh", "define", path] => {
            let name = path.strip_prefix(DOMAINS).filter(|name| !name.contains('/'));
            name.is_some_and(|name| name.ends_with(".before.xml") || name.ends_with(".after.xml"))
        }
        ["xenpm", "set-scaling-governor", cpu, governor] => is_number(cpu) && !governor.starts_with('-'),
        ["xenpm", "set-scaling-minfreq" | "set-scaling-maxfreq", cpu, khz] => {
            is_number(cpu) && is_number(khz)
        }
        _ => script_of(&words).is_some(),
    }
}

/// The command that prints the state that a known program changes, if there is one.
pub(crate) fn that_shows(words: &[String]) -> Option<Vec<String>> {
    let [program, verb, path] = words else { return None };
    let file = path.strip_prefix(DOMAINS).filter(|_| program == "virsh" && verb == "define")?;
    let name = file.strip_suffix(".before.xml").or_else(|| file.strip_suffix(".after.xml"))?;
    let words = ["virsh", "dumpxml", "--inactive", "--security-info", "--domain", name];
    Some(words.map(str::to_owned).to_vec())
}

/// The script of a study's plan in the command with a time limit that the crate `study` generates.
pub(crate) fn script(words: &[String]) -> Option<&str> {
    script_of(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn script_of<'a>(words: &[&'a str]) -> Option<&'a str> {
    match words[..] {
        ["timeout", "--kill-after=10", seconds, "sh", "-c", script] if seconds.parse::<f64>().is_ok() => {
            Some(script)
        }
        _ => None,
    }
}

fn all_begin(options: &[&str], with: &[&str]) -> bool {
    options.iter().all(|option| with.iter().any(|begin| option.starts_with(begin)))
}

fn is_number(word: &str) -> bool {
    word.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split('|').map(str::to_owned).collect()
    }

    #[test]
    fn what_exitless_runs_is_known_and_nothing_else_is() {
        for line in [
            "update-grub",
            "grub-mkconfig|-o|/boot/grub/grub.cfg",
            "kernel-install|add-all",
            "kernel-install|add|6.12.1|/usr/lib/modules/6.12.1/vmlinuz",
            "rpm-ostree|kargs|--delete-if-present=a=1|--append-if-missing=b",
            "grubby|--update-kernel=ALL|--remove-args=a b|--args=c",
            "kernelstub|--add-options|kvm_amd.avic=1",
            "virsh|define|/var/lib/exitless/domains/web 1.before.xml",
            "xenpm|set-scaling-maxfreq|3|2400000",
            "timeout|--kill-after=10|5.000|sh|-c|echo 1",
        ] {
            assert!(is_known(&words(line)), "{line}");
        }
        for line in [
            "",
            "sh|-c|id",
            "/tmp/update-grub",
            "update-grub|-x",
            "grub-mkconfig|-o|/etc/passwd",
            "kernel-install|add|../x|/usr/lib/modules/../x/vmlinuz",
            "kernel-install|add|6.12.1|/tmp/vmlinuz",
            "kernel-install|add-all|--root=/tmp",
            "grubby|--update-kernel=ALL|--default-kernel",
            "virsh|define|/var/lib/exitless/domains/../../../../tmp/x.after.xml",
            "virsh|define|/tmp/x.after.xml",
            "xenpm|set-scaling-maxfreq|3|x",
            "timeout|--kill-after=10|5|bash|-c|id",
            "timeout|--kill-after=10|--foreground|sh|-c|id",
        ] {
            assert!(!is_known(&words(line)), "{line}");
        }
        assert_eq!(script(&words("timeout|--kill-after=10|5.000|sh|-c|echo 1")), Some("echo 1"));
        assert_eq!(script(&words("update-grub")), None);
    }
}
