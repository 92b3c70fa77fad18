//! Triggers: conditions under which a flight recorder saves the seconds around an event.

mod error;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::error::{TriggerFault, TriggerSpecError};
use super::percentile::{AbovePercentile, Percentile};
use crate::victim::WaitPlace;
use crate::{Cpu, CpuList, Nanos};

/// Kind of trigger.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TriggerKind {
    /// A runnable thread waited too long for a CPU.
    Wait,
    /// A thread's wake-up latency was too high.
    Late,
    /// A thread spent too long in an uninterruptible sleep, waiting for a disk or a lock.
    Blocked,
    /// A thread was throttled for too long because its cgroup had used up its CPU quota.
    Throttled,
    /// A kernel thread, interrupt or softirq ran on a CPU for a long time without being
    /// interrupted.
    Stretch,
    /// A probe did not run for a while because its CPU was doing something else.
    Gap,
    /// A frame of a paced program started late, either by more than a threshold or by an entire
    /// period, so that a frame was dropped.
    Frame,
    /// The recorder received a signal.
    Signal,
    /// A program or a person requested a recording.
    Mark,
}

impl TriggerKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Wait,
        Self::Late,
        Self::Blocked,
        Self::Throttled,
        Self::Stretch,
        Self::Gap,
        Self::Frame,
        Self::Signal,
        Self::Mark,
    ];

    /// Returns the word used on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Late => "late",
            Self::Blocked => "blocked",
            Self::Throttled => "throttled",
            Self::Stretch => "stretch",
            Self::Gap => "gap",
            Self::Frame => "frame",
            Self::Signal => "signal",
            Self::Mark => "mark",
        }
    }

    /// Returns the kind whose [`TriggerKind::name`] is `name`; `None` if no kind has this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether triggers of this kind compare a duration with a threshold. The other kinds
    /// are requests, which have no duration.
    pub const fn is_measured(self) -> bool {
        !matches!(self, Self::Signal | Self::Mark)
    }

    /// Returns whether triggers of this kind detect that a thread was delayed.
    pub const fn is_of_thread(self) -> bool {
        matches!(
            self,
            Self::Wait | Self::Late | Self::Blocked | Self::Throttled | Self::Frame
        )
    }
}

impl fmt::Display for TriggerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A trigger that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trigger {
    /// Kind.
    pub kind: TriggerKind,
    /// When the trigger fired, on `CLOCK_MONOTONIC`. The delay had just ended or was still going
    /// on.
    #[serde(rename = "at_ns", alias = "time_ns")]
    pub at: Nanos,
    /// CPU on which the trigger fired: the one where the delayed thread ran afterwards or, for a
    /// stretch, the one that the long-running kernel activity ran on. `None` for a signal or a
    /// mark.
    pub cpu: Option<Cpu>,
    /// Thread id of the delayed thread. For a stretch, the thread id of the long-running kernel
    /// thread, or 0 for an interrupt or softirq.
    pub tid: i32,
    /// Process id of that thread; 0 for an interrupt or softirq.
    pub pid: i32,
    /// Name of the thread, interrupt or softirq. For a mark, the text given with it, which may be
    /// empty.
    pub comm: String,
    /// Length of the delay at the time the trigger fired.
    #[serde(rename = "lasted_ns")]
    pub lasted: Nanos,
    /// Percentile that the delay exceeded; `None` unless the trigger's threshold is a percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<AbovePercentile>,
    /// Where the thread was blocked. Set only for [`TriggerKind::Blocked`], if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<WaitPlace>,
}

impl Trigger {
    /// Returns the start of the delay.
    pub fn begin(&self) -> Nanos {
        // Saturate, because a recording's file can contain arbitrary times.
        Nanos(self.at.0.saturating_sub(self.lasted.0))
    }
}

/// The threads or CPUs whose delays can fire a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TriggerTarget {
    /// All threads and CPUs.
    #[default]
    Any,
    /// Threads of the process with this id.
    Process(i32),
    /// Threads with this name.
    Named(String),
    /// Threads in this cgroup, given by its absolute path or its path below `/sys/fs/cgroup`.
    Cgroup(PathBuf),
    /// The probes on these CPUs.
    Cpus(CpuList),
}

