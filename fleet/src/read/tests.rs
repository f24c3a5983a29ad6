use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{TimeZone, Utc};
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use super::*;
use crate::document::{self, Origin};
use crate::{keep, write};

const DAY: &str = "2026-03-01";

/// A store whose content changes after the first listings.
#[derive(Debug)]
struct Changing {
    first: Mutex<Vec<Vec<ObjectMeta>>>,
    now: Arc<InMemory>,
}

impl std::fmt::Display for Changing {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.now.fmt(to)
    }
}

#[async_trait]
impl ObjectStore for Changing {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.now.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.now.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.now.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.now.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.now.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.first.lock().unwrap().pop() {
            Some(listed) => futures::stream::iter(listed).map(Ok).boxed(),
            None => self.now.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.now.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.now.copy_opts(from, to, options).await
    }
}

fn exits() -> &'static Table {
    Table::named("exits").unwrap()
}

async fn add(store: &Store, minute: u32) {
    let time = Utc.with_ymd_and_hms(2026, 3, 1, 10, minute, 0).unwrap();
    let origin = Origin { file: "a test's".to_owned(), host: Some("a".to_owned()), time };
    let text = include_str!("../../tests/fixtures/stat.json");
    write::rows(store, &document::rows(text.as_bytes(), &origin).unwrap()).await.unwrap();
}

async fn listed(store: &Store) -> Vec<ObjectMeta> {
    let files = store.files("exits", &Days::default()).await.unwrap();
    files.into_iter().map(|file| file.meta).collect()
}

/// The files of minutes 0 to 2, which are then compacted, and the listings before and after that.
async fn compacted() -> (Arc<InMemory>, Vec<ObjectMeta>, Vec<ObjectMeta>) {
    let objects = Arc::new(InMemory::new());
    let store = Store::of(objects.clone());
    for minute in 0..3 {
        add(&store, minute).await;
    }
    let before = listed(&store).await;
    keep::compact(&store, DAY).await.unwrap();
    let after = listed(&store).await;
    (objects, before, after)
}

async fn look(objects: &Arc<InMemory>, first: Vec<Vec<ObjectMeta>>) -> std::result::Result<Files, Error> {
    let changing = Changing { first: Mutex::new(first), now: Arc::clone(objects) };
    files(&Store::of(Arc::new(changing)), exits(), &Days::default(), &Ends::default()).await
}

#[tokio::test]
async fn files_that_are_compacted_during_a_look_are_in_it_once() {
    let (objects, before, after) = compacted().await;
    assert_eq!((before.len(), after.len()), (3, 1));
    // The first listing has all the old files; or none, because each was deleted before its size was read; or
    // some.
    for first in [before.clone(), Vec::new(), before[1..].to_vec()] {
        let found = look(&objects, vec![first]).await.unwrap();
        let good: Vec<_> = found.good.iter().map(|file| &file.meta.location).collect();
        assert_eq!(good, [&after[0].location]);
        assert!(found.left_out.is_empty() && found.replaced.is_empty(), "{found:?}");
    }
}

#[tokio::test]
async fn files_that_are_added_during_a_look_do_not_prolong_it() {
    let (objects, _, after) = compacted().await;
    add(&Store::of(objects.clone()), 3).await;
    let found = look(&objects, vec![after]).await.unwrap();
    assert_eq!(found.good.len(), 1);
    assert_eq!(look(&objects, Vec::new()).await.unwrap().good.len(), 2);
}

#[tokio::test]
async fn files_that_come_and_go_without_end_are_an_error() {
    let (objects, before, after) = compacted().await;
    let turns = (0..=LOOKS).map(|at| if at % 2 == 0 { before.clone() } else { after.clone() }).collect();
    let error = look(&objects, turns).await.unwrap_err();
    assert!(error.to_string().starts_with("the files of table exits kept changing"), "{error}");
}
