//! Variants of a paced loop in turns on this machine, so that a machine that slows down slows all of
//! them down.

use ticktax_analysis::pace::{Accounts, FrameStats, choices, common_quantile};
use ticktax_model::Nanos;
use ticktax_model::pace::{CpuClock, CpuReading, LoopRun, PaceComparison, PaceTurn, PaceVariant};
use ticktax_model::recording::{Header, RowSink};
use ticktax_observe::{Event, LoopPlan, Observation, ObserveError, PacedLoop};

/// More variants than this nobody reads.
const MAX: usize = 100;

/// Why variants cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum TurnsError {
    /// There is nothing to compare, or too much.
    #[error("these are {0} variants: name 1 to {MAX}")]
    Variants(usize),
    /// A loop cannot be run.
    #[error(transparent)]
    Observe(#[from] ObserveError),
}

/// Loops to be run in turns.
#[derive(Debug)]
pub struct Turns {
    variants: Vec<Variant>,
    rounds: u32,
}

/// How far they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnProgress {
    /// The turn that runs, from 1.
    pub turn: u64,
    /// How many there are.
    pub turns: u64,
    /// What its variant is.
    pub name: String,
    /// How much time of all turns has passed.
    pub elapsed: Nanos,
}

impl Turns {
    /// Every plan `rounds` times, by turns. All plans are of one length.
    ///
    /// # Errors
    /// There are none or too many, or one is of a loop that cannot be kept.
    pub fn new(plans: Vec<LoopPlan>, rounds: u32) -> Result<Self, TurnsError> {
        for plan in &plans {
            plan.check()?;
        }
        if !(1..=MAX).contains(&plans.len()) {
            return Err(TurnsError::Variants(plans.len()));
        }
        let variants = plans.into_iter().map(Variant::new).collect();
        Ok(Self { variants, rounds })
    }

    /// How long all turns take.
    pub fn length(&self) -> Nanos {
        times(self.turn(), self.turns())
    }

    fn turn(&self) -> Nanos {
        self.variants[0].plan.length
    }

    fn turns(&self) -> u64 {
        u64::from(self.rounds) * self.variants.len() as u64
    }

    /// Runs them. `go_on` is told how far they are, some twenty times a second, and says whether to go
    /// on; otherwise the comparison is of what was done by then.
    ///
    /// # Errors
    /// A loop does not start.
    pub fn run(
        mut self,
        go_on: &mut dyn FnMut(&TurnProgress) -> bool,
    ) -> Result<PaceComparison, TurnsError> {
        let (turn, turns) = (self.turn(), self.turns());
        let places = self.variants.len() as u64;
        let mut first = None;
        let mut ended_early = None;
        for number in 0..turns {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a place among the variants"
            )]
            let variant = &mut self.variants[(number % places) as usize];
            let begun = times(turn, number);
            let mut progress = TurnProgress {
                turn: number + 1,
                turns,
                name: variant.name(),
                elapsed: begun,
            };
            let ran = Ran::of(&variant.plan, &mut |elapsed| {
                progress.elapsed = begun + elapsed;
                go_on(&progress)
            })?;
            variant.add(ran.run(), &ran.accounts);
            ended_early.clone_from(&ran.run().error);
            if ran.stopped {
                ended_early = Some(format!(
                    "it was interrupted in turn {} of {turns}",
                    number + 1
                ));
            }
            first.get_or_insert(ran.header);
            if ended_early.is_some() {
                break;
            }
        }
        let header = first.expect("there is a first turn");
        Ok(self.comparison(&header, ended_early))
    }

    fn comparison(self, header: &Header, ended_early: Option<String>) -> PaceComparison {
        let turn = self.turn();
        let rows: Vec<PaceVariant> = self.variants.into_iter().map(Variant::row).collect();
        let report = &loop_run(header).report;
        PaceComparison {
            world: header.world,
            limitations: header.coverage.limitations.clone(),
            tool_version: header.tool_version.clone(),
            machine: header.machine.clone(),
            began_unix: header.began_unix,
            cpu: report.cpu,
            policy: Some(report.policy.clone()),
            turn,
            rounds: self.rounds.into(),
            quantile: common_quantile(&rows),
            choices: choices(&rows),
            rows,
            ended_early,
        }
    }
}

fn times(turn: Nanos, count: u64) -> Nanos {
    Nanos(
        turn.0
            .saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)),
    )
}

fn loop_run(header: &Header) -> &LoopRun {
    header
        .paced_loop()
        .expect("the header of a paced loop has its run")
}

/// What one turn brought.
struct Ran {
    header: Box<Header>,
    accounts: Accounts,
    /// Whether it was not to go on.
    stopped: bool,
}

impl Ran {
    /// Runs a loop for as long as `go_on` says so.
    fn of(plan: &LoopPlan, go_on: &mut dyn FnMut(Nanos) -> bool) -> Result<Self, ObserveError> {
        let mut paced = PacedLoop::start(plan.clone())?;
        let mut frames = FrameStats::of_loop(plan.period, paced.machine());
        let mut stopped = false;
        loop {
            match paced.next_event()? {
                Event::Started(_) => {}
                Event::Rows { sources, rows } => {
                    for row in rows {
                        frames.row(sources, row);
                    }
                }
                Event::Progress(progress) => {
                    if !stopped && !go_on(progress.elapsed) {
                        stopped = true;
                        paced.stop(None);
                    }
                }
                Event::Ended(header) => {
                    let accounts = frames.close();
                    return Ok(Self {
                        header,
                        accounts,
                        stopped,
                    });
                }
            }
        }
    }

