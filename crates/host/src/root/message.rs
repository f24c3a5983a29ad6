//! The kernel's log: `/dev/kmsg` of the live machine, or the kept lines of another host.

use super::{NONBLOCK, Root, kind_of};
use crate::{Absence, AbsenceKind, Fact};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

const DEVICE: &str = "/dev/kmsg";
/// The file with the lines of another machine: `SEQUENCE,MICROSECONDS;TEXT`, or the format of `dmesg`.
const KEPT: &str = "/exitless/dmesg";
/// The buffer for one record of the device, longer than any record (`kernel/printk/internal.h`,
/// `PRINTK_MESSAGE_MAX`).
const LONGEST_RECORD: usize = 16 << 10;
/// The largest number of records to read: a log that grows faster than it is read would never end.
const MOST_RECORDS: usize = 200_000;
/// `EPIPE`: records were overwritten before they were read. Reading continues after them.
const OVERWRITTEN: i32 = 32;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// Microseconds since boot.
    pub microseconds: u64,
    /// The message without its time.
    pub text: String,
}

/// The result of reading the log.
pub(crate) struct Messages {
    /// The selected lines.
    pub(crate) wanted: Vec<LogLine>,
    /// The first record's sequence number: 0 if nothing was overwritten.
    pub(crate) first: Option<u64>,
}

impl Root {
    /// The selected lines of the kernel's log. Others are not kept, because they may contain private facts
    /// about the host.
    pub(crate) fn messages(&self, wanted: impl Fn(&str) -> bool) -> Fact<Messages> {
        if self.live {
            return self.live_messages(wanted);
        }
        match self.read(KEPT) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let mut found = Messages { wanted: Vec::new(), first: None };
                for line in text.lines() {
                    if let Some(error) = line.strip_prefix("error ").and_then(|number| number.parse().ok()) {
                        return refusal(&io::Error::from_raw_os_error(error));
                    }
                    found.add(line, &wanted);
                }
                Fact { value: Ok(found), evidence: Vec::new() }
            }
            Err(_) => Fact::absent(AbsenceKind::NotKept, "the kernel's log was not recorded on this host"),
        }
    }

    /// Tests whether this user may read the kernel's log.
    ///
    /// # Errors
    /// The reason, with the next step.
    pub fn may_read_log(&self) -> Result<(), Absence> {
        self.messages(|_| false).value.map(drop)
    }

    fn live_messages(&self, wanted: impl Fn(&str) -> bool) -> Fact<Messages> {
        let mut found = Messages { wanted: Vec::new(), first: None };
        self.keep(KEPT, |node| node.kind = super::Kind::File(Vec::new()));
        match records(|record| {
            let is_wanted = parse(record).is_some_and(|(_, _, text)| wanted(text));
            if is_wanted || found.first.is_none() {
                self.append(KEPT, if is_wanted { record } else { numbers(record) });
            }
            found.add(record, &wanted);
        }) {
            Ok(()) => Fact { value: Ok(found), evidence: Vec::new() },
            Err(error) => {
                self.append(KEPT, &format!("error {}", error.raw_os_error().unwrap_or_default()));
                refusal(&error)
            }
        }
    }
}

impl Messages {
    fn add(&mut self, line: &str, wanted: impl Fn(&str) -> bool) {
        let Some((sequence, microseconds, text)) = parse(line) else { return };
        if self.first.is_none() {
            self.first = sequence;
        }
        if wanted(text) {
            self.wanted.push(LogLine { microseconds, text: text.to_owned() });
        }
    }
}

/// A record without its text. It is kept to show that the log is complete.
fn numbers(record: &str) -> &str {
    record.split_inclusive(';').next().unwrap_or_default()
}

/// Parses records of the device (Documentation/ABI/testing/dev-kmsg),
/// `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT` without the priority, and lines of `dmesg`,
/// `[SECONDS.FRACTION] TEXT`.
fn parse(line: &str) -> Option<(Option<u64>, u64, &str)> {
    if let Some(rest) = line.strip_prefix('[') {
        let (time, text) = rest.split_once(']')?;
        let (seconds, fraction) = time.trim().split_once('.')?;
        let seconds: u64 = seconds.parse().ok()?;
        let fraction: u64 = fraction.get(..6)?.parse().ok()?;
        let microseconds = seconds.checked_mul(1_000_000)?.checked_add(fraction)?;
        // `dmesg` prints no sequence numbers; the kernel's first message is its version (init/main.c).
        let first = microseconds == 0 && text.trim().starts_with("Linux version ");
        return Some((first.then_some(0), microseconds, text.trim()));
    }
    let (numbers, text) = line.split_once(';')?;
    let mut numbers = numbers.split(',');
    let (_, sequence, time) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some((Some(sequence.parse().ok()?), time.parse().ok()?, text.trim()))
}

fn records(mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut device = File::options().read(true).custom_flags(NONBLOCK).open(DEVICE)?;
    let mut bytes = vec![0; LONGEST_RECORD];
    for _ in 0..MOST_RECORDS {
        match device.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => {
                let record = String::from_utf8_lossy(&bytes[..length]);
                // The other lines of a record contain properties of a device.
                each(record.lines().next().unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.raw_os_error() == Some(OVERWRITTEN) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn refusal(error: &io::Error) -> Fact<Messages> {
    let why = match kind_of(error) {
        AbsenceKind::Denied => {
            format!("{DEVICE} may not be read; run as root (or set kernel.dmesg_restrict=0)")
        }
        AbsenceKind::NotThere => format!("there is no {DEVICE}"),
        _ => format!("{DEVICE} cannot be read: {error}"),
    };
    Fact::absent(kind_of(error), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Tree;
    use proptest::prelude::*;

    fn texts(lines: &[&str]) -> (Vec<(u64, String)>, Option<u64>) {
        let mut tree = Tree::default();
        lines.iter().for_each(|line| tree.append(KEPT, line));
        let found = Root::kept(tree).messages(|text| text.contains("kvm")).value.unwrap();
        (found.wanted.into_iter().map(|line| (line.microseconds, line.text)).collect(), found.first)
    }

    #[test]
    fn records_of_the_device_and_lines_of_dmesg() {
        let lines = ["6,0,0,-;", "6,812,4312345,-;kvm_amd: AVIC enabled", "6,813,1,-;other", "odd"];
        assert_eq!(texts(&lines), (vec![(4_312_345, "kvm_amd: AVIC enabled".to_owned())], Some(0)));
        let lines = ["[    4.312345] kvm_amd: x2AVIC enabled", "[x] kvm", "[1.2] kvm"];
        assert_eq!(texts(&lines), (vec![(4_312_345, "kvm_amd: x2AVIC enabled".to_owned())], None));
        let whole = ["[    0.000000] Linux version 6.12.0", lines[0]];
        assert_eq!(texts(&whole).1, Some(0));
    }

    #[test]
    fn the_live_log_is_answered_again() {
        let root = Root::live().recording();
        let wanted = |text: &str| text.contains("kvm");
        let seen = root.messages(wanted);
        let again = Root::kept(root.into_record()).messages(wanted);
        match (seen.value, again.value) {
            (Ok(seen), Ok(again)) => assert_eq!((seen.wanted, seen.first), (again.wanted, again.first)),
            (seen, again) => assert_eq!(seen.err(), again.err()),
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "[\\[\\]0-9.,; a-zé-]{0,40}") {
            let _ = parse(&line);
        }
    }
}
