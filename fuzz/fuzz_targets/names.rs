//! Names and numbers that people and kernels write: what reads is written so that it reads as the same again.

#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use exits::{ExitReason, InhibitReason, Isa, KernelVersion};
use libfuzzer_sys::fuzz_target;

fn read<T: FromStr<Err: Display> + Display + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let again = value.to_string().parse::<T>();
            assert!(again.is_ok_and(|again| again == value), "{text:?} is written as {value}");
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

fuzz_target!(|text: &str| {
    read::<ExitReason>(text);
    read::<InhibitReason>(text);
    read::<Isa>(text);
    read::<KernelVersion>(text);
});
