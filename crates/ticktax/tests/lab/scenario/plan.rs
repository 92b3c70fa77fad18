//! The scenario's disturbances, which are known to both the guest and the host.

use ticktax_inject::{Disturbance, Plan, Schedule, Window};
use ticktax_model::{Cpu, Nanos};

pub(crate) const CPU: Cpu = Cpu(0);
/// Tick period of the guest's kernel (HZ=250).
pub(crate) const TICK: Nanos = Nanos::from_millis(4);

/// Name of the `Truth` about work in the highest scheduling class, done by the thread
/// `migration/0`.
pub(crate) const STOPPER: &str = "stopper";
/// Names of two ordinary programs that compete for the CPU. Each writes a `Truth`.
pub(crate) const HOGS: [&str; 2] = ["hog-one", "hog-two"];
/// Name of the programs that exit immediately. Their `Truth` has one event for each of them, with
/// the process ID in the field for the due time.
pub(crate) const SHORT_LIVED: &str = "short-lived";

/// Name of the program that the second audit follows.
pub(crate) const VICTIM: &str = "victim";
/// Name of an ordinary program that competes for the victim's CPU.
pub(crate) const COMPETITOR: &str = "competitor";
/// Name of the `Truth` about the time between the victim's SIGSTOP and SIGCONT.
pub(crate) const STOPPED: &str = "stopped";
/// Name of the `Truth` about the time that the victim sleeps on command.
pub(crate) const ASLEEP: &str = "asleep";
/// Number of programs that the victim starts just before it exits.
pub(crate) const CHILDREN: u64 = 8;

pub(crate) const TRIGGERS: [&str; 5] = [
    "wait:comm=held-up>30ms",
    "blocked:comm=ttx-inj-block>60ms",
    "stretch>8ms",
    "throttled:comm=ttx-inj-hog>50ms",
    "frame:comm=paced",
];
/// Name of the program whose waits trigger the recorder.
pub(crate) const HELD_UP: &str = "held-up";
/// Name of the program whose lost frames trigger the recorder. Its period is [`FRAME`].
pub(crate) const PACED: &str = "paced";
pub(crate) const FRAME: Nanos = Nanos::from_millis(20);
/// File that records when the paced program's frames were due and when they started.
pub(crate) const READINGS: &str = "readings.json";
/// Length of the stalls caused by a real-time thread.
pub(crate) const STALL: Nanos = Nanos::from_millis(60);
/// Length of the softirq that triggers the recorder. Preparing such a softirq takes the guest fifty
/// times as long.
pub(crate) const LONG_SOFTIRQ: Nanos = Nanos::from_millis(20);
/// Name of the stall that delays [`HELD_UP`].
pub(crate) const WAIT_STALL: &str = "stall-wait";
/// The mark's note.
pub(crate) const MARK: &str = "after the stalls";

/// A disturbance, and the name of the program that causes it.
pub(crate) struct Injected {
    /// Name of the program and of its `Truth`. The kernel keeps only the first 15 characters.
    pub(crate) name: &'static str,
    pub(crate) plan: Plan,
}

fn injected(
    name: &'static str,
    disturbance: Disturbance,
    schedule: Schedule,
    millis: i64,
) -> Injected {
    let plan = Plan::new(disturbance, CPU)
        .schedule(schedule)
        .duration(Nanos::from_millis(millis));
    Injected { name, plan }
}

