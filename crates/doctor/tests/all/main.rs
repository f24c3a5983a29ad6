//! Tables in the documentation match the code, definitions in both forms have the same findings, and fixes work.

mod host_rules_in_docs;
mod managers;
mod pairs;
mod rules_in_docs;
mod serial_ports;
