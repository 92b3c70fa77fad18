//! What was typed for `ticktax sim`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ticktax_model::document::DocumentKind;
use ticktax_model::pace::{PaceRule, SleepMethod};
use ticktax_report::Format;

use super::{Length, Rate, formats};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo ticktax audit --save game.parquet --pid 4121    record a game server, then ask
  ticktax sim --load game.parquet --hz 1000,250,100    what another tick would do to its frames
  ticktax sim --load game.parquet --highres off --tick periodic,nohz-idle
  ticktax sim --load game.parquet --rate 60,100 --rule deadline,remaining
  ticktax sim --load game.toml --policy o1,eevdf       the same of a scenario that you wrote

Lists multiply: each value of one with each value of the others.";

#[derive(Debug, Args)]
pub(crate) struct SimArguments {
    /// The work: a recording that `audit --save` made as root, or a scenario (.toml)
    #[arg(long, value_name = "FILE")]
    pub(crate) load: PathBuf,

    /// The program of the recording, or the task of the scenario, that is asked about [default: the
    /// one that was followed, or the one with the surest rhythm]
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,

    /// The rate that the recorded loop was asked for, where it is known
    ///
    /// What all its frames are late by cannot be seen from outside. With it, the loop under another
    /// rate or rule is predicted better.
    #[arg(long, value_name = "FRAMES")]
    pub(crate) asked: Option<Rate>,

    /// Tick rates, such as 1000,250,100
    #[arg(long, value_name = "LIST")]
    pub(crate) hz: Option<String>,

    /// Schedulers: goodness, goodness-slices, goodness-per-cpu, o1, fair, eevdf
    #[arg(long, value_name = "LIST")]
    pub(crate) policy: Option<String>,

    /// When the tick stands still: periodic (never), nohz-idle, nohz-full
    #[arg(long, value_name = "LIST")]
    pub(crate) tick: Option<String>,

    /// High-resolution timers: on, off
    #[arg(long, value_name = "LIST")]
    pub(crate) highres: Option<String>,

    /// Slices of the policy eevdf, such as 700us,3ms
    #[arg(long, value_name = "LIST")]
    pub(crate) slice: Option<String>,

    /// Any other setting of the model, such as costs.tick=1us,20us; again for several
    #[arg(long, value_name = "NAME=LIST")]
    pub(crate) vary: Vec<String>,

    /// Frames a second that the recorded loop is to be asked for
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) rate: Vec<Rate>,

    /// When its frames are to be due
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = rules())]
    pub(crate) rule: Vec<PaceRule>,

    /// How it is to wait; of each way, what it counts in and whether it spins is modelled
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = sleeps())]
    pub(crate) sleep: Vec<SleepMethod>,

    /// How long each run is [default: as long as the recording, or as the scenario says]
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME")]
    pub(crate) length: Option<Length>,

    /// How many runs each setting gets: 39 make an interval of 95 %
    #[arg(long, value_name = "N", default_value_t = ticktax_experiment::whatif::RUNS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) resample: u32,

    /// The seed of the first run; the same seed gives the same prediction
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Save the first run of the last setting as a recording, for `report` and `beats`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// How to print the prediction
    #[arg(long, value_parser = formats(DocumentKind::Prediction), default_value = "text")]
    pub(crate) format: Format,

    /// Write the prediction to a file in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl SimArguments {
    /// The kernel's settings as axes.
    pub(crate) fn axes(&self) -> Vec<String> {
        let named = [
            ("policy", &self.policy),
            ("hz", &self.hz),
            ("tick", &self.tick),
            ("highres", &self.highres),
            ("slice", &self.slice),
        ];
        let named = named
            .into_iter()
            .filter_map(|(name, list)| Some(format!("{name}={}", list.as_ref()?)));
        named.chain(self.vary.iter().cloned()).collect()
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
