//! The plan of a study: its factors, guests, workloads, order of runs, and repeats.

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
pub(crate) use check::not_a_name;
pub(crate) use limit::StepLimits;
pub use order::{LEAST_FOR_WIDTH, Order, Until};
pub use problem::{BadPlan, Problem};
pub(crate) use read::from_toml;
pub use schema::schema;
pub use shipped::{SHIPPED, Shipped};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::factor::Level;
use super::sampling::SamplePlan;
use super::workload::WorkloadPlan;
use guests::GuestPlan;

/// A study as one file that anyone can run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Short name, in lower-case letters, digits and hyphens: `iozone-apicv`.
    pub name: String,
    /// The subject of the study in one line.
    pub title: String,
    /// The question of the study, in a sentence or two.
    pub question: String,
    /// The number of repeats and the order of runs.
    #[serde(default)]
    pub order: Order,
    /// The guests that run the workloads.
    pub guests: GuestPlan,
    /// The factors: every combination of their levels is an arm.
    pub factors: Vec<Factor>,
    /// The workloads of the guests, one after the other.
    pub workloads: Vec<WorkloadPlan>,
    /// The samples taken on the host during the runs.
    #[serde(default)]
    pub samples: SamplePlan,
}

/// A factor of the study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name, in lower-case letters, digits and hyphens.
    pub name: String,
    /// The level that the others are compared with.
    pub baseline: String,
    /// Its levels: two or more.
    pub levels: Vec<Level>,
}
