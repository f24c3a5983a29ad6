//! Reads a recording of exits.

use exits::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use arrow_ipc::{Endianness, KeyValue, Message, MessageHeader};
use exits::{Hypervisor, Span};
use flatbuffers::{ForwardsUOffset, Vector};
use rustc_hash::FxHashMap;
use zstd::bulk::Decompressor;

use super::batch::Batch;
use super::layout::Layout;
use super::message::{MOST_METADATA, Messages, Next};
use super::rows::Rows;
use super::schema::{FORMAT, VERSION, key};
use super::summary::{EXIT_EVENT, Stored};
use super::tally::Tally;
use super::texts::{Dictionaries, widths};
use crate::input::Input;
use crate::{Damage, Error, Format, Options, Origin, Reading, Sink};

/// The most bytes of names: what fits into the last summary, which has all of them.
const MOST_NAMES: usize = MOST_METADATA as usize;
const RECORD_AGAIN: &str = "was it written by `exitless record`?";

/// Reads the exits of an Arrow stream.
pub(crate) fn read(input: Input, options: Options, sink: &mut impl Sink) -> Result<Reading, Error> {
    let (name, failure) = (input.name.clone(), input.failure());
    let mut messages = Messages::new(input.into_stream());
    let (header, layout) = match begin(&mut messages, &name) {
        Ok(begun) => begun,
        Err(error) => {
            // The real cause, if the stream ended because of an error.
            return Err(match failure.take() {
                Some(source) => Error::Read { name, source },
                None => error,
            });
        }
    };
    let mut session = Session::new(layout, header.start_ns, options, sink);
    let mut damage = session.read(&mut messages).err();
    if let (Some(source), Some(damage)) = (failure.take(), &mut damage) {
        damage.what = source.to_string();
    }
    let (mut profile, warnings) = session.finish();
    for (&vm, name) in &header.names {
        profile.names.entry(vm).or_insert_with(|| name.clone());
    }
    // Recorders also name VMs without exits.
    let vms: BTreeSet<_> = profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
    profile.names.retain(|vm, _| vms.contains(vm));
    let origin = Origin { bytes: messages.position(), ..header.origin };
    Ok(Reading { profile, origin, damage, warnings })
}

/// The metadata of the schema.
struct Header {
    origin: Origin,
    start_ns: Option<u64>,
    names: BTreeMap<u32, String>,
}

fn begin(messages: &mut Messages<impl Read>, name: &str) -> Result<(Header, Layout), Error> {
    let header = |what: String, offset, next| Error::Header { name: name.to_owned(), what, offset, next };
    let unsupported = |what: String, next| Error::Unsupported { name: name.to_owned(), what, next };
    let damaged = |damage: Damage| header(damage.what, damage.offset, RECORD_AGAIN);
    if messages.next().map_err(damaged)? == Next::End {
        return Err(header("an Arrow stream ends before its schema".to_owned(), 0, RECORD_AGAIN));
    }
    let message = messages.message().map_err(damaged)?;
    let Some(schema) = message.header_as_schema() else {
        return Err(header("an Arrow stream has no schema".to_owned(), 0, RECORD_AGAIN));
    };
    let metadata = Metadata(schema.custom_metadata());
    if metadata.get(key::FORMAT) != Some(FORMAT) {
        let what = format!("an Arrow stream without the metadata `{}` = `{FORMAT}`", key::FORMAT);
        return Err(unsupported(what, "only those of `exitless record` are read"));
    }
    let version = metadata.get(key::FORMAT_VERSION).unwrap_or_default();
    if version.parse() != Ok(VERSION) {
        let what = format!("a recording of format version `{version}`, not {VERSION}");
        return Err(unsupported(what, "read it with the exitless that wrote it, or a later one"));
    }
    if schema.endianness() != Endianness::Little {
        return Err(Error::ByteOrder { name: name.to_owned() });
    }
    let layout = Layout::of(&schema)
        .map_err(|what| unsupported(format!("no table of exits: {what}"), RECORD_AGAIN))?;
    Ok((metadata.header(), layout))
}

