//! Tests packet paths in which every step is known.

use ticktax_analysis::Auditor;
use ticktax_fixture::{books, header, process, replay, thread, whole};
use ticktax_model::machine::{Machine, SoftnetCounts};
use ticktax_model::packet_path::{PacketPaths, ReceivedIn, Step};
use ticktax_model::recording::{Edge, Effect, Header, Row};
use ticktax_model::victim::{Target, VictimHeader};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceId, SourceTable};

const US: i64 = 1_000;
const MS: i64 = 1_000_000;

/// The sources: a receiver, a program that delays it, kernel threads, and interrupts.
struct Cast {
    sources: SourceTable,
    game: SourceId,
    hog: SourceId,
    ksoftirqd: SourceId,
    idle: SourceId,
    card: SourceId,
    rx: SourceId,
    timers: SourceId,
}

const GAME: i32 = 10;

impl Cast {
    fn new() -> Self {
        let mut sources = SourceTable::default();
        let mut kernel = |kind, name| sources.intern(Source::kernel(kind, name, ""));
        let (card, rx) = (kernel(Kind::Irq, "eth0"), kernel(Kind::Softirq, "NET_RX"));
        let timers = kernel(Kind::Softirq, "TIMER");
        Self {
            game: sources.intern(process(Owner::Program, "game", GAME)),
            hog: sources.intern(process(Owner::Program, "hog", 20)),
            ksoftirqd: sources.intern(process(Owner::Kernel, "ksoftirqd/0", 15)),
            idle: sources.intern(Source::idle()),
            card,
            rx,
            timers,
            sources,
        }
    }

    fn statement(&self, rows: &[Row], header: &Header) -> Option<PacketPaths> {
        let mut auditor = Auditor::new(&Machine::default()).without_beats();
        if header.victim.is_some() {
            auditor = auditor.following(Nanos::ZERO, None);
        }
        replay(&self.sources, rows, &mut auditor);
        auditor.finish(header, &self.sources, 1).packets
    }

    fn packets(&self, rows: &[Row]) -> PacketPaths {
        self.statement(rows, &traced()).unwrap()
    }

    /// Returns the rows for a network card interrupt at `at` on CPU 0, which is idle. The interrupt
    /// raises `NET_RX` after 2 µs. The softirq starts at 4 µs and wakes the game at 7 µs.
    fn packet(&self, at: i64) -> Vec<Row> {
        vec![
            raised(0, at + 2 * US, self.card),
            whole(0, at, 3 * US, self.card),
            woke(0, at + 7 * US, self.rx, GAME),
            whole(0, at + 4 * US, 6 * US, self.rx),
        ]
    }
}

fn traced() -> Header {
    let mut header = header();
    header.cpus.push(books(0, 0, 1_000 * MS));
    header.cpus.push(books(1, 0, 1_000 * MS));
    header
}

fn raised(cpu: u32, at: i64, by: SourceId) -> Row {
    let effect = Effect::Raised("NET_RX".into());
    Row::Edge(Edge::new(Cpu(cpu), Nanos(at), by, effect))
}

fn woke(cpu: u32, at: i64, by: SourceId, tid: i32) -> Row {
    Row::Edge(Edge::new(Cpu(cpu), Nanos(at), by, Effect::Woke(tid)))
}

fn ran(cpu: u32, from: i64, to: i64, source: SourceId) -> Row {
    whole(cpu, from, to - from, source)
}

/// Returns the steps of the longest path, with their lengths in ns.
fn steps(packets: &PacketPaths) -> Vec<(Step, i64)> {
    let longest = packets.longest.first().unwrap();
    let steps = longest.steps.iter();
    steps.map(|step| (step.step, step.time.0)).collect()
}

/// Returns the sources that were on the CPU during the longest step of the longest path, with their
/// times in ns.
fn behind(packets: &PacketPaths) -> Vec<(&str, i64)> {
    let by = packets.longest.first().unwrap().ran.iter();
    by.map(|holder| (&*holder.name, holder.time.0)).collect()
}

