//! Writes a recording of exits batch by batch.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_ipc::CompressionType;
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use arrow_schema::{ArrowError, Schema};
use exits::Span;

use super::annotate::with_metadata;
use super::columns::{Dictionaries, Waiting};
use super::schema::{Header, key};
use super::summary::{EXIT_EVENT, Stored, Summary};
use crate::{AccessRecord, ExitRecord, Sink};

/// The number of exits per batch, which take 6 MiB while they wait.
const BATCH: usize = 1 << 16;
/// zstd level 2: 8.5 bytes per exit in hardly more time than the 9.4 of level 1; level 3 needs 8.7.
const LEVEL: i32 = 2;
/// The end-of-stream marker: a message without metadata.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// The amount that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of exits in complete batches.
    pub exits: u64,
    /// The number of exits that were passed to the writer after an error, and are not in the recording.
    pub not_written: u64,
    /// The size up to the end of the last complete batch. After an error, the file may have a partial batch behind
    /// it, which readers ignore and which may be truncated.
    pub bytes: u64,
}

/// The reason why a recording is incomplete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The exits could not be stored.
    #[error(
        "Cannot write the recording any further; the first {} bytes are whole, with {} exits; {} more are lost",
        written.bytes, written.exits, written.not_written
    )]
    Store {
        /// The amount that was written before the error.
        written: Written,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A profile could not be stored.
    #[error("Cannot write the profile")]
    StoreProfile {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A profile is too large for readers.
    #[error(
        "Reading the profile would take more than {mib} MiB of memory, which readers refuse; record fewer VMs in one profile"
    )]
    TooLarge {
        /// The most memory that readers use, in MiB.
        mib: u64,
    },
    /// The exits cannot be encoded.
    #[error("Cannot encode the recording")]
    Encode(#[from] ArrowError),
    /// The summary cannot be encoded as JSON.
    #[error("Cannot describe the recording")]
    Describe(#[from] serde_json::Error),
}

/// Writes the exits that it receives as a [`Sink`], in batches of 65,536, each with one call of [`Write::write_all`]:
/// no buffered writer is needed.
///
/// [`Sink::exit`] cannot return an error: the first one is kept, stops the writing, and is returned by
/// [`Self::flush`] or [`Self::finish`]. Without [`Self::finish`] a recording has no end marker, and readers report
/// that.
#[derive(Debug)]
pub struct Writer<W: Write + Send> {
    to: W,
    schema: Arc<Schema>,
    options: IpcWriteOptions,
    tracker: DictionaryTracker,
    context: IpcWriteContext,
    dictionaries: Dictionaries,
    waiting: Waiting,
    summary: Summary,
    /// The names that are in earlier batches: those of a thousand VMs in each would be a tenth of the recording.
    named: BTreeMap<u32, String>,
    span: Option<Span>,
    written: Written,
    failure: Option<WriteError>,
    failed: bool,
}

impl<W: Write + Send> Writer<W> {
    /// Starts a recording in `to`.
    ///
    /// # Errors
    /// If writing the first bytes fails.
    pub fn new(to: W, header: &Header) -> Result<Self, WriteError> {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::ZSTD))?
            .try_with_compression_level(Some(LEVEL))?;
        let mut writer = Self {
            to,
            schema: Arc::new(header.schema()?),
            options,
            tracker: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
            dictionaries: Dictionaries::default(),
            waiting: Waiting::default(),
            summary: Summary { names: header.names.clone(), ..Summary::default() },
            named: BTreeMap::new(),
            span: header.start_ns.map(|start_ns| Span { first_ns: start_ns, last_ns: start_ns }),
            written: Written::default(),
            failure: None,
            failed: false,
        };
        let schema = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            &writer.schema,
            &mut writer.tracker,
            &writer.options,
        );
        let mut bytes = Vec::new();
        write_message(&mut bytes, schema, &writer.options)?;
        writer.store(&bytes)?;
        Ok(writer)
    }

    /// Replaces the summary; the next batch contains the new one, of the names those that no earlier batch has.
    pub fn set_summary(&mut self, summary: Summary) {
        self.summary = summary;
    }

    /// The amount that was written so far.
    #[must_use]
    pub fn written(&self) -> Written {
        self.written
    }

    /// Writes the waiting exits as a batch, however few, so that they are not lost if the file is cut later. Does
    /// nothing if none are waiting.
    ///
    /// # Errors
    /// If this or an earlier write failed; each error is returned once.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.waiting.len() > 0 {
            self.write_batch();
        }
        match self.failure.take() {
            // More exits were passed since it failed.
            Some(WriteError::Store { source, .. }) => Err(self.cannot_store(source)),
            Some(failure) => Err(failure),
            None if self.failed => Ok(()),
            None => self.to.flush().map_err(|source| self.cannot_store(source)),
        }
    }

    /// Writes the waiting exits, a last batch without exits that contains `summary`, and the end marker.
    ///
    /// # Errors
    /// If this or an earlier write failed. An error that [`Self::flush`] has returned is not returned again; see
    /// [`Written::not_written`].
    pub fn finish(mut self, summary: Summary) -> Result<Written, WriteError> {
        self.summary = summary;
        self.flush()?;
        if self.failed {
            return Ok(self.written);
        }
        // The last one has all names, for those who read no other.
        self.named.clear();
        let mut bytes = self.encode()?;
        bytes.extend_from_slice(&END);
        self.store(&bytes)?;
        self.to.flush().map_err(|source| self.cannot_store(source))?;
        Ok(self.written)
    }

    #[cold]
    fn write_batch(&mut self) {
        let exits = self.waiting.exits().len() as u64;
        let result = match self.failed {
            true => Ok(false),
            false => self.encode().and_then(|bytes| self.store(&bytes)).map(|()| true),
        };
        match result {
            Ok(true) => self.written.exits += exits,
            Ok(false) => self.written.not_written += exits,
            Err(error) => {
                self.failed = true;
                self.written.not_written += exits;
                self.failure = Some(error);
            }
        }
        self.waiting.clear();
    }

    /// Encodes the waiting exits as messages: new dictionaries and the batch.
    fn encode(&mut self) -> Result<Vec<u8>, WriteError> {
        let batch = self.dictionaries.batch(&self.schema, &self.waiting)?;
        let (dictionaries, exits) = IpcDataGenerator::default().encode(
            &batch,
            &mut self.tracker,
            &self.options,
            &mut self.context,
        )?;
        let summary = serde_json::to_string(&self.stored())?;
        let ipc_message = with_metadata(&exits.ipc_message, key::SUMMARY, &summary)?;
        let mut bytes = Vec::new();
        for dictionary in dictionaries {
            write_message(&mut bytes, dictionary, &self.options)?;
        }
        let exits = EncodedData { ipc_message, arrow_data: exits.arrow_data };
        write_message(&mut bytes, exits, &self.options)?;
        Ok(bytes)
    }

    fn stored(&mut self) -> Stored {
        let exits = self.waiting.exits();
        let first_ns = exits.iter().map(|exit| exit.time_ns).min();
        let end = |exit: &ExitRecord| exit.time_ns.saturating_add(exit.handling_ns.unwrap_or(0));
        let last_ns = exits.iter().map(end).max().max(self.summary.last_ns);
        // The start stays that of the first batch, because `--from` and `--to` count from it.
        self.span = match (self.span, first_ns.or(self.summary.last_ns), last_ns) {
            (Some(span), _, last_ns) => {
                Some(Span { last_ns: span.last_ns.max(last_ns.unwrap_or(0)), ..span })
            }
            (None, Some(first_ns), Some(last_ns)) => Some(Span { first_ns, last_ns }),
            (None, _, _) => None,
        };
        let exits = self.written.exits + exits.len() as u64;
        let mut names = self.summary.names.clone();
        names.retain(|vm, name| self.named.get(vm) != Some(&*name));
        self.named.extend(names.clone());
        let (losses, mut events) = (self.summary.losses, self.summary.events.clone());
        if events.is_empty() && exits > 0 {
            events.insert(EXIT_EVENT.to_owned(), exits);
        }
        Stored { exits, span: self.span, losses, names, events }
    }

    fn store(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.to.write_all(bytes).map_err(|source| self.cannot_store(source))?;
        self.written.bytes += bytes.len() as u64;
        Ok(())
    }

    fn cannot_store(&self, source: io::Error) -> WriteError {
        WriteError::Store { written: self.written, source }
    }
}

impl<W: Write + Send> Sink for Writer<W> {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        let access = exit.access.map(|access| AccessRecord { access, handling_ns: None });
        self.exit_with(exit, access.as_slice());
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        self.waiting.push(exit, accesses);
        if self.waiting.len() >= BATCH {
            self.write_batch();
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