/// Returns the disturbances during the audit of the machine, in order.
pub(crate) fn machine() -> Vec<Injected> {
    let ms = Nanos::from_millis;
    let points = |period| Schedule::every(period, Nanos::ZERO);
    let fifo = || Disturbance::Fifo { priority: 50 };
    let random = Schedule {
        random: true,
        ..Schedule::every(ms(20), Nanos::from_micros(300))
    };
    let dodge = |name, window| {
        let schedule = Schedule::every(TICK, Nanos(TICK.0 / 10));
        injected(name, Disturbance::Dodge { window }, schedule, 800)
    };
    vec![
        injected("fifo", fifo(), Schedule::every(ms(20), ms(4)), 300),
        injected(
            "net-rx",
            Disturbance::Softirq { packets: 16 },
            points(ms(2)),
            300,
        ),
        injected(
            "filter",
            Disturbance::Filter,
            Schedule::every(ms(50), ms(5)),
            300,
        ),
        injected("timerfd", Disturbance::Timer, points(ms(1)), 300),
        injected("itimer", Disturbance::Itimer, points(ms(2)), 300),
        injected(
            "quota",
            Disturbance::Throttle { quota: ms(20) },
            points(ms(100)),
            600,
        ),
        injected("irq-work", Disturbance::IrqWork, points(ms(1)), 200),
        injected(
            "periodic",
            fifo(),
            Schedule::every(ms(50), Nanos::from_micros(300)),
            5_000,
        ),
        injected("random", fifo(), random, 2_000),
        dodge("between-ticks", Window::BETWEEN),
        dodge("around-ticks", Window::AROUND),
    ]
}

/// Returns the disturbances during the second audit, which follows the victim.
pub(crate) fn victim() -> Vec<Injected> {
    let ms = Nanos::from_millis;
    vec![
        injected(
            "thief",
            Disturbance::Fifo { priority: 50 },
            Schedule::every(ms(20), ms(8)),
            300,
        ),
        injected(
            "own-block",
            Disturbance::Block,
            Schedule::every(ms(100), ms(50)),
            300,
        ),
        injected(
            "own-quota",
            Disturbance::Throttle { quota: ms(20) },
            Schedule::every(ms(100), Nanos::ZERO),
            600,
        ),
    ]
}

/// Returns a quota for the victim while other programs compete with it for the CPU. One of them is
/// a real-time thread that runs for most of the time. Another one has its own quota, which is
/// refilled every 10 ms.
pub(crate) fn contended_quota() -> Injected {
    let ms = Nanos::from_millis;
    let quota = Disturbance::Throttle { quota: ms(10) };
    let schedule = Schedule::every(ms(100), Nanos::ZERO);
    injected("contended-quota", quota, schedule, 600)
}

/// Returns the programs that compete with the victim while it has the quota of [`contended_quota`].
/// They run for longer than the victim has this quota.
pub(crate) fn contenders() -> [Injected; 2] {
    let ms = Nanos::from_millis;
    let fifo = Disturbance::Fifo { priority: 50 };
    let quota = Disturbance::Throttle { quota: ms(1) };
    [
        injected("contender", fifo, Schedule::every(ms(70), ms(40)), 700),
        injected(
            "other-quota",
            quota,
            Schedule::every(ms(10), Nanos::ZERO),
            700,
        ),
    ]
}

/// Returns whether another program causes this disturbance while the victim spins. The victim
/// causes all other disturbances itself.
pub(crate) fn is_another_program(name: &str) -> bool {
    name == "thief"
}

/// Returns the stall that makes the paced program lose frames.
pub(crate) fn frame_stall() -> Injected {
    let fifo = Disturbance::Fifo { priority: 50 };
    let schedule = Schedule::every(Nanos::from_millis(300), STALL);
    injected("stall-frame", fifo, schedule, 250)
}

/// Returns all stalls except [`frame_stall`], one for each trigger.
pub(crate) fn stalls() -> Vec<Injected> {
    let ms = Nanos::from_millis;
    let once = |length| Schedule::every(ms(300), length);
    vec![
        injected(
            WAIT_STALL,
            Disturbance::Fifo { priority: 50 },
            once(STALL),
            250,
        ),
        injected("stall-block", Disturbance::Block, once(ms(200)), 250),
        injected(
            "stall-softirq",
            Disturbance::Filter,
            once(LONG_SOFTIRQ),
            250,
        ),
        injected(
            "stall-quota",
            Disturbance::Throttle { quota: ms(10) },
            Schedule::every(ms(100), ms(10)),
            450,
        ),
    ]
}