#[test]
fn a_path_has_four_steps_from_the_interrupt_to_the_run() {
    let cast = Cast::new();
    let mut rows = vec![ran(0, 0, 90 * US, cast.game)];
    rows.extend(cast.packet(100 * US));
    rows.push(ran(0, 90 * US, 115 * US, cast.idle));
    rows.push(ran(0, 115 * US, 200 * US, cast.game));
    let packets = cast.packets(&rows);
    let (irq, raised) = (Step::Interrupt, Step::Raised);
    let (receiving, woken) = (Step::Receiving, Step::Woken);
    let expected = [
        (irq, 2_000),
        (raised, 2_000),
        (receiving, 3_000),
        (woken, 8_000),
    ];
    assert_eq!(steps(&packets), expected);
    assert_eq!((packets.wakeups, packets.followed), (1, 1));
    assert_eq!(packets.delay.max, Some(Nanos(15 * US)));
    let longest = &packets.longest[0];
    assert_eq!(longest.at, Nanos(100 * US));
    assert_eq!(longest.longest, Step::Woken);
    assert!(longest.ran.is_empty(), "a short delay is not examined");
    let way = &packets.groups[0];
    let named = (way.raised_by.as_deref(), way.kind, way.received_in);
    assert_eq!(named, (Some("eth0"), Some(Kind::Irq), ReceivedIn::Softirq));
    let thread = &packets.threads[0];
    assert_eq!(
        (&*thread.name, thread.pid, thread.tid),
        ("game", GAME, GAME)
    );
}

#[test]
fn a_wait_for_the_cpu_is_reported_with_the_occupants() {
    let cast = Cast::new();
    // A 20 µs timer softirq interrupts the hog.
    let mut rows = vec![ran(0, 0, 50 * US, cast.game)];
    rows.extend(cast.packet(100 * US));
    rows.push(whole(0, MS, 20 * US, cast.timers));
    rows.push(ran(0, 50 * US, 5 * MS, cast.hog));
    rows.push(ran(0, 5 * MS, 6 * MS, cast.game));
    let packets = cast.packets(&rows);
    let woken = packets
        .steps
        .iter()
        .find(|step| step.step == Step::Woken)
        .unwrap();
    assert_eq!(woken.length.max, Some(Nanos(5 * MS - 107 * US)));
    assert_eq!(woken.slow_count, 1);
    // The part of the wait that `NET_RX` itself takes is reported as `NET_RX`.
    let own = 5 * MS - 107 * US - 3 * US - 20 * US;
    let expected = [("hog", own), ("TIMER", 20 * US), ("NET_RX", 3 * US)];
    assert_eq!(behind(&packets), expected);
    assert_eq!(packets.slowest().unwrap().step, Step::Woken);
}

#[test]
fn a_delayed_softirq_is_reported_with_what_ran_before_it() {
    let cast = Cast::new();
    let rows = [
        ran(0, 0, 50 * US, cast.game),
        raised(0, 102 * US, cast.card),
        whole(0, 100 * US, 3 * US, cast.card),
        whole(0, 105 * US, 4 * MS, cast.timers),
        woke(0, 4 * MS + 110 * US, cast.rx, GAME),
        whole(0, 4 * MS + 106 * US, 10 * US, cast.rx),
        ran(0, 50 * US, 4 * MS + 120 * US, cast.idle),
        ran(0, 4 * MS + 120 * US, 5 * MS, cast.game),
    ];
    let packets = cast.packets(&rows);
    assert_eq!(packets.longest[0].longest, Step::Raised);
    let expected = [("TIMER", 4 * MS), ("idle", 3 * US), ("eth0", US)];
    assert_eq!(behind(&packets), expected);
}

/// The hog delays `ksoftirqd`, which then runs `NET_RX`.
#[test]
fn a_softirq_deferred_to_ksoftirqd_is_a_separate_kind_of_path() {
    let cast = Cast::new();
    let mut rows = vec![ran(0, 0, 50 * US, cast.game)];
    rows.extend(cast.packet(100 * US));
    rows.push(ran(0, 50 * US, 120 * US, cast.idle));
    rows.push(ran(0, 120 * US, 200 * US, cast.game));
    rows.extend([
        raised(0, 302 * US, cast.rx),
        ran(0, 200 * US, 3 * MS, cast.hog),
        woke(0, 3 * MS + 5 * US, cast.rx, GAME),
        whole(0, 3 * MS + US, 10 * US, cast.rx),
        ran(0, 3 * MS, 3 * MS + 20 * US, cast.ksoftirqd),
        ran(0, 3 * MS + 20 * US, 4 * MS, cast.game),
    ]);
    let packets = cast.packets(&rows);
    let way_in = |received_in| {
        packets
            .groups
            .iter()
            .find(|way| way.received_in == received_in)
            .unwrap()
    };
    let handed = way_in(ReceivedIn::Ksoftirqd);
    assert_eq!(handed.raised_by.as_deref(), Some("NET_RX"));
    assert_eq!(handed.delay.max, Some(Nanos(3 * MS + 20 * US - 302 * US)));
    assert_eq!(way_in(ReceivedIn::Softirq).delay.count, 1);
    assert_eq!(packets.longest[0].received_in, ReceivedIn::Ksoftirqd);
    let expected = [("hog", 3 * MS - 302 * US), ("ksoftirqd/0", US)];
    assert_eq!(behind(&packets), expected);
}

