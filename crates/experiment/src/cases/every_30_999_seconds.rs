//! `every-30.999-seconds`: a walk in the kernel that lets nobody else run, and what it drops.

use ticktax_model::Nanos;
use ticktax_sim::cache::{Cache, Layout};
use ticktax_sim::{
    Class, Law, Link, Machine, Policy, Setup, Source, Speed, Step, TaskSpec, Then, run,
};

use super::{Case, millis, rate, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::Remark;

/// The case.
pub(super) const CASE: Walk = Walk;

pub(super) struct Walk;

const L2: Cache = Cache {
    size: 1 << 20,
    line: 64,
    ways: 16,
};

/// What the walk touches: of a vnode its list, lock, flags, inode, type and dirty list, of an inode
/// its flags.
fn layout() -> Layout {
    Layout {
        objects: vec![
            (256, vec![0x90, 0x1c, 0x24, 0xa8, 0xa0, 0x48]),
            (256, vec![0x18]),
        ],
    }
}

/// The same, all in one line.
fn packed() -> Layout {
    Layout {
        objects: vec![(64, vec![0])],
    }
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
        let stall = values.get("items") * item(values, "main_besplex") / 1e6;
        for series in &file.series {
            for row in &series.rows {
                let value = match (series.name.as_str(), row.at.as_str()) {
                    ("lines", "as it is") => layout().lines(64) as f64,
                    ("lines", "packed") => packed().lines(64) as f64,
                    ("items that fit", "as it is") => layout().capacity(&L2) as f64,
                    ("items that fit", "packed") => packed().capacity(&L2) as f64,
                    ("item", _) => item(values, "main_besplex"),
                    ("stall", _) => stall,
                    ("slots", _) => f64::from(slots(30)),
                    ("lost", at) => lost(at),
                    _ => continue,
                };
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, _: &CaseFile, values: &Values, _: &Modelled) -> Vec<Remark> {
        let on = |host: &str| values.get("items") * item(values, host) / 1e6;
        // A laptop of 2.2 GHz at 150 MHz: nobody knows how much of the walk is memory.
        let (none, all) = (Nanos::ZERO, millis(on("main_besplex")));
        let ms = |duty, compute, memory| {
            let speed = Speed {
                frequency: 68,
                duty,
            };
            speed.wall(compute, memory).as_secs_f64() * 1e3
        };
        let scattered = (1..=64)
            .find(|n| layout().misses(n * 64, &L2) > 0)
            .unwrap_or(0)
            * 64;
        vec![
            remark(
                "the same walk on the other hosts, ms",
                format!(
                    "sledge {:.1}, freefall {:.1}",
                    on("main_sledge"),
                    on("main_freefall")
                ),
            ),
            remark(
                "17 ms",
                format!(
                    "is {:.0} ns an item, {:.0} ns a miss",
                    17e6 / values.get("items"),
                    17e6 / values.get("items") / values.get("misses").round()
                ),
            ),
            remark(
                "throttled to 150 MHz, ms",
                format!(
                    "{:.0} to {:.0} by frequency, whether memory or the CPU takes the time; {:.0} to \
                     {:.0} with the clock stopped for seven eighths of the time: more than 300 \
                     needs that, or memory that is slower than this host's",
                    ms(8, none, all),
                    ms(8, all, none),
                    ms(1, none, all),
                    ms(1, all, none)
                ),
            ),
            remark(
                "objects of 256 bytes use some sets of the cache more than others",
                format!("the first misses come by {scattered} items already"),
            ),
        ]
    }
}

/// ns an item.
fn item(values: &Values, host: &str) -> f64 {
    values.get("misses").round() * values.get(host)
}

/// Seconds from one turn of the syncer over a mount to the next: it moves on to the next slot, then
/// works on the one before, and puts the mount back `delay` slots after the one it has moved to.
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

/// Packets lost in one stall, at `kpps, ms`, by a receiver with room for 256.
fn lost(at: &str) -> f64 {
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
        socket: 256,
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
