use super::*;

fn assumption(ipi_virtualization: bool, x2apic: bool) -> Assumption {
    let mut assumption = Assumption::default();
    assumption.apicv.ipi_virtualization = ipi_virtualization;
    assumption.avic.ipi_virtualization = ipi_virtualization;
    assumption.avic.x2apic = x2apic;
    assumption.avic.passes_served_msrs = Some(true);
    assumption
}

fn fate(isa: Isa, access: &str, assumption: &Assumption) -> (Rule, Option<String>) {
    let register = Register::of(access.parse().unwrap()).unwrap_or_else(|| panic!("{access}"));
    let Fate { rule, becomes } = register.fate(isa, assumption);
    (rule, becomes.map(|reason| reason.to_string()))
}

#[test]
fn every_register_of_the_x2apic_has_its_fate() {
    use Rule::*;
    let rows: &[(&str, Rule, Rule)] = &[
        // Access, rule on Intel, rule on AMD with x2AVIC.
        ("EOI:W", Eoi, Eoi),
        ("TPR:W", TaskPriority, TaskPriority),
        ("TPR:R", RegisterRead, RegisterRead),
        ("SELF_IPI:W", SelfIpi, SelfIpi),
        ("ICR:W", IpiBySoftware, IpiToRunning),
        ("ICR:R", RegisterRead, RegisterRead),
        ("ID:R", RegisterRead, RegisterRead),
        ("VERSION:R", RegisterRead, RegisterRead),
        ("PPR:R", RegisterRead, RegisterRead),
        ("LDR:R", RegisterRead, RegisterRead),
        ("SPIV:R", RegisterRead, RegisterRead),
        ("ISR3:R", RegisterRead, RegisterRead),
        ("TMR0:R", RegisterRead, RegisterRead),
        ("IRR7:R", RegisterRead, RegisterRead),
        ("ESR:R", RegisterRead, RegisterRead),
        ("LVT_TIMER:R", RegisterRead, RegisterRead),
        ("TMICT:R", RegisterRead, RegisterRead),
        ("TDCR:R", RegisterRead, RegisterRead),
        ("TMCCT:R", RegisterOfTheHost, RegisterOfTheHost),
        ("TMICT:W", TimerArm, TimerArm),
        ("LVT_TIMER:W", RegisterOfTheHost, RegisterOfTheHost),
        ("SPIV:W", RegisterOfTheHost, RegisterOfTheHost),
        ("ESR:W", RegisterOfTheHost, RegisterOfTheHost),
        ("TDCR:W", RegisterOfTheHost, RegisterOfTheHost),
        ("LVT_LINT0:W", RegisterOfTheHost, RegisterOfTheHost),
    ];
    let (intel, amd) = (assumption(false, true), assumption(true, true));
    for &(access, on_intel, on_amd) in rows {
        assert_eq!(fate(Isa::Vmx, access, &intel).0, on_intel, "{access} on Intel");
        assert_eq!(fate(Isa::Svm, access, &amd).0, on_amd, "{access} on AMD");
    }
}

#[test]
fn kernels_that_pass_a_list_intercept_what_it_lacks_and_hand_over_what_it_has() {
    use Rule::*;
    let (mut listed, mut unknown) = (assumption(true, true), assumption(true, true));
    listed.avic.passes_served_msrs = Some(false);
    unknown.avic.passes_served_msrs = None;
    for access in ["SELF_IPI:W", "ISR1:R", "TMR7:R", "IRR3:R", "LVT_TIMER:R"] {
        assert_eq!(fate(Isa::Svm, access, &listed), (X2avicIntercept, None), "{access}");
        assert_eq!(fate(Isa::Svm, access, &unknown), (X2avicIntercept, None), "{access}");
        assert_ne!(fate(Isa::Vmx, access, &listed).0, X2avicIntercept, "{access}");
    }
    for (access, rule) in [("ISR0:R", RegisterRead), ("ID:R", RegisterRead), ("TPR:W", TaskPriority)] {
        assert_eq!(fate(Isa::Svm, access, &listed), (rule, None), "{access}");
    }
    let unaccelerated = Some("avic_unaccelerated_access".to_owned());
    for (access, rule) in
        [("TMICT:W", TimerArm), ("SPIV:W", RegisterOfTheHost), ("TMCCT:R", RegisterOfTheHost)]
    {
        assert_eq!(fate(Isa::Svm, access, &listed), (rule, unaccelerated.clone()), "{access}");
        assert_eq!(fate(Isa::Svm, access, &unknown), (rule, None), "{access}");
        assert_eq!(fate(Isa::Vmx, access, &listed), (rule, None), "{access}");
    }
    assert_eq!(fate(Isa::Svm, "LVT_TIMER:W", &listed), (RegisterOfTheHost, None));
}

#[test]
fn xen_keeps_two_more_reads_of_the_x2apic() {
    let xen = Assumption { hypervisor: Hypervisor::Xen, ..Assumption::default() };
    for access in ["PPR:R", "TMICT:R", "TMCCT:R"] {
        assert_eq!(fate(Isa::Vmx, access, &xen).0, Rule::RegisterOfTheHost, "{access}");
    }
    for access in ["ID:R", "TPR:R", "IRR7:R", "0xfee00380:R"] {
        assert_eq!(fate(Isa::Vmx, access, &xen).0, Rule::RegisterRead, "{access}");
    }
}

