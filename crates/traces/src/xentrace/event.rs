//! Xen's events that are read, and the names of all events: `xen/include/public/trace.h` of Xen 4.20.

/// Class and subclass of events: bits 12 and up.
pub(super) const GENERAL: u32 = 0x0000_001f;
pub(super) const RUNSTATES: u32 = 0x0000_0021;
pub(super) const SCHEDULER: u32 = 0x0000_0028;
/// The class of scheduler events before Xen 3.3, which introduced subclasses.
pub(super) const SCHEDULER_BEFORE: u32 = 0x0000_002f;
pub(super) const ENTRY_EXIT: u32 = 0x0000_0081;
pub(super) const HANDLER: u32 = 0x0000_0082;

/// `TRC_64_FLAG`: addresses have 64 bits.
pub(super) const WIDE: u32 = 0x100;
/// `TRC_HVM_NESTEDFLAG`: an exit of a nested guest (SVM only).
pub(super) const NESTED: u32 = 0x400;

/// `TRC_LOST_RECORDS`.
pub(super) const LOST_RECORDS: u32 = 0x0001_f001;
/// `TRC_TRACE_CPU_CHANGE`.
pub(super) const CPU_CHANGE: u32 = 0x0001_f003;

/// Minor numbers of [`RUNSTATES`]: the old state is in bits 11:8, the new one in bits 7:4.
pub(super) const RUNSTATE_CHANGE: u32 = 1;
pub(super) const CONTINUE_RUNNING: u32 = 2;
/// `RUNSTATE_running` and `RUNSTATE_runnable` of `xen/include/public/vcpu.h`.
pub(super) const RUNNING: u32 = 0;
pub(super) const RUNNABLE: u32 = 1;

/// Minor numbers of [`SCHEDULER`].
pub(super) const SWITCH: u32 = 0x00a;
pub(super) const SWITCH_INFPREV: u32 = 0x00e;
pub(super) const SWITCH_INFCONT: u32 = 0x011;

/// Minor numbers of [`ENTRY_EXIT`], without [`WIDE`] and [`NESTED`].
pub(super) const VMENTRY: u32 = 1;
/// Before Xen 4.19 also used for exits of SVM.
pub(super) const VMX_EXIT: u32 = 2;
pub(super) const SVM_EXIT: u32 = 3;

/// Minor numbers of [`HANDLER`], without [`WIDE`] and [`WRITE`].
pub(super) const CR_READ: u32 = 0x08;
pub(super) const CR_WRITE: u32 = 0x09;
pub(super) const MSR_READ: u32 = 0x0c;
pub(super) const MSR_WRITE: u32 = 0x0d;
pub(super) const CPUID: u32 = 0x0e;
pub(super) const INTR: u32 = 0x0f;
pub(super) const VMMCALL: u32 = 0x12;
pub(super) const HLT: u32 = 0x13;
pub(super) const IOPORT: u32 = 0x16;
pub(super) const IOMEM: u32 = 0x17;
pub(super) const RDTSC: u32 = 0x1a;
pub(super) const NPF: u32 = 0x21;
pub(super) const REALMODE_EMULATE: u32 = 0x22;
pub(super) const TRAP_DEBUG: u32 = 0x24;
pub(super) const VLAPIC: u32 = 0x25;
/// The bit that marks a write of `IOPORT` and `IOMEM`.
pub(super) const WRITE: u32 = 0x200;

