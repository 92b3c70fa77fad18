//! ticktax's vocabulary: the types that the other crates exchange.
//!
//! A recording is a [`recording::Header`] followed by a stream of [`recording::Row`]s that describe
//! what happened on each CPU. The analysis turns a recording into a document, such as a
//! [`statement::Statement`]. Both are built from the smaller types in this crate, which makes no
//! system calls. Reading and writing files is left to `ticktax_store`.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod advice;
pub mod autogroup;
pub mod beats;
pub mod case;
pub mod clock;
pub mod comparison;
pub mod configured;
pub mod cpu;
pub mod document;
pub mod facts;
pub mod finding;
pub mod glance;
pub mod group;
pub mod guests;
pub mod hidden;
pub mod histogram;
pub mod hook;
pub mod incident;
pub mod interrupt_rows;
pub mod interval;
pub mod kernel_walk;
pub mod kernel_words;
pub mod kernels;
pub mod knob;
pub mod late_timers;
pub mod lengths;
pub mod limitation;
pub mod machine;
pub mod mem;
pub mod moment;
pub mod net;
pub mod net_experiment;
pub mod pace;
pub mod packet_path;
pub mod packets;
pub mod policy;
pub mod pressure;
pub mod profile;
pub mod real_time;
pub mod recording;
pub mod replay;
pub mod sampled_code;
pub mod span;
pub mod statement;
pub mod storage;
pub mod table;
pub mod tick;
pub mod time;
pub mod timekeeping;
pub mod totals;
pub mod utc;
pub mod victim;
pub mod waits;
pub mod witness;
pub mod workload;

/// Calls the macro `$with` with all document types, grouped by module. Each entry consists of the
/// variant, the document's name in JSON, the verbs that print it, and its type.
///
/// This is the only list of documents, and any code that needs one is generated from it. For
/// example, `ticktax-report` has a text page for each document, in a module of the same name.
#[macro_export]
macro_rules! each_document {
    ($with:ident) => {
        $with! {
            statement {
                Statement "statement" "`audit`, `report`, `lab run -- audit`" Statement;
            }
            beats {
                Beats "beats" "`beats`" BeatStatement;
            }
            pace {
                Pace "pace" "`pace`, `report`, `lab run -- pace`" PaceStatement;
            }
            net {
                Net "net" "`net pair`, `net send`, `net recv`" NetStatement;
            }
            packets {
                Packets "packets" "`pace --udp`" PacketStatement;
            }
            incident {
                Incidents "incidents" "`incidents list`" IncidentList;
                Incident "incident" "`incidents show`" IncidentSheet;
            }
            case {
                Cases "cases" "`case list`" CaseList;
                CaseSheet "case-sheet" "`case show`" CaseSheet;
                Case "case" "`case run`" CaseStatement;
                CaseFit "case-fit" "`case fit`" CaseFit;
            }
            kernels {
                CaseOnKernels "case-on-kernels" "`lab compare --case`" KernelsStatement;
                Kernels "kernels" "`lab list`" KernelList;
                KernelBuild "kernel-build" "`lab build`" KernelBuild;
            }
            comparison {
                Comparison "comparison"
                "`try`, `compare`, `sim`, `sweep`, `pace --vary`, `net pair --vary`, `lab compare`"
                Comparison;
            }
            knob {
                Knobs "knobs" "`knob list`" KnobList;
                Knob "knob" "`knob show`" KnobSheet;
                KnobReadings "knob-readings" "`knob get`" KnobReadings;
                Undo "undo" "`undo`" UndoStatement;
            }
            mem {
                MemLatency "mem-latency" "`mem latency`" MemLatency;
                MemWalk "mem-walk" "`mem walk`" MemWalk;
                MemObjects "mem-objects" "`mem objects`" MemObjects;
            }
            timekeeping {
                Timekeeping "clock" "`clock`" Timekeeping;
            }
            storage {
                Storage "storage" "`storage`" Storage;
                FsyncStudy "storage-fsync" "`storage fsync`" FsyncStudy;
            }
            pressure {
                WritePressure "storage-pressure" "`storage pressure`" WritePressure;
            }
        }
    };
}

pub use cpu::{Cpu, CpuList};
pub use histogram::Histogram;
pub use interval::Interval;
pub use lengths::{Intervals, Lengths, tellable};
pub use moment::Moment;
pub use span::{Kind, Owner, Source, SourceId, SourceTable, Span, Thread};
pub use time::Nanos;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires this signature"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