/// On loopback and veth, the sending thread raises `NET_RX` without an interrupt.
#[test]
fn the_path_of_a_softirq_raised_by_a_thread_begins_there() {
    let mut cast = Cast::new();
    let peer = |tid| thread(Owner::Program, "worker", "peer", (30, tid));
    let peers = [cast.sources.intern(peer(31)), cast.sources.intern(peer(32))];
    let mut rows = Vec::new();
    for (number, &peer) in (0..).zip(&peers) {
        let at = number * MS;
        rows.extend([
            ran(1, at, at + 50 * US, cast.game),
            raised(0, at + 102 * US, peer),
            woke(0, at + 104 * US, cast.rx, GAME),
            whole(0, at + 103 * US, 4 * US, cast.rx),
            ran(0, at, at + 200 * US, peer),
            ran(1, at + 50 * US, at + 108 * US, cast.idle),
            ran(1, at + 108 * US, at + MS, cast.game),
        ]);
    }
    let packets = cast.packets(&rows);
    assert_eq!(packets.groups.len(), 1, "threads of a program count as one");
    let way = &packets.groups[0];
    let raised_by = (way.raised_by.as_deref(), way.kind, way.delay.count);
    assert_eq!(raised_by, (Some("peer"), Some(Kind::Task), 2));
    let (raised, receiving) = ((Step::Raised, US), (Step::Receiving, US));
    assert_eq!(steps(&packets), [raised, receiving, (Step::Woken, 4 * US)]);
}

#[test]
fn missing_edges_drop_a_step_and_missing_rows_drop_the_packet() {
    let cast = Cast::new();
    let rows = [
        ran(0, 0, 50 * US, cast.game),
        // No edge shows which interrupt or thread raised this softirq.
        woke(0, 107 * US, cast.rx, GAME),
        whole(0, 104 * US, 6 * US, cast.rx),
        ran(0, 50 * US, 115 * US, cast.idle),
        ran(0, 115 * US, 200 * US, cast.game),
        // This softirq's row is lost.
        woke(0, 250 * US, cast.rx, GAME),
        ran(0, 200 * US, 260 * US, cast.idle),
        ran(0, 260 * US, 300 * US, cast.game),
        // The thread never runs after this wake-up.
        woke(0, 407 * US, cast.rx, GAME),
        whole(0, 404 * US, 6 * US, cast.rx),
        ran(0, 300 * US, 1_000 * MS, cast.hog),
    ];
    let packets = cast.packets(&rows);
    let not_followed = packets.not_followed;
    assert_eq!(
        (
            not_followed.not_run,
            not_followed.no_softirq,
            not_followed.no_room
        ),
        (1, 1, 0)
    );
    assert_eq!((packets.wakeups, packets.followed), (3, 1));
    let first = [(Step::Receiving, 3 * US), (Step::Woken, 8 * US)];
    assert_eq!(steps(&packets), first);
    assert_eq!(packets.groups[0].raised_by, None);
    // Wake-ups by other sources do not count, and neither do softirqs that wake no thread.
    let others = [woke(0, 5, cast.timers, GAME), ran(0, 10, 20, cast.game)];
    assert_eq!(cast.statement(&others, &traced()), None);
}

#[test]
fn the_order_of_rows_of_different_cpus_does_not_matter() {
    let cast = Cast::new();
    let mut receiving = Vec::new();
    let mut running = vec![ran(1, 0, 50 * US, cast.game)];
    for number in 0..40 {
        let at = 100 * US + number * MS;
        receiving.extend(cast.packet(at));
        receiving.push(ran(0, at - 100 * US, at + 900 * US, cast.idle));
        let left = if number == 0 { 50 * US } else { at - 900 * US };
        running.push(ran(1, left, at + 27 * US, cast.idle));
        running.push(ran(1, at + 27 * US, at + 100 * US, cast.game));
    }
    let first: Vec<Row> = receiving.iter().chain(&running).cloned().collect();
    // A thread is tracked only once its first packet arrives, so rows from before that packet are
    // ignored.
    let split = receiving.len() / 2;
    let (early, late) = receiving.split_at(split);
    let mixed: Vec<Row> = early.iter().chain(&running).chain(late).cloned().collect();
    let packets = cast.packets(&first);
    assert_eq!(packets.followed, 40);
    assert_eq!(packets.delay.max, Some(Nanos(27 * US)));
    assert_eq!(packets.delay.median, cast.packets(&mixed).delay.median);
    assert_eq!(cast.packets(&mixed), packets);
}

