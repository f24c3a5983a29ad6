//! The plan of a study: what is varied, on which guests, under which loads, in which order, how often.

mod arms;
mod check;
mod limit;
mod merge;
mod order;
mod problem;
mod read;
mod schema;
mod shipped;

pub use arms::Arm;
pub use order::{Order, Until};
pub use problem::{BadPlan, Problem};
pub use schema::schema;
pub use shipped::{SHIPPED, Shipped};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::factor::Level;
use super::guest::GuestPlan;
use super::sampling::SamplePlan;
use super::workload::WorkloadPlan;

/// A study that anyone can run: one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Short name, in lower-case letters, digits and hyphens: `iozone-apicv`.
    pub name: String,
    /// One line that says what is studied.
    pub title: String,
    /// What the study shall answer, in a sentence or two.
    pub question: String,
    /// How often and in which order.
    #[serde(default)]
    pub order: Order,
    /// The guests that run the loads.
    pub guests: GuestPlan,
    /// What is varied: every combination of levels is an arm.
    pub factors: Vec<Factor>,
    /// What the guests do, one after the other.
    pub workloads: Vec<WorkloadPlan>,
    /// What is sampled on the host meanwhile.
    #[serde(default)]
    pub samples: SamplePlan,
}

/// One thing that is varied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name, in lower-case letters, digits and hyphens.
    pub name: String,
    /// The level that the others are compared with.
    pub baseline: String,
    /// What it can be: two or more.
    pub levels: Vec<Level>,
}
