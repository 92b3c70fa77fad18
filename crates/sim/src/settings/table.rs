//! The table of settings.

use std::mem::discriminant;

use ticktax_model::machine::TickMode;
use ticktax_model::{CpuList, Nanos};

use super::{Kind, Section, Setting, SettingError, Value};
use crate::clock::Device;
use crate::scheduler::{Policy, base_slice};
use crate::setup::Setup;
use crate::timer::TimerRule;

type Get = fn(&Setup) -> Option<Value>;
type Set = fn(&mut Setup, Value) -> Result<(), SettingError>;

/// Creates a row for an optional setting of `[machine]`.
const fn row(name: &'static str, kind: Kind, help: &'static str, get: Get, set: Set) -> Setting {
    Setting {
        name,
        kind,
        help,
        section: Section::Machine,
        is_required: false,
        is_always_listed: false,
        sets: name,
        get,
        set,
    }
}

impl Setting {
    const fn required(self) -> Self {
        Self {
            is_required: true,
            is_always_listed: true,
            ..self
        }
    }

    /// Makes descriptions of a machine include the setting even at its default value.
    const fn always_listed(self) -> Self {
        Self {
            is_always_listed: true,
            ..self
        }
    }

    /// Moves the setting from `[machine]` to the top of the scenario.
    const fn of_run(self) -> Self {
        Self {
            section: Section::Run,
            ..self
        }
    }

    /// Makes the setting an alias for the property `sets`.
    const fn sets_too(self, sets: &'static str) -> Self {
        Self { sets, ..self }
    }
}

/// Creates the kind for a setting whose values are the names of a type's variants.
macro_rules! words {
    ($of:ty) => {{
        const COUNT: usize = <$of>::ALL.len();
        const WORDS: [&str; COUNT] = {
            let mut words = [""; COUNT];
            let mut place = 0;
            while place < COUNT {
                words[place] = <$of>::ALL[place].word();
                place += 1;
            }
            words
        };
        Kind::Word(&WORDS)
    }};
}

/// Finds the variant of a type that a setting's value stands for.
macro_rules! meant {
    ($of:ty, $value:expr) => {
        <$of>::ALL
            .into_iter()
            .find(|variant| variant.word() == $value.word())
            .ok_or_else(|| SettingError::UnknownWord {
                word: $value.to_string(),
                words: <$of>::ALL.iter().map(|variant| variant.word()).collect(),
            })
    };
}

