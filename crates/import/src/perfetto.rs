//! Reads Perfetto traces.
//!
//! A trace is a list of packets. The kernel's events are in bundles, each from one CPU, that are
//! written when a buffer is full, so bundles from different CPUs can be far out of order. The
//! events are therefore collected and sorted. Packets with names of processes can come at any time,
//! so they are applied before the events.

mod proto;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use foldhash::fast::RandomState;
use prost::Message;
use ticktax_model::Kind;
use ticktax_store::recording::RecordingReader;

use self::proto::{Bundle, FtraceEvent, Packet, Packets, ProcessTree};
use crate::convert::Converter;
use crate::error::ImportError;
use crate::event::{Action, Event, Facts, Left, Task};
use crate::kind::TraceKind;
use crate::words::{self, known_name};

const KIND: TraceKind = TraceKind::Perfetto;

/// Maximum size of a packet, and of the packets in a compressed one, in bytes.
const MAX_PACKET: u64 = 256 << 20;

/// Number of bytes that all compressed packets may have together once they are unpacked, and how
/// much that number grows with each byte of the file.
const ROOM: u64 = 16 << 20;
const ROOM_PER_BYTE: u64 = 10;

/// First byte of each packet: field 1, with a length.
const PACKET: u8 = 0x0a;

/// Thread id in a switch whose previous thread is not in the event.
const UNKNOWN: i32 = -1;

/// Reads a Perfetto trace.
pub(crate) fn read(path: &Path, file: File) -> Result<RecordingReader, ImportError> {
    let mut converter = Converter::new(path)?;
    let length = file
        .metadata()
        .map_err(|error| ImportError::io(path, KIND, &error))?;
    let mut reader = PerfettoReader {
        room: ROOM.saturating_add(length.len().saturating_mul(ROOM_PER_BYTE)),
        converter: &mut converter,
        facts: Facts::default(),
        events: Vec::new(),
    };
    let mut input = BufReader::with_capacity(1 << 20, file);
    loop {
        match next_packet(&mut input).map_err(|error| ImportError::io(path, KIND, &error))? {
            Next::Packet(bytes) => reader.packet(&bytes),
            Next::Truncated => reader.facts.truncated = true,
            Next::End => break,
        }
        if reader.facts.truncated {
            break;
        }
    }
    let PerfettoReader { facts, events, .. } = reader;
    add(path, events, &mut converter)?;
    converter.finish(path, KIND, &facts)
}

enum Next {
    Packet(Vec<u8>),
    Truncated,
    End,
}

/// Reads the next packet.
fn next_packet(input: &mut impl BufRead) -> io::Result<Next> {
    let mut byte = [0];
    if input.read(&mut byte)? == 0 {
        return Ok(Next::End);
    }
    if byte != [PACKET] {
        return Ok(Next::Truncated);
    }
    let mut length = 0_u64;
    for place in 0..10 {
        if input.read(&mut byte)? == 0 {
            return Ok(Next::Truncated);
        }
        length |= u64::from(byte[0] & 0x7f) << (7 * place).min(63);
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut packet = Vec::new();
    let read = input
        .take(length.min(MAX_PACKET))
        .read_to_end(&mut packet)?;
    if read as u64 == length {
        Ok(Next::Packet(packet))
    } else {
        Ok(Next::Truncated)
    }
}

/// Passes the events on in the order of their times.
fn add(path: &Path, mut events: Vec<Event>, converter: &mut Converter) -> Result<(), ImportError> {
    events.sort_by_key(|event| event.at);
    let mut running: HashMap<u32, i32, RandomState> = HashMap::default();
    for mut event in events {
        if let Action::Switch { prev, next, .. } = &mut event.action {
            let before = running.insert(event.cpu, next.tid);
            if prev.tid == UNKNOWN {
                if let Some(tid) = before {
                    prev.tid = tid;
                } else {
                    // The first switch of a CPU only shows which thread runs from then on.
                    let next = *next;
                    if let Some(name) = next.name {
                        converter.threads.name(next.tid, name);
                    }
                    event.context = Some(next.tid);
                    event.action = Action::Seen;
                }
            }
        } else if let Some(context) = event.context {
            running.insert(event.cpu, context);
        } else if let Action::Lost(_) = event.action {
            running.remove(&event.cpu);
        }
        let added = converter.event(event);
        added.map_err(|why| ImportError::misfit(path, KIND, why))?;
    }
    Ok(())
}

struct PerfettoReader<'c> {
    /// Number of bytes that compressed packets may still have once they are unpacked.
    room: u64,
    converter: &'c mut Converter,
    facts: Facts,
    events: Vec<Event>,
}

