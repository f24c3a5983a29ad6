//! Guests as a level changes them.

use serde_json::Value;

use super::{Arm, GuestPlan, Plan};

/// The plan's guests, with the tables of the arm's levels merged over them.
pub(super) fn guests(plan: &Plan, arm: &Arm) -> Result<GuestPlan, (String, String)> {
    let overrides = plan.levels(arm).enumerate().filter_map(|(factor, level)| {
        let level_index = arm.levels.get(factor)?;
        Some((format!("factors[{factor}].levels[{level_index}].guests"), Some(&level.guests).filter(|table| !table.is_empty())?))
    });
    let mut merged: Option<GuestPlan> = None;
    for (field, table) in overrides {
        let before = merged.as_ref().unwrap_or(&plan.guests);
        merged = Some(with(before, table).map_err(|error| (field, error.to_string()))?);
    }
    Ok(merged.unwrap_or_else(|| plan.guests.clone()))
}

fn with(guests: &GuestPlan, table: &toml::Table) -> Result<GuestPlan, serde_json::Error> {
    let mut value = serde_json::to_value(guests)?;
    overlay(&mut value, serde_json::to_value(table)?);
    serde_json::from_value(value)
}

/// Tables are merged key by key, all else is replaced.
fn overlay(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                overlay(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_merged_and_lists_replaced() {
        let mut below = json!({"memory": "1G", "net": {"vhost": true, "queues": 1}, "counts": [1, 2]});
        overlay(&mut below, json!({"net": {"vhost": false}, "counts": [4], "extra": "x"}));
        let expected =
            json!({"memory": "1G", "net": {"vhost": false, "queues": 1}, "counts": [4], "extra": "x"});
        assert_eq!(below, expected);
    }
}
