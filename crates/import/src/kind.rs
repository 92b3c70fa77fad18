//! Detects the format of a file by its first bytes.

use memchr::memmem;

use crate::text;

/// Number of bytes from the start of a file that detection uses.
pub(crate) const HEAD: usize = 64 * 1024;

/// A trace format that ticktax can convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// Text from `/sys/kernel/tracing/trace`, `trace-cmd report` or Android's systrace.
    Text,
    /// A file that `perf record` wrote.
    PerfData,
    /// A file that `trace-cmd record` wrote.
    TraceDat,
    /// A file that Perfetto wrote.
    Perfetto,
}

impl TraceKind {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Text, Self::PerfData, Self::TraceDat, Self::Perfetto];

    /// Returns the name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "ftrace text",
            Self::PerfData => "perf.data file",
            Self::TraceDat => "trace.dat file",
            Self::Perfetto => "Perfetto trace",
        }
    }

    /// Returns how to record context switches in this format.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Self::Text => "with the events `sched` and `irq` enabled",
            Self::PerfData => "with `perf sched record`",
            Self::TraceDat => "with `trace-cmd record -e sched -e irq`",
            Self::Perfetto => "with `ftrace_events: \"sched/sched_switch\"`",
        }
    }
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Trace(TraceKind),
    /// A known format that cannot be converted, with its name and advice.
    Wrong(&'static str, &'static str),
    /// A ticktax recording, or an unknown format.
    Other,
}

const UNPACK: &str = "unpack it and pass the file inside";
const NO_TIMES: &str = "pass a ticktax recording, perf.data, trace.dat, ftrace text or Perfetto \
                        trace";

/// Formats that cannot be converted, by their first bytes.
const WRONG: &[(&[u8], &str, &str)] = &[
    (b"\x1f\x8b", "a gzip archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
    (b"\xfd7zXZ\0", "an xz archive", UNPACK),
    (b"BZh", "a bzip2 archive", UNPACK),
    (b"PK\x03\x04", "a zip archive", UNPACK),
    (b"\x7fELF", "an executable or a library (ELF)", NO_TIMES),
    (b"SQLite format 3\0", "an SQLite database", NO_TIMES),
    (b"\xc1\x1f\xfc\xc1", "a CTF (LTTng) stream", NO_TIMES),
    (b"\x0a\x0d\x0d\x0a", "a pcapng capture of packets", NO_TIMES),
    (b"\xd4\xc3\xb2\xa1", "a pcap capture of packets", NO_TIMES),
    (b"%PDF", "a PDF document", NO_TIMES),
    (b"\x89PNG", "a PNG image", NO_TIMES),
];

/// Detects the format of a file that starts with `head`.
pub(crate) fn detect(head: &[u8]) -> FileKind {
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        return FileKind::Trace(TraceKind::PerfData);
    }
    if head.starts_with(b"PERFFILE") {
        return FileKind::Wrong(
            "a perf.data file in the format from before 2009",
            "record it with a newer perf",
        );
    }
    if head.starts_with(b"\x17\x08\x44tracing") {
        return FileKind::Trace(TraceKind::TraceDat);
    }
    if let Some(&(_, what, remedy)) = WRONG.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return FileKind::Wrong(what, remedy);
    }
    let first = head.trim_ascii_start().first();
    if first.is_some_and(|first| matches!(first, b'{' | b'[')) {
        if memmem::find(head, b"traceEvents").is_some() || memmem::find(head, b"\"ph\"").is_some() {
            return FileKind::Wrong(
                "a trace in Chrome's JSON format, which has no switches of the kernel",
                "pass the Perfetto trace or the ftrace text that it was made from",
            );
        }
        return FileKind::Wrong("a JSON document", NO_TIMES);
    }
    match text::detect(head) {
        FileKind::Other if is_perfetto(head) => FileKind::Trace(TraceKind::Perfetto),
        kind => kind,
    }
}

/// Returns whether a file starts with packets of a Perfetto trace: fields with number 1, each with
/// a length and with a packet whose first field is plausible.
fn is_perfetto(head: &[u8]) -> bool {
    let mut rest = head;
    let mut packets = 0;
    while let [0x0a, after @ ..] = rest {
        let Some((length, after)) = varint(after) else {
            break;
        };
        // A packet starts with a field key of wire type 0, 1, 2 or 5.
        let Some(key) = after.first() else {
            return packets > 0;
        };
        if length == 0 || matches!(key & 7, 3 | 4 | 6 | 7) || key >> 3 == 0 {
            return false;
        }
        packets += 1;
        let Some(next) = usize::try_from(length)
            .ok()
            .and_then(|length| after.get(length..))
        else {
            // The packet continues beyond the part that was read, or the file is truncated.
            return length < 1 << 32;
        };
        rest = next;
        if packets == 4 {
            return true;
        }
    }
    packets > 0 && rest.is_empty()
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}
