//! Protocol from a guest to its host over a serial line: frames with a checksum.
//!
//! A frame is `TTXL`, the length of its name (1 byte) and of its contents (4 bytes, little-endian),
//! the name, the contents, and the CRC-32 of all that. A kernel that prints to the line can drop or
//! garble bytes. A reader then returns an error, and never passes on anything that was not sent.

/// Start of each frame.
const MAGIC: &[u8; 4] = b"TTXL";
/// Number of bytes before a frame's name.
const HEAD: usize = 9;
/// Upper limit for contents. Recordings of a lab are smaller, and a garbled length must not cause a
/// long wait.
const MAX: usize = 1 << 30;

/// A named piece of data: a file or a status message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name, at most 255 bytes.
    pub name: String,
    /// Contents.
    pub contents: Vec<u8>,
}

impl Frame {
    /// A frame; a name that is too long is truncated.
    pub fn new(name: &str, contents: Vec<u8>) -> Self {
        let mut end = name.len().min(255);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            name: name[..end].to_owned(),
            contents,
        }
    }

    /// The bytes that are sent over the line.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.contents.len() + 300);
        bytes.extend_from_slice(MAGIC);
        bytes.push(u8::try_from(self.name.len()).unwrap_or(u8::MAX));
        let length = u32::try_from(self.contents.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(&self.contents);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// The line's bytes are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest's serial line is corrupted at byte {at}")]
pub struct Garbled {
    /// Offset from the first byte of the line.
    pub at: usize,
}

/// Extracts frames from the bytes received over a line.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    taken: usize,
}

impl Reader {
    /// Adds received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Number of bytes received of an incomplete frame.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// The next frame, if it is complete.
    ///
    /// # Errors
    /// The bytes are not a frame, or its checksum is wrong.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Garbled> {
        let garbled = Garbled { at: self.taken };
        let rest = &self.bytes[self.taken..];
        let known = rest.len().min(MAGIC.len());
        if rest[..known] != MAGIC[..known] {
            return Err(garbled);
        }
        if rest.len() < HEAD {
            return Ok(None);
        }
        let name_length = usize::from(rest[4]);
        let length = [rest[5], rest[6], rest[7], rest[8]];
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| garbled)?;
        if length > MAX {
            return Err(garbled);
        }
        let checked = HEAD + name_length + length;
        let Some(checksum) = rest.get(checked..checked + 4) else {
            return Ok(None);
        };
        if crc32fast::hash(&rest[..checked]).to_le_bytes() != checksum {
            return Err(garbled);
        }
        let name = std::str::from_utf8(&rest[HEAD..HEAD + name_length]).map_err(|_| garbled)?;
        let frame = Frame {
            name: name.to_owned(),
            contents: rest[HEAD + name_length..checked].to_vec(),
        };
        self.taken += checked + 4;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Frame, Garbled, Reader};

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let frame = (
            "[a-z/é]{0,40}",
            proptest::collection::vec(any::<u8>(), 0..300),
        );
        proptest::collection::vec(
            frame.prop_map(|(name, bytes)| Frame::new(&name, bytes)),
            0..5,
        )
    }

    proptest! {
        #[test]
        fn frames_are_read_back_from_pieces_of_any_size(frames in frames(), piece in 1_usize..50) {
            let line: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
            let mut reader = Reader::default();
            let mut came = Vec::new();
            for bytes in line.chunks(piece) {
                reader.add(bytes);
                while let Some(frame) = reader.next_frame().unwrap() {
                    came.push(frame);
                }
            }
            prop_assert_eq!(came, frames);
            prop_assert_eq!(reader.waiting(), 0);
        }

        #[test]
        fn a_garbled_byte_is_never_accepted(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>(),
            flip in 1_u8..
        ) {
            let frame = Frame::new("recording", bytes);
            let mut line = frame.to_bytes();
            let at = at.index(line.len());
            line[at] ^= flip;
            let mut reader = Reader::default();
            reader.add(&line);
            // The frame is rejected, or incomplete because it claims to be longer.
            let waits_or_wrong = !matches!(reader.next_frame(), Ok(Some(_)));
            prop_assert!(waits_or_wrong);
        }
    }

    #[test]
    fn kernel_messages_are_not_frames() {
        let mut reader = Reader::default();
        reader.add(&Frame::new("a", vec![1]).to_bytes());
        let first = reader.bytes.len();
        reader.add(b"[    0.1] oops");
        assert!(reader.next_frame().unwrap().is_some());
        assert_eq!(reader.next_frame(), Err(Garbled { at: first }));
    }
}
