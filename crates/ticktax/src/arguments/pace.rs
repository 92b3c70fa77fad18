//! What was typed for `ticktax pace`.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ticktax_experiment::vary::{LoopVariants, Vary};
use ticktax_model::document::DocumentKind;
use ticktax_model::net::TrafficSpec;
use ticktax_model::pace::{FrameRate, FrameRateError, PaceRule, SleepMethod};
use ticktax_model::policy::SchedulingPolicy;
use ticktax_model::{Cpu, Nanos};
use ticktax_observe::Program;
use ticktax_report::Format;

use super::packets::{PaceRate, PacketArguments};
use super::vary::all_taken;
use super::{FileArguments, Length, PageArguments, ProcessId, formats};
use crate::failure::Failure;

pub(super) const EXAMPLES: &str = "\
Examples:
  ticktax pace                                     35 frames a second of 3 ms each, for 10 s
  ticktax pace --rate 60 --sleep hybrid            60 a second, the last moment before each spinning
  ticktax pace --rate 35 --rule remaining          as many servers do it: how many frames that costs
  sudo ticktax pace --pid 4121                     the frames of process 4121, from its own wakeups
  sudo ticktax pace --comm gamesrv                 the same of the process of that name
  ticktax pace --vary sleep=nanosleep,timerfd,spin --vary rate=35,60
                                                   which way of sleeping to choose on this kernel
  sudo ticktax pace --udp --rate 60k               datagrams: which are lost, where, and because of whose stall
  ticktax pace --udp --listen                      the same between hosts: this one reads,
  ticktax pace --udp --to 192.0.2.7                and this one sends to it";

#[derive(Debug, Args)]
pub(crate) struct PaceArguments {
    /// Frames a second, 1 to 50000 [default: 35]; with --udp datagrams a second, such as 60k, or max [default: 10k]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    rate: Option<PaceRate>,

    /// CPU time of each frame's work, such as 3ms, 250us or 0ms; shorter than a frame
    #[arg(
        long,
        value_name = "TIME",
        default_value = "3ms",
        allow_hyphen_values = true
    )]
    pub(crate) work: Nanos,

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

    /// Priority of the loop: idle, other, fifo:1 to fifo:99 or rr:1 to rr:99
    #[arg(long, value_name = "POLICY", default_value = "other")]
    pub(crate) policy: SchedulingPolicy,

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

    /// The same of the only process of this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pid", "rate", "work", "sleep", "rule", "cpu", "policy", "vary"])]
    pub(crate) comm: Option<String>,

    /// Count a step as overshot whose frame begins later than this after it is due, such as 4ms
    ///
    /// Without it, a step is overshot where no frame began before the next one was due; a step is due
    /// every 1/rate s from the first frame on, whatever the rule.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = lateness())]
    overshot_from: Option<Nanos>,

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

    #[command(flatten)]
    pub(crate) packets: PacketArguments,
}

/// Frames a second, without other wishes.
const RATE: &str = "35";

impl PaceArguments {
    /// The rate of frames.
    pub(crate) fn frame_rate(&self) -> Result<FrameRate, Failure> {
        match &self.rate {
            Some(rate) => rate.frames(),
            None => RATE
                .parse()
                .map_err(|why: FrameRateError| Failure::Arguments(why.to_string())),
        }
    }

    /// The datagrams to send.
    pub(crate) fn packet_spec(&self) -> TrafficSpec {
        self.packets.spec(self.rate.as_ref(), self.length)
    }

    /// The process to watch, where one was named.
    pub(crate) fn program(&self) -> Option<Program> {
        let pid = self.pid.map(|ProcessId(pid)| Program::Process(pid));
        pid.or_else(|| self.comm.clone().map(Program::Named))
    }

    /// What is to be compared.
    pub(crate) fn variants(&self) -> Result<LoopVariants, Failure> {
        let mut variants = LoopVariants::default();
        let what = ("pace", "sleep, rule, rate and work");
        all_taken(&self.vary, what, &mut |vary| variants.take(vary))?;
        Ok(variants)
    }

    /// How to print, and where.
    pub(crate) fn output(&self) -> (Format, Option<&Path>) {
        (self.format, self.output.as_deref())
    }

    /// How late a step is overshot, where that was typed.
    pub(crate) fn overshot_from(&self) -> Option<Nanos> {
        self.overshot_from
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

fn lateness() -> impl TypedValueParser<Value = Nanos> {
    |text: &str| match text.parse::<Nanos>() {
        Ok(time) if time > Nanos::ZERO => Ok(time),
        Ok(_) => Err(format!("invalid duration `{text}`: it has to be above 0")),
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
    fn rates_that_can_be_typed_are_those_that_a_loop_keeps() {
        let (min, max) = FrameRate::RANGE;
        let period = |rate: f64| rate.to_string().parse::<FrameRate>().unwrap().period();
        assert_eq!((period(max), period(min)), PERIODS);
    }
}