#[test]
fn every_register_of_the_page_has_its_fate_and_the_name_of_what_stays() {
    use Rule::*;
    type Expected = (Rule, &'static str);
    let rows: &[(&str, Expected, Expected)] = &[
        ("0xfee000b0:W", (Eoi, "EOI_INDUCED"), (Eoi, "avic_unaccelerated_access")),
        ("0xfee00080:W", (TaskPriority, ""), (TaskPriority, "")),
        ("0xfee00310:W", (IcrHigh, ""), (IcrHigh, "")),
        ("0xfee00300:W", (IpiUnlessToOneself, "APIC_WRITE"), (IpiToRunning, "avic_incomplete_ipi")),
        ("0xfee00380:W", (TimerArm, "APIC_WRITE"), (TimerArm, "avic_unaccelerated_access")),
        ("0xfee000f0:W", (RegisterOfTheHost, "APIC_WRITE"), (RegisterOfTheHost, "avic_unaccelerated_access")),
        ("0xfee00020:R", (RegisterRead, ""), (RegisterRead, "")),
        ("0xfee00300:R", (RegisterRead, ""), (RegisterRead, "")),
        ("0xfee000a0:R", (RegisterOfTheHost, "APIC_ACCESS"), (RegisterRead, "")),
        (
            "0xfee00390:R",
            (RegisterOfTheHost, "APIC_ACCESS"),
            (RegisterOfTheHost, "avic_unaccelerated_access"),
        ),
        (
            "0xfee00090:R",
            (RegisterOfTheHost, "APIC_ACCESS"),
            (RegisterOfTheHost, "avic_unaccelerated_access"),
        ),
        (
            "0xfee00030:W",
            (RegisterOfTheHost, "APIC_ACCESS"),
            (RegisterOfTheHost, "avic_unaccelerated_access"),
        ),
    ];
    let (intel, amd) = (assumption(false, true), assumption(true, true));
    for &(access, on_intel, on_amd) in rows {
        let expected =
            |(rule, becomes): (Rule, &str)| (rule, Some(becomes.to_owned()).filter(|b| !b.is_empty()));
        assert_eq!(fate(Isa::Vmx, access, &intel), expected(on_intel), "{access} on Intel");
        assert_eq!(fate(Isa::Svm, access, &amd), expected(on_amd), "{access} on AMD");
    }
}

#[test]
fn ipis_go_with_ipi_virtualization_alone() {
    let (with, without) = (assumption(true, true), assumption(false, true));
    let becomes = |name: &str| Some(name.to_owned());
    assert_eq!(fate(Isa::Vmx, "ICR:W", &without), (Rule::IpiBySoftware, None));
    assert_eq!(fate(Isa::Vmx, "ICR:W", &with), (Rule::IpiByProcessor, becomes("APIC_WRITE")));
    let unless = Rule::IpiUnlessToOneself;
    assert_eq!(fate(Isa::Vmx, "0xfee00300:W", &without), (unless, becomes("APIC_WRITE")));
    assert_eq!(fate(Isa::Svm, "ICR:W", &without), (unless, becomes("avic_incomplete_ipi")));
    assert_eq!(fate(Isa::Svm, "0xfee00300:W", &without), (unless, becomes("avic_incomplete_ipi")));
    let xen = Assumption { hypervisor: Hypervisor::Xen, ..with };
    assert_eq!(fate(Isa::Vmx, "ICR:W", &xen), (Rule::IpiBySoftware, None));
    assert_eq!(fate(Isa::Vmx, "0xfee00300:W", &xen), (unless, becomes("APIC_WRITE")));
    assert_eq!(fate(Isa::Svm, "ICR:W", &with), (Rule::IpiToRunning, becomes("avic_incomplete_ipi")));
}

#[test]
fn avic_without_x2avic_leaves_every_msr_and_takes_the_page() {
    let avic = assumption(true, false);
    for access in ["EOI:W", "TPR:W", "ICR:W", "SELF_IPI:W", "ID:R"] {
        assert_eq!(fate(Isa::Svm, access, &avic), (Rule::X2apicUnderAvic, None), "{access}");
        assert_ne!(fate(Isa::Vmx, access, &avic).0, Rule::X2apicUnderAvic, "{access}");
    }
    assert_eq!(fate(Isa::Svm, "0xfee000b0:W", &avic).0, Rule::Eoi);
}

#[test]
fn registers_of_hyper_v_stand_for_those_of_the_page() {
    for (hyper_v, page) in
        [("HV_EOI:W", "0xfee000b0:W"), ("HV_ICR:W", "0xfee00300:W"), ("HV_TPR:R", "0xfee00080:R")]
    {
        let own = Register::of_hyper_v(hyper_v.parse().unwrap());
        assert_eq!(own, Register::of(page.parse().unwrap()), "{hyper_v}");
        assert!(own.is_some(), "{hyper_v}");
    }
    assert_eq!(Register::of_hyper_v("HV_VP_ASSIST_PAGE:W".parse().unwrap()), None);
}

#[test]
fn other_msrs_stay() {
    assert_eq!(other_msr(0x6e0), Rule::TimerArm);
    assert_eq!(other_msr(0x4000_0070), Rule::HyperVRegister);
    assert_eq!(other_msr(0x4000_0072), Rule::HyperVRegister);
    assert_eq!(other_msr(0x4000_0073), Rule::OtherRegister);
    assert_eq!(other_msr(0x1b), Rule::OtherRegister);
    for other in ["0x3f8:POUT", "0xd0000000:W", "msr 0x10:R", "other"] {
        assert_eq!(Register::of(other.parse().unwrap_or(Access::Other)), None, "{other}");
    }
}
