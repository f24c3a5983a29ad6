//! Serializes a scan of the data set for the scheduler: the name of a table and its files. Each process knows
//! the location of the data set by itself.

use std::sync::Arc;

use chrono::DateTime;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use exitless_fleet::scan::Scan;
use exitless_fleet::schema::Table;
use object_store::ObjectMeta;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use ballista_core::serde::BallistaLogicalExtensionCodec;

/// Ballista's codec, extended by the tables of a data set.
#[derive(Debug, Default)]
pub(crate) struct Codec(BallistaLogicalExtensionCodec);

#[derive(Serialize, Deserialize)]
struct Sent {
    table: String,
    files: Vec<(String, u64, i64)>,
}

fn wrong(why: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!("a table of the data set cannot be read: {why}"))
}

impl LogicalExtensionCodec for Codec {
    fn try_decode(&self, bytes: &[u8], inputs: &[LogicalPlan], context: &TaskContext) -> Result<Extension> {
        self.0.try_decode(bytes, inputs, context)
    }

    fn try_encode(&self, node: &Extension, bytes: &mut Vec<u8>) -> Result<()> {
        self.0.try_encode(node, bytes)
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let sent: Sent = serde_json::from_slice(bytes).map_err(wrong)?;
        let table =
            Table::named(&sent.table).ok_or_else(|| wrong(format!("there is no table {}", sent.table)))?;
        let file = |(path, size, changed): (String, u64, i64)| {
            let location = Path::parse(path).map_err(wrong)?;
            let last_modified = DateTime::from_timestamp_micros(changed).unwrap_or_default();
            Ok(ObjectMeta { location, last_modified, size, e_tag: None, version: None })
        };
        let files: Result<Vec<_>> = sent.files.into_iter().map(file).collect();
        Ok(Arc::new(Scan::new(table, files?)?))
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let Some(scan) = table.downcast_ref::<Scan>() else {
            return Err(DataFusionError::Plan(format!(
                "{name} is no table of the data set; ask without a cluster"
            )));
        };
        let file =
            |meta: &ObjectMeta| (meta.location.to_string(), meta.size, meta.last_modified.timestamp_micros());
        let sent = Sent { table: scan.table.name.to_owned(), files: scan.files.iter().map(file).collect() };
        serde_json::to_writer(bytes, &sent).map_err(wrong)
    }
}