    fn run(&self) -> &LoopRun {
        loop_run(&self.header)
    }
}

/// One of the loops, and what its turns brought.
#[derive(Debug)]
struct Variant {
    plan: LoopPlan,
    turns: u64,
    accounts: Option<Accounts>,
    cpu_time: Nanos,
    elapsed: Nanos,
    readings: Vec<CpuReading>,
    /// The margins of all turns, where it has one.
    margins: Vec<Nanos>,
    by_turn: Vec<PaceTurn>,
}

impl Variant {
    fn new(plan: LoopPlan) -> Self {
        Self {
            plan,
            turns: 0,
            accounts: None,
            cpu_time: Nanos::ZERO,
            elapsed: Nanos::ZERO,
            readings: Vec::new(),
            margins: Vec::new(),
            by_turn: Vec::new(),
        }
    }

    fn name(&self) -> String {
        let LoopPlan {
            rate,
            work,
            sleep,
            rule,
            ..
        } = &self.plan;
        format!("{rate}/s {work} {sleep} {rule}")
    }

    fn add(&mut self, run: &LoopRun, accounts: &Accounts) {
        self.turns += 1;
        let thread = run.readings.iter();
        let cpu_time = thread
            .filter(|reading| reading.clock == CpuClock::Thread)
            .map(|reading| reading.time)
            .sum::<Nanos>();
        self.cpu_time += cpu_time;
        let figures = accounts.figures();
        let turn = PaceTurn::new(figures.as_ref(), cpu_time, run.elapsed);
        self.by_turn.push(turn);
        self.elapsed += run.elapsed;
        self.margins.extend(run.report.margin);
        for reading in &run.readings {
            let known = self.readings.iter_mut();
            match known.into_iter().find(|sum| sum.clock == reading.clock) {
                Some(sum) => {
                    sum.time += reading.time;
                    sum.elapsed += reading.elapsed;
                }
                None => self.readings.push(*reading),
            }
        }
        match &mut self.accounts {
            Some(sum) => sum.merge(accounts),
            None => self.accounts = Some(accounts.clone()),
        }
    }

    fn row(self) -> PaceVariant {
        let margins = i64::try_from(self.margins.len()).unwrap_or(i64::MAX);
        let margin: Nanos = self.margins.iter().sum();
        PaceVariant {
            margin: (margins > 0).then(|| Nanos(margin.0 / margins.max(1))),
            rate: self.plan.rate,
            work: self.plan.work,
            sleep: self.plan.sleep,
            rule: self.plan.rule,
            turns: self.turns,
            figures: self.accounts.as_ref().and_then(Accounts::figures),
            cpu_time: self.cpu_time,
            elapsed: self.elapsed,
            readings: self.readings,
            by_turn: self.by_turn,
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{PaceRule, SleepMethod};
    use ticktax_observe::LoopPlan;

    use super::{Turns, TurnsError};

    fn plan(sleep: SleepMethod) -> LoopPlan {
        LoopPlan {
            rate: 200.0,
            period: Nanos::from_millis(5),
            work: Nanos::ZERO,
            sleep,
            rule: PaceRule::Deadline,
            cpu: None,
            policy: ticktax_probes::SchedulingPolicy::Other,
            length: Nanos::from_millis(60),
        }
    }

    #[test]
    fn each_variant_gets_its_turns_and_an_interrupted_one_says_so() {
        let plans = || vec![plan(SleepMethod::Nanosleep), plan(SleepMethod::Timerfd)];
        let turns = Turns::new(plans(), 2).unwrap();
        assert_eq!(turns.length(), Nanos::from_millis(240));
        let mut seen = Vec::new();
        let comparison = turns.run(&mut |progress| {
            seen.push(progress.turn);
            true
        });
        let comparison = comparison.unwrap();
        assert_eq!(comparison.ended_early, None);
        assert_eq!(comparison.rows.iter().map(|row| row.turns).sum::<u64>(), 4);
        seen.dedup();
        assert_eq!(seen, [1, 2, 3, 4]);

        let turns = Turns::new(plans(), 2).unwrap();
        let comparison = turns.run(&mut |progress| progress.turn < 2).unwrap();
        let why = comparison.ended_early.unwrap();
        assert_eq!(why, "it was interrupted in turn 2 of 4");
        let turns: Vec<u64> = comparison.rows.iter().map(|row| row.turns).collect();
        assert_eq!(turns, [1, 1]);
    }

    #[test]
    fn none_and_too_many_are_refused() {
        for count in [0, 101] {
            let plans = vec![plan(SleepMethod::Spin); count];
            let error = Turns::new(plans, 1).unwrap_err();
            assert!(matches!(error, TurnsError::Variants(all) if all == count));
        }
    }
}
