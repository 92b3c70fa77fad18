//! Converts a recording to a trace for [Perfetto](https://ui.perfetto.dev). Each CPU and each
//! thread has a track, and spans are slices. A flow leads from each wake-up to the slice of the
//! woken thread. Periodic sources and limitations are events with annotations. Samples of a profile
//! are samples with stacks.
//!
//! A CPU's rows arrive in order of end time, so an interrupt arrives before the span that it
//! interrupted. Perfetto sorts events by time, but keeps the order of events with equal times. A
//! CPU's rows are therefore held until the thread or idle span that they interrupted has arrived,
//! and then written from the outermost to the innermost. The number of held rows is bounded. Times
//! are on the recorded machine's `CLOCK_MONOTONIC`.

mod proto;
mod samples;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use prost::Message;
use ticktax_model::beats::BeatLine;
use ticktax_model::document::Document;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{CodeFile, PacedFrame, Row, RowSink};
use ticktax_model::victim::OffCpuReason;
use ticktax_model::{Cpu, Kind, Nanos, SourceTable, Span, Thread};

use crate::limitation;
use crate::wakeups::WakeUps;
use proto::{
    DebugAnnotation, EventType, ProcessDescriptor, ThreadDescriptor, Trace, TracePacket,
    TrackDescriptor, TrackEvent,
};
use samples::Samples;

/// ID of the parent track of all CPU tracks.
const CPUS: u64 = 1;
/// ID of the track for events about the whole recording.
const RECORDING: u64 = 2;
/// Maximum number of held rows per CPU. When the limit is reached, the rows are written early.
/// Perfetto may then show slices that start at the same nanosecond in the wrong order.
const HELD: usize = 1 << 16;
/// Number of bytes to buffer before a write.
const BUFFER: usize = 1 << 16;

/// A Perfetto trace under construction.
#[derive(Debug)]
pub struct Perfetto<W> {
    out: W,
    buffer: Vec<u8>,
    /// First write error. Nothing is written after it.
    error: Option<io::Error>,
    declared: HashSet<u64>,
    /// The NMIs, interrupts and softirqs on each CPU that arrived after its last thread or idle
    /// span.
    held: HashMap<Cpu, Vec<Span>>,
    /// The latest wait of each thread. It is removed when the thread's next span arrives.
    waits: HashMap<i32, Span>,
    wake_ups: WakeUps,
    samples: Samples,
    flows: u64,
    /// Earliest start of all rows so far.
    begin: Option<Nanos>,
    /// Number of rows that are sums. Sums have no slices.
    sums: u64,
}