/// The key-value pairs of a message or a schema.
struct Metadata<'m>(Option<Vector<'m, ForwardsUOffset<KeyValue<'m>>>>);

impl<'m> Metadata<'m> {
    fn get(&self, key: &str) -> Option<&'m str> {
        self.0.into_iter().flatten().find(|pair| pair.key() == Some(key))?.value()
    }

    fn header(&self) -> Header {
        let text = |key| self.get(key).map(str::to_owned);
        let host: Option<serde_json::Value> =
            self.get(key::HOST).and_then(|json| serde_json::from_str(json).ok());
        let fact = |path: &str| Some(host.as_ref()?.pointer(path)?.as_str()?.to_owned());
        // Only the times of Xen's exits are its TSC.
        let xen = self.get(key::CLOCK) == Some("TSC")
            || host.as_ref().is_some_and(|host| host.get("hypervisor").is_some());
        let origin = Origin {
            version: text(key::VERSION),
            host: text(key::HOST_NAME),
            boot: text(key::BOOT),
            hypervisor: if xen { Hypervisor::Xen } else { Hypervisor::Kvm },
            xen_version: fact("/hypervisor/version"),
            kernel: fact("/kernel_release"),
            processor: fact("/cpu/name"),
            command: text(key::COMMAND),
            ..Origin::new(Format::Exits)
        };
        let names = self.get(key::VM_NAMES).and_then(|json| serde_json::from_str(json).ok());
        let start_ns = self.get(key::START).and_then(|number| number.parse().ok());
        Header { origin, start_ns, names: names.unwrap_or_default() }
    }
}

/// The names in all summaries so far.
#[derive(Default)]
struct Names {
    all: BTreeMap<u32, String>,
    bytes: usize,
}

impl Names {
    fn add(&mut self, names: BTreeMap<u32, String>) -> Result<(), String> {
        let size = |name: &String| size_of::<u32>() + name.len();
        for (vm, name) in names {
            self.bytes += size(&name);
            let former = self.all.insert(vm, name);
            self.bytes -= former.as_ref().map_or(0, size);
            if self.bytes > MOST_NAMES {
                return Err(format!("the names of VMs take more than {} MiB", MOST_NAMES >> 20));
            }
        }
        Ok(())
    }
}

/// Reads one batch after the other.
struct Session<'s, S> {
    layout: Layout,
    /// The offset sizes of the dictionaries that are needed.
    dictionary_widths: FxHashMap<i64, usize>,
    dictionaries: Dictionaries,
    rows: Rows,
    decompressor: Option<Decompressor<'static>>,
    tally: Tally,
    /// The options count from the recording's start, which is known later.
    options: Options,
    first_ns: Option<u64>,
    /// The span of the rows, for a recording that another tool has rewritten.
    seen: Option<Span>,
    exits: u64,
    summary: Option<Stored>,
    names: Names,
    undecoded: u64,
    sink: &'s mut S,
}

impl<'s, S: Sink> Session<'s, S> {
    fn new(layout: Layout, start_ns: Option<u64>, options: Options, sink: &'s mut S) -> Self {
        Self {
            dictionary_widths: widths([layout.isa, layout.reason, layout.access]),
            layout,
            dictionaries: Dictionaries::default(),
            rows: Rows::default(),
            decompressor: None,
            tally: Tally::default(),
            options,
            first_ns: start_ns,
            seen: None,
            exits: 0,
            summary: None,
            names: Names::default(),
            undecoded: 0,
            sink,
        }
    }

    fn read(&mut self, messages: &mut Messages<impl Read>) -> Result<(), Damage> {
        while messages.next()? == Next::Message {
            let message = messages.message()?;
            let bytes = messages.position();
            let result = match message.header_type() {
                MessageHeader::DictionaryBatch => self.dictionary(&message, messages.body()),
                MessageHeader::RecordBatch => self.batch(&message, messages.body(), bytes),
                MessageHeader::Schema => Err("another recording begins inside of this one".to_owned()),
                // Other messages do not belong into a stream, and are not needed.
                _ => Ok(()),
            };
            result.map_err(|what| messages.damage(what))?;
        }
        match messages.is_at_the_end()? {
            true => Ok(()),
            false => Err(messages.damage("bytes follow the end of the recording")),
        }
    }

