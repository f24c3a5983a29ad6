//! The JSON Schema of plans, for editors and other programs.

use serde_json::Value;

use super::Plan;

/// The JSON Schema (draft 2020-12) of a plan.
pub fn schema() -> Value {
    schemars::schema_for!(Plan).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_in_the_documentation_is_that_of_the_types() {
        let now = format!("{:#}\n", schema());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiment.schema.json");
        let hint = "write it anew: run this test with EXITLESS_WRITE_SCHEMA=1";
        if std::env::var_os("EXITLESS_WRITE_SCHEMA").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        assert!(std::fs::read_to_string(path).unwrap() == now, "{hint}");
    }
}
