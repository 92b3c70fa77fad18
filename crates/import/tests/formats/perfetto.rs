//! Perfetto traces.

use ticktax_model::Owner;
use ticktax_model::limitation::ImportLimit;
use ticktax_model::recording::Row;

use crate::{EXAMPLE, Example, Kernel, check_example, open_bytes};

fn varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, field: u64, value: u64) -> Self {
        varint(field << 3, &mut self.0);
        varint(value, &mut self.0);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        varint(field << 3 | 2, &mut self.0);
        varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    fn list(self, field: u64, values: &[u64]) -> Self {
        let mut list = Vec::new();
        for &value in values {
            varint(value, &mut list);
        }
        self.bytes(field, &list)
    }
}

fn pid(pid: i32) -> u64 {
    u64::try_from(pid).expect("no negative id")
}

fn event(example: &Example) -> Message {
    let event = Message::default()
        .number(1, example.at_us * 1_000)
        .number(2, pid(example.pid));
    let fields = Message::default();
    match example.event {
        Kernel::Switch {
            prev,
            state,
            next,
            next_pid,
        } => {
            let fields = fields.bytes(1, prev.as_bytes()).number(2, pid(example.pid));
            let fields = fields.number(4, state.into()).bytes(5, next.as_bytes());
            event.message(4, &fields.number(6, pid(next_pid)))
        }
        Kernel::Waking { name, pid: woken } => {
            let fields = fields.bytes(1, name.as_bytes()).number(2, pid(woken));
            event.message(20, &fields)
        }
        Kernel::IrqEntry(name) => event.message(36, &fields.bytes(2, name.as_bytes())),
        Kernel::IrqExit => event.message(37, &fields),
        Kernel::SoftirqEntry(vec) => event.message(24, &fields.number(1, vec.into())),
        Kernel::SoftirqExit(vec) => event.message(25, &fields.number(1, vec.into())),
    }
}

fn bundle(cpu: u32) -> Message {
    let own = EXAMPLE.iter().filter(|example| example.cpu == cpu);
    own.fold(
        Message::default().number(1, cpu.into()),
        |bundle, example| bundle.message(2, &event(example)),
    )
}

fn processes() -> Message {
    let process = |tid: u64, parent: u64| Message::default().number(1, tid).number(2, parent);
    let tree = Message::default().message(1, &process(10, 1));
    // `net` is a kernel thread, and `work` a thread of `game`.
    let tree = tree.message(1, &process(12, 2));
    tree.message(2, &Message::default().number(1, 11).number(3, 10))
}

/// Returns the example with the bundles of CPU 1 first, and its second half compressed.
pub(crate) fn trace() -> Vec<u8> {
    let packet = |field, message: &Message| Message::default().message(field, message);
    let rest = Message::default()
        .message(1, &packet(1, &bundle(0)))
        .message(1, &packet(2, &processes()));
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&rest.0, 6);
    let trace = Message::default().message(1, &packet(1, &bundle(1)));
    trace.message(1, &Message::default().bytes(50, &packed)).0
}

#[test]
fn bundles_in_any_order_and_compressed_packets_are_read() {
    let opened = open_bytes(&trace()).unwrap();
    check_example(&opened);
    let limits = opened.limits();
    let unknown = |limit: &&ImportLimit| matches!(limit, ImportLimit::ProcessesUnknown { .. });
    assert!(!limits.into_iter().any(|limit| unknown(&limit)));
}

#[test]
fn processes_and_kernel_threads_are_known_from_the_process_tree() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    std::fs::write(&path, trace()).unwrap();
    let mut recording = ticktax_import::open(&path).unwrap();
    let mut found = Vec::new();
    recording
        .replay(&mut |sources, row| {
            let source = sources.get(row.source());
            if let (Row::Span(_), Some(thread)) = (row, &source.thread) {
                found.push((thread.tid, thread.pid, source.owner));
            }
        })
        .unwrap();
    found.sort_unstable();
    found.dedup();
    let expected = [
        (10, 10, Owner::Program),
        (11, 10, Owner::Program),
        (12, 12, Owner::Kernel),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_compact_form_has_the_same_times() {
    // CPU 0 of the example. The first switch shows only which thread runs from then on.
    let names = ["game", "work", "swapper/0"];
    let compact = Message::default()
        .list(1, &[1_000_000, 400_000, 500_000, 500_000])
        .list(2, &[0, 0, 1, 1])
        .list(3, &[10, 11, 10, 0]);
    let compact = names
        .iter()
        .fold(compact, |message, name| message.bytes(5, name.as_bytes()));
    let compact = compact
        .list(6, &[0, 1, 0, 2])
        .list(7, &[1_300_000])
        .list(8, &[11])
        .list(11, &[1]);
    let bundle = Message::default().number(1, 0).message(4, &compact);
    let packet = Message::default().message(1, &bundle);
    let trace = Message::default().message(1, &packet);
    let opened = open_bytes(&trace.0).unwrap();
    let times = &opened.times_us;
    assert_eq!((times["game"], times["work"]), (900, 500));
    assert_eq!(opened.wakes, [(1_300_000, "game".to_owned(), 11)]);
}
