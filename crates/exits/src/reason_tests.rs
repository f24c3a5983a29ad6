use super::*;
use proptest::prelude::*;

#[test]
fn tables_are_ordered_and_names_are_unique() {
    for table in [vmx::NAMES, svm::NAMES] {
        assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
    let mut names: Vec<_> = ExitReason::known().filter_map(ExitReason::name).collect();
    let before = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), before);
}

#[test]
fn every_known_reason_reads_back() {
    for reason in ExitReason::known() {
        assert_eq!(reason.to_string().parse(), Ok(reason), "{reason}");
    }
}

#[test]
fn numbers_without_a_name_stay_apart() {
    assert_eq!(ExitReason::vmx(199).to_string(), "vmx:199");
    assert_eq!(ExitReason::svm(0x3ff).to_string(), "svm:0x3ff");
    assert_eq!("vmx:199".parse(), Ok(ExitReason::vmx(199)));
    assert_eq!("svm:0x3ff".parse(), Ok(ExitReason::svm(0x3ff)));
    assert_ne!(ExitReason::vmx(199), ExitReason::svm(199));
}

#[test]
fn vmx_flags_are_kept() {
    let reason = ExitReason::vmx(0x8000_0021);
    assert_eq!(reason.to_string(), "INVALID_STATE FAILED_VMENTRY");
    assert_eq!(reason.basic(), ExitReason::vmx(33));
    assert!(reason.failed_entry());
    let reason = ExitReason::vmx(0x0400_0001);
    assert_eq!(reason.to_string(), "EXTERNAL_INTERRUPT +0x4000000");
    assert_eq!(reason.to_string().parse(), Ok(reason));
    assert!(!reason.failed_entry());
}

#[test]
fn a_trust_domain_that_is_entered_again_is_no_failed_entry() {
    let busy = ExitReason::vmx(u32::MAX);
    assert!(!busy.failed_entry());
    assert_eq!((busy.basic(), busy.flags()), (busy, 0));
    assert_eq!(busy.to_string(), "SEAMCALL_BUSY");
    // The latter is how files of earlier versions write it.
    for text in ["SEAMCALL_BUSY", "vmx:4294967295", "vmx:65535 FAILED_VMENTRY +0x7fff0000"] {
        assert_eq!(text.parse(), Ok(busy), "{text}");
    }
    assert!("SEAMCALL_BUSY FAILED_VMENTRY".parse::<ExitReason>().is_err());
}

#[test]
fn svm_invalid_is_minus_one() {
    assert_eq!(ExitReason::svm(u32::MAX).to_string(), "invalid_guest_state");
    assert!(ExitReason::svm(u32::MAX).failed_entry());
    assert_eq!(ExitReason::svm(0x8000_0013).to_string(), "vmgexit_ap_creation");
}

#[test]
fn former_names_are_read() {
    assert_eq!("PENDING_INTERRUPT".parse(), Ok(ExitReason::vmx(7)));
    assert_eq!(ExitReason::vmx(7).to_string(), "INTERRUPT_WINDOW");
}

#[test]
fn a_long_text_does_not_use_up_the_stack() {
    for flag in [" +0x10000", " +0", " FAILED_VMENTRY"] {
        assert!(format!("HLT{}", flag.repeat(200_000)).parse::<ExitReason>().is_err());
    }
}

#[test]
fn display_obeys_width() {
    assert_eq!(format!("{:>6}|", ExitReason::vmx(12)), "   HLT|");
}

#[test]
fn serde_is_the_text() {
    let json = serde_json::to_string(&ExitReason::svm(0x401)).unwrap();
    assert_eq!(json, "\"avic_incomplete_ipi\"");
    assert_eq!(serde_json::from_str::<ExitReason>(&json).unwrap(), ExitReason::svm(0x401));
    assert!(serde_json::from_str::<ExitReason>("\"no such\"").is_err());
}

proptest! {
    #[test]
    fn every_number_reads_back(vmx in any::<bool>(), code in any::<u32>()) {
        let reason = if vmx { ExitReason::vmx(code) } else { ExitReason::svm(code) };
        prop_assert_eq!(reason.to_string().parse(), Ok(reason));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<ExitReason>();
    }

    #[test]
    fn near_texts_do_not_panic(text in "(vmx|svm|HLT|DE excp)?[:+ 0x]{0,4}[0-9a-f]{0,12}( FAILED_VMENTRY| \\+0x[0-9a-f]{0,9}){0,2}") {
        if let Ok(reason) = text.parse::<ExitReason>() {
            prop_assert_eq!(reason.to_string().parse(), Ok(reason));
        }
    }
}

#[test]
fn reasons_that_reach_a_device() {
    let reaching: Vec<String> = ExitReason::known()
        .filter(|reason| reason.reaches_device())
        .map(|reason| reason.to_string())
        .collect();
    assert_eq!(reaching, ["IO_INSTRUCTION", "EPT_MISCONFIG", "io", "npf"]);
}
