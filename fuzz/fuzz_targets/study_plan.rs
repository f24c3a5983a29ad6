//! A study's plan: any text is a plan or a refusal, and a plan is the same when it was written as JSON and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use study::forecast::{Host, forecast};
use study::plan::Plan;

fuzz_target!(|text: &str| {
    match Plan::read(text, "plan.toml") {
        Ok(plan) => {
            let json = serde_json::to_vec(&plan).expect("a plan is written as JSON");
            let again: Plan = serde_json::from_slice(&json).expect("and read");
            assert_eq!(again, plan);
            assert!(forecast(&plan, &Host::default()).arms > 0);
        }
        Err(bad) => {
            let lines = text.bytes().filter(|&byte| byte == b'\n').count() + 1;
            assert!(!bad.problems.is_empty());
            assert!(
                bad.problems
                    .iter()
                    .all(|problem| problem.line.is_none_or(|line| (1..=lines).contains(&line)))
            );
        }
    }
});