/// Events without flags, in order; the names are those of the header, in lower case and without `TRC_`.
const NAMES: &[(u32, &str)] = &[
    (0x0001_f001, "lost_records"),
    (0x0001_f002, "trace_wrap_buffer"),
    (0x0001_f003, "trace_cpu_change"),
    (0x0002_1001, "sched_runstate_change"),
    (0x0002_1002, "sched_continue_running"),
    (0x0002_8001, "sched_dom_add"),
    (0x0002_8002, "sched_dom_rem"),
    (0x0002_8003, "sched_sleep"),
    (0x0002_8004, "sched_wake"),
    (0x0002_8005, "sched_yield"),
    (0x0002_8006, "sched_block"),
    (0x0002_8007, "sched_shutdown"),
    (0x0002_8008, "sched_ctl"),
    (0x0002_8009, "sched_adjdom"),
    (0x0002_800a, "sched_switch"),
    (0x0002_800b, "sched_s_timer_fn"),
    (0x0002_800c, "sched_t_timer_fn"),
    (0x0002_800d, "sched_dom_timer_fn"),
    (0x0002_800e, "sched_switch_infprev"),
    (0x0002_800f, "sched_switch_infnext"),
    (0x0002_8010, "sched_shutdown_code"),
    (0x0002_8011, "sched_switch_infcont"),
    (0x0008_1001, "hvm_vmentry"),
    (0x0008_1002, "hvm_vmx_exit"),
    (0x0008_1003, "hvm_svm_exit"),
    (0x0008_2001, "hvm_pf_xen"),
    (0x0008_2002, "hvm_pf_inject"),
    (0x0008_2003, "hvm_inj_exc"),
    (0x0008_2004, "hvm_inj_virq"),
    (0x0008_2005, "hvm_reinj_virq"),
    (0x0008_2006, "hvm_io_read"),
    (0x0008_2007, "hvm_io_write"),
    (0x0008_2008, "hvm_cr_read"),
    (0x0008_2009, "hvm_cr_write"),
    (0x0008_200a, "hvm_dr_read"),
    (0x0008_200b, "hvm_dr_write"),
    (0x0008_200c, "hvm_msr_read"),
    (0x0008_200d, "hvm_msr_write"),
    (0x0008_200e, "hvm_cpuid"),
    (0x0008_200f, "hvm_intr"),
    (0x0008_2010, "hvm_nmi"),
    (0x0008_2011, "hvm_smi"),
    (0x0008_2012, "hvm_vmmcall"),
    (0x0008_2013, "hvm_hlt"),
    (0x0008_2014, "hvm_invlpg"),
    (0x0008_2015, "hvm_mce"),
    (0x0008_2016, "hvm_ioport_read"),
    (0x0008_2017, "hvm_iomem_read"),
    (0x0008_2018, "hvm_clts"),
    (0x0008_2019, "hvm_lmsw"),
    (0x0008_201a, "hvm_rdtsc"),
    (0x0008_2020, "hvm_intr_window"),
    (0x0008_2021, "hvm_npf"),
    (0x0008_2022, "hvm_realmode_emulate"),
    (0x0008_2023, "hvm_trap"),
    (0x0008_2024, "hvm_trap_debug"),
    (0x0008_2025, "hvm_vlapic"),
    (0x0008_2026, "hvm_xcr_read"),
    (0x0008_2027, "hvm_xcr_write"),
    (0x0008_2216, "hvm_ioport_write"),
    (0x0008_2217, "hvm_iomem_write"),
];

/// The names of the classes, which are bits 16 and up.
const CLASSES: [&str; 12] =
    ["gen", "sched", "dom0op", "hvm", "mem", "pv", "shadow", "hw", "class8", "class9", "class10", "guest"];

/// The event under which a record is counted: without the bits that only tell how it was recorded.
pub(super) const fn counted_as(event: u32) -> u32 {
    let flags = match event >> 12 {
        // The old and the new state.
        RUNSTATES => 0xff0,
        ENTRY_EXIT => WIDE | NESTED,
        HANDLER => WIDE,
        _ => 0,
    };
    event & !flags
}

/// The name of an event as returned by [`counted_as`].
pub(super) fn name(event: u32) -> String {
    match NAMES.binary_search_by_key(&event, |entry| entry.0) {
        Ok(at) => NAMES[at].1.to_owned(),
        Err(_) => {
            let class = (event >> 16 & 0xfff).trailing_zeros() as usize;
            format!("{}_{:#07x}", CLASSES.get(class).unwrap_or(&"event"), event)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whatever_the_flags() {
        assert!(NAMES.is_sorted_by_key(|entry| entry.0));
        let of = |event| name(counted_as(event));
        assert_eq!(of(0x0008_1103), "hvm_svm_exit");
        assert_eq!(of(0x0008_1503), "hvm_svm_exit");
        assert_eq!(of(0x0008_2317), "hvm_iomem_write");
        assert_eq!(of(0x0002_1211), "sched_runstate_change");
        assert_eq!(of(0x0002_2209), "sched_0x22209");
        assert_eq!(of(0x0800_f123), "guest_0x800f123");
        assert_eq!(of(0), "event_0x00000");
    }
}
