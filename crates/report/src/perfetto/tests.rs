use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use ticktax_model::recording::{CodeFile, CodeFunction, Edge, Effect, PacedFrame, Row, RowSink};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable, Span, Thread};

use super::Perfetto;
use super::proto::{EventType, Trace, TrackEvent};
use crate::text::tests::samples::kernel_level;

/// Returns the rows of one CPU. An interrupt interrupts a game and is itself interrupted by an NMI.
/// Then the CPU idles. Finally, the game runs again after waiting from 90 to 100.
fn rows() -> (SourceTable, Vec<Row>) {
    let mut sources = SourceTable::default();
    let game = |kind, detail: &str| Source {
        kind,
        owner: Owner::Program,
        name: "main".into(),
        detail: detail.into(),
        thread: Some(Thread {
            pid: 40,
            tid: 41,
            program: "game".into(),
        }),
    };
    let run = sources.intern(game(Kind::Task, ""));
    let wait = sources.intern(game(Kind::Wait, "woken"));
    let idle = sources.intern(Source::idle());
    let irq = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
    let nmi = sources.intern(Source::kernel(Kind::Nmi, "nmi", ""));
    let row = |source, start, end, own| {
        Row::Span(Span {
            cpu: Cpu(0),
            start: Nanos(start),
            dur: Nanos(end - start),
            self_time: Nanos(own),
            source,
        })
    };
    let rows = vec![
        row(nmi, 20, 22, 2),
        // This interrupt starts together with the game's span, and continues after the NMI.
        row(irq, 10, 30, 18),
        row(run, 10, 50, 20),
        row(irq, 60, 100, 40),
        row(idle, 50, 100, 10),
        row(wait, 90, 100, 10),
        row(run, 100, 110, 10),
    ];
    (sources, rows)
}

/// Returns the trace made from [`rows`].
fn trace() -> Trace {
    let (sources, rows) = rows();
    trace_of(&sources, &rows)
}

fn trace_of(sources: &SourceTable, rows: &[Row]) -> Trace {
    let mut bytes = Vec::new();
    let mut perfetto = Perfetto::new(&mut bytes);
    for row in rows {
        perfetto.row(sources, row);
    }
    let sums = perfetto
        .finish(sources, &kernel_level().into(), &[])
        .unwrap();
    assert_eq!(sums, 0);
    Trace::decode(&bytes[..]).unwrap()
}

/// Returns the events on each track in the order in which Perfetto reads them: by time, then by
/// position in the file.
fn events(trace: &Trace) -> BTreeMap<u64, Vec<(u64, TrackEvent)>> {
    let mut tracks: BTreeMap<u64, Vec<(u64, TrackEvent)>> = BTreeMap::new();
    for packet in &trace.packet {
        if let Some(event) = &packet.track_event {
            let events = tracks.entry(event.track_uuid.unwrap()).or_default();
            events.push((packet.timestamp.unwrap(), event.clone()));
        }
    }
    for events in tracks.values_mut() {
        events.sort_by_key(|(at, _)| *at);
    }
    tracks
}

#[test]
fn tracks_are_declared_before_use() {
    let mut declared = BTreeSet::new();
    for packet in trace().packet {
        if let Some(track) = packet.track_descriptor {
            assert!(
                track
                    .parent_uuid
                    .is_none_or(|parent| declared.contains(&parent))
            );
            assert!(declared.insert(track.uuid.unwrap()), "declared twice");
        }
        if let Some(event) = packet.track_event {
            assert!(declared.contains(&event.track_uuid.unwrap()));
        }
    }
}

#[test]
fn the_own_time_of_nested_slices_matches_the_rows() {
    let (sources, rows) = rows();
    let events = events(&trace());
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    let mut open: Vec<String> = Vec::new();
    let mut last = 0;
    for (at, event) in &events[&(1 << 32)] {
        if let Some(name) = open.last() {
            *own.entry(name.clone()).or_default() += at - last;
        }
        last = *at;
        if event.r#type() == EventType::SliceBegin {
            open.push(event.name.clone().unwrap());
        } else {
            open.pop().expect("a slice to end");
        }
    }
    assert!(open.is_empty());
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for span in rows.iter().map(Row::span) {
        let source = sources.get(span.source);
        if source.kind != Kind::Wait {
            *expected.entry(source.to_string()).or_default() += span.self_time.0.unsigned_abs();
        }
    }
    assert_eq!(own, expected);
}

/// Returns the time and ID of every flow start, then those of every flow end.
fn flows(trace: &Trace) -> [Vec<(u64, u64)>; 2] {
    let events: Vec<(u64, TrackEvent)> = events(trace).into_values().flatten().collect();
    let all = |ids: fn(&TrackEvent) -> &Vec<u64>| {
        let ids_of = |(at, event): &(u64, TrackEvent)| -> Vec<(u64, u64)> {
            ids(event).iter().map(|&id| (*at, id)).collect()
        };
        events.iter().flat_map(ids_of).collect()
    };
    [
        all(|event| &event.flow_ids),
        all(|event| &event.terminating_flow_ids),
    ]
}

#[test]
fn a_flow_leads_from_the_wait_to_the_run() {
    assert_eq!(flows(&trace()), [[(90, 1)], [(100, 1)]]);
}