/// Threshold that a delay must exceed to fire a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriggerLimit {
    /// No threshold. The trigger is a request, or it fires on frames that are late by an entire
    /// period, so that a frame is dropped.
    None,
    /// A duration.
    Time(Nanos),
    /// A percentile of the delays that this trigger measured in the last hour.
    Percentile(Percentile),
}

/// A trigger as the user writes it: `KIND[:TARGET]>LIMIT`, `frame:TARGET`, or `signal`.
///
/// - KIND is `wait`, `late`, `blocked`, `throttled`, `stretch` or `gap`.
/// - TARGET is `pid=N`, `comm=NAME` or `cgroup=PATH`; for `gap`, it is `cpu=LIST`. `stretch` takes
///   no target, because it only fires on the kernel's own activities.
/// - LIMIT is a time from 10 µs to 1 min, such as `5ms`, or a percentile of the last hour's delays,
///   such as `p99.9`.
///
/// A `frame` trigger needs `pid=N` or `comm=NAME`. `frame:pid=N` fires when a frame is dropped, and
/// `frame:pid=N>LIMIT` when a frame starts later than the limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TriggerSpec {
    /// Kind.
    pub kind: TriggerKind,
    /// Threads or CPUs whose delays can fire the trigger.
    pub target: TriggerTarget,
    /// Threshold. The trigger fires on delays longer than this.
    pub over: TriggerLimit,
}

impl TriggerSpec {
    /// Smallest threshold. Shorter delays happen all the time.
    pub const MIN: Nanos = Nanos::from_micros(10);
    /// Largest threshold.
    pub const MAX: Nanos = Nanos::from_secs(60);
    /// Maximum length of a thread's name in the kernel, in bytes.
    pub const NAME_MAX: usize = 15;
}

impl FromStr for TriggerSpec {
    type Err = TriggerSpecError;

    fn from_str(text: &str) -> Result<Self, TriggerSpecError> {
        parse(text.trim()).map_err(|fault| TriggerSpecError {
            text: text.to_owned(),
            fault,
        })
    }
}

impl fmt::Display for TriggerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match &self.target {
            TriggerTarget::Any => {}
            TriggerTarget::Process(pid) => write!(f, ":pid={pid}")?,
            TriggerTarget::Named(name) => write!(f, ":comm={name}")?,
            TriggerTarget::Cgroup(folder) => write!(f, ":cgroup={}", folder.display())?,
            TriggerTarget::Cpus(cpus) => write!(f, ":cpu={cpus}")?,
        }
        match self.over {
            TriggerLimit::None => Ok(()),
            TriggerLimit::Time(over) => write!(f, ">{}", over.exact()),
            TriggerLimit::Percentile(over) => write!(f, ">{over}"),
        }
    }
}

fn parse(text: &str) -> Result<TriggerSpec, TriggerFault> {
    // A name can contain `>` but a threshold cannot, so split the text at the last `>`.
    let (subject, over) = match text.rsplit_once('>') {
        Some((subject, over)) => (subject, Some(over)),
        None => (text, None),
    };
    let (word, target) = match subject.split_once(':') {
        Some((word, target)) => (word.trim(), Some(target)),
        None => (subject.trim(), None),
    };
    let kind = TriggerKind::from_name(word).filter(|&kind| kind != TriggerKind::Mark);
    let kind = kind.ok_or(TriggerFault::Kind)?;
    if !kind.is_measured() {
        return match (target, over) {
            (None, None) => Ok(TriggerSpec {
                kind,
                target: TriggerTarget::Any,
                over: TriggerLimit::None,
            }),
            _ => Err(TriggerFault::NotAlone { kind }),
        };
    }
    if kind == TriggerKind::Frame {
        return parse_frames(target, over);
    }
    let Some(over) = over else {
        return Err(TriggerFault::NoLimit {
            subject: subject.to_owned(),
        });
    };
    let limit = parse_limit(over.trim())?;
    let target = match target {
        None => TriggerTarget::Any,
        Some(_) if kind == TriggerKind::Stretch => {
            return Err(TriggerFault::TargetOfKernel {
                kind,
                limit: over.trim().to_owned(),
            });
        }
        Some(target) if kind == TriggerKind::Gap => parse_cpus(target)?,
        Some(target) => parse_target(target)?,
    };
    Ok(TriggerSpec {
        kind,
        target,
        over: limit,
    })
}

