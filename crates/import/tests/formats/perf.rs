//! perf.data files.

use ticktax_import::ImportError;
use ticktax_model::limitation::ImportLimit;

use crate::trace_dat::{Order, descriptions, encode};
use crate::{EXAMPLE, check_example, open_bytes};

const HEADER: u64 = 104;
const ATTRIBUTE: u64 = 112;
/// Id of the only event attribute.
const ID: u64 = 77;
/// `PERF_SAMPLE_TID`, `TIME`, `CPU`, `RAW` and `IDENTIFIER`.
const SAMPLE_TYPE: u64 = 0x2 | 0x4 | 0x80 | 0x400 | 0x1_0000;
/// `sample_id_all`
const FLAGS: u64 = 1 << 18;

const RECORD_LOST: u64 = 2;
const RECORD_COMM: u64 = 3;
const RECORD_FORK: u64 = 7;
const RECORD_SAMPLE: u64 = 9;

fn number(size: usize, value: u64) -> Vec<u8> {
    Order::Little.bytes(size, value)
}

fn record(kind: u64, mut body: Vec<u8>) -> Vec<u8> {
    body.resize(body.len().next_multiple_of(8), 0);
    let size = 8 + body.len() as u64;
    [number(4, kind), number(2, 0), number(2, size), body].concat()
}

/// Fields at the end of each record that is not a sample.
fn trailer(pid: u64, time: u64, cpu: u64) -> Vec<u8> {
    [
        number(4, pid),
        number(4, pid),
        number(8, time),
        number(4, cpu),
        number(4, 0),
        number(8, ID),
    ]
    .concat()
}

fn samples() -> Vec<Vec<u8>> {
    let sample = |example: &crate::Example| {
        let raw = encode(example, Order::Little);
        let pid = u64::from(example.pid.cast_unsigned());
        let mut body = [
            number(8, ID),
            number(4, pid),
            number(4, pid),
            number(8, example.at_us * 1_000),
            number(4, example.cpu.into()),
            number(4, 0),
        ]
        .concat();
        // The size of the raw data makes the record's a multiple of 8.
        let padded = (raw.len() + 4).next_multiple_of(8) - 4;
        body.extend(number(4, padded as u64));
        body.extend(raw);
        record(RECORD_SAMPLE, body)
    };
    EXAMPLE.iter().map(sample).collect()
}

/// Returns records about the threads, as perf writes them before the samples.
fn threads() -> Vec<u8> {
    let comm = |pid: u64, tid: u64, name: &str| {
        let mut name = name.as_bytes().to_vec();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        let body = [number(4, pid), number(4, tid), name, trailer(pid, 0, 0)];
        record(RECORD_COMM, body.concat())
    };
    let fork = |pid: u64, parent: u64| {
        let ids = [pid, parent, pid, parent].map(|id| number(4, id)).concat();
        let body = [ids, number(8, 0), trailer(pid, 0, 0)];
        record(RECORD_FORK, body.concat())
    };
    [
        comm(10, 10, "game"),
        comm(10, 11, "work"),
        comm(12, 12, "net"),
        fork(10, 1),
        fork(12, 2),
    ]
    .concat()
}

fn file_with(data: &[u8]) -> Vec<u8> {
    let tracing = descriptions("0.6", Order::Little);
    let attributes = HEADER + 8;
    let data_at = attributes + ATTRIBUTE + 16;
    let features_at = data_at + data.len() as u64;
    let mut file = [
        b"PERFILE2".to_vec(),
        number(8, HEADER),
        number(8, ATTRIBUTE + 16),
        number(8, attributes),
        number(8, ATTRIBUTE + 16),
        number(8, data_at),
        number(8, data.len() as u64),
        number(8, 0),
        number(8, 0),
        // The feature `TRACING_DATA`.
        number(8, 1 << 1),
        number(8, 0),
        number(8, 0),
        number(8, 0),
        number(8, ID),
    ]
    .concat();
    let tracepoint = 2;
    let mut attribute = [
        number(4, tracepoint),
        number(4, ATTRIBUTE),
        number(8, 1),
        number(8, 1),
        number(8, SAMPLE_TYPE),
        number(8, 0),
        number(8, FLAGS),
    ]
    .concat();
    attribute.resize(usize::try_from(ATTRIBUTE).expect("a small number"), 0);
    file.extend(attribute);
    file.extend([number(8, HEADER), number(8, 8)].concat());
    file.extend(data);
    file.extend(number(8, features_at + 16));
    file.extend(number(8, tracing.len() as u64));
    file.extend(tracing);
    file
}

pub(crate) fn file() -> Vec<u8> {
    file_with(&[threads(), samples().concat()].concat())
}

#[test]
fn samples_of_tracepoints_are_read_with_the_files_own_layouts() {
    let opened = open_bytes(&file()).unwrap();
    check_example(&opened);
    let limits = opened.limits();
    let mut unknown = limits.iter();
    assert!(!unknown.any(|limit| matches!(limit, ImportLimit::ProcessesUnknown { .. })));
}

#[test]
fn lost_records_leave_their_time_unexplained() {
    let mut samples = samples();
    // The switch from `work` to `game` is lost.
    let body = [number(8, ID), number(8, 3), trailer(11, 1_900_000, 0)];
    samples[6] = record(RECORD_LOST, body.concat());
    let opened = open_bytes(&file_with(&[threads(), samples.concat()].concat())).unwrap();
    assert_eq!(opened.times_us["unreported thread"], 1_000);
    assert_eq!(opened.header.coverage.events_lost(), 3);
}

#[test]
fn unfinished_files_are_refused() {
    let mut file = file();
    // perf writes the size of the data when it exits.
    file[48..56].fill(0);
    let error = open_bytes(&file).err().unwrap();
    assert!(error.to_string().contains("did not finish"), "{error}");
}

#[test]
fn files_without_tracepoints_are_refused() {
    let mut file = file();
    // The type of the only event attribute: a hardware counter.
    let place = usize::try_from(HEADER + 8).unwrap();
    file[place] = 0;
    // No description of tracepoints.
    file[72] = 0;
    let error = open_bytes(&file).err().unwrap();
    assert!(matches!(error, ImportError::Read { .. }), "{error}");
    assert!(error.to_string().contains("no tracepoints"), "{error}");
}
