//! `every-30.999-seconds`: a kernel loop over all vnodes keeps the CPU busy while packets arrive,
//! and some of them are lost.

use ticktax_model::Nanos;
use ticktax_sim::cache::{Cache, Layout};
use ticktax_sim::{
    Class, Law, Link, Machine, Policy, Setup, Source, Speed, Step, TaskSpec, Then, run,
};

use super::{Case, rate, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::Remark;

pub(super) const CASE: Walk = Walk;

pub(super) struct Walk;

/// Returns an L2 cache with a capacity of `kilobytes` KiB.
fn l2(kilobytes: u64) -> Cache {
    Cache {
        size: kilobytes << 10,
        line: LINE,
        ways: 16,
    }
}

const LINE: u64 = 64;
/// Published stall.
const STALL: Nanos = Nanos::from_millis(17);
/// Clock of the published laptop while it was throttled.
const THROTTLED_MHZ: f64 = 150.0;
const THROTTLED: &str = "stall at 150 MHz, if all of the 17 ms slow down with the clock";
const BY_MISSES: &str = "item by k = 1 … 4 full misses";

/// The published memory accesses that the loop makes for each item, in the order in which it makes
/// them. Each consists of the object (0 for the vnode, 1 for the inode) and the offset within it.
const TOUCHES: [(usize, u64); 8] = [
    (0, 0x90),
    (0, 0x1c),
    (0, 0x24),
    (0, 0xa8),
    (0, 0xa0),
    (1, 0x18),
    (0, 0x48),
    (0, 0x1c),
];

/// Returns the accesses in [`TOUCHES`], sorted by object and offset.
fn sequential() -> Vec<(usize, u64)> {
    let mut touches = TOUCHES.to_vec();
    touches.sort_unstable();
    touches
}

/// Returns a memory layout in which each object starts on a cache line, 256 bytes after the one
/// before.
fn layout() -> Layout {
    let touches = |object| TOUCHES.iter().filter(move |touch| touch.0 == object);
    let offsets = |object| (256, touches(object).map(|touch| touch.1).collect());
    Layout {
        objects: vec![offsets(0), offsets(1)],
    }
}

/// Returns a memory layout in which all accesses go to the same cache line.
fn packed() -> Layout {
    Layout {
        objects: vec![(LINE, vec![0])],
    }
}

/// Returns how many cache misses per item take the full latency. The hardware is assumed to fetch
/// the next line along with each line. An access therefore counts only if it is the first to its
/// line and the access just before it was not to the preceding line.
fn apart(touches: &[(usize, u64)]) -> usize {
    let lines: Vec<(usize, u64)> = touches
        .iter()
        .map(|touch| (touch.0, touch.1 / LINE))
        .collect();
    let is_miss = |place: usize| {
        let line = lines[place];
        let is_first = !lines[..place].contains(&line);
        let follows = place > 0 && lines[place - 1] == (line.0, line.1.wrapping_sub(1));
        is_first && !follows
    };
    (0..lines.len()).filter(|&place| is_miss(place)).count()
}

impl Case for Walk {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/every-30.999-seconds.toml")
    }

    fn name(&self) -> &'static str {
        "every-30.999-seconds"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut modelled = Modelled::new();
        let misses = values.get("misses");
        let item = misses * values.get("besplex-main");
        for (series, row) in file.rows() {
            let value = match (series.name.as_str(), row.at.as_str()) {
                ("period", _) => Some(f64::from(slots(30))),
                ("item", _) => Some(item),
                (BY_MISSES, at) => by_misses(at, values),
                ("item by levels", at) => by_levels(at, values),
                ("full misses by access order", "interleaved") => Some(apart(&TOUCHES) as f64),
                ("full misses by access order", _) => Some(apart(&sequential()) as f64),
                ("stall", "64000 items of 125 ns" | "as published") => {
                    Some(values.get("items") * item / 1e6)
                }
                (THROTTLED, at) => at.parse().ok().map(throttled),
                ("touches", _) => Some(TOUCHES.len() as f64),
                ("lines", "as it is") => Some(layout().lines(LINE) as f64),
                ("lines", _) => Some(packed().lines(LINE) as f64),
                ("items that fit", "1M") => Some(layout().capacity(&l2(1024)) as f64),
                ("items that fit", "512K") => Some(layout().capacity(&l2(512)) as f64),
                ("items that fit", _) => Some(packed().capacity(&l2(1024)) as f64),
                ("lost", at) => Some(lost(at, values)),
                _ => None,
            };
            if let Some(value) = value {
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, file: &CaseFile, values: &Values, modelled: &Modelled) -> Vec<Remark> {
        let scattered = (1..=64)
            .find(|n| layout().misses(n * 64, &l2(1024)) > 0)
            .unwrap_or(0)
            * 64;
        vec![
            remark(
                "parameters of the model",
                format!(
                    "an item takes k = {} full misses at besplex's memory latency of {} ns, with k \
                     fitted to 125 ns. Hits in L1 and L2 cost nothing there, and the order of the \
                     accesses does not matter. In the series by levels, the first four touches of \
                     an item come from the L2 if all items fit, otherwise from memory, and {} \
                     touches come from the L1, in the published, interleaved order",
                    values.get("misses"),
                    values.get("besplex-main"),
                    TOUCHES.len() as u64 - layout().lines(LINE)
                ),
            ),
            remark(
                "throttled to 150 MHz, ms",
                format!(
                    "the lower frequency alone nearly explains the published 300 ms: a stall of 17 \
                     ms becomes {}, if all of it slows down with the clock. It reaches 300 ms from \
                     a clock of {:.2} GHz. Time in memory does not slow down with the frequency; \
                     17 ms of it take {:.0} ms if the clock is stopped for seven eighths of the \
                     time",
                    hosts(modelled),
                    300.0 / STALL.as_secs_f64() * THROTTLED_MHZ / 1e6,
                    stopped()
                ),
            ),
            remark("125 ns and 266 ns, by k and host", nearest(file, modelled)),
            remark(
                "first cache miss with 256-byte objects",
                format!(
                    "occurs at {scattered} items, because such objects use some cache sets \
                    more than others"
                ),
            ),
        ]
    }
}

/// Returns how long the published stall takes, in ms, if all of it slows down with the clock. A
/// clock of `mhz` is throttled to [`THROTTLED_MHZ`].
fn throttled(mhz: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a clock slows down to a few hundredths"
    )]
    let frequency = (THROTTLED_MHZ / mhz * 1e3).round() as i64;
    let speed = Speed { frequency, duty: 8 };
    speed.wall(STALL, Nanos::ZERO).as_secs_f64() * 1e3
}

