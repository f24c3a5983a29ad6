//! CPUID: the instruction on the live machine, the output of `cpuid -r` for another host.

use super::{Kind, Root, hexadecimal};
use crate::below::KVM;

/// The file with the leaves of another machine.
const KEPT: &str = "/exitless/cpuid";

/// The leaf of the hypervisor's signature, in the range that is reserved for hypervisors.
pub(crate) const HYPERVISOR: u32 = 0x4000_0000;
/// The leaf of KVM's signature behind Hyper-V's enlightenments, whatever name is before it (`hv-vendor-id`):
/// `KVM_CPUID_SIGNATURE_NEXT` in QEMU's `target/i386/kvm/kvm.c`.
pub(crate) const BEHIND: u32 = 0x4000_0100;

/// The leaf with the hypervisor's signature, and the signature: KVM's in [`BEHIND`], or else that in [`HYPERVISOR`].
pub(crate) fn hypervisor_of(leaf: impl Fn(u32) -> Option<[u32; 4]>) -> Option<(u32, String)> {
    let first = hypervisor_name(leaf(HYPERVISOR)?);
    let behind = leaf(BEHIND).map(hypervisor_name).filter(|name| name == KVM);
    Some(behind.map_or((HYPERVISOR, first), |name| (BEHIND, name)))
}

/// The signature in a leaf.
fn hypervisor_name([_, ebx, ecx, edx]: [u32; 4]) -> String {
    let bytes: Vec<u8> = [ebx, ecx, edx].into_iter().flat_map(u32::to_le_bytes).collect();
    String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).to_owned()
}

impl Root {
    /// The signature of the hypervisor of this machine: `KVMKVMKVM`, `XenVMMXenVMM`, `TCGTCGTCGTCG`
    /// (QEMU's emulator). `None` without one, or if CPUID is not available.
    #[must_use]
    pub fn hypervisor(&self) -> Option<String> {
        let [_, _, ecx, _] = self.cpuid(1, 0)?;
        if ecx >> 31 == 0 {
            return None;
        }
        hypervisor_of(|leaf| self.cpuid(leaf, 0)).map(|(_, name)| name)
    }

    /// EAX, EBX, ECX and EDX of a leaf; `None` if unknown.
    pub(crate) fn cpuid(&self, leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
        if self.live {
            let registers = execute(leaf, subleaf)?;
            self.append(KEPT, &line(leaf, subleaf, registers));
            return Some(registers);
        }
        let text = self.read(KEPT).ok()?;
        String::from_utf8_lossy(&text)
            .lines()
            .filter_map(parse)
            .find_map(|(at, registers)| (at == (leaf, subleaf)).then_some(registers))
    }

    pub(crate) fn append(&self, path: &str, line: &str) {
        if let Some(record) = &self.record {
            let mut record = record.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            record.append(path, line);
            debug_assert!(matches!(record.node(path).map(|node| &node.kind), Some(Kind::File(_))));
        }
    }
}

fn line(leaf: u32, subleaf: u32, [eax, ebx, ecx, edx]: [u32; 4]) -> String {
    format!("{leaf:#010x} {subleaf:#04x}: eax={eax:#010x} ebx={ebx:#010x} ecx={ecx:#010x} edx={edx:#010x}")
}

fn parse(line: &str) -> Option<((u32, u32), [u32; 4])> {
    let (asked, answer) = line.split_once(':')?;
    let mut asked = asked.split_whitespace().map(word);
    let asked = (asked.next()??, asked.next()??);
    let mut registers = [0; 4];
    for (register, (name, text)) in
        registers.iter_mut().zip(["eax", "ebx", "ecx", "edx"].into_iter().zip(answer.split_whitespace()))
    {
        *register = word(text.strip_prefix(name)?.strip_prefix('=')?)?;
    }
    (answer.split_whitespace().count() == 4).then_some((asked, registers))
}

fn word(text: &str) -> Option<u32> {
    hexadecimal(text)?.try_into().ok()
}

#[cfg(target_arch = "x86_64")]
fn execute(leaf: u32, subleaf: u32) -> Option<[u32; 4]> {
    use std::arch::x86_64::__cpuid_count;
    // SAFETY: every x86-64 processor has the instruction, it writes only its four registers, and an unknown
    // leaf returns values and does not fault. (Newer compilers call the function safe for this reason.)
    #[allow(unused_unsafe)]
    let found = unsafe { __cpuid_count(leaf, subleaf) };
    Some([found.eax, found.ebx, found.ecx, found.edx])
}

#[cfg(not(target_arch = "x86_64"))]
fn execute(_leaf: u32, _subleaf: u32) -> Option<[u32; 4]> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were_written() {
        let registers = [1, 0x8000, 0, 0x119b_9cff];
        assert_eq!(parse(&line(0x8000_000a, 0, registers)), Some(((0x8000_000a, 0), registers)));
        let of_the_tool = "   0x8000000a 0x00: eax=0x00000001 ebx=0x00008000 ecx=0x00000000 edx=0x119b9cff";
        assert_eq!(parse(of_the_tool), Some(((0x8000_000a, 0), registers)));
        for wrong in [
            "CPU 0:",
            "0x1 0x0: eax=0x1 ebx=0x1 ecx=0x1",
            "0x1: eax=0x1 ebx=0x1 ecx=0x1 edx=0x1",
            "0x1 0x0: eax=0x+1 ebx=0x1 ecx=0x1 edx=0x1",
            "0x1 0x0: eax=0x100000000 ebx=0x1 ecx=0x1 edx=0x1",
            "",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_machine_names_its_maker() {
        let root = Root::live().recording();
        let registers = root.cpuid(0, 0);
        assert!(!cfg!(target_arch = "x86_64") || registers.is_some_and(|registers| registers[1] != 0));
        let kept = Root::kept(root.into_record());
        assert_eq!(kept.cpuid(0, 0), registers);
        assert_eq!(kept.cpuid(1, 0), None);
    }

    #[test]
    fn a_hypervisor_is_named_where_there_is_one() {
        let with = |features: u32| {
            let folder = tempfile::tempdir().unwrap();
            let kept = folder.path().join(KEPT.trim_start_matches('/'));
            std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
            let name = [0x4000_0001, 0x5447_4354, 0x4354_4743, 0x4743_5447];
            let lines = [line(1, 0, [0, 0, features, 0]), line(HYPERVISOR, 0, name)];
            std::fs::write(kept, lines.join("\n")).unwrap();
            Root::directory(folder.path()).hypervisor()
        };
        assert_eq!(with(1 << 31).as_deref(), Some("TCGTCGTCGTCG"));
        assert_eq!(with(0), None);
    }

    #[test]
    fn kvm_is_found_behind_the_enlightenments_of_hyper_v() {
        let leaf = |text: &str| {
            let mut bytes = [0; 12];
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            [0, word(0), word(4), word(8)]
        };
        let named = |first: &str, behind: Option<&str>| {
            hypervisor_of(|number| if number == HYPERVISOR { Some(leaf(first)) } else { behind.map(leaf) })
        };
        let kvm = |at| Some((at, "KVMKVMKVM".to_owned()));
        assert_eq!(named("KVMKVMKVM", None), kvm(HYPERVISOR));
        // QEMU's `hv-vendor-id` gives another name.
        for first in ["Microsoft Hv", "GenuineIntel"] {
            assert_eq!(named(first, Some("KVMKVMKVM")), kvm(BEHIND), "{first}");
            assert_eq!(named(first, Some("")), Some((HYPERVISOR, first.to_owned())));
            assert_eq!(named(first, None), Some((HYPERVISOR, first.to_owned())));
        }
    }
}
