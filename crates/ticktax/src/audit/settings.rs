//! What the arguments mean on this machine.

use std::ffi::OsString;

use ticktax_host::Proc;
use ticktax_model::{CpuList, Nanos};
use ticktax_probes::SchedulingPolicy;
use ticktax_trace::Output;

use super::victim::Wanted;
use crate::arguments::{AuditArguments, Keep, ProbeChoice};
use crate::failure::Failure;

/// An audit, decided in every respect.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How long; `None`: until the command ends.
    pub(crate) length: Option<Nanos>,
    /// CPUs to probe and to open books for at once.
    pub(crate) online: CpuList,
    /// CPUs to trace: those, and where none were named, those that are plugged in later.
    pub(crate) watched: CpuList,
    /// Whether these were asked for by number.
    pub(crate) named: bool,
    pub(crate) probe: ProbeChoice,
    pub(crate) policy: Option<SchedulingPolicy>,
    pub(crate) output: Output,
    pub(crate) command: Vec<OsString>,
    /// Whose time is asked for.
    pub(crate) victim: Option<Wanted>,
    /// Whether somebody's time was asked for that sums cannot tell.
    pub(crate) unwatched: bool,
}

impl Settings {
    /// Without other wishes.
    const LENGTH: Nanos = Nanos::from_secs(20);
    /// Longer audits keep sums: spans would fill a disk, or take minutes to read again.
    const MOST_OF_SPANS: Nanos = Nanos::from_secs(10 * 60);
    /// Spans that a CPU's buffer holds, 4 MiB: an eighth of a second at 500,000 spans a second.
    const SPANS_PER_CPU: u32 = 1 << 16;
    /// Sources that the table of sums holds, each counted once a CPU: 10 MiB.
    const SUMS: u32 = 1 << 14;

    pub(crate) fn from_typed(typed: AuditArguments) -> Result<Self, Failure> {
        let proc = Proc::default();
        let online = proc
            .online()
            .filter(|cpus| !cpus.is_empty())
            .ok_or_else(|| {
                Failure::Cpus("cannot tell which CPUs are online: mount /sys".to_owned())
            })?;
        let named = typed.cpus.is_some();
        let victim = Wanted::from_typed(&typed, &proc)?;
        let (online, watched) = match typed.cpus {
            None => {
                let possible = proc.possible().unwrap_or_else(|| online.clone());
                (online, possible)
            }
            Some(wanted) => {
                require_online(&wanted, &online)?;
                (wanted.clone(), wanted)
            }
        };
        let length = match typed.length {
            Some(length) => Some(length.0),
            None if typed.command.is_empty() => Some(Self::LENGTH),
            None => None,
        };
        let keep = typed.keep.unwrap_or(match length {
            _ if victim.is_some() => Keep::Spans,
            Some(length) if length > Self::MOST_OF_SPANS => Keep::Sums,
            _ => Keep::Spans,
        });
        // Whoever names a program wants to know what happens to it, and not what a probe does to it.
        let probe = typed.probe.unwrap_or(match &victim {
            Some(_) if typed.probe_policy.is_none() => ProbeChoice::None,
            _ => ProbeChoice::Spin,
        });
        if probe == ProbeChoice::Soak && typed.probe_policy.is_some() {
            return Err(Failure::Arguments(
                "a soaker counts what nobody else wants, and so runs at the lowest priority: leave \
                 --probe-policy out, or choose --probe spin"
                    .to_owned(),
            ));
        }
        let unwatched = victim.is_some() && keep == Keep::Sums;
        Ok(Self {
            length,
            online,
            watched,
            named,
            probe,
            policy: typed.probe_policy.map(|policy| policy.0),
            output: match keep {
                Keep::Spans => Output::Spans {
                    per_cpu: Self::SPANS_PER_CPU,
                },
                Keep::Sums => Output::Sums {
                    entries: Self::SUMS,
                },
            },
            command: typed.command,
            victim: victim.filter(|_| keep == Keep::Spans),
            unwatched,
        })
    }
}

fn require_online(wanted: &CpuList, online: &CpuList) -> Result<(), Failure> {
    if wanted.is_empty() {
        return Err(Failure::Cpus(format!(
            "no CPU was named: choose from {online}"
        )));
    }
    let missing: CpuList = wanted.iter().filter(|&cpu| !online.contains(cpu)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (noun, verb) = if missing.len() == 1 {
        ("CPU", "is")
    } else {
        ("CPUs", "are")
    };
    Err(Failure::Cpus(format!(
        "{noun} {missing} {verb} not online here: choose from {online}"
    )))
}