/// Returns how long the published stall takes, in ms, if the clock is stopped for seven eighths of
/// the time.
fn stopped() -> f64 {
    let speed = Speed {
        frequency: 1000,
        duty: 1,
    };
    speed.wall(Nanos::ZERO, STALL).as_secs_f64() * 1e3
}

/// Lists the length of the published stall on a throttled machine, by the hosts' clocks.
fn hosts(modelled: &Modelled) -> String {
    let each = modelled
        .iter()
        .filter(|((series, _), _)| series == THROTTLED);
    let each = each.map(|((_, mhz), ms)| format!("{ms:.0} ms from {mhz} MHz"));
    each.collect::<Vec<String>>().join(", ")
}

/// Names, for each published or derived time per item, the host and the number of misses that come
/// closest to it.
fn nearest(file: &CaseFile, modelled: &Modelled) -> String {
    let times = file.series("item").map_or(&[][..], |series| &series.rows);
    let closest = |time: f64| {
        let of_k = modelled
            .iter()
            .filter(|((series, _), _)| series == BY_MISSES);
        of_k.min_by(|a, b| (a.1 - time).abs().total_cmp(&(b.1 - time).abs()))
    };
    let each = times.iter().filter_map(|row| {
        let time = row.middle()?;
        let ((_, at), value) = closest(time)?;
        let (host, misses) = at.split_once(", ")?;
        Some(format!(
            "{time:.0} ns is closest to {host} with k = {misses} ({value:.0} ns)"
        ))
    });
    let each: Vec<String> = each.collect();
    format!(
        "{}. The source does not say which host has which time",
        each.join("; ")
    )
}