#[test]
fn a_flow_leads_from_the_wake_up_to_its_run_and_never_to_a_later_one() {
    let (mut sources, mut rows) = rows();
    let irq = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
    let woke = |at| Row::Edge(Edge::new(Cpu(1), Nanos(at), irq, Effect::Woke(41)));
    rows.insert(5, woke(88));
    let marked = trace_of(&sources, &rows);
    assert_eq!(flows(&marked), [[(88, 1)], [(100, 1)]]);
    // This wake-up arrives after the span that it caused.
    let (sources, mut rows) = self::rows();
    rows.push(woke(95));
    let Row::Span(last) = rows[6] else {
        panic!("a span")
    };
    rows.push(Row::Span(Span {
        start: Nanos(200),
        ..last
    }));
    let late = trace_of(&sources, &rows);
    assert_eq!(flows(&late), [[(90, 1)], [(100, 1)]]);
}

#[test]
fn periodic_sources_and_limitations_appear_once_each() {
    let statement = kernel_level();
    let limitations = statement.coverage.limitations.len();
    let beats = statement.beats.map_or(0, |beats| beats.beats.len());
    let events = events(&trace());
    let count = |name: &str| {
        let all = events.values().flatten();
        all.filter(|entry| entry.1.categories == [name]).count()
    };
    assert!(limitations > 0);
    assert_eq!(count("limitation"), limitations);
    assert_eq!(count("beat"), beats);
}

#[test]
fn frames_have_a_separate_track() {
    let mut sources = SourceTable::default();
    let pace = Source::kernel(Kind::Frame, "pace", "");
    let source = sources.intern(pace);
    let mut bytes = Vec::new();
    let mut perfetto = Perfetto::new(&mut bytes);
    for due in [100, 200] {
        let span = Span {
            cpu: Cpu(3),
            start: Nanos(due + 7),
            dur: Nanos(30),
            self_time: Nanos(30),
            source,
        };
        let due = Nanos(due);
        perfetto.row(&sources, &Row::Frame(PacedFrame { span, due }));
    }
    perfetto
        .finish(&sources, &kernel_level().into(), &[])
        .unwrap();
    let events = events(&Trace::decode(&bytes[..]).unwrap());
    let frames = &events[&((6 << 32) | 3)];
    let at: Vec<u64> = frames.iter().map(|event| event.0).collect();
    assert_eq!(at, [107, 137, 207, 237]);
    let late = &frames[0].1.debug_annotations[0];
    assert_eq!(
        (late.name.as_deref(), late.string_value.as_deref()),
        (Some("late_ns"), Some("7"))
    );
}

#[test]
fn samples_of_a_profile_have_named_stacks() {
    let (mut sources, _) = rows();
    let softirq = sources.intern(Source::kernel(Kind::Softirq, "NET_RX", ""));
    let game = sources
        .iter()
        .find(|(_, source)| source.kind == Kind::Task)
        .map(|(id, _)| id)
        .unwrap();
    let sample = |at, source, code: &str| {
        let effect = Effect::Profiled(code.into());
        Row::Edge(Edge::new(Cpu(1), Nanos(at), source, effect))
    };
    let rows = [
        sample(10, game, "game;game+0x12"),
        sample(20, game, "read_[k];vfs_read_[k]"),
        sample(30, softirq, "net_rx_action_[k]"),
        sample(40, game, "game;game+0x12"),
        sample(50, game, ""),
        // The samples of culprits come at varying rates.
        Row::Edge(Edge::new(
            Cpu(1),
            Nanos(60),
            game,
            Effect::Sampled("f_[k]".into()),
        )),
    ];
    let files = [CodeFile {
        name: "game".to_owned(),
        functions: vec![CodeFunction {
            name: "update".to_owned(),
            first_offset: 0x12,
            last_offset: 0x12,
        }],
        ..CodeFile::default()
    }];
    let mut bytes = Vec::new();
    let mut perfetto = Perfetto::new(&mut bytes);
    for row in &rows {
        perfetto.row(&sources, row);
    }
    perfetto
        .finish(&sources, &kernel_level().into(), &files)
        .unwrap();
    let (mut functions, mut stacks) = (BTreeMap::new(), BTreeMap::new());
    let mut samples = Vec::new();
    for packet in Trace::decode(&bytes[..]).unwrap().packet {
        let interned = packet.interned_data.unwrap_or_default();
        for function in interned.function_names {
            let text = String::from_utf8(function.text.unwrap()).unwrap();
            assert!(functions.insert(function.iid.unwrap(), text).is_none());
        }
        for stack in interned.callstacks {
            let names = stack.frame_ids.iter().map(|iid| functions[iid].clone());
            stacks.insert(stack.iid.unwrap(), names.collect::<Vec<_>>().join(";"));
        }
        if let Some(sample) = packet.perf_sample {
            let stack = stacks[&sample.callstack_iid.unwrap()].clone();
            samples.push((packet.timestamp.unwrap(), sample.tid.unwrap(), stack));
        }
    }
    let expected = [
        (10, 41, "game;update"),
        (20, 41, "read;vfs_read"),
        (30, 0, "softirq NET_RX;net_rx_action"),
        (40, 41, "game;update"),
        (50, 41, "[unknown]"),
    ];
    let expected = expected.map(|(at, tid, stack)| (at, tid, stack.to_owned()));
    assert_eq!(samples, expected);
}
