//! Parses the records that the kernel writes to a ring of perf events.

use ticktax_model::Nanos;

/// Record types `PERF_RECORD_SAMPLE` and `PERF_RECORD_LOST`.
const SAMPLE: u32 = 9;
const LOST: u32 = 2;
/// Size of a record header, in bytes.
const HEAD: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<C> {
    /// A sample: the time, the thread that was running, and the kernel's call chain, starting with
    /// the innermost function.
    Sample { at: Nanos, tid: i32, chain: C },
    /// Number of samples that were lost because the ring was full.
    Lost(u64),
}

/// Parses the records in `bytes`. Skips records of other types, and an incomplete record at the
/// end.
pub(super) fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<impl Iterator<Item = u64>>> {
    std::iter::from_fn(move || {
        loop {
            let length = usize::from(u16::from_ne_bytes(bytes.get(6..HEAD)?.try_into().ok()?));
            let record = bytes.get(..length).filter(|record| record.len() >= HEAD)?;
            bytes = &bytes[length..];
            let kind = word(record, 0)?;
            let body = &record[HEAD..];
            match kind {
                // A sample's fields come in the order of their flag bits: thread, time, chain.
                SAMPLE => {
                    let length = usize::try_from(double(body, 16)?).ok()?;
                    let chain = body.get(24..)?.chunks_exact(8).take(length);
                    return Some(Record::Sample {
                        at: Nanos(double(body, 8)?.cast_signed()),
                        tid: word(body, 4)?.cast_signed(),
                        chain: chain.filter_map(|address| double(address, 0)),
                    });
                }
                LOST => return Some(Record::Lost(double(body, 8)?)),
                _ => {}
            }
        }
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{LOST, Record, SAMPLE, records};

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let length = u16::try_from(8 + 8 * words.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&length.to_ne_bytes());
        for word in words {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Vec<Record<Vec<u64>>> {
        let read = records(bytes).map(|record| match record {
            Record::Sample { at, tid, chain } => Record::Sample {
                at,
                tid,
                chain: chain.collect(),
            },
            Record::Lost(count) => Record::Lost(count),
        });
        read.collect()
    }

    #[test]
    fn only_samples_and_lost_counts_are_read() {
        let sample = record(SAMPLE, &[(0x48 << 32) | 0x46, 1_000, 2, 0xa, 0xb]);
        let other = record(3, &[1, 2, 3]);
        let lost = record(LOST, &[1, 5]);
        let all = [sample.clone(), other, lost].concat();
        let expected = [
            Record::Sample {
                at: Nanos(1_000),
                tid: if cfg!(target_endian = "little") {
                    0x48
                } else {
                    0x46
                },
                chain: vec![0xa, 0xb],
            },
            Record::Lost(5),
        ];
        assert_eq!(read(&all), expected);
        for length in 0..sample.len() {
            assert_eq!(read(&sample[..length]), []);
        }
        assert_eq!(read(&[0; 64]), []);
    }
}
