//! The processors, and their features for hypervisors.

use super::vmx::VmxFeatures;
use crate::lack::{APICV_PARTS, Lack};
use crate::root::{BEHIND, HYPERVISOR, hypervisor_of};
use crate::{Absence, AbsenceKind, Below, Cpu, CpuSet, Evidence, Fact, Root};
use exits::Isa;
use std::collections::{BTreeMap, BTreeSet};

/// The processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// The first processor of `/proc/cpuinfo`.
    pub first: Fact<Cpu>,
    /// All words of its `flags` line.
    pub flags: Fact<BTreeSet<String>>,
    /// The number of processors by microcode revision; more than one revision points to faulty firmware or an
    /// incomplete update.
    pub microcode: Fact<BTreeMap<String, u32>>,
    /// Online processors (`/sys/devices/system/cpu/online`).
    pub online: Fact<CpuSet>,
    /// Possible processors (`possible`).
    pub possible: Fact<CpuSet>,
    /// The largest `apicid` of `/proc/cpuinfo`.
    pub largest_apic_id: Fact<u32>,
    /// Leaves of CPUID of one processor: 0, 1h, 40000000h, 40000100h, 80000000h, 80000001h, 8000000Ah, 8000001Fh, as far
    /// as they exist.
    pub cpuid: Fact<Vec<CpuidLeaf>>,
    /// The signature of the hypervisor that CPUID announces (`KVMKVMKVM`, `XenVMMXenVMM`, `Microsoft Hv`);
    /// the inner value is `None` on bare metal, and an empty text for a hypervisor without a name.
    pub hypervisor: Fact<Option<String>>,
    /// SVM's features, from CPUID 8000000Ah; if that was not read, from the flags of `/proc/cpuinfo`, which
    /// lack those that the kernel hides.
    pub svm: Fact<SvmFeatures>,
    /// VMX's features, from its capability MSRs; if they cannot be read, from the `vmx flags` line.
    pub vmx: Fact<VmxFeatures>,
    /// AMD's VM_CR: the firmware's lock of SVM.
    pub vm_cr: Fact<VmCr>,
    /// Intel's IA32_FEATURE_CONTROL: the firmware's permission to use VMX.
    pub feature_control: Fact<FeatureControl>,
    /// True if it is affected by erratum 1235: the CPU may miss that a vCPU stopped running, so Linux handles
    /// IPIs on AMD family 17h (Zen 1 and 2) and Hygon family 18h itself (`arch/x86/kvm/svm/avic.c`,
    /// `avic_hardware_setup`; since 6.17, and in stable kernels with that change).
    pub erratum_1235: Fact<bool>,
}

/// One leaf of CPUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuidLeaf {
    /// EAX of the query.
    pub leaf: u32,
    /// ECX of the query.
    pub subleaf: u32,
    /// EAX, EBX, ECX, EDX of the answer.
    pub registers: [u32; 4],
}

/// SVM's features: CPUID Fn8000_000A (AMD64 Architecture Programmer's Manual, volume 3, E.4.9).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SvmFeatures {
    /// EDX; `None` if only flags are known.
    pub edx: Option<u32>,
    /// Address space identifiers (EBX); `None` if only flags are known.
    pub asids: Option<u32>,
    /// Nested paging, bit 0.
    pub npt: bool,
    /// AVIC, bit 13.
    pub avic: bool,
    /// Virtual global interrupt flag, bit 16.
    pub vgif: bool,
    /// x2AVIC, bit 18.
    pub x2avic: bool,
    /// Virtual NMI, bit 25.
    pub vnmi: bool,
    /// x2AVIC for up to 4096 vCPUs: bit 6 of ECX (`X86_FEATURE_X2AVIC_EXT`, `arch/x86/kernel/cpu/scattered.c`).
    pub x2avic_extended: bool,
}

/// VM_CR, MSR C0010114h (AMD64 Architecture Programmer's Manual, volume 2, 15.30.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmCr {
    /// The register.
    pub value: u64,
    /// SVMDIS, bit 4: SVM cannot be switched on.
    pub disabled: bool,
    /// LOCK, bit 3: SVMDIS cannot be changed before the next reset.
    pub locked: bool,
}

