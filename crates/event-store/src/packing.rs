//! Compression of large texts: an item holds 400 KB, and the cost of a write depends on its size.

use std::io::{self, Read, Write};

use daybook_table::StoredText;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_bytes::ByteBuf;

/// Texts above this many bytes are compressed.
const COMPRESS_ABOVE: usize = 8 * 1024;

/// Maximum bytes of an unpacked text: no item of 400 KB holds more, unless it was crafted to.
const MAX_TEXT: u64 = 256 * 1024 * 1024;

pub(crate) fn pack(text: &str) -> io::Result<StoredText> {
    if text.len() <= COMPRESS_ABOVE {
        return Ok(StoredText::Text(text.to_owned()));
    }
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(text.as_bytes())?;
    Ok(StoredText::Compressed(ByteBuf::from(packer.finish()?)))
}

pub fn unpack(stored: StoredText) -> io::Result<String> {
    match stored {
        StoredText::Text(text) => Ok(text),
        StoredText::Compressed(packed) => {
            let mut text = String::new();
            GzDecoder::new(packed.as_slice()).take(MAX_TEXT).read_to_string(&mut text)?;
            Ok(text)
        }
    }
}
