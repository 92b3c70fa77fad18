//! What was typed for `ticktax pace`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ticktax_experiment::vary::Vary;
use ticktax_model::document::DocumentKind;
use ticktax_model::pace::{PaceRule, SleepMethod};
use ticktax_model::time::DurationError;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::pace::PERIODS;
use ticktax_report::Format;

use super::{FileArguments, Length, LoopVariants, PageArguments, Policy, ProcessId, formats};
use crate::failure::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax pace                                     35 frames a second of 3 ms each, for 10 s
  ticktax pace --rate 60 --sleep hybrid            60 a second, the last moment before each spinning
  ticktax pace --rate 35 --rule remaining          as many servers do it: how many frames that costs
  sudo ticktax pace --pid 4121                     the frames of process 4121, from its own wakeups
  ticktax pace --vary sleep=nanosleep,timerfd,spin --vary rate=35,60
                                                   which way of sleeping to choose on this kernel";

#[derive(Debug, Args)]
pub(crate) struct PaceArguments {
    /// Frames a second, 1 to 50000
    #[arg(
        long,
        value_name = "FRAMES",
        default_value = "35",
        allow_negative_numbers = true
    )]
    pub(crate) rate: Rate,

    /// CPU time of each frame's work, such as 3ms, 250us or 0ms; shorter than a frame
    #[arg(
        long,
        value_name = "TIME",
        default_value = "3ms",
        allow_hyphen_values = true
    )]
    pub(crate) work: Work,

    /// How to wait for the next frame
    #[arg(long, value_name = "METHOD", default_value = "nanosleep", value_parser = sleeps())]
    pub(crate) sleep: SleepMethod,

    /// When the next frame is due: `fixed`, a whole period after the work; `remaining`, a period
    /// after the last one began; `deadline`, on a grid
    #[arg(long, value_name = "RULE", default_value = "deadline", value_parser = rules())]
    pub(crate) rule: PaceRule,

    /// The CPU of the loop [default: the last one that it may run on]
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    /// Priority of the loop: idle, other, or fifo:1 to fifo:99
    #[arg(long, value_name = "POLICY", default_value = "other")]
    pub(crate) policy: Policy,

    /// How long, such as 20s or 3m [default: 10s; with --vary 2s for each turn of each variant]
    #[arg(
        long = "for",
        visible_alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Run nothing; watch this process, and find the rhythm of its frames in its wakeups. As root
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, conflicts_with_all = ["rate", "work", "sleep", "rule", "cpu", "policy", "vary"])]
    pub(crate) pid: Option<ProcessId>,

    /// Compare variants of the loop in turns: of sleep, rule, rate or work; again for several
    ///
    /// Such as `--vary sleep=nanosleep,timerfd --vary rate=35,60`: each value of one with each of
    /// the others. What is not varied is taken from the other options.
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// How many turns each variant gets, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 5, requires = "vary", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    #[command(flatten)]
    pub(crate) files: FileArguments,

    /// How to print the result
    #[arg(long, value_parser = formats(DocumentKind::Pace), default_value = "text")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) page: PageArguments,

    /// Write the result to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl PaceArguments {
    /// What is to be compared.
    pub(crate) fn variants(&self) -> Result<LoopVariants, Failure> {
        let mut variants = LoopVariants::default();
        for vary in &self.vary {
            let taken = variants.take(vary);
            if !taken.map_err(|error| Failure::Arguments(error.to_string()))? {
                let name = vary.name();
                let why =
                    format!("pace cannot vary `{name}`: there are sleep, rule, rate and work");
                return Err(Failure::Arguments(why));
            }
        }
        if !self.files.is_empty() && !variants.is_empty() {
            let why = "--vary makes a table, and no rows to keep: leave --save and --perfetto out";
            return Err(Failure::Arguments(why.to_owned()));
        }
        Ok(variants)
    }

    /// How to print, and where.
    pub(crate) fn output(&self) -> (Format, Option<&Path>) {
        (self.format, self.output.as_deref())
    }

    /// The CPU that was named.
    pub(crate) fn cpu(&self) -> Option<Cpu> {
        self.cpu.map(Cpu)
    }
}

fn sleeps() -> impl TypedValueParser<Value = SleepMethod> {
    let words = SleepMethod::ALL.map(SleepMethod::name);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<SleepMethod>())
}

fn rules() -> impl TypedValueParser<Value = PaceRule> {
    let words = PaceRule::ALL.map(PaceRule::name);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<PaceRule>())
}

/// Frames a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate(pub(crate) f64);

impl Rate {
    /// The time from one frame to the next, to the nearest ns.
    pub(crate) fn period(self) -> Nanos {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the rate is at least one a second"
        )]
        Nanos((1e9 / self.0).round() as i64)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text
            .trim()
            .parse()
            .ok()
            .filter(|rate: &f64| rate.is_finite());
        let rate = rate.ok_or_else(|| {
            format!(
                "invalid rate `{text}`: frames a second, as 35 or \
            59.94"
            )
        })?;
        let (min, max) = (1e9 / PERIODS.1.0 as f64, 1e9 / PERIODS.0.0 as f64);
        if !(min..=max).contains(&rate) {
            return Err(format!(
                "no loop keeps {text} frames a second: choose {min} to {max}"
            ));
        }
        Ok(Self(rate))
    }
}

/// How much work a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work(pub(crate) Nanos);

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let work = text
            .parse()
            .map_err(|error: DurationError| error.to_string())?;
        Ok(Self(work))
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{Rate, Work};

    #[test]
    fn rates_that_no_loop_keeps_are_refused() {
        assert_eq!("35".parse::<Rate>().unwrap().period(), Nanos(28_571_429));
        for text in ["0", "-3", "0.5", "50001", "1e9", "nan", "inf", "", "fast"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        let error = "1e9".parse::<Rate>().unwrap_err();
        assert_eq!(
            error,
            "no loop keeps 1e9 frames a second: choose 1 to 50000"
        );
    }

    #[test]
    fn work_may_be_nothing() {
        assert_eq!("0ms".parse(), Ok(Work(Nanos::ZERO)));
        assert_eq!("250us".parse(), Ok(Work(Nanos::from_micros(250))));
        assert!("-3ms".parse::<Work>().is_err());
    }
}
