//! Tests the stops that late timers prove, using CPUs whose delays have known causes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ticktax_analysis::Auditor;
use ticktax_fixture::{books, process, replay, watched_header, whole};
use ticktax_model::kernel_words::{Interrupted, LOCAL_TIMER, SLEEP_FUNCTION};
use ticktax_model::late_timers::LateTimers;
use ticktax_model::limitation::{Limitation, NoLateTimers};
use ticktax_model::machine::Machine;
use ticktax_model::recording::{Header, Row, World};
use ticktax_model::{Cpu, Kind, Nanos, Owner, Source, SourceTable};

const US: i64 = 1_000;
const MS: i64 = 1_000_000;
const TICK: i64 = 4 * MS;
const TICK_FUNCTION: &str = "tick_nohz_handler";
/// Length of the recordings.
const LENGTH: i64 = 400 * MS;
/// Minimum delay of an interrupt that the tracer records (`LATE_NS` in `trace/bpf/record.h`).
const RECORDED_FROM: i64 = 500 * US;

/// Reason why a CPU cannot take an interrupt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    /// The hypervisor or firmware takes the CPU.
    Stop,
    /// A device interrupt's handler is running.
    Handler,
    /// The timer interrupt itself takes long, and the kernel then postpones timers for just as
    /// long.
    SlowTimer,
    /// A system call has disabled interrupts.
    Disabled,
}

/// A CPU that runs a program or is idle. At known times, it cannot take interrupts.
struct Machinery {
    idle: bool,
    /// Period of a sleeping thread's timer, or 0 if no thread sleeps.
    sleeper: i64,
    /// Start, length and cause of the times without interrupts. They do not overlap.
    blocked: Vec<(i64, i64, Cause)>,
}

impl Machinery {
    fn rows(&self) -> (SourceTable, Vec<Row>) {
        let mut sources = SourceTable::default();
        let mut irq =
            |name: &str, detail: &str| sources.intern(Source::kernel(Kind::Irq, name, detail));
        let device = irq("device", "");
        let (timer, tick) = (irq(LOCAL_TIMER, ""), irq(LOCAL_TIMER, TICK_FUNCTION));
        let sleep = irq(LOCAL_TIMER, SLEEP_FUNCTION);
        // Group the timers by the time of the interrupt that runs them.
        let mut interrupts: BTreeMap<i64, (Cause, Vec<(i64, bool)>)> = BTreeMap::new();
        let dues = |period: i64| {
            (1..)
                .map(move |n| n * period)
                .take_while(|&due| due < LENGTH)
        };
        let ticks = dues(TICK).map(|due| (due, true));
        let mut all: Vec<(i64, bool)> = ticks.collect();
        if self.sleeper > 0 {
            all.extend(dues(self.sleeper).map(|due| (due + 7 * US, false)));
        }
        all.sort_unstable();
        for (due, is_tick) in all {
            let (mut at, mut cause) = (due + 2 * US, Cause::Handler);
            for &(start, length, by) in &self.blocked {
                let postponed = if by == Cause::SlowTimer { length } else { 0 };
                let end = start + length + postponed;
                if (start..end).contains(&due) {
                    (at, cause) = (end + 2 * US, by);
                }
            }
            interrupts
                .entry(at)
                .or_insert((cause, Vec::new()))
                .1
                .push((due, is_tick));
        }
        let mut rows: Vec<(i64, Row)> = Vec::new();
        for &(start, length, cause) in &self.blocked {
            let source = match cause {
                Cause::Handler => device,
                Cause::SlowTimer => timer,
                Cause::Stop | Cause::Disabled => continue,
            };
            rows.push((start + length, whole(0, start, length, source)));
        }
        for (&at, (cause, timers)) in &interrupts {
            let context = match (cause, self.idle) {
                (Cause::Disabled, _) => Interrupted::Kernel,
                (_, true) => Interrupted::Idle,
                (_, false) => Interrupted::User,
            };
            for &(due, is_tick) in timers {
                let function = if is_tick { tick } else { sleep };
                if at - due > RECORDED_FROM {
                    // Only the tick knows whether it interrupted user mode.
                    let seen = if is_tick || context == Interrupted::Idle {
                        context
                    } else {
                        Interrupted::Kernel
                    };
                    let detail = if is_tick {
                        TICK_FUNCTION
                    } else {
                        SLEEP_FUNCTION
                    };
                    let late = sources.intern(Source::kernel(Kind::Late, seen.name(), detail));
                    rows.push((at, whole(0, due, at - due, late)));
                }
                rows.push((at, whole(0, at, US, function)));
            }
            rows.push((at + 2 * US, whole(0, at, 2 * US, timer)));
        }
        rows.sort_by_key(|&(end, _)| end);
        let base = if self.idle {
            sources.intern(Source::idle())
        } else {
            sources.intern(process(Owner::Program, "loop", 7))
        };
        rows.push((LENGTH, whole(0, 0, LENGTH, base)));
        (sources, rows.into_iter().map(|(_, row)| row).collect())
    }

