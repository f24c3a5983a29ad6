//! Tables in the documentation are those of the code, definitions in both forms have the same findings, and a fix is one.

mod host_rules_in_docs;
mod managers;
mod pairs;
mod rules_in_docs;
mod serial_ports;
