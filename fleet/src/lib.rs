//! Collects results of many hosts in one data set, written as Parquet and queried with SQL.
//!
//! [`document`] parses the output of `exitless ... --json`, [`mod@write`] makes files of it in a [`store`],
//! [`read`] and [`engine`] answer queries over them, [`report`] asks the predefined ones, [`serve`] shows the
//! results in a browser, and [`agent`] collects on a host.

pub mod agent;
pub mod document;
pub mod engine;
pub mod keep;
pub mod live;
pub mod name;
pub mod output;
pub mod read;
pub mod report;
pub mod scan;
pub mod schema;
pub mod serve;
pub mod spool;
pub mod store;
pub mod views;
pub mod write;
