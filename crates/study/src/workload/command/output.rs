//! Parsing figures from the output of a script.

use regex_lite::{Captures, Regex, RegexBuilder};
use serde_json::Value;

use super::{Command, CommandMetric};
use crate::Metric;
use crate::workload::NotUnderstood;
use crate::workload::adapter::{Adapter, Figures, Text};

/// The name of the group that matches the number.
const GROUP: &str = "value";
/// The largest compiled expression, in bytes.
const LARGEST: usize = 1 << 20;

/// Checks the expression or the pointer of a figure.
pub(super) fn check(metric: &CommandMetric) -> Result<(), String> {
    match (&metric.regex, &metric.pointer) {
        (Some(expression), None) => compiled(&metric.name, expression).map(|_| ()),
        (None, Some(pointer)) if pointer.is_empty() || pointer.starts_with('/') => Ok(()),
        (None, Some(pointer)) => {
            Err(format!("look for {} at {pointer:?}, but a JSON pointer begins with a slash", metric.name))
        }
        _ => Err(format!("must locate {} by regex or by pointer, and not by both", metric.name)),
    }
}

fn compiled(name: &str, expression: &str) -> Result<Regex, String> {
    let expression = RegexBuilder::new(expression).size_limit(LARGEST).build();
    let expression = expression.map_err(|error| {
        // Keep only the last line: the others show the position.
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        format!("look for {name} with an invalid expression: {why}")
    })?;
    let groups = expression.captures_len() - 1;
    if groups != 1 && !expression.capture_names().flatten().any(|group| group == GROUP) {
        return Err(format!(
            "look for {name} with an expression of {groups} groups; it needs one, or one called {GROUP}"
        ));
    }
    Ok(expression)
}

pub(super) fn parse(command: &Command, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
    let mut figures = Figures::new(command.metrics());
    let wants_document = command.metrics.iter().any(|metric| metric.pointer.is_some());
    let document = wants_document.then(|| document(text)).transpose()?;
    for metric in &command.metrics {
        let value = match (&metric.regex, &metric.pointer) {
            (Some(expression), _) => by_expression(&metric.name, expression, text)?,
            (None, pointer) => {
                let pointer = pointer.as_deref().unwrap_or_default();
                let found = document.as_ref().and_then(|document| document.pointer(pointer));
                let expected = || format!("a number at {pointer:?} for {}", metric.name);
                let found = found.ok_or_else(|| text.missing(expected()))?;
                found.as_f64().ok_or_else(|| text.not_understood(expected(), &found.to_string()))?
            }
        };
        let scaled = value * metric.scale;
        if !scaled.is_finite() {
            return Err(
                text.missing(format!("a figure for {} that can be multiplied by its scale", metric.name))
            );
        }
        figures.add(&metric.name, scaled);
    }
    figures.all(text)
}

fn document(text: &Text<'_>) -> Result<Value, NotUnderstood> {
    serde_json::from_str(text.stdout()).map_err(|error| {
        let line = text.stdout().lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
        text.not_understood(format!("one JSON document ({error})"), line)
    })
}

fn by_expression(name: &str, expression: &str, text: &Text<'_>) -> Result<f64, NotUnderstood> {
    let expression = compiled(name, expression).map_err(|why| text.missing(why))?;
    let captured = text.stdout().lines().find_map(|line| Some((line, expression.captures(line)?)));
    let (line, captured) =
        captured.ok_or_else(|| text.missing(format!("a line for {name} that fits {expression}")))?;
    let expected = || text.not_understood(format!("{name} as a number"), line);
    let number = group(&captured).ok_or_else(expected)?;
    number.trim().parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(expected)
}

fn group<'a>(captured: &Captures<'a>) -> Option<&'a str> {
    captured.name(GROUP).or_else(|| captured.get(1)).map(|group| group.as_str())
}