/// IA32_FEATURE_CONTROL, MSR 3Ah (Intel SDM volume 4, table 2-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureControl {
    /// The register.
    pub value: u64,
    /// Bit 0: it cannot be written before the next reset.
    pub locked: bool,
    /// Bit 2: VMX may be used outside SMX.
    pub vmx: bool,
}

/// CPUID Fn8000_000A.
const SVM_LEAF: u32 = 0x8000_000a;
/// CPUID Fn8000_001F.
const ENCRYPTION_LEAF: u32 = 0x8000_001f;
const VM_CR: u32 = 0xc001_0114;
const FEATURE_CONTROL: u32 = 0x3a;

impl Processor {
    pub(super) fn read(root: &Root, cpuinfo: &Fact<String>) -> Self {
        let first = whole(cpuinfo, "a processor", Cpu::parse);
        let first = Fact { evidence: first.get().map(model_line).into_iter().collect(), ..first };
        let flags = whole(cpuinfo, "a line of flags", |text| {
            let line = values(text, "flags").next()?;
            Some(line.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>())
        });
        let kept = first.get().map(|cpu| cpu.flags.join(" "));
        let flags = Fact {
            evidence: kept.iter().map(|kept| Evidence::new(CPUINFO, format!("flags: {kept}"))).collect(),
            ..flags
        };
        let cpuid = leaves(root);
        let amd = first.get().and_then(|cpu| cpu.vendor.as_deref());
        let amd = amd.map(|vendor| matches!(vendor, "AuthenticAMD" | "HygonGenuine"));
        let of_vendor = |is_amd: bool, number: u32| {
            if amd == Some(!is_amd) {
                let vendor = if is_amd { "AMD's and Hygon's" } else { "Intel's" };
                return Fact::absent(AbsenceKind::NotApplicable, format!("MSR {number:X}h is {vendor}"));
            }
            root.msr(number)
        };
        Self {
            microcode: revisions(cpuinfo),
            online: root.fact("/sys/devices/system/cpu/online", "a list such as 0-3,6", CpuSet::parse),
            possible: root.fact("/sys/devices/system/cpu/possible", "a list such as 0-7", CpuSet::parse),
            largest_apic_id: largest_apic_id(cpuinfo),
            hypervisor: hypervisor(&cpuid, &first),
            svm: svm(&cpuid, &first, &flags),
            vmx: VmxFeatures::read(root, first.get(), amd == Some(true)),
            vm_cr: of_vendor(true, VM_CR).map(|value| VmCr {
                value,
                disabled: value & 1 << 4 != 0,
                locked: value & 1 << 3 != 0,
            }),
            feature_control: of_vendor(false, FEATURE_CONTROL).map(|value| FeatureControl {
                value,
                locked: value & 1 != 0,
                vmx: value & 1 << 2 != 0,
            }),
            erratum_1235: erratum_1235(&first),
            first,
            flags,
            cpuid,
        }
    }

    /// Tests whether with SEV-SNP the host may still write to the pages that the CPU uses for a running VM, such
    /// as those of AVIC: HvInUseWrAllowed, CPUID Fn8000_001F EAX bit 30, which `/proc/cpuinfo` does not show.
    /// `None` if CPUID was not read.
    #[must_use]
    pub fn may_write_pages_in_use(&self) -> Option<bool> {
        leaf(&self.cpuid, ENCRYPTION_LEAF).map(|[eax, ..]| eax & 1 << 30 != 0)
    }

    /// The hypervisor under this host; `None` on bare metal, or if it is not known.
    #[must_use]
    pub fn below(&self) -> Option<Below> {
        self.hypervisor.get()?.as_deref().map(Below::of)
    }

