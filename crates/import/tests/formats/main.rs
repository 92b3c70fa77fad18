//! Opens traces of every format. The same events in each format must give the same recording.

mod damage;
mod perf;
mod perfetto;
mod text;
mod trace_dat;

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;
use ticktax_import::ImportError;
use ticktax_model::Kind;
use ticktax_model::limitation::{ImportLimit, Limitation};
use ticktax_model::recording::{Effect, Header, Row};
use ticktax_store::recording::RecordingReader;

/// An event of the example, at a time in µs.
#[derive(Clone, Copy, Debug)]
struct Example {
    cpu: u32,
    at_us: u64,
    /// Thread that was running.
    pid: i32,
    event: Kernel,
}

#[derive(Clone, Copy, Debug)]
enum Kernel {
    Switch {
        prev: &'static str,
        /// State in which the thread left its CPU: 0 if it was preempted, 1 if it slept.
        state: u8,
        next: &'static str,
        next_pid: i32,
    },
    Waking {
        name: &'static str,
        pid: i32,
    },
    IrqEntry(&'static str),
    IrqExit,
    SoftirqEntry(u32),
    SoftirqExit(u32),
}

const fn at(cpu: u32, at_us: u64, pid: i32, event: Kernel) -> Example {
    Example {
        cpu,
        at_us,
        pid,
        event,
    }
}

const fn switch(prev: &'static str, state: u8, next: &'static str, next_pid: i32) -> Kernel {
    Kernel::Switch {
        prev,
        state,
        next,
        next_pid,
    }
}

const WAKES_WORK: Kernel = Kernel::Waking {
    name: "work",
    pid: 11,
};

/// Two CPUs. On CPU 0, `work` preempts `game` 100 µs after `net`, on CPU 1, woke it.
const EXAMPLE: &[Example] = &[
    at(0, 1_000, 0, switch("swapper/0", 0, "game", 10)),
    at(1, 1_000, 0, switch("swapper/1", 0, "net", 12)),
    at(1, 1_200, 12, Kernel::IrqEntry("eth0")),
    at(1, 1_210, 12, Kernel::IrqExit),
    at(1, 1_300, 12, WAKES_WORK),
    at(0, 1_400, 10, switch("game", 0, "work", 11)),
    at(0, 1_900, 11, switch("work", 1, "game", 10)),
    at(0, 2_400, 10, switch("game", 1, "swapper/0", 0)),
    at(1, 2_500, 12, Kernel::SoftirqEntry(3)),
    at(1, 2_520, 12, Kernel::SoftirqExit(3)),
    at(1, 3_000, 12, switch("net", 1, "swapper/1", 0)),
];

/// A recording's header, the self time of each source in µs, and the wake-ups.
struct Opened {
    header: Header,
    times_us: BTreeMap<String, i64>,
    /// Time, waker and woken thread of each wake-up.
    wakes: Vec<(i64, String, i32)>,
}

impl Opened {
    fn limits(&self) -> Vec<&ImportLimit> {
        let limitations = self.header.coverage.limitations.iter();
        limitations
            .filter_map(|limitation| match limitation {
                Limitation::Imported { limit } => Some(limit),
                _ => None,
            })
            .collect()
    }
}

fn open(path: &Path) -> Result<Opened, ImportError> {
    ticktax_import::open(path).map(read)
}

fn read(mut recording: RecordingReader) -> Opened {
    let mut times = BTreeMap::new();
    let mut accounted = BTreeMap::new();
    let mut wakes = Vec::new();
    recording
        .replay(&mut |sources, row| {
            let source = sources.get(row.source());
            match row {
                Row::Span(span) => {
                    let name = match source.kind {
                        Kind::Idle => "idle".to_owned(),
                        _ => source.to_string(),
                    };
                    *times.entry(name).or_insert(0) += span.self_time.0;
                    *accounted.entry(span.cpu).or_insert(0) += span.self_time.0;
                }
                Row::Edge(edge) => {
                    if let Effect::Woke(tid) = edge.effect {
                        wakes.push((edge.span.start.0, source.name.to_string(), tid));
                    }
                }
                row => panic!("{row:?}"),
            }
        })
        .expect("a converted recording is intact");
    let header = recording.header().clone();
    for cpu in &header.cpus {
        let accounted = accounted.get(&cpu.cpu).copied().unwrap_or_default();
        assert_eq!(accounted, cpu.elapsed().0, "the balance of CPU {}", cpu.cpu);
    }
    Opened {
        header,
        times_us: times
            .into_iter()
            .map(|(name, time)| (name, time / 1_000))
            .collect(),
        wakes,
    }
}

/// Writes a file and opens it.
fn open_bytes(bytes: &[u8]) -> Result<Opened, ImportError> {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("trace");
    std::fs::write(&path, bytes).expect("a file");
    open(&path)
}

/// Checks that a trace with the example's events was read correctly.
fn check_example(opened: &Opened) {
    let expected = [
        ("NET_RX", 20),
        ("eth0", 10),
        ("game", 900),
        ("idle", 600),
        ("net", 1_970),
        ("work", 500),
    ];
    let times = opened.times_us.iter();
    let times: Vec<(&str, i64)> = times.map(|(name, time)| (&**name, *time)).collect();
    assert_eq!(times, expected);
    assert_eq!(opened.wakes, [(1_300_000, "net".to_owned(), 11)]);
    let limits = opened.limits();
    assert!(!limits.contains(&&ImportLimit::WakeupsNotRecorded));
    assert!(!limits.contains(&&ImportLimit::WakersUncertain));
    let missed = |limit: &&&ImportLimit| matches!(limit, ImportLimit::WakeupsMissed { .. });
    assert!(limits.iter().find(missed).is_none(), "{limits:?}");
}
