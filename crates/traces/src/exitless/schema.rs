//! The columns and the metadata of a recording of exits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema};
use exits::Isa;

/// The value of `exitless.format` for a recording of single exits.
pub(super) const FORMAT: &str = "exits";
/// Within one number columns and keys are added, never changed.
pub(super) const VERSION: u32 = 1;

/// The names of the columns: those of `exitless report --parquet`, and two for accesses.
pub(super) mod column {
    pub(crate) const TIME: &str = "time_ns";
    pub(crate) const VM: &str = "vm";
    pub(crate) const VCPU: &str = "vcpu";
    pub(crate) const THREAD: &str = "thread";
    pub(crate) const CPU: &str = "cpu";
    pub(crate) const ISA: &str = "isa";
    pub(crate) const REASON: &str = "reason";
    pub(crate) const REASON_CODE: &str = "reason_code";
    pub(crate) const GUEST_RIP: &str = "guest_rip";
    pub(crate) const ACCESS: &str = "access";
    pub(crate) const HANDLING: &str = "handling_ns";
    pub(crate) const ACCESS_HANDLING: &str = "access_ns";
    pub(crate) const EARLIER: &str = "earlier_accesses";
}

/// The keys of the schema's metadata, and the one in every batch.
pub(super) mod key {
    pub(crate) const FORMAT: &str = "exitless.format";
    pub(crate) const FORMAT_VERSION: &str = "exitless.format_version";
    pub(crate) const VERSION: &str = "exitless.version";
    pub(crate) const ISA: &str = "exitless.isa";
    pub(crate) const HOST_NAME: &str = "exitless.host_name";
    pub(crate) const BOOT: &str = "exitless.boot_id";
    pub(crate) const HOST: &str = "exitless.host";
    pub(crate) const COMMAND: &str = "exitless.command";
    pub(crate) const CLOCK: &str = "exitless.clock";
    pub(crate) const START: &str = "exitless.start_ns";
    pub(crate) const STARTED: &str = "exitless.started_unix_ns";
    pub(crate) const VM_NAMES: &str = "exitless.vm_names";
    pub(crate) const SUMMARY: &str = "exitless.summary";
}

/// Facts that are known at the start of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Header {
    /// The instruction set of the exits.
    pub isa: Option<Isa>,
    /// The host's name.
    pub host_name: Option<String>,
    /// The ID of the host's boot, with which its clocks began (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: Option<String>,
    /// The properties of the host that matter for interrupt virtualization.
    pub host: Option<host::Fingerprint>,
    /// The command that records.
    pub command: Option<String>,
    /// The clock of all times by its name in `clock_gettime(2)`: `CLOCK_MONOTONIC`.
    pub clock: Option<String>,
    /// The start of the recording, nanoseconds of that clock.
    pub start_ns: Option<u64>,
    /// The start of the recording, nanoseconds since 1970 (UTC).
    pub started_unix_ns: Option<u64>,
    /// The names of the VMs that are running at the start.
    pub names: BTreeMap<u32, String>,
}

impl Header {
    /// The schema of a recording with this header.
    pub(super) fn schema(&self) -> Result<Schema, serde_json::Error> {
        let mut metadata = HashMap::new();
        let mut put = |key: &str, value: Option<String>| {
            value.map(|value| metadata.insert(key.to_owned(), value));
        };
        put(key::FORMAT, Some(FORMAT.to_owned()));
        put(key::FORMAT_VERSION, Some(VERSION.to_string()));
        put(key::VERSION, Some(env!("CARGO_PKG_VERSION").to_owned()));
        put(key::ISA, self.isa.map(|isa| isa.to_string()));
        put(key::HOST_NAME, self.host_name.clone());
        put(key::BOOT, self.boot_id.clone());
        put(key::HOST, self.host.as_ref().map(serde_json::to_string).transpose()?);
        put(key::COMMAND, self.command.clone());
        put(key::CLOCK, self.clock.clone());
        put(key::START, self.start_ns.map(|ns| ns.to_string()));
        put(key::STARTED, self.started_unix_ns.map(|ns| ns.to_string()));
        put(key::VM_NAMES, Some(serde_json::to_string(&self.names)?));
        Ok(Schema::new_with_metadata(fields(), metadata))
    }
}

/// The type of text columns with few different values.
fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The fields of an access before the last one of an exit.
pub(super) fn earlier_fields() -> Fields {
    Fields::from(vec![
        Field::new(column::ACCESS, DataType::Utf8, false),
        Field::new(column::ACCESS_HANDLING, DataType::UInt64, true),
    ])
}

/// An element of the list of earlier accesses.
pub(super) fn earlier_item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(earlier_fields()), false))
}

fn fields() -> Fields {
    let required = |name: &str, kind| Field::new(name, kind, false);
    let optional = |name: &str, kind| Field::new(name, kind, true);
    Fields::from(vec![
        required(column::TIME, DataType::UInt64),
        optional(column::VM, DataType::UInt32),
        optional(column::VCPU, DataType::UInt32),
        optional(column::THREAD, DataType::UInt32),
        required(column::CPU, DataType::UInt16),
        required(column::ISA, dictionary()),
        required(column::REASON, dictionary()),
        required(column::REASON_CODE, DataType::UInt32),
        optional(column::GUEST_RIP, DataType::UInt64),
        optional(column::ACCESS, dictionary()),
        optional(column::HANDLING, DataType::UInt64),
        optional(column::ACCESS_HANDLING, DataType::UInt64),
        optional(column::EARLIER, DataType::List(earlier_item())),
    ])
}
