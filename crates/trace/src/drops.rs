//! Counts the datagrams of one stream that the kernel drops, by reason. The reasons come from the
//! tracepoint `skb:kfree_skb`, which reports them since Linux 5.17.

mod reasons;

use std::path::Path;

use aya::maps::{HashMap, MapData};
use aya::programs::BtfTracePoint;
use aya::{Ebpf, EbpfLoader, VerifierLogLevel};

use crate::error::{TraceError, read_types};
use crate::load::{BTF, parse_btf};
use reasons::Reasons;

/// The compiled BPF program. `cargo xtask bpf` builds it from `bpf/drops.bpf.c`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/drops.bpf.o");

/// Names in the BPF object: the program, which is named after its tracepoint, the map, and the
/// constant.
const PROGRAM: &str = "kfree_skb";
const DROPPED: &str = "dropped";
const TOKEN: &str = "token";

/// Upper limit for the memory that the counts take, in bytes. It is shown in error messages.
const BYTES: u64 = 16 << 10;

/// Counts the datagrams of one stream that the kernel drops. Counting stops when this is dropped.
#[derive(Debug)]
pub struct DropWatch {
    programs: Ebpf,
    reasons: Reasons,
}

impl DropWatch {
    /// Starts watching the stream whose datagrams start with the eight bytes of `token`, in
    /// little-endian order.
    ///
    /// # Errors
    /// Returns an error if the kernel or the caller's rights do not allow it, for example because
    /// the kernel does not report reasons.
    pub fn begin(token: u64) -> Result<Self, TraceError> {
        let bytes = read_types(Path::new(BTF))?;
        let types = parse_btf(&bytes, Path::new(BTF))?;
        let reasons = Reasons::read(&bytes).unwrap_or_default();
        let refused =
            |error: &(dyn std::error::Error + 'static)| TraceError::from_loading(error, BYTES);
        let mut programs = EbpfLoader::new()
            .btf(Some(&types))
            .verifier_log_level(VerifierLogLevel::DISABLE)
            .override_global(TOKEN, &token, true)
            .load(OBJECT)
            .map_err(|error| refused(&error))?;
        let program = programs.program_mut(PROGRAM);
        let program = program.ok_or_else(|| TraceError::Refused {
            why: format!("program {PROGRAM} is missing from the BPF object"),
        })?;
        let attach = |program: &mut BtfTracePoint| {
            program.load(PROGRAM, &types)?;
            program.attach().map(drop)
        };
        let program = program.try_into().map_err(|error| refused(&error))?;
        attach(program).map_err(|error| refused(&error))?;
        Ok(Self { programs, reasons })
    }

    /// Returns how many datagrams have been dropped so far for each reason, most frequent reason
    /// first. The reasons have the kernel's names, without the prefix `SKB_DROP_REASON_`.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let map = self.programs.map(DROPPED);
        let Some(map) = map.and_then(|map| HashMap::<&MapData, u32, u64>::try_from(map).ok())
        else {
            return Vec::new();
        };
        let counts = map.iter().filter_map(Result::ok);
        let mut counts: Vec<(String, u64)> = counts
            .filter(|&(_, count)| count > 0)
            .map(|(reason, count)| (self.reasons.name(reason), count))
            .collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }
}