pub(super) static ALL: [Setting; 22] = [
    row(
        "cpus",
        Kind::Integer(1, 8192),
        "number of CPUs",
        |setup| Some(Value::count(setup.machine.cpus)),
        |setup, value| {
            let machine = &mut setup.machine;
            if let TickMode::NohzFull { cpus: full } = &mut machine.tick {
                let all = CpuList::first(u32::try_from(value.to_count()).unwrap_or(u32::MAX));
                *full = if full.len() == machine.cpus {
                    all
                } else {
                    full.iter().filter(|cpu| all.contains(*cpu)).collect()
                };
            }
            if let Policy::Eevdf { slice, .. } = &mut machine.policy {
                // If the slice is the kernel's default for the old number of CPUs, replace it with
                // the default for the new number.
                let releases = [None, Some((6, 6))];
                let found = releases
                    .into_iter()
                    .find(|&release| *slice == base_slice(release, machine.cpus));
                if let Some(release) = found {
                    *slice = base_slice(release, value.to_count());
                }
            }
            machine.cpus = value.to_count();
            machine.phases.truncate(value.to_count());
            Ok(())
        },
    )
    .always_listed(),
    row(
        "policy",
        words!(Policy),
        "scheduling policy, as described in [model.md](../explanation/model.md#schedulers)",
        |setup| Some(Value::Word(setup.machine.policy.word())),
        |setup, value| {
            let mut policy = meant!(Policy, value)?;
            if let Policy::Eevdf { slice, .. } = &mut policy {
                *slice = base_slice(None, setup.machine.cpus);
            }
            // If the policy stays the same, keep the slice that the scenario set.
            if discriminant(&policy) != discriminant(&setup.machine.policy) {
                setup.machine.policy = policy;
            }
            Ok(())
        },
    )
    .required(),
    row(
        "hz",
        Kind::Integer(1, 1_000_000),
        "ticks per second (`CONFIG_HZ`)",
        |setup| Some(Value::unsigned(setup.machine.hz)),
        |setup, value| {
            setup.machine.hz = value.integer().unsigned_abs();
            Ok(())
        },
    )
    .required(),
    row(
        "tick",
        Kind::Word(&TickMode::WORDS),
        "when a CPU stops its tick: never, while idle, or also while running a single task",
        |setup| Some(Value::Word(setup.machine.tick.word())),
        |setup, value| {
            setup.machine.tick = match value.word() {
                "nohz-idle" => TickMode::NohzIdle,
                "nohz-full" => TickMode::nohz_full(setup.machine.cpus),
                _ => TickMode::Periodic,
            };
            Ok(())
        },
    )
    .always_listed(),
    row(
        "timers",
        words!(TimerRule),
        "how sleeps are rounded up: as in Linux 2.4, as in 2.6, to the next tick, or not at all",
        |setup| Some(Value::Word(setup.machine.timers.word())),
        |setup, value| {
            setup.machine.timers = meant!(TimerRule, value)?;
            Ok(())
        },
    )
    .always_listed(),
    row(
        "highres",
        Kind::SWITCH,
        "`on` sets `timers` to `high-resolution`; `off` changes `high-resolution` to `first-tick`",
        |setup| {
            Some(Value::switch(
                setup.machine.timers == TimerRule::HighResolution,
            ))
        },
        |setup, value| {
            let timers = &mut setup.machine.timers;
            if value.is_on() {
                *timers = TimerRule::HighResolution;
            } else if *timers == TimerRule::HighResolution {
                *timers = TimerRule::FirstTick;
            }
            Ok(())
        },
    )
    .sets_too("timers"),
    row(
        "slice",
        Kind::Duration,
        "length of a slice under the policy `eevdf`; the default is that of Linux 6.15 and later, \
         which is 0.7 ms × (1 + log₂ CPUs) with at most 8 CPUs counted",
        |setup| match setup.machine.policy {
            Policy::Eevdf { slice, .. } => Some(Value::Duration(slice)),
            _ => None,
        },
        |setup, value| match &mut setup.machine.policy {
            Policy::Eevdf { slice, .. } => {
                *slice = value.duration();
                Ok(())
            }
            _ => Err(SettingError::NoSlice),
        },
    ),
    row(
        "hrtick",
        Kind::SWITCH,
        "whether a timer (`HRTICK`) instead of the tick ends a slice under the policy `eevdf`",
        |setup| match setup.machine.policy {
            Policy::Eevdf { hrtick, .. } => Some(Value::switch(hrtick)),
            _ => None,
        },
        |setup, value| match &mut setup.machine.policy {
            Policy::Eevdf { hrtick, .. } => {
                *hrtick = value.is_on();
                Ok(())
            }
            _ => Err(SettingError::NoHrtick),
        },
    ),
    row(
        "slack",
        Kind::Duration,
        "how late a task's high-resolution timer may fire (`PR_SET_TIMERSLACK`, 50us in Linux)",
        |setup| Some(Value::Duration(setup.machine.slack)),
        |setup, value| {
            setup.machine.slack = value.duration();
            Ok(())
        },
    ),
    row(
        "costs.tick",
        Kind::Duration,
        "CPU time that a tick takes; must be less than half of the tick period",
        |setup| Some(Value::Duration(setup.machine.costs.tick)),
        |setup, value| {
            setup.machine.costs.tick = value.duration();
            Ok(())
        },
    ),
    row(
        "costs.timer",
        Kind::Duration,
        "CPU time that a high-resolution timer interrupt takes",
        |setup| Some(Value::Duration(setup.machine.costs.timer)),
        |setup, value| {
            setup.machine.costs.timer = value.duration();
            Ok(())
        },
    ),
    row(
        "costs.switch",
        Kind::Duration,
        "CPU time that a context switch takes, charged to the next task",
        |setup| Some(Value::Duration(setup.machine.costs.switch)),
        |setup, value| {
            setup.machine.costs.switch = value.duration();
            Ok(())
        },
    ),
    row(
        "phase",
        Kind::Duration,
        "how long after the machine's tick each CPU's tick comes; in a scenario, `phases` can list \
         a different time for each CPU",
        |setup| {
            let phases = &setup.machine.phases;
            let first = phases.first().copied().unwrap_or_default();
            let is_complete = phases.is_empty() || phases.len() == setup.machine.cpus;
            let alike = is_complete && phases.iter().all(|phase| *phase == first);
            alike.then_some(Value::Duration(first))
        },
        |setup, value| {
            // If all phases are zero, leave the list empty, so that identical machines compare
            // equal.
            setup.machine.phases = match value.duration() {
                Nanos::ZERO => Vec::new(),
                phase => vec![phase; setup.machine.cpus],
            };
            Ok(())
        },
    ),
    row(
        "device",
        words!(Device),
        "timer device of the tick; its input clock determines the exact length of a tick",
        |setup| Some(Value::Word(setup.machine.device.word())),
        |setup, value| {
            let device = meant!(Device, value)?;
            if discriminant(&device) != discriminant(&setup.machine.device) {
                setup.machine.device = device;
            }
            Ok(())
        },
    ),
    row(
        "lapic.bus_hz",
        Kind::Integer(1, i64::MAX),
        "input frequency of the device `lapic`, in Hz",
        |setup| match setup.machine.device {
            Device::Lapic { bus_hz, .. } => Some(Value::unsigned(bus_hz)),
            _ => None,
        },
        |setup, value| match &mut setup.machine.device {
            Device::Lapic { bus_hz, .. } => {
                *bus_hz = value.integer().unsigned_abs();
                Ok(())
            }
            _ => Err(SettingError::NoBusFrequency),
        },
    ),
    row(
        "lapic.divisor",
        Kind::Integer(1, 128),
        "divisor of the device `lapic`; 16 in Linux",
        |setup| match setup.machine.device {
            Device::Lapic { divisor, .. } => Some(Value::unsigned(divisor)),
            _ => None,
        },
        |setup, value| match &mut setup.machine.device {
            Device::Lapic { divisor, .. } => {
                *divisor = value.integer().unsigned_abs();
                Ok(())
            }
            _ => Err(SettingError::NoDivisor),
        },
    ),
    row(
        "drift_ppb",
        Kind::Integer(-999_999_999, 1_000_000_000),
        "frequency error of the ticking clock, in parts per billion",
        |setup| Some(Value::Integer(setup.machine.drift_ppb)),
        |setup, value| {
            setup.machine.drift_ppb = value.integer();
            Ok(())
        },
    ),
    row(
        "tick_level",
        Kind::Integer(0, 255),
        "mask level of the tick; handlers of this level and above delay it",
        |setup| Some(Value::Integer(setup.machine.tick_level.into())),
        |setup, value| {
            setup.machine.tick_level = value.to_u8();
            Ok(())
        },
    ),
    row(
        "frequency",
        Kind::Integer(1, 100_000),
        "CPU frequency, in thousandths of the maximum",
        |setup| Some(Value::Integer(setup.machine.speed.frequency)),
        |setup, value| {
            setup.machine.speed.frequency = value.integer();
            Ok(())
        },
    ),
    row(
        "duty",
        Kind::Integer(1, 8),
        "duty cycle of the CPUs' clock, in eighths",
        |setup| Some(Value::Integer(setup.machine.speed.duty)),
        |setup, value| {
            setup.machine.speed.duty = value.integer();
            Ok(())
        },
    ),
    row(
        "seed",
        Kind::COUNT,
        "seed of the random numbers; the default is 1",
        |setup| Some(Value::unsigned(setup.seed)),
        |setup, value| {
            setup.seed = value.integer().unsigned_abs();
            Ok(())
        },
    )
    .of_run(),
    row(
        "length",
        Kind::Duration,
        "simulated time, at most 24h",
        |setup| Some(Value::Duration(setup.length)),
        |setup, value| {
            let length = value.duration();
            if length > Nanos::from_days(1) {
                return Err(SettingError::TooLong(length));
            }
            setup.length = length;
            Ok(())
        },
    )
    .required()
    .of_run(),
];
