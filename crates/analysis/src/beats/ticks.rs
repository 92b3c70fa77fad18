//! Determines when the kernel's ticks occur, to check whether a source's events coincide with them.

use ticktax_model::kernel_words::{LOCAL_TIMER, TICK_FUNCTIONS};
use ticktax_model::{Cpu, Nanos};

use super::stream::{Identity, Key};
use super::streams::Streams;
use ticktax_beats::{Events, FEWEST, Tick};

/// The phase of a CPU's ticks counts as known if the mean of their unit phase vectors is longer
/// than this.
const SHARP: f64 = 0.9;
/// Two CPUs' ticks coincide if their phases differ by at most this share of a tick.
const TOGETHER: f64 = 0.1;

#[derive(Debug, Default)]
pub(super) struct Ticks {
    tick: Option<Tick>,
    /// Time of one tick on each CPU, indexed by CPU number.
    by_cpu: Vec<Option<Nanos>>,
    /// Time of one tick, or `None` if the ticks of the CPUs do not all coincide.
    everywhere: Option<Nanos>,
}

impl Ticks {
    /// Determines when ticks occur, based on the streams so far. `end` is when the last event
    /// ended.
    pub(super) fn new(tick: Option<Tick>, streams: &Streams, end: Nanos) -> Self {
        let mut ticks = Self {
            tick,
            ..Self::default()
        };
        let Some(tick) = tick else {
            return ticks;
        };
        for stream in streams
            .iter()
            .filter(|stream| is_tick(&stream.key.identity))
        {
            let Some(cpu) = stream.key.cpu else {
                continue;
            };
            if cpu.index() >= ticks.by_cpu.len() {
                ticks.by_cpu.resize(cpu.index() + 1, None);
            }
            ticks.by_cpu[cpu.index()] = phase(&stream.collector.events(end), tick.length);
        }
        let mut known = ticks.by_cpu.iter().copied().flatten();
        let first = known.next();
        let is_near = |at: Nanos| {
            let turns = (at - first.unwrap_or_default()).0 as f64 / tick.length.0 as f64;
            (turns - turns.round()).abs() < TOGETHER
        };
        ticks.everywhere = first.filter(|_| known.all(is_near));
        ticks
    }

    /// Returns the tick with which a source's events can coincide, or `None` if the source is the
    /// tick itself.
    pub(super) fn for_source(&self, key: &Key) -> Option<Tick> {
        let at = key.cpu.map_or(self.everywhere, |cpu| self.at(cpu));
        let tick = self.tick.map(|tick| Tick { at, ..tick });
        tick.filter(|_| !is_interrupt_of_tick(&key.identity))
    }

    fn at(&self, cpu: Cpu) -> Option<Nanos> {
        self.by_cpu.get(cpu.index()).copied().flatten()
    }
}

pub(super) fn is_tick(identity: &Identity) -> bool {
    matches!(identity, Identity::Frame { function, .. } if TICK_FUNCTIONS.contains(&&**function))
}

/// Returns whether `identity` is the tick's own function or the interrupt around it.
fn is_interrupt_of_tick(identity: &Identity) -> bool {
    let is_interrupt_around = |identity: &Identity| {
        matches!(identity, Identity::Frame { name, function, .. }
            if function.is_empty() && &**name == LOCAL_TIMER)
    };
    is_tick(identity) || is_interrupt_around(identity)
}

/// Returns the time of one tick, or `None` if there are too few ticks or their phase varies.
fn phase(events: &Events, length: Nanos) -> Option<Nanos> {
    let turn = std::f64::consts::TAU;
    let first = *events.starts.first()?;
    let (sin, cos) = events.starts.iter().fold((0.0, 0.0), |(sin, cos), &start| {
        let angle = turn * ((start - first).0 % length.0) as f64 / length.0 as f64;
        (sin + angle.sin(), cos + angle.cos())
    });
    let is_sharp = f64::hypot(sin, cos) > SHARP * events.starts.len() as f64;
    let late = sin.atan2(cos) / turn * length.0 as f64;
    let known = events.starts.len() >= FEWEST && is_sharp;
    known.then(|| first + Nanos(ticktax_beats::whole(late)))
}