/// Returns the time per item in ns for a row with a label of the form `HOST, MISSES`. Returns
/// `None` for any other label.
fn by_misses(at: &str, values: &Values) -> Option<f64> {
    let (host, misses) = at.split_once(", ")?;
    Some(misses.parse::<f64>().ok()? * values.get(&format!("{host}-main")))
}

/// Returns the time per item in ns for a row with a label of the form `HOST, N items, SIZE`. Each
/// access hits the cache level that contains its line. Returns `None` for any other label.
fn by_levels(at: &str, values: &Values) -> Option<f64> {
    let mut parts = at.split(", ");
    let host = parts.next()?;
    let items: u64 = parts.next()?.strip_suffix(" items")?.parse().ok()?;
    let kilobytes = match parts.next()? {
        "512K" => 512,
        _ => 1024,
    };
    let latency = |level: &str| values.get(&format!("{host}-{level}"));
    let lines = layout().lines(LINE) as f64;
    let fits = items <= layout().capacity(&l2(kilobytes));
    let first = latency(if fits { "l2" } else { "main" });
    Some(lines * first + (TOUCHES.len() as f64 - lines) * latency("l1"))
}

/// Returns how many seconds lie between two passes of the syncer over a mount. Each second, the
/// syncer advances to the next slot, processes the previous one, and requeues the mount `delay`
/// slots after the new slot.
fn slots(delay: u32) -> u32 {
    const WHEEL: u32 = 32;
    let (mut now, mut due, mut seen) = (0_u32, 0_u32, Vec::new());
    for second in 0..200 {
        let slot = now;
        now = (now + 1) % WHEEL;
        if slot == due {
            seen.push(second);
            due = (now + delay) % WHEEL;
        }
    }
    seen[seen.len() - 1] - seen[seen.len() - 2]
}

/// Returns how many packets are lost in one stall, for a row with a label of the form `kpps, ms`.
/// `values` contains the size of the receiver's buffer.
fn lost(at: &str, values: &Values) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a few hundred packets"
    )]
    let socket = values.get("buffer").max(0.0) as u64;
    let kpps = i64::try_from(rate(at).unwrap_or(1)).unwrap_or(1);
    let stall: i64 = at
        .rsplit(',')
        .next()
        .and_then(|ms| ms.trim().parse().ok())
        .unwrap_or(0);
    let begin = Nanos::from_millis(100);
    let mut setup = Setup::new(
        Machine::new(1, 1000, Policy::Goodness),
        Nanos::from_millis(300),
    );
    let receive = Step::Receive(0, Law::Fixed(Nanos(1)));
    setup
        .tasks
        .push(TaskSpec::new("receiver", vec![receive]).class(Class::Fifo(1)));
    let mut walk = TaskSpec::new(
        "syncer",
        vec![
            Step::Kernel(Law::Fixed(Nanos::from_millis(stall))),
            Step::Exit,
        ],
    );
    walk.start = begin;
    setup.tasks.push(walk);
    setup.links.push(Link {
        ring: 4096,
        protocol: 4096,
        socket,
        cost: Nanos::ZERO,
    });
    setup.sources.push(Source {
        name: "card".to_owned(),
        cpu: 0,
        level: 1,
        start: begin,
        interval: Law::Fixed(Nanos(1_000_000 / kpps)),
        cost: Law::Fixed(Nanos::ZERO),
        then: Then::Packets(0),
    });
    let report = run(&setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"));
    report.links[0].dropped.iter().sum::<u64>() as f64
}