    fn late(&self, header: &Header) -> Option<LateTimers> {
        let (sources, rows) = self.rows();
        let mut auditor = Auditor::new(&header.machine).without_beats();
        replay(&sources, &rows, &mut auditor);
        auditor.finish(header, &sources, 1).late_timers
    }

    /// Returns the lengths of all stops that are long enough to be found without fail.
    fn stops(&self, from: i64) -> Vec<i64> {
        let stops = self
            .blocked
            .iter()
            .filter(|&&(_, length, cause)| cause == Cause::Stop && length >= from);
        stops.map(|&(_, length, _)| length).collect()
    }
}

fn header() -> Header {
    Header {
        world: World::Live,
        machine: Machine {
            hypervisor: Some("KVM".to_owned()),
            ..Machine::default()
        },
        cpus: vec![books(0, 0, LENGTH)],
        ..watched_header()
    }
}

/// Returns up to 8 times without interrupts, at least 8 ms apart.
fn blocked(causes: &'static [Cause]) -> impl Strategy<Value = Vec<(i64, i64, Cause)>> {
    let one = (
        8 * MS..30 * MS,
        100 * US..18 * MS,
        prop::sample::select(causes),
    );
    prop::collection::vec(one, 0..8).prop_map(|all| {
        let mut at = 0;
        let place = |(gap, length, cause)| {
            let start = at + gap;
            // Postponed timers run after twice the length.
            at = start + 2 * length;
            (start, length, cause)
        };
        all.into_iter().map(place).collect()
    })
}

proptest! {
    #[test]
    fn the_kernels_own_delays_are_never_stops(
        idle: bool,
        sleeper in prop::sample::select(vec![0, 250 * US, 3 * MS]),
        blocked in blocked(&[Cause::Handler, Cause::SlowTimer, Cause::Disabled]),
    ) {
        let late = Machinery { idle, sleeper, blocked }.late(&header()).unwrap();
        prop_assert_eq!(late.stops.count, 0, "{:?}", late);
    }

    #[test]
    fn stops_are_never_overestimated(
        idle: bool,
        sleeper in prop::sample::select(vec![0, 250 * US, 3 * MS]),
        blocked in blocked(&[Cause::Handler, Cause::Stop, Cause::Disabled, Cause::Stop]),
    ) {
        let world = Machinery { idle, sleeper, blocked };
        let late = world.late(&header()).unwrap();
        let truth: i64 = world.stops(0).iter().sum();
        prop_assert!(late.stops.time.0 <= truth + 3 * US * 8, "{:?} of {}", late.stops, truth);
        // The tick alone shows each stop that is longer than a tick period plus the minimum.
        let found = world.stops(TICK + 2 * MS).len() as u64;
        prop_assert!(late.stops.count >= found, "{:?} of {}", late.stops, found);
    }

    #[test]
    fn a_dense_timer_measures_the_length_of_a_stop(
        idle: bool,
        blocked in blocked(&[Cause::Stop]),
    ) {
        let world = Machinery { idle, sleeper: 250 * US, blocked };
        let late = world.late(&header()).unwrap();
        let mut truth = world.stops(5 * MS);
        truth.sort_unstable_by(|a, b| b.cmp(a));
        for (truth, stop) in truth.iter().zip(&late.longest) {
            let off = truth - stop.at.length.0;
            prop_assert!((0..=truth / 10).contains(&off), "{} is {:?}", truth, stop);
        }
        prop_assert!(late.longest.len() >= truth.len().min(LateTimers::LISTED));
    }
}