    fn dictionary(&mut self, message: &Message<'_>, body: &[u8]) -> Result<(), String> {
        let missing = "a dictionary has no texts";
        let dictionary = message.header_as_dictionary_batch().ok_or(missing)?;
        let Some(&width) = self.dictionary_widths.get(&dictionary.id()) else { return Ok(()) };
        let texts = dictionary.data().ok_or(missing)?;
        let batch = Batch::new(texts, body, decompressor(&mut self.decompressor)?)?;
        self.dictionaries.take(dictionary.id(), width, dictionary.isDelta(), batch)
    }

    fn batch(&mut self, message: &Message<'_>, body: &[u8], bytes: u64) -> Result<(), String> {
        let batch = message.header_as_record_batch().ok_or("a batch has no rows")?;
        let mut batch = Batch::new(batch, body, decompressor(&mut self.decompressor)?)?;
        self.rows.read(&self.layout, &self.dictionaries, &mut batch)?;
        if let Some(json) = Metadata(message.custom_metadata()).get(key::SUMMARY) {
            let mut summary: Stored =
                serde_json::from_str(json).map_err(|error| format!("a summary is broken: {error}"))?;
            self.first_ns = self.first_ns.or(summary.span.map(|span| span.first_ns));
            self.names.add(std::mem::take(&mut summary.names))?;
            self.summary = Some(summary);
        }
        let (mut from_ns, mut to_ns) = (0, u64::MAX);
        for row in 0..batch.rows {
            let Some(row) = self.rows.get(row) else {
                self.undecoded += 1;
                continue;
            };
            let exit = row.exit;
            let end_ns = exit.time_ns.saturating_add(exit.handling_ns.unwrap_or(0));
            let seen = Span { first_ns: exit.time_ns, last_ns: end_ns };
            Span::widen(&mut self.seen, seen);
            self.exits += 1;
            let first_ns = *self.first_ns.get_or_insert(exit.time_ns);
            let moment = |offset_ns: u64| first_ns.saturating_add(offset_ns);
            from_ns = self.options.from_ns.map_or(from_ns, moment);
            to_ns = self.options.to_ns.map_or(to_ns, moment);
            if exit.time_ns < from_ns || exit.time_ns >= to_ns {
                continue;
            }
            self.undecoded += row.unknown;
            self.tally.add(&exit, row.accesses, bytes).map_err(|_| {
                "a batch has more vCPUs with more reasons than a recording of this size can have".to_owned()
            })?;
            self.sink.exit_with(&exit, row.accesses);
        }
        self.rows.release();
        Ok(())
    }

    fn finish(self) -> (exits::Profile, Vec<String>) {
        let mut warnings = Vec::new();
        let mut profile = self.tally.finish(&mut warnings);
        match self.summary {
            Some(summary) => {
                if summary.exits != self.exits {
                    warnings.push(format!(
                        "The recorder counted {} up to where the recording was read, and {} of them are there",
                        counted(summary.exits, "exit"),
                        self.exits
                    ));
                }
                profile.span = summary.span;
                profile.losses = summary.losses;
                profile.names = self.names.all;
                profile.events = summary.events;
            }
            None if self.exits > 0 => {
                warnings.push(
                    "The recording does not say what was lost; was it written anew by another tool?"
                        .to_owned(),
                );
                profile.span = self.seen;
                profile.events.insert(EXIT_EVENT.to_owned(), self.exits);
            }
            None => {}
        }
        profile.losses.undecoded = profile.losses.undecoded.saturating_add(self.undecoded);
        (profile, warnings)
    }
}

fn decompressor<'k>(
    kept: &'k mut Option<Decompressor<'static>>,
) -> Result<&'k mut Decompressor<'static>, String> {
    if kept.is_none() {
        *kept = Some(Decompressor::new().map_err(|error| format!("zstd cannot be used: {error}"))?);
    }
    kept.as_mut().ok_or_else(|| "zstd cannot be used".to_owned())
}
