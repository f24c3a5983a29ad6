//! A table of known files for the engine, which need not list the store again.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::project_schema;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use object_store::ObjectMeta;

use crate::engine::STORE;
use crate::schema::Table;

/// A table and its files.
#[derive(Debug)]
pub struct Scan {
    /// The table that is scanned.
    pub table: &'static Table,
    /// The files to scan.
    pub files: Vec<ObjectMeta>,
    store: ObjectStoreUrl,
    schema: SchemaRef,
}

impl Scan {
    /// A scan of these files of a table.
    ///
    /// # Errors
    /// The engine reports an error.
    pub fn new(table: &'static Table, files: Vec<ObjectMeta>) -> Result<Self> {
        Ok(Self { table, files, store: ObjectStoreUrl::parse(STORE)?, schema: table.schema() })
    }
}

#[async_trait]
impl TableProvider for Scan {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.files.is_empty() {
            // A scan without files has no partitions, which the planner of ORDER BY reports as an internal
            // error.
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema, projection)?)));
        }
        let partitions = session.config().target_partitions().max(1);
        let together = self.files.len().div_ceil(partitions).max(1);
        let groups = self
            .files
            .chunks(together)
            .map(|files| FileGroup::new(files.iter().cloned().map(PartitionedFile::from).collect()));
        let source = ParquetSource::new(Arc::clone(&self.schema))
            .with_table_parquet_options(session.default_table_options().parquet)
            .with_pushdown_filters(true);
        let config = FileScanConfigBuilder::new(self.store.clone(), Arc::new(source))
            .with_file_groups(groups.collect())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}
