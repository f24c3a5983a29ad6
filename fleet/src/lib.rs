//! Results of many hosts in one data set: written as Parquet, asked by SQL.
//!
//! [`document`] reads what `exitless ... --json` printed, [`mod@write`] makes files of it in a [`store`], [`read`] and [`engine`]
//! answer queries over them, [`report`] asks the ready ones, and [`agent`] collects on a host.

pub mod agent;
pub mod document;
pub mod engine;
pub mod keep;
pub mod name;
pub mod output;
pub mod read;
pub mod report;
mod scan;
pub mod schema;
pub mod spool;
pub mod store;
pub mod views;
pub mod write;
