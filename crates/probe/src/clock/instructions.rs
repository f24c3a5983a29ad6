//! Loops of a known number of instructions, and the counter that times them.

use std::arch::asm;
use std::arch::x86_64::_rdtsc;

/// The time stamp counter, in its ticks.
pub(super) fn ticks() -> u64 {
    // SAFETY: RDTSC touches no memory; on a host that forbids it in user space it raises a signal and does not
    // return a wrong value.
    unsafe { _rdtsc() }
}

/// Executes `rounds` rounds of a loop of 2 instructions; a count of 0 is taken for 1.
pub(super) fn rounds_of_2(rounds: u64) {
    // SAFETY: counts a register down to 0, and touches nothing else.
    unsafe {
        asm!("2:", "dec {rounds}", "jnz 2b", rounds = inout(reg) rounds.max(1) => _, options(nomem, nostack));
    }
}

/// Executes `rounds` rounds of a loop of 26 instructions, one basic block; a count of 0 is taken for 1.
pub(super) fn rounds_of_26(rounds: u64) {
    // SAFETY: counts a register down to 0, adds to another, and touches nothing else.
    unsafe {
        asm!(
            "2:", ".rept 24", "add {sum}, 1", ".endr", "dec {rounds}", "jnz 2b",
            rounds = inout(reg) rounds.max(1) => _, sum = inout(reg) 0u64 => _, options(nomem, nostack)
        );
    }
}