impl PerfettoReader<'_> {
    fn packet(&mut self, bytes: &[u8]) {
        let Ok(packet) = Packet::decode(bytes) else {
            self.facts.undecoded += 1;
            return;
        };
        if let Some(packed) = packet.compressed_packets {
            self.compressed(&packed);
        }
        if let Some(bundle) = packet.ftrace_events {
            self.bundle(&bundle);
        }
        if let Some(tree) = packet.process_tree {
            self.processes(&tree);
        }
        if let Some(system) = packet.system_info {
            if let Some(names) = system.utsname {
                self.facts.kernel = names.release;
                self.facts.arch = names.machine;
            }
            if system.num_cpus > 0 {
                self.facts.cpus = Some(system.num_cpus);
            }
        }
    }

    fn compressed(&mut self, packed: &[u8]) {
        let limit = usize::try_from(self.room.min(MAX_PACKET)).unwrap_or(usize::MAX);
        let unpacked = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, limit);
        let unpacked = unpacked.unwrap_or_default();
        self.room = self.room.saturating_sub(unpacked.len() as u64);
        let packets = Packets::decode(&*unpacked)
            .ok()
            .filter(|_| !unpacked.is_empty());
        let Some(packets) = packets else {
            self.facts.undecoded += 1;
            return;
        };
        for packet in packets.packet {
            // Compressed packets are not nested.
            if !packet.is_empty() && !is_compressed(&packet) {
                self.packet(&packet);
            }
        }
    }

    fn processes(&mut self, tree: &ProcessTree) {
        let threads = &mut self.converter.threads;
        let names = &mut self.converter.names;
        for process in &tree.processes {
            threads.process(process.pid, process.pid);
            threads.parent(process.pid, process.ppid);
        }
        for thread in &tree.threads {
            threads.process(thread.tid, thread.tgid);
            if let Some(name) = known_name(&thread.name) {
                threads.name(thread.tid, names.intern(name));
            }
        }
    }

    fn bundle(&mut self, bundle: &Bundle) {
        let first = self.events.len();
        for event in &bundle.event {
            self.event(bundle.cpu, event);
        }
        if let Some(compact) = &bundle.compact_sched {
            self.compact(bundle.cpu, compact);
        }
        let start = self.events[first..].iter().map(|event| event.at).min();
        if let (true, Some(at)) = (bundle.lost_events, start) {
            let lost = Event {
                at,
                cpu: bundle.cpu,
                context: None,
                action: Action::Lost(1),
            };
            self.events.insert(first, lost);
        }
    }

    fn event(&mut self, cpu: u32, event: &FtraceEvent) {
        let names = &mut self.converter.names;
        let mut task = |tid: i32, name: &str| Task {
            tid,
            name: known_name(name).map(|name| names.intern(name)),
        };
        let action = if let Some(switch) = &event.sched_switch {
            let next = task(switch.next_pid, &switch.next_comm);
            Action::Switch {
                prev: task(switch.prev_pid, &switch.prev_comm),
                left: Left::from_number(switch.prev_state.cast_unsigned(), next.tid),
                next,
            }
        } else if let Some(woken) = &event.sched_waking {
            Action::Waking(task(woken.pid, &woken.comm))
        } else if let Some(woken) = &event.sched_wakeup {
            Action::Wakeup(task(woken.pid, &woken.comm))
        } else if let Some(woken) = &event.sched_wakeup_new {
            Action::WakeupNew(task(woken.pid, &woken.comm))
        } else if let Some(entry) = &event.irq_handler_entry {
            let name = words::interrupt(&entry.name);
            Action::Enter(Kind::Irq, names.intern(name))
        } else if let Some(entry) = &event.ipi_entry {
            Action::Enter(Kind::Irq, names.intern(&entry.reason))
        } else if event.irq_handler_exit.is_some() || event.ipi_exit.is_some() {
            Action::Leave(Kind::Irq)
        } else if let Some(softirq) = &event.softirq_entry {
            let name = words::softirq(softirq.vec.into());
            Action::Enter(Kind::Softirq, names.intern(name))
        } else if event.softirq_exit.is_some() {
            Action::Leave(Kind::Softirq)
        } else if let Some(softirq) = &event.softirq_raise {
            Action::Raised(names.intern(words::softirq(softirq.vec.into())))
        } else {
            Action::Seen
        };
        self.events.push(Event {
            at: time(event.timestamp),
            cpu,
            context: event.pid,
            action,
        });
    }

    /// Decodes switches and wake-ups in the compact form, which has one list for each field. Times
    /// are relative to the previous one.
    fn compact(&mut self, cpu: u32, compact: &proto::CompactSched) {
        let names: Vec<_> = compact
            .intern_table
            .iter()
            .map(|name| known_name(name).map(|name| self.converter.names.intern(name)))
            .collect();
        let name = |index: Option<&u32>| {
            let index = usize::try_from(*index?).ok()?;
            names.get(index).copied().flatten()
        };
        let mut at = 0_u64;
        for (place, step) in compact.switch_timestamp.iter().enumerate() {
            at = at.saturating_add(*step);
            let (Some(&tid), Some(&state)) = (
                compact.switch_next_pid.get(place),
                compact.switch_prev_state.get(place),
            ) else {
                self.facts.undecoded += 1;
                break;
            };
            let next = Task {
                tid,
                name: name(compact.switch_next_comm_index.get(place)),
            };
            self.events.push(Event {
                at: time(at),
                cpu,
                context: None,
                action: Action::Switch {
                    prev: Task {
                        tid: UNKNOWN,
                        name: None,
                    },
                    left: Left::from_number(state.cast_unsigned(), tid),
                    next,
                },
            });
        }
        let mut at = 0_u64;
        for (place, step) in compact.waking_timestamp.iter().enumerate() {
            at = at.saturating_add(*step);
            let Some(&tid) = compact.waking_pid.get(place) else {
                self.facts.undecoded += 1;
                break;
            };
            let woken = Task {
                tid,
                name: name(compact.waking_comm_index.get(place)),
            };
            self.events.push(Event {
                at: time(at),
                cpu,
                context: None,
                action: Action::Waking(woken),
            });
        }
    }
}

fn is_compressed(packet: &[u8]) -> bool {
    Packet::decode(packet).is_ok_and(|packet| packet.compressed_packets.is_some())
}

/// Converts a time. One that is too large becomes an impossible time, which is reported.
fn time(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(-1)
}