fn one(idle: bool, cause: Cause) -> Machinery {
    Machinery {
        idle,
        sleeper: 0,
        blocked: vec![(99 * MS, 20 * MS, cause)],
    }
}

#[test]
fn a_stop_has_its_time_and_its_proof() {
    for (idle, interrupted) in [(false, Interrupted::User), (true, Interrupted::Idle)] {
        let late = one(idle, Cause::Stop).late(&header()).unwrap();
        let [stop] = &*late.longest else {
            panic!("{late:?}");
        };
        // The tick was due at 100 ms. The first 50 µs may belong to the kernel.
        assert_eq!(stop.at.at, Nanos(100 * MS + 50 * US));
        assert_eq!(stop.at.length, Nanos(19 * MS - 48 * US));
        assert_eq!((stop.at.cpu, stop.interrupted), (Cpu(0), interrupted));
        assert_eq!((late.stops.count, late.unproven.count), (1, 0));
    }
}

#[test]
fn delays_with_interrupts_disabled_are_unproven() {
    let late = one(false, Cause::Disabled).late(&header()).unwrap();
    assert_eq!((late.stops.count, late.unproven.count), (0, 1));
    assert_eq!(late.unproven.max, Nanos(19 * MS + 2 * US));
}

#[test]
fn a_physical_cpu_may_need_a_millisecond_to_leave_an_idle_state() {
    let physical = Header {
        machine: Machine::default(),
        ..header()
    };
    let length = |idle| one(idle, Cause::Stop).late(&physical).unwrap().stops.time;
    assert_eq!(length(false) - length(true), Nanos(MS));
}

#[test]
fn unseen_interrupts_may_explain_the_longest_stops() {
    let world = Machinery {
        blocked: vec![
            (99 * MS, 20 * MS, Cause::Stop),
            (199 * MS, 9 * MS, Cause::Stop),
        ],
        ..one(false, Cause::Stop)
    };
    let mut doubtful = header();
    let untraced = |count| Limitation::InterruptsNotTraced {
        cpu: Cpu(0),
        interrupt: "PIN".to_owned(),
        count,
    };
    doubtful.coverage.limitations = vec![untraced(1)];
    let late = world.late(&doubtful).unwrap();
    assert_eq!((late.stops.count, late.unproven.count), (1, 1));
    assert_eq!(late.stops.max, late.longest[0].at.length);
    assert!(late.stops.max < Nanos(9 * MS) && late.unproven.max > Nanos(18 * MS));
    doubtful.coverage.limitations = vec![untraced(2)];
    let late = world.late(&doubtful).unwrap();
    assert_eq!((late.stops.count, late.unproven.count), (0, 2));
    let mut unwatched = header();
    unwatched.coverage.every_entry_watched = false;
    assert_eq!(world.late(&unwatched).unwrap().stops.count, 0);
}

#[test]
fn a_recording_without_times_or_ticks_has_a_limitation() {
    let sources = SourceTable::default();
    let auditor = Auditor::new(&Machine::default());
    let statement = auditor.finish(&header(), &sources, 1);
    assert_eq!(statement.late_timers, None);
    let reason = NoLateTimers::NoTick;
    let limitation = Limitation::LateTimersNotSeen { reason };
    assert!(statement.coverage.limitations.contains(&limitation));
}

#[test]
fn recordings_without_late_timers_prove_nothing() {
    let world = one(false, Cause::Stop);
    for header in [
        Header {
            schema: 3,
            ..header()
        },
        Header {
            world: World::Simulated,
            ..header()
        },
    ] {
        assert_eq!(world.late(&header), None);
    }
}