    /// The feature that the CPU lacks for APICv or AVIC; `None` if nothing is missing, or if it is not known.
    #[must_use]
    pub fn lack(&self, isa: Isa) -> Option<Lack> {
        let below = self.below();
        if isa == Isa::Svm {
            let flag = self.flags.get().map(|flags| flags.contains("avic"));
            return match (self.svm.get().map(|svm| svm.avic), flag) {
                (Some(true), Some(false)) => Some(Lack::new(
                    "CPUID offers AVIC and the kernel does not list it",
                    "look for clearcpuid= among the kernel's arguments",
                )),
                (Some(false), _) | (None, Some(false)) => Some(Lack::of_avic(below)),
                _ => None,
            };
        }
        let vmx = self.vmx.get()?;
        (vmx.apicv() == Some(false)).then(|| Lack::of_apicv(&lacking(vmx), below))
    }
}

fn lacking(vmx: &VmxFeatures) -> Vec<&'static str> {
    let found = [vmx.tpr_shadow, vmx.apic_registers, vmx.interrupt_delivery, vmx.posted_interrupts];
    let parts = found.into_iter().zip(APICV_PARTS);
    parts.filter(|(has, _)| *has == Some(false)).map(|(_, (_, name))| name).collect()
}

const CPUINFO: &str = "/proc/cpuinfo";

/// A fact from the whole of `/proc/cpuinfo`, which is too long to quote as evidence.
fn whole<T>(cpuinfo: &Fact<String>, expected: &str, take: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
    let value = cpuinfo.value.as_ref().map_err(Clone::clone).and_then(|text| {
        take(text).ok_or_else(|| Absence {
            kind: AbsenceKind::Malformed,
            why: format!("{CPUINFO} does not name {expected}"),
        })
    });
    Fact { value, evidence: Vec::new() }
}

/// The values of all lines called `name`, one for each processor.
fn values<'a>(cpuinfo: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    cpuinfo.lines().filter_map(move |line| {
        let (key, value) = line.strip_prefix(name)?.split_once(':')?;
        key.trim().is_empty().then(|| value.trim())
    })
}

fn model_line(cpu: &Cpu) -> Evidence {
    let number = |number: Option<u32>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let text = format!(
        "{} family {} model {} stepping {}, {}",
        cpu.vendor.as_deref().unwrap_or("?"),
        number(cpu.family),
        number(cpu.model),
        number(cpu.stepping),
        cpu.name.as_deref().unwrap_or("?"),
    );
    Evidence::new(CPUINFO, text)
}

fn revisions(cpuinfo: &Fact<String>) -> Fact<BTreeMap<String, u32>> {
    let found = whole(cpuinfo, "a microcode", |text| {
        let mut found = BTreeMap::new();
        values(text, "microcode").for_each(|revision| *found.entry(revision.to_owned()).or_default() += 1);
        (!found.is_empty()).then_some(found)
    });
    let text = found.get().map(|found| {
        let each: Vec<String> =
            found.iter().map(|(revision, count)| format!("{revision} on {count} CPUs")).collect();
        format!("microcode: {}", each.join(", "))
    });
    Fact { evidence: text.map(|text| Evidence::new(CPUINFO, text)).into_iter().collect(), ..found }
}

fn largest_apic_id(cpuinfo: &Fact<String>) -> Fact<u32> {
    let found = whole(cpuinfo, "an APIC ID", |text| {
        values(text, "apicid").filter_map(|text| text.parse::<u32>().ok()).max()
    });
    let evidence = found.get().map(|largest| Evidence::new(CPUINFO, format!("apicid: {largest}")));
    Fact { evidence: evidence.into_iter().collect(), ..found }
}

fn leaves(root: &Root) -> Fact<Vec<CpuidLeaf>> {
    let ask = |leaf| Some(CpuidLeaf { leaf, subleaf: 0, registers: root.cpuid(leaf, 0)? });
    let Some(first) = ask(0) else {
        return Fact::absent(AbsenceKind::NotKept, "the answers of CPUID were not recorded on this host");
    };
    let mut found = vec![first];
    found.extend(ask(1));
    if found.get(1).is_some_and(|leaf| leaf.registers[2] >> 31 == 1) {
        found.extend([HYPERVISOR, BEHIND].into_iter().filter_map(ask));
    }
    let extended = ask(0x8000_0000);
    let last = extended.map_or(0, |leaf| leaf.registers[0]);
    found.extend(extended);
    // On Intel an unknown leaf returns the values of the last basic leaf.
    let wanted = [0x8000_0001, SVM_LEAF, ENCRYPTION_LEAF];
    found.extend(wanted.into_iter().filter(|&leaf| leaf <= last).filter_map(ask));
    Fact { value: Ok(found), evidence: Vec::new() }
}

