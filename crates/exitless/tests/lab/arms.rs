//! Parses the result of `prove`: both arms of a measurement.

use serde_json::Value;

pub(crate) fn measure<'a>(result: &'a Value, name: &str) -> &'a Value {
    let measures = result["measures"].as_array().unwrap();
    measures.iter().find(|measure| measure["measure"] == name).unwrap_or_else(|| panic!("{name} is missing"))
}

/// The exits per operation for a reason, with interrupt virtualization off and on.
pub(crate) fn exits(result: &Value, name: &str, reason: &str) -> (f64, f64) {
    let reasons = measure(result, name)["exits"]["reasons"].as_array().unwrap();
    let row = reasons.iter().find(|row| row["reason"] == reason);
    let of = |arm: &str| row.and_then(|row| row["per_operation"][arm].as_f64()).unwrap_or(0.0);
    (of("off"), of("on"))
}

pub(crate) fn median(result: &Value, name: &str, arm: &str) -> f64 {
    measure(result, name)["cost"][arm]["median"].as_f64().unwrap()
}

pub(crate) fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 0.15
}
