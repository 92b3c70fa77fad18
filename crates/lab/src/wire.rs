//! The protocol by which a guest sends data to the host over a serial line: frames with checksums.
//!
//! A frame consists of `TTXL`, the length of its name (1 byte), the length of its contents (4
//! bytes, little-endian), the name, the contents, and the CRC-32 of everything before it. If the
//! kernel prints to the same line, bytes can be lost or garbled. The reader then returns an error.
//! It never returns anything that was not sent.

const MAGIC: &[u8; 4] = b"TTXL";
/// Length of the part of a frame that precedes its name, in bytes.
const HEAD: usize = 9;
/// Maximum length of a frame's contents in bytes. The lab's recordings are shorter. The limit keeps
/// the reader from waiting too long for the end of a frame with a garbled length.
const MAX: usize = 1 << 30;

/// A named piece of data: either a file or a message about the guest's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name of the frame, at most 255 bytes long.
    pub name: String,
    /// Contents of the frame.
    pub contents: Vec<u8>,
}

impl Frame {
    /// Creates a frame. Truncates a name of more than 255 bytes.
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

    /// Encodes the frame.
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

/// Error for received bytes that are not a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest's serial line is corrupted at byte {at}")]
pub struct Garbled {
    /// Offset of the invalid frame, counted from the first byte received.
    pub at: usize,
}

/// Decodes frames from the bytes received over a serial line.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    bytes: Vec<u8>,
    taken: usize,
}

impl Reader {
    /// Appends received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns how many bytes of the still incomplete frame have been received so far.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Returns the next frame, or `None` if it has not been fully received yet.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a frame, or if the checksum is wrong.
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
            // The reader must not return the damaged frame. If its length was garbled, the reader
            // can either return an error or wait for more bytes.
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
