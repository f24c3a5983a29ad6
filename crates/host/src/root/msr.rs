//! Model-specific registers of the first processor: read from the live machine, or from the kept lines of
//! another host.

use super::{Root, hexadecimal, kind_of};
use crate::{AbsenceKind, Fact};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The device with the first processor's registers (`arch/x86/kernel/msr.c`).
const DEVICE: &str = "/dev/cpu/0/msr";
/// The file with the registers of another machine.
const KEPT: &str = "/exitless/msr";

impl Root {
    /// A register of the first processor.
    pub(crate) fn msr(&self, number: u32) -> Fact<u64> {
        let place = format!("MSR {number:X}h");
        if !self.live {
            return self.kept_msr(number, place);
        }
        match read(number) {
            Ok(value) => {
                self.append(KEPT, &format!("{number:#010x}: {value:#018x}"));
                Fact::known(value, place, format!("{value:#018x}"))
            }
            Err(error) => {
                let (kind, why) = refusal(&place, &error);
                self.append(
                    KEPT,
                    &format!("{number:#010x}: error {}", error.raw_os_error().unwrap_or_default()),
                );
                Fact::absent(kind, why)
            }
        }
    }

    fn kept_msr(&self, number: u32, place: String) -> Fact<u64> {
        let text = self.read(KEPT).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let answer = text.lines().find_map(|line| {
            let (register, answer) = line.split_once(':')?;
            (hexadecimal(register)? == u64::from(number)).then(|| answer.trim())
        });
        let Some(answer) = answer else {
            return Fact::absent(AbsenceKind::NotKept, format!("{place} was not recorded on this host"));
        };
        if let Some(value) = hexadecimal(answer) {
            return Fact::known(value, place, format!("{value:#018x}"));
        }
        let error = answer.strip_prefix("error").and_then(|number| number.trim().parse().ok());
        let error = error.map_or_else(|| io::ErrorKind::InvalidData.into(), io::Error::from_raw_os_error);
        let (kind, why) = refusal(&place, &error);
        Fact::absent(kind, why)
    }
}

fn read(number: u32) -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open(DEVICE)?.read_exact_at(&mut bytes, number.into())?;
    Ok(u64::from_le_bytes(bytes))
}

fn refusal(place: &str, error: &io::Error) -> (AbsenceKind, String) {
    /// `EIO`: the register raised an exception. `ENXIO`: no such processor, or no such driver.
    const NO_SUCH_REGISTER: i32 = 5;
    const NO_SUCH_DEVICE: i32 = 6;
    match (kind_of(error), error.raw_os_error()) {
        (_, Some(NO_SUCH_REGISTER)) => {
            (AbsenceKind::NotApplicable, format!("the processor has no {place} (reading it faults)"))
        }
        (AbsenceKind::NotThere, _) | (_, Some(NO_SUCH_DEVICE)) => (
            AbsenceKind::NotThere,
            format!("{place} needs {DEVICE}, which is not there; run `modprobe msr` as root"),
        ),
        // Lockdown allows reading MSRs, but containers do not.
        (AbsenceKind::Denied, _) => {
            (AbsenceKind::Denied, format!("{place} needs {DEVICE}, which may not be read; run as root"))
        }
        (kind, _) => (kind, format!("{place} cannot be read from {DEVICE}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Tree;

    #[test]
    fn kept_registers_and_kept_refusals() {
        let mut tree = Tree::default();
        for line in ["0x00000480: 0x00da050000000013", "0x00000492: error 5", "0x0000003a: error 13", "odd"] {
            tree.append(KEPT, line);
        }
        let root = Root::kept(tree);
        let known = root.msr(0x480);
        assert_eq!(known.value, Ok(0x00da_0500_0000_0013));
        assert_eq!(
            (known.evidence[0].place.as_str(), known.evidence[0].text.as_str()),
            ("MSR 480h", "0x00da050000000013")
        );
        let kinds = [0x492, 0x3a, 0x481].map(|number| root.msr(number).value.unwrap_err().kind);
        assert_eq!(kinds, [AbsenceKind::NotApplicable, AbsenceKind::Denied, AbsenceKind::NotKept]);
    }

    #[test]
    fn what_the_live_machine_answered_is_answered_again() {
        let root = Root::live().recording();
        let seen = root.msr(0x3a);
        assert_eq!(Root::kept(root.into_record()).msr(0x3a), seen);
    }
}
