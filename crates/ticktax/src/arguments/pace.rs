//! Arguments of `ticktax pace`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ticktax_experiment::vary::{Loops, Vary, loops};
use ticktax_model::document::DocumentKind;
use ticktax_model::net::TrafficSpec;
use ticktax_model::pace::{FrameRate, FrameRateError, PaceRule, SleepMethod};
use ticktax_model::policy::SchedulingPolicy;
use ticktax_model::{Cpu, Nanos};
use ticktax_observe::Program;
use ticktax_report::Format;

use super::packets::{PaceRate, PacketArguments};
use super::{FileArguments, Length, PageArguments, ProcessId, formats};
use crate::failure::Failure;
use crate::output::Output;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax pace                            run 35 frames per second, of 3 ms each, for 10 s
  ticktax pace --rate 60 --sleep hybrid   run 60 frames per second; spin before each frame
  ticktax pace --rate 35 --rule remaining
                                          pace as many servers do; count the lost frames
  sudo ticktax pace --pid 4121            infer the frames of process 4121 from its wake-ups
  sudo ticktax pace --comm gamesrv        the same for the process named gamesrv
  ticktax pace --vary sleep=nanosleep,timerfd,spin --vary rate=35,60
                                          compare sleep methods on this kernel
  sudo ticktax pace --udp --rate 60k      send datagrams; find which are lost, where, and why
  ticktax pace --udp --listen             the same between hosts: this one receives,
  ticktax pace --udp --to 192.0.2.7       and this one sends";

#[derive(Debug, Args)]
pub(crate) struct PaceArguments {
    /// Run this many frames per second [default: 35]
    ///
    /// The range is 1 to 50000. With --udp, this is the number of datagrams per second, 1 to 100M,
    /// for example 60k, or `max` [default: 10k].
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    rate: Option<PaceRate>,

    /// Use this much CPU time per frame
    #[arg(
        long,
        value_name = "TIME",
        default_value = "3ms",
        allow_hyphen_values = true
    )]
    pub(crate) work: Nanos,

    /// Use this sleep method
    #[arg(long, value_name = "METHOD", default_value = "nanosleep", value_parser = sleeps())]
    pub(crate) sleep: SleepMethod,

    /// Schedule frames by this rule
    ///
    /// `fixed` starts a frame one period after the work of the previous frame ends. `remaining`
    /// starts it one period after the previous frame started. `deadline` starts frames on a fixed
    /// time grid.
    #[arg(long, value_name = "RULE", default_value = "deadline", value_parser = rules())]
    pub(crate) rule: PaceRule,

    /// Run the loop on this CPU [default: last allowed]
    #[arg(long, value_name = "N")]
    pub(crate) cpu: Option<u32>,

    /// Set the loop's scheduling policy: idle, other, fifo:1 to fifo:99 or rr:1 to rr:99
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "other",
        hide_short_help = true
    )]
    pub(crate) policy: SchedulingPolicy,

    /// Run for this long, for example 20s [default: 10s]
    ///
    /// With --vary, each trial runs for this long [default: 2s].
    #[arg(
        long = "for",
        alias = "duration",
        value_name = "TIME",
        allow_hyphen_values = true
    )]
    pub(crate) length: Option<Length>,

    /// Watch this process instead of a loop; needs root
    #[arg(short, long, value_name = "N", allow_hyphen_values = true,
          conflicts_with_all = ["rate", "work", "sleep", "rule", "cpu", "policy", "vary"])]
    pub(crate) pid: Option<ProcessId>,

    /// Watch the only process with this name
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["pid", "rate", "work", "sleep", "rule", "cpu", "policy", "vary"])]
    pub(crate) comm: Option<String>,

    /// Count a frame as overshot if it starts later than due by more than this, for example 4ms
    ///
    /// By default, a frame is overshot if it has not started when the next one is due. Under every
    /// rule, a frame is due every 1/rate seconds, counted from the first frame.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, hide_short_help = true,
          value_parser = lateness())]
    overshot_from: Option<Nanos>,

    /// Compare values of sleep, rule, rate or work; repeatable
    ///
    /// `--vary sleep=nanosleep,timerfd --vary rate=35,60` compares all four combinations. Options
    /// that are not varied keep their values.
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<Vary>,

    /// Run each arm this many times, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 5, requires = "vary", hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,

    #[command(flatten)]
    pub(crate) files: FileArguments,

    /// Choose the output format
    #[arg(long, value_parser = formats(DocumentKind::Pace), default_value = "text")]
    pub(crate) format: Format,

    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) packets: PacketArguments,

    #[command(flatten)]
    pub(crate) page: PageArguments,
}

/// Default frame rate, in frames per second.
const RATE: &str = "35";

impl PaceArguments {
    /// Returns the frame rate. Returns an error if the value of `--rate` is valid only for
    /// datagrams.
    pub(crate) fn frame_rate(&self) -> Result<FrameRate, Failure> {
        match &self.rate {
            Some(rate) => rate.frames(),
            None => RATE
                .parse()
                .map_err(|why: FrameRateError| Failure::Arguments(why.to_string())),
        }
    }

    pub(crate) fn packet_spec(&self) -> TrafficSpec {
        self.packets.spec(self.rate.as_ref(), self.length)
    }

    pub(crate) fn program(&self) -> Option<Program> {
        let pid = self.pid.map(|ProcessId(pid)| Program::Process(pid));
        pid.or_else(|| self.comm.clone().map(Program::Named))
    }

    /// Returns the arms to compare, that is, one loop for each combination of values. Arms that
    /// have the same rate and amount of work are consecutive.
    pub(crate) fn arms(&self) -> Result<Loops, Failure> {
        let arms = loops(&self.vary, &["rate", "work", "sleep", "rule"]);
        arms.map_err(|error| Failure::Arguments(error.to_string()))
    }

    pub(crate) fn output(&self) -> Output<'_> {
        Output::new(self.format, self.output.as_deref())
    }

    pub(crate) fn overshot_from(&self) -> Option<Nanos> {
        self.overshot_from
    }

    pub(crate) fn cpu(&self) -> Option<Cpu> {
        self.cpu.map(Cpu)
    }
}

fn sleeps() -> impl TypedValueParser<Value = SleepMethod> {
    let words = SleepMethod::ALL.map(SleepMethod::name);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<SleepMethod>())
}

fn lateness() -> impl TypedValueParser<Value = Nanos> {
    |text: &str| match text.parse::<Nanos>() {
        Ok(time) if time > Nanos::ZERO => Ok(time),
        Ok(_) => Err(format!("invalid duration `{text}`: choose more than 0")),
        Err(error) => Err(error.to_string()),
    }
}

fn rules() -> impl TypedValueParser<Value = PaceRule> {
    let words = PaceRule::ALL.map(PaceRule::name);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<PaceRule>())
}

#[cfg(test)]
mod tests {
    use ticktax_model::pace::FrameRate;
    use ticktax_probes::pace::PERIODS;

    #[test]
    fn the_range_of_rates_matches_the_range_of_periods() {
        let (min, max) = FrameRate::RANGE;
        let period = |rate: f64| rate.to_string().parse::<FrameRate>().unwrap().period();
        assert_eq!((period(max), period(min)), PERIODS);
    }
}
