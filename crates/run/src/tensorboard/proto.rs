//! A minimal protocol buffer encoder.
//!
//! The field numbers are those of TensorFlow's `event.proto`, `summary.proto`, `tensor.proto` and `tensor_shape.proto`;
//! constants are named `MESSAGE_FIELD`.

pub const EVENT_TIME: u32 = 1;
pub const EVENT_STEP: u32 = 2;
pub const EVENT_FILE_VERSION: u32 = 3;
pub const EVENT_SUMMARY: u32 = 5;
pub const EVENT_SESSION: u32 = 7;

pub const SESSION_STATUS: u32 = 1;
/// Value of the field above: the session starts at this step, and earlier records of later steps are obsolete.
pub const SESSION_START: u64 = 1;

pub const SUMMARY_VALUE: u32 = 1;

pub const VALUE_TAG: u32 = 1;
pub const VALUE_SIMPLE: u32 = 2;
pub const VALUE_IMAGE: u32 = 4;
pub const VALUE_AUDIO: u32 = 6;
pub const VALUE_TENSOR: u32 = 8;
pub const VALUE_METADATA: u32 = 9;

pub const METADATA_PLUGIN: u32 = 1;
pub const PLUGIN_NAME: u32 = 1;

pub const IMAGE_HEIGHT: u32 = 1;
pub const IMAGE_WIDTH: u32 = 2;
pub const IMAGE_CHANNELS: u32 = 3;
pub const IMAGE_BYTES: u32 = 4;

pub const AUDIO_RATE: u32 = 1;
pub const AUDIO_CHANNELS: u32 = 2;
pub const AUDIO_FRAMES: u32 = 3;
pub const AUDIO_BYTES: u32 = 4;
pub const AUDIO_TYPE: u32 = 5;

pub const TENSOR_TYPE: u32 = 1;
/// Value of the field above: a string.
pub const TENSOR_STRING: u64 = 7;
pub const TENSOR_SHAPE: u32 = 2;
pub const TENSOR_STRINGS: u32 = 8;

// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// A message being encoded.
#[derive(Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Writes an integer; signed fields are only given non-negative values.
    pub fn int(&mut self, field: u32, value: u64) {
        self.key(field, VARINT);
        self.varint(value);
    }

    pub fn float(&mut self, field: u32, value: f32) {
        self.key(field, FIXED32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn double(&mut self, field: u32, value: f64) {
        self.key(field, FIXED64);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    pub fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    pub fn message(&mut self, field: u32, value: Message) {
        self.bytes(field, &value.bytes);
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