/// If a thread was running when an interrupt on its own CPU woke it, it simply continues. If it was
/// woken from another CPU just before it left its own, it goes to sleep and comes back. If
/// something else woke it before it left, it continues.
#[test]
fn a_thread_that_was_running_continues() {
    let cast = Cast::new();
    let mut rows = cast.packet(100 * US);
    rows.extend([
        ran(0, 0, 105 * US + 10 * US, cast.game),
        ran(0, 115 * US, 500 * US, cast.idle),
        ran(0, 500 * US, 600 * US, cast.game),
    ]);
    let packets = cast.packets(&rows);
    assert_eq!(packets.longest[0].steps.last().unwrap().time, Nanos::ZERO);

    let elsewhere = |again: bool| {
        let mut rows = cast.packet(100 * US);
        rows.push(ran(0, 0, 900 * US, cast.idle));
        rows.push(ran(1, 0, 109 * US, cast.game));
        if again {
            rows.push(woke(1, 490 * US, cast.timers, GAME));
        }
        rows.push(ran(1, 109 * US, 500 * US, cast.idle));
        rows.push(ran(1, 500 * US, 600 * US, cast.game));
        cast.packets(&rows).longest[0].steps.last().unwrap().time
    };
    assert_eq!(elsewhere(false), Nanos(393 * US));
    assert_eq!(elsewhere(true), Nanos::ZERO);
}

/// The thread waits behind the hog on its previous CPU, then migrates to an idle one.
#[test]
fn if_the_new_cpu_was_idle_the_occupant_of_the_old_cpu_is_named() {
    let cast = Cast::new();
    // A thread is tracked only once its first packet arrives. Rows from other CPUs can arrive after
    // that packet even if they happened before it.
    let mut rows = cast.packet(100 * US);
    rows.extend([
        ran(1, 0, 50 * US, cast.game),
        ran(0, 0, 3 * MS, cast.idle),
        ran(0, 3 * MS, 4 * MS, cast.game),
        ran(1, 50 * US, 9 * MS, cast.hog),
    ]);
    let packets = cast.packets(&rows);
    assert_eq!(behind(&packets), [("hog", 3 * MS - 107 * US)]);
}

#[test]
fn among_equal_delays_the_first_comes_first() {
    let cast = Cast::new();
    let mut rows = vec![ran(0, 0, 50 * US, cast.game)];
    for number in 0..12 {
        let at = 100 * US + number * MS;
        rows.extend(cast.packet(at));
        let left = if number == 0 { 50 * US } else { at - 900 * US };
        rows.push(ran(0, left, at + 15 * US, cast.idle));
        rows.push(ran(0, at + 15 * US, at + 100 * US, cast.game));
    }
    let packets = cast.packets(&rows);
    let at: Vec<i64> = packets
        .longest
        .iter()
        .map(|delay| delay.at.0 / MS)
        .collect();
    assert_eq!(at, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn only_the_watched_programs_packets_are_reported() {
    let cast = Cast::new();
    let mut rows = vec![ran(0, 0, 50 * US, cast.game)];
    rows.extend(cast.packet(100 * US));
    rows.push(woke(0, 108 * US, cast.rx, 20));
    // The softirq's row arrives last.
    rows.swap(4, 5);
    rows.push(ran(0, 50 * US, 115 * US, cast.idle));
    rows.push(ran(0, 115 * US, 200 * US, cast.game));
    rows.push(ran(0, 200 * US, 300 * US, cast.hog));
    let mut header = traced();
    let thread_names = |header: &Header| {
        let packets = cast.statement(&rows, header)?;
        let threads = packets.threads.iter().map(|thread| thread.name.clone());
        Some(threads.collect::<Vec<_>>())
    };
    assert_eq!(thread_names(&header).unwrap().len(), 2);
    header.victim = Some(VictimHeader {
        pid: Some(20),
        ..VictimHeader::new(Target::Process, "hog".to_owned(), Nanos::ZERO)
    });
    assert_eq!(thread_names(&header).unwrap(), ["hog"]);
}

#[test]
fn kernel_counters_are_reported_even_if_no_packet_was_seen() {
    let cast = Cast::new();
    let mut header = traced();
    let counts = |processed, squeezed| SoftnetCounts {
        processed,
        squeezed,
        ..SoftnetCounts::default()
    };
    header.before.softnet = [(0, counts(5, 1)), (1, counts(0, 0))].into();
    header.after.softnet = [(0, counts(9, 1)), (1, counts(0, 0))].into();
    assert_eq!(cast.statement(&[], &header), None, "nothing to report");
    header.after.softnet.insert(0, counts(90, 4));
    let packets = cast.statement(&[], &header).unwrap();
    let cpu = packets.cpus[0];
    assert_eq!((cpu.processed, cpu.squeezed, cpu.dropped), (85, 3, 0));
    assert_eq!((packets.cpus.len(), packets.wakeups), (1, 0));
}
