//! One file per subcommand.

pub(crate) mod lab;
pub(crate) mod lab_self_test;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod prove;