impl<W: Write> Perfetto<W> {
    /// Starts a trace that will be written to `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            buffer: Vec::with_capacity(2 * BUFFER),
            error: None,
            declared: HashSet::new(),
            held: HashMap::new(),
            waits: HashMap::new(),
            wake_ups: WakeUps::default(),
            samples: Samples::default(),
            flows: 0,
            begin: None,
            sums: 0,
        }
    }

    /// Writes the held rows and samples, and the events about the whole recording. `files` contains
    /// the names of sampled functions. Returns the number of rows that are sums, which have no
    /// slices. A recording that keeps sums has few or no spans.
    ///
    /// # Errors
    /// Returns the first write error.
    pub fn finish(
        mut self,
        sources: &SourceTable,
        document: &Document,
        files: &[CodeFile],
    ) -> io::Result<u64> {
        let held = std::mem::take(&mut self.held);
        for (cpu, spans) in held {
            self.nested(sources, cpu, spans);
        }
        for span in std::mem::take(&mut self.waits).into_values() {
            self.wait(sources, &span, None);
        }
        let samples = std::mem::take(&mut self.samples);
        samples.packets(sources, files, |packet| self.packet(packet));
        self.about(document);
        if samples.is_full() {
            let problem = "the profile has too many samples: the last ones are missing";
            self.remark("limitation", problem.to_owned(), &[]);
        }
        self.flush();
        match self.error {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.sums),
        }
    }

    fn span(&mut self, sources: &SourceTable, span: &Span) {
        self.begin = Some(self.begin.map_or(span.start, |begin| begin.min(span.start)));
        match sources.get(span.source).kind {
            Kind::Wait => {
                let thread = sources.get(span.source).thread.as_ref();
                let Some(tid) = thread.map(|thread| thread.tid) else {
                    return;
                };
                if let Some(before) = self.waits.insert(tid, *span) {
                    self.wait(sources, &before, None);
                }
            }
            Kind::Frame | Kind::Late => {}
            Kind::Gap | Kind::Steal => self.aside(sources, span),
            Kind::Irq | Kind::Softirq | Kind::Nmi => {
                let held = self.held.entry(span.cpu).or_default();
                held.push(*span);
                if held.len() >= HELD {
                    let spans = std::mem::take(held);
                    self.nested(sources, span.cpu, spans);
                }
            }
            Kind::Task | Kind::Idle => {
                let mut spans = self.held.remove(&span.cpu).unwrap_or_default();
                spans.push(*span);
                self.nested(sources, span.cpu, spans);
            }
        }
    }

    /// Writes the spans of a CPU, each before the spans that interrupted it.
    fn nested(&mut self, sources: &SourceTable, cpu: Cpu, mut spans: Vec<Span>) {
        let track = self.cpu_track(cpu);
        // If two spans have the same start and end, the one that arrived first interrupted the
        // other.
        spans.reverse();
        spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end())));
        let mut open: Vec<Nanos> = Vec::new();
        for span in &spans {
            while let Some(end) = open.pop_if(|end| *end <= span.start) {
                self.event(track, end, EventType::SliceEnd, TrackEvent::default());
            }
            let flow = self.ran(sources, span);
            let source = sources.get(span.source);
            let event = TrackEvent {
                name: Some(source.to_string()),
                categories: vec![source.kind.name().to_owned()],
                terminating_flow_ids: flow.into_iter().collect(),
                ..TrackEvent::default()
            };
            self.event(track, span.start, EventType::SliceBegin, event);
            open.push(span.end());
        }
        while let Some(end) = open.pop() {
            self.event(track, end, EventType::SliceEnd, TrackEvent::default());
        }
    }

    /// Writes the wake-up that led to a thread's `span`, on the track of the CPU where the wake-up
    /// happened. Returns the ID of the flow that starts at the wake-up, or `None` if no wake-up is
    /// known.
    fn woke(&mut self, sources: &SourceTable, thread: &Thread, span: &Span) -> Option<u64> {
        let by = self.wake_ups.take_waker(thread.tid, span)?;
        self.flows += 1;
        let flow = self.flows;
        let event = TrackEvent {
            name: Some(format!("wakes {}", sources.get(span.source).name)),
            categories: vec!["wake-up".to_owned()],
            flow_ids: vec![flow],
            debug_annotations: vec![DebugAnnotation {
                name: Some("by".to_owned()),
                string_value: Some(sources.get(by.source).to_string()),
            }],
            ..TrackEvent::default()
        };
        let track = self.cpu_track(by.cpu);
        self.event(track, by.start, EventType::Instant, event);
        Some(flow)
    }

    /// Writes a thread's span to the thread's own track as well, after the wait that preceded it.
    /// Returns the ID of the flow that leads to the slice on the CPU's track. The flow starts at
    /// the wake-up, or at the wait if no wake-up is known.
    fn ran(&mut self, sources: &SourceTable, span: &Span) -> Option<u64> {
        let source = sources.get(span.source);
        let thread = source
            .thread
            .as_ref()
            .filter(|_| source.kind == Kind::Task)?;
        let woke = self.woke(sources, thread, span);
        let waited = self.waits.remove(&thread.tid).and_then(|wait| {
            let joins = wait.end() == span.start && woke.is_none();
            let flow = joins.then(|| {
                self.flows += 1;
                self.flows
            });
            self.wait(sources, &wait, flow);
            flow
        });
        let flow = woke.or(waited);
        let track = self.thread_track(thread, &source.name);
        let event = TrackEvent {
            name: Some(format!("on CPU {}", span.cpu)),
            categories: vec!["running".to_owned()],
            ..TrackEvent::default()
        };
        self.slice(track, span, event);
        flow
    }

    /// Writes a wait to the track of its thread.
    fn wait(&mut self, sources: &SourceTable, span: &Span, flow: Option<u64>) {
        let source = sources.get(span.source);
        let Some(thread) = &source.thread else {
            return;
        };
        let reason = OffCpuReason::from_detail(&source.detail);
        let name = match reason {
            Some((reason, _)) if !reason.is_time() => return,
            Some((reason, _)) => reason.name(),
            None => &source.detail,
        };
        let track = self.thread_track(thread, &source.name);
        let event = TrackEvent {
            name: Some(name.to_owned()),
            categories: vec![source.kind.name().to_owned()],
            flow_ids: flow.into_iter().collect(),
            ..TrackEvent::default()
        };
        self.slice(track, span, event);
    }

    /// Writes a gap or stolen time to a separate track, because it overlaps the spans of the CPU.
    fn aside(&mut self, sources: &SourceTable, span: &Span) {
        let source = sources.get(span.source);
        let cpu = u64::from(span.cpu.0);
        let place = if source.kind == Kind::Gap { 2 } else { 3 };
        let track = (place << 32) | cpu;
        self.declare(TrackDescriptor {
            uuid: Some(track),
            name: Some(format!("CPU {cpu} {}", source.kind)),
            parent_uuid: Some(CPUS),
            ..TrackDescriptor::default()
        });
        let event = TrackEvent {
            name: Some(source.to_string()),
            categories: vec![source.kind.name().to_owned()],
            ..TrackEvent::default()
        };
        self.slice(track, span, event);
    }

    /// Writes a frame of a paced loop to a separate track, because it overlaps the spans of the
    /// CPU.
    fn frame(&mut self, sources: &SourceTable, frame: &PacedFrame) {
        let span = &frame.span;
        self.begin = Some(self.begin.map_or(span.start, |begin| begin.min(span.start)));
        let cpu = u64::from(span.cpu.0);
        let track = (6 << 32) | cpu;
        self.cpu_track(span.cpu);
        self.declare(TrackDescriptor {
            uuid: Some(track),
            name: Some(format!("CPU {cpu} frames")),
            parent_uuid: Some(CPUS),
            ..TrackDescriptor::default()
        });
        let late = (span.start - frame.due).0.to_string();
        let event = TrackEvent {
            name: Some(sources.get(span.source).to_string()),
            categories: vec![Kind::Frame.name().to_owned()],
            debug_annotations: annotations_of(&[("late_ns", late)]),
            ..TrackEvent::default()
        };
        self.slice(track, span, event);
    }

    /// Writes the events about the whole recording, placed at its start.
    fn about(&mut self, document: &Document) {
        self.declare(TrackDescriptor {
            uuid: Some(RECORDING),
            name: Some("ticktax".to_owned()),
            ..TrackDescriptor::default()
        });
        let (beats, limitations) = recording_wide(document);
        for beat in beats {
            let annotations = [
                ("period_ns", format!("{:.0}", beat.rhythm.period)),
                ("share", beat.share.to_string()),
                ("cpus", beat.cpus.to_string()),
                ("triggered by", beat.chain.join(" → ")),
            ];
            self.remark("beat", format!("beat: {}", beat.name), &annotations);
        }
        for limitation in limitations {
            let words = limitation::words(limitation);
            let plain = |text: String| text.replace('\u{a0}', " ");
            let annotations = [("effect", plain(words.effect))];
            self.remark("limitation", plain(words.problem), &annotations);
        }
    }

    fn remark(&mut self, category: &str, name: String, annotations: &[(&str, String)]) {
        let event = TrackEvent {
            name: Some(name),
            categories: vec![category.to_owned()],
            debug_annotations: annotations_of(annotations),
            ..TrackEvent::default()
        };
        let begin = self.begin.unwrap_or_default();
        self.event(RECORDING, begin, EventType::Instant, event);
    }

    fn cpu_track(&mut self, cpu: Cpu) -> u64 {
        self.declare(TrackDescriptor {
            uuid: Some(CPUS),
            name: Some("CPUs".to_owned()),
            ..TrackDescriptor::default()
        });
        let track = (1 << 32) | u64::from(cpu.0);
        self.declare(TrackDescriptor {
            uuid: Some(track),
            name: Some(format!("CPU {cpu}")),
            parent_uuid: Some(CPUS),
            ..TrackDescriptor::default()
        });
        track
    }

    fn thread_track(&mut self, thread: &Thread, name: &str) -> u64 {
        let process = (4 << 32) | u64::from(thread.pid.unsigned_abs());
        self.declare(TrackDescriptor {
            uuid: Some(process),
            process: Some(ProcessDescriptor {
                pid: Some(thread.pid),
                process_name: Some(thread.program.to_string()),
            }),
            ..TrackDescriptor::default()
        });
        let track = (5 << 32) | u64::from(thread.tid.unsigned_abs());
        self.declare(TrackDescriptor {
            uuid: Some(track),
            parent_uuid: Some(process),
            thread: Some(ThreadDescriptor {
                pid: Some(thread.pid),
                tid: Some(thread.tid.into()),
                thread_name: Some(name.to_owned()),
            }),
            ..TrackDescriptor::default()
        });
        track
    }

    /// Declares a track unless it has been declared before.
    fn declare(&mut self, track: TrackDescriptor) {
        if self.declared.insert(track.uuid.unwrap_or_default()) {
            self.packet(TracePacket {
                track_descriptor: Some(track),
                ..TracePacket::default()
            });
        }
    }

    fn slice(&mut self, track: u64, span: &Span, event: TrackEvent) {
        self.event(track, span.start, EventType::SliceBegin, event);
        self.event(
            track,
            span.end(),
            EventType::SliceEnd,
            TrackEvent::default(),
        );
    }

    fn event(&mut self, track: u64, at: Nanos, kind: EventType, event: TrackEvent) {
        let event = TrackEvent {
            r#type: Some(kind.into()),
            track_uuid: Some(track),
            ..event
        };
        self.packet(TracePacket {
            timestamp: Some(at.0.max(0).unsigned_abs()),
            track_event: Some(event),
            ..TracePacket::default()
        });
    }

    fn packet(&mut self, packet: TracePacket) {
        let sequence = packet.trusted_packet_sequence_id.unwrap_or(1);
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(sequence),
            ..packet
        };
        // Concatenated traces form one trace, so each packet is written as a separate trace.
        // Encoding cannot fail, because a `Vec` grows as needed.
        let trace = Trace {
            packet: vec![packet],
        };
        trace
            .encode(&mut self.buffer)
            .expect("a buffer that grows has room");
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.out.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }
}

impl<W: Write> RowSink for Perfetto<W> {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        match row {
            Row::Span(span) => self.span(sources, span),
            Row::Sum(_) => self.sums += 1,
            Row::Frame(frame) => self.frame(sources, frame),
            Row::Edge(edge) => {
                self.wake_ups.edge(edge);
                self.samples.edge(edge);
            }
        }
    }
}

/// Returns the periodic sources and limitations in the document. They concern the whole recording.
fn recording_wide(document: &Document) -> (&[BeatLine], &[Limitation]) {
    match document {
        Document::Statement(content) => {
            let beats = content.beats.as_ref().map_or(&[][..], |beats| &beats.beats);
            (beats, &content.coverage.limitations)
        }
        Document::Pace(content) => (&[], &content.limitations),
        _ => (&[], &[]),
    }
}

fn annotations_of(all: &[(&str, String)]) -> Vec<DebugAnnotation> {
    let annotation = |(name, value): &(&str, String)| DebugAnnotation {
        name: Some((*name).to_owned()),
        string_value: Some(value.clone()),
    };
    all.iter().map(annotation).collect()
}
