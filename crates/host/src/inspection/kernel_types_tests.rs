use super::*;
use crate::fake;
use proptest::prelude::*;
use std::fs;

/// `BTF_KIND_STRUCT` and `BTF_KIND_ENUM`.
const STRUCT: u32 = 4;
const ENUM: u32 = 6;

/// A BTF file with these types, each with its kind, its name, and the names of its members or values.
fn made(first_string: u32, of: &[(u32, &str, &[&str])]) -> (Vec<u8>, u32) {
    let mut strings: Vec<u8> = if first_string == 0 { vec![0] } else { Vec::new() };
    let mut types = Vec::new();
    for (kind, name, inside) in of {
        let mut text = |text: &str| {
            let at = first_string + strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let mut words = vec![text(name), kind << 24 | inside.len() as u32, 8];
        for one in *inside {
            words.push(text(one));
            words.extend(vec![0; if *kind == STRUCT { 2 } else { 1 }]);
        }
        types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let header = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
    bytes.extend(header.iter().flat_map(|word: &u32| word.to_le_bytes()));
    bytes.extend(types);
    bytes.extend(&strings);
    (bytes, first_string + strings.len() as u32)
}

fn host_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("sys/kernel/btf");
    fs::create_dir_all(&home).unwrap();
    for (name, bytes) in files {
        fs::write(home.join(name), bytes).unwrap();
    }
    directory
}

fn kernel() -> (Vec<u8>, u32) {
    made(
        0,
        &[
            (STRUCT, "kvm_arch", &["apicv_inhibit_reasons", "apicv_nr_irq_window_req"]),
            (STRUCT, "kvm_x86_ops", &["run"]),
            // Only declared here; the module describes it.
            (STRUCT, "vcpu_svm", &[]),
        ],
    )
}

#[test]
fn the_kernel_and_its_modules_answer_and_what_they_do_not_describe_has_no_answer() {
    let (vmlinux, strings) = kernel();
    let (module, _) = made(
        strings,
        &[
            (STRUCT, "vcpu_svm", &["vmcb", "x2avic_msrs_intercepted"]),
            (ENUM, "kvm_apicv_inhibit", &["APICV_INHIBIT_REASON_DISABLED"]),
        ],
    );
    let host = host_with(&[("vmlinux", &vmlinux), ("kvm_amd", &module)]);
    let types = KernelTypes::read(&Root::directory(host.path()));
    let types = types.get().unwrap();
    assert_eq!(types.answer(TypeQuestion::IRQ_WINDOWS), Some(true));
    assert_eq!(types.answer(TypeQuestion::X2AVIC), Some(true));
    assert_eq!(types.answer(TypeQuestion::SPLIT_ICR), Some(false));
    assert_eq!(types.answer(TypeQuestion::ID_TOO_BIG), Some(false));
    assert_eq!(types.answer(TypeQuestion::IPI_TABLE), None);
}

#[test]
fn answers_are_kept_and_the_files_are_not() {
    let (vmlinux, _) = kernel();
    let host = host_with(&[("vmlinux", &vmlinux)]);
    let root = Root::directory(host.path()).recording();
    let found = KernelTypes::read(&root);
    let kept = root.into_record();
    assert!(kept.nodes().all(|(path, _)| !path.contains("btf")), "{kept:?}");
    assert_eq!(KernelTypes::read(&Root::kept(kept)), found);
    let text = "== /exitless/types\nkvm_arch.apicv_nr_irq_window_req: no\nkvm_hv.odd: yes\nnothing\nvcpu_svm.x2avic_msrs_intercepted: perhaps\n";
    let read = KernelTypes::read(&fake::root(text));
    assert_eq!(read.get().unwrap().0, BTreeMap::from([(TypeQuestion::IRQ_WINDOWS, false)]));
}

#[test]
fn a_kernel_without_type_information_says_so() {
    let absent = KernelTypes::read(&fake::root("== /proc/version\nx\n"));
    assert!(absent.absence().unwrap().why.contains("/sys/kernel/btf/vmlinux"));
    let host = host_with(&[("vmlinux", b"\x9f\xeb\x01\0torn")]);
    let torn = KernelTypes::read(&Root::directory(host.path()));
    assert_eq!(torn.absence().unwrap().kind, AbsenceKind::Unreadable);
}

proptest! {
    #[test]
    fn torn_and_changed_files_do_no_more_than_be_refused(
        at in 0usize..400, value: u8, cut in 0usize..400, which: bool
    ) {
        let (mut vmlinux, strings) = kernel();
        let (mut module, _) = made(strings, &[(ENUM, "kvm_apicv_inhibit", &["A", "B"]), (STRUCT, "kvm_hv", &["a"])]);
        let changed = if which { &mut vmlinux } else { &mut module };
        let at = at % changed.len();
        changed[at] = value;
        changed.truncate(changed.len() - cut % changed.len() / 3);
        let host = host_with(&[("vmlinux", &vmlinux), ("kvm", &module)]);
        let _ = KernelTypes::read(&Root::directory(host.path()));
    }
}
