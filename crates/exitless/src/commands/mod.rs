//! One file per subcommand.

pub(crate) mod lab;
pub(crate) mod lab_self_test;
