//! The plan's form for editors and other programs.

use serde_json::Value;

use super::Plan;

/// The JSON Schema (draft 2020-12) of a plan.
pub fn schema() -> Value {
    schemars::schema_for!(Plan).to_value()
}