/// Parses the target and the threshold of a frame trigger.
fn parse_frames(target: Option<&str>, over: Option<&str>) -> Result<TriggerSpec, TriggerFault> {
    let is_program = |text: &&str| {
        let named = text.split_once('=');
        named.is_some_and(|(key, value)| matches!(key, "pid" | "comm") && !value.is_empty())
    };
    let target = parse_target(target.filter(is_program).ok_or(TriggerFault::NoProgram)?)?;
    let limit = over.map(|over| parse_limit(over.trim())).transpose()?;
    Ok(TriggerSpec {
        kind: TriggerKind::Frame,
        target,
        over: limit.unwrap_or(TriggerLimit::None),
    })
}

fn parse_limit(text: &str) -> Result<TriggerLimit, TriggerFault> {
    if text.starts_with('p') {
        let percentile = text.parse::<Percentile>();
        return percentile
            .map(TriggerLimit::Percentile)
            .map_err(TriggerFault::Percentile);
    }
    let over: Nanos = text.parse()?;
    if !(TriggerSpec::MIN..=TriggerSpec::MAX).contains(&over) {
        return Err(TriggerFault::LimitOutOfRange);
    }
    Ok(TriggerLimit::Time(over))
}

fn parse_cpus(text: &str) -> Result<TriggerTarget, TriggerFault> {
    let list = text.strip_prefix("cpu=").ok_or(TriggerFault::TargetOfGap)?;
    let cpus: CpuList = list.parse()?;
    if cpus.is_empty() {
        return Err(TriggerFault::TargetOfGap);
    }
    Ok(TriggerTarget::Cpus(cpus))
}

