//! Adds metadata to the message of a batch, which arrow-ipc does not support.

use arrow_ipc::{
    BodyCompression, BodyCompressionArgs, KeyValue, KeyValueArgs, Message, MessageArgs, MessageHeader,
    RecordBatch, RecordBatchArgs, root_as_message,
};
use arrow_schema::ArrowError;
use flatbuffers::FlatBufferBuilder;

/// Copies the message of a record batch and adds one key to its `custom_metadata` (`format/Message.fbs` of Arrow),
/// which other readers ignore.
pub(super) fn with_metadata(message: &[u8], key: &str, value: &str) -> Result<Vec<u8>, ArrowError> {
    let no_batch = || ArrowError::IpcError("a message of exits is not a record batch".to_owned());
    let message = root_as_message(message).map_err(|_| no_batch())?;
    let batch = message.header_as_record_batch().ok_or_else(no_batch)?;
    let mut builder = FlatBufferBuilder::new();
    let nodes: Vec<_> = batch.nodes().into_iter().flatten().copied().collect();
    let buffers: Vec<_> = batch.buffers().into_iter().flatten().copied().collect();
    let nodes = builder.create_vector(&nodes);
    let buffers = builder.create_vector(&buffers);
    let compression = batch.compression().map(|compression| {
        let arguments = BodyCompressionArgs { codec: compression.codec(), method: compression.method() };
        BodyCompression::create(&mut builder, &arguments)
    });
    let batch = RecordBatch::create(
        &mut builder,
        &RecordBatchArgs {
            length: batch.length(),
            nodes: Some(nodes),
            buffers: Some(buffers),
            compression,
            variadicBufferCounts: None,
        },
    );
    let (key, value) = (builder.create_string(key), builder.create_string(value));
    let pair = KeyValue::create(&mut builder, &KeyValueArgs { key: Some(key), value: Some(value) });
    let pairs = builder.create_vector(&[pair]);
    let root = Message::create(
        &mut builder,
        &MessageArgs {
            version: message.version(),
            header_type: MessageHeader::RecordBatch,
            header: Some(batch.as_union_value()),
            bodyLength: message.bodyLength(),
            custom_metadata: Some(pairs),
        },
    );
    builder.finish(root, None);
    Ok(builder.finished_data().to_vec())
}