fn leaf(cpuid: &Fact<Vec<CpuidLeaf>>, number: u32) -> Option<[u32; 4]> {
    let found = cpuid.get()?.iter().find(|leaf| leaf.leaf == number)?;
    Some(found.registers)
}

fn hypervisor(cpuid: &Fact<Vec<CpuidLeaf>>, first: &Fact<Cpu>) -> Fact<Option<String>> {
    if let Some([_, _, ecx, _]) = leaf(cpuid, 1) {
        let place = "CPUID 1h ECX bit 31";
        if ecx >> 31 == 0 {
            return Fact::known(None, place, format!("{ecx:#010x}"));
        }
        let found = hypervisor_of(|number| leaf(cpuid, number));
        let (number, name) = found.unwrap_or((HYPERVISOR, String::new()));
        let mut fact = Fact::known(Some(name.clone()), place, format!("{ecx:#010x}"));
        fact.evidence.push(Evidence::new(format!("CPUID {number:x}h"), name));
        return fact;
    }
    let flag = first.part(|cpu| cpu.hypervisor);
    let value = flag.value.and_then(|flag| {
        flag.map(|there| there.then(String::new)).ok_or_else(|| Absence {
            kind: AbsenceKind::Malformed,
            why: format!("{CPUINFO} has no line of flags"),
        })
    });
    Fact { value, evidence: flag.evidence }
}

fn svm(cpuid: &Fact<Vec<CpuidLeaf>>, first: &Fact<Cpu>, flags: &Fact<BTreeSet<String>>) -> Fact<SvmFeatures> {
    let has_svm = leaf(cpuid, 0x8000_0001).map(|[_, _, ecx, _]| ecx & 1 << 2 != 0);
    if let (Some(true), Some([_, asids, ecx, edx])) = (has_svm, leaf(cpuid, SVM_LEAF)) {
        let bit = |bit: u32| edx & 1 << bit != 0;
        let features = SvmFeatures {
            edx: Some(edx),
            asids: Some(asids),
            npt: bit(0),
            avic: bit(13),
            vgif: bit(16),
            x2avic: bit(18),
            vnmi: bit(25),
            x2avic_extended: ecx & 1 << 6 != 0,
        };
        return Fact::known(features, "CPUID 8000000Ah EDX", format!("{edx:#010x}"));
    }
    if has_svm == Some(false) {
        return Fact::absent(
            AbsenceKind::NotApplicable,
            "CPUID 80000001h ECX bit 2 says that there is no SVM",
        );
    }
    let Some(words) = flags.get() else { return flags.part(|_| SvmFeatures::default()) };
    if !words.contains("svm") {
        let maker = first.get().and_then(|cpu| cpu.vendor.as_deref()).unwrap_or("an unknown maker");
        return Fact::absent(
            AbsenceKind::NotApplicable,
            format!("the flags in {CPUINFO} have no `svm` (processor of {maker})"),
        );
    }
    let has = |word: &str| words.contains(word);
    flags.part(|_| SvmFeatures {
        npt: has("npt"),
        avic: has("avic"),
        vgif: has("vgif"),
        x2avic: has("x2avic"),
        vnmi: has("vnmi"),
        ..SvmFeatures::default()
    })
}

fn erratum_1235(first: &Fact<Cpu>) -> Fact<bool> {
    first.part(|cpu| {
        matches!(
            (cpu.vendor.as_deref(), cpu.family),
            (Some("AuthenticAMD"), Some(0x17)) | (Some("HygonGenuine"), Some(0x18))
        )
    })
}
