//! A table of known files, as the engine scans it: without asking the store for what was listed already.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use object_store::ObjectMeta;

/// A table and its files.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) store: ObjectStoreUrl,
    pub(crate) schema: SchemaRef,
    pub(crate) files: Vec<ObjectMeta>,
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