/// Parses a target that selects threads: `pid=N`, `comm=NAME` or `cgroup=PATH`.
fn parse_target(text: &str) -> Result<TriggerTarget, TriggerFault> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if value.is_empty() || value.contains('\0') {
        return Err(TriggerFault::IncompleteTarget);
    }
    match key.trim() {
        "pid" => {
            let pid = value.trim().parse().ok().filter(|&pid| pid > 0);
            pid.map(TriggerTarget::Process)
                .ok_or_else(|| TriggerFault::Pid {
                    pid: value.to_owned(),
                })
        }
        "comm" if value.len() > TriggerSpec::NAME_MAX => Err(TriggerFault::LongName {
            name: value.to_owned(),
        }),
        "comm" => Ok(TriggerTarget::Named(value.to_owned())),
        "cgroup" => Ok(TriggerTarget::Cgroup(PathBuf::from(value))),
        _ => Err(TriggerFault::UnknownTarget {
            key: key.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{TriggerKind, TriggerLimit, TriggerSpec, TriggerTarget};
    use crate::Nanos;

    fn read(text: &str) -> Result<TriggerSpec, String> {
        text.parse::<TriggerSpec>()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn triggers_round_trip() {
        let ms = |ms| TriggerLimit::Time(Nanos::from_millis(ms));
        let above = |text: &str| TriggerLimit::Percentile(text.parse().unwrap());
        let named = |name: &str| TriggerTarget::Named(name.to_owned());
        for (text, kind, target, over) in [
            ("wait>5ms", TriggerKind::Wait, TriggerTarget::Any, ms(5)),
            (
                "wait:comm=gamesrv>5ms",
                TriggerKind::Wait,
                named("gamesrv"),
                ms(5),
            ),
            (
                "wait:comm=a:b>c>5ms",
                TriggerKind::Wait,
                named("a:b>c"),
                ms(5),
            ),
            (
                "late:pid=12>2ms",
                TriggerKind::Late,
                TriggerTarget::Process(12),
                ms(2),
            ),
            (
                "throttled:cgroup=system.slice/x.service>50ms",
                TriggerKind::Throttled,
                TriggerTarget::Cgroup("system.slice/x.service".into()),
                ms(50),
            ),
            (
                "blocked>1m",
                TriggerKind::Blocked,
                TriggerTarget::Any,
                ms(60_000),
            ),
            (
                "stretch>10us",
                TriggerKind::Stretch,
                TriggerTarget::Any,
                TriggerLimit::Time(Nanos(10_000)),
            ),
            (
                "gap:cpu=0,2-3>5ms",
                TriggerKind::Gap,
                TriggerTarget::Cpus("0,2-3".parse().unwrap()),
                ms(5),
            ),
            (
                "gap>p99.99",
                TriggerKind::Gap,
                TriggerTarget::Any,
                above("p99.99"),
            ),
            (
                "late:comm=a>p99>p99.9",
                TriggerKind::Late,
                named("a>p99"),
                above("p99.9"),
            ),
            (
                "stretch>p50",
                TriggerKind::Stretch,
                TriggerTarget::Any,
                above("p50"),
            ),
            (
                "signal",
                TriggerKind::Signal,
                TriggerTarget::Any,
                TriggerLimit::None,
            ),
        ] {
            let spec = TriggerSpec { kind, target, over };
            assert_eq!(read(text), Ok(spec.clone()), "{text}");
            assert_eq!(read(&spec.to_string()), Ok(spec), "{text}");
        }
        assert_eq!(
            read("wait > 0.5 ms").map(|spec| spec.to_string()),
            Ok("wait>500us".to_owned())
        );
    }

    #[test]
    fn frame_triggers_without_threshold_fire_on_lost_frames() {
        for (text, target, over) in [
            (
                "frame:pid=12",
                TriggerTarget::Process(12),
                TriggerLimit::None,
            ),
            (
                "frame:comm=gamesrv>8ms",
                TriggerTarget::Named("gamesrv".to_owned()),
                TriggerLimit::Time(Nanos::from_millis(8)),
            ),
            (
                "frame:pid=12>p99.9",
                TriggerTarget::Process(12),
                TriggerLimit::Percentile("p99.9".parse().unwrap()),
            ),
        ] {
            let kind = TriggerKind::Frame;
            let spec = TriggerSpec { kind, target, over };
            assert_eq!(read(text), Ok(spec.clone()), "{text}");
            assert_eq!(read(&spec.to_string()), Ok(spec), "{text}");
        }
    }

    #[test]
    fn invalid_triggers_are_rejected_with_a_one_line_hint() {
        for (text, why) in [
            ("", "use wait, late"),
            ("weight>5ms", "use wait, late"),
            ("mark", "use wait, late"),
            (">5ms", "use wait, late"),
            ("wait", "wait>5ms"),
            ("wait:pid=3", "wait:pid=3>5ms"),
            ("wait>", "invalid duration"),
            ("wait>5", "invalid duration"),
            ("wait>-5ms", "invalid duration"),
            ("wait>1us", "10us to 1m"),
            ("wait>2m", "10us to 1m"),
            ("wait:>5ms", "after the colon"),
            ("wait:pid=>5ms", "after the colon"),
            ("wait:pid=0>5ms", "invalid PID `0`"),
            ("wait:pid=x>5ms", "invalid PID `x`"),
            ("wait:uid=3>5ms", "unknown target `uid`"),
            ("wait:comm=a-name-of-sixteen>5ms", "the first 15"),
            ("stretch:comm=kswapd0>5ms", "stretch>5ms"),
            ("stretch:comm=kswapd0>p99", "stretch>p99"),
            ("wait>p", "p50 to p99.9999"),
            ("wait>p100", "p50 to p99.9999"),
            ("gap:pid=3>5ms", "gap:cpu=2,3>5ms"),
            ("gap:cpu=>5ms", "gap:cpu="),
            ("gap:cpu=x>5ms", "is not a CPU list"),
            ("wait:cpu=3>5ms", "unknown target `cpu`"),
            ("frame", "frame:pid=4121"),
            ("frame>5ms", "frame:pid=4121"),
            ("frame:", "frame:pid=4121"),
            ("frame:pid=", "frame:pid=4121"),
            ("frame:cgroup=x", "frame:pid=4121"),
            ("frame:cpu=3", "frame:pid=4121"),
            ("frame:pid=0", "invalid PID `0`"),
            ("frame:pid=3>1us", "10us to 1m"),
            ("signal>5ms", "use signal alone"),
            ("signal:pid=3", "use signal alone"),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.starts_with(&format!("invalid trigger `{text}`: ")),
                "{error}"
            );
            assert!(
                error.contains(why) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn trigger_kinds_round_trip() {
        for kind in TriggerKind::ALL {
            assert_eq!(TriggerKind::from_name(kind.name()), Some(kind));
            let json = serde_json::to_string(&kind).expect("a word");
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
    }
}
