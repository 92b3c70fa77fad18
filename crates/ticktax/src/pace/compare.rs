//! Variants of a loop in turns, so that a machine that slows down slows all of them down.

use ticktax_analysis::pace::{Accounts, choices, common_quantile};
use ticktax_model::Nanos;
use ticktax_model::pace::{CpuClock, CpuReading, PaceComparison, PaceVariant};
use ticktax_observe::LoopPlan;

use super::own::{self, Ran, run_loop};
use crate::arguments::{LoopVariants, PaceArguments};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// One turn of one variant, without other wishes.
const TURN: Nanos = Nanos::from_secs(2);
/// More variants than this nobody reads.
const MOST: usize = 100;

/// One combination, and what its turns brought.
struct Contender {
    plan: LoopPlan,
    turns: u64,
    accounts: Option<Accounts>,
    cpu_time: Nanos,
    elapsed: Nanos,
    readings: Vec<CpuReading>,
    /// The margins of all turns, where it has one.
    margins: Vec<Nanos>,
}

/// Runs every combination of the lists in turns.
pub(super) fn compare(
    lists: &LoopVariants,
    typed: &PaceArguments,
    terminal: &Terminal,
) -> Result<PaceComparison, Failure> {
    let turn = typed.length.map_or(TURN, |length| length.0);
    let mut contenders = combinations(lists, typed, turn)?;
    let interrupt = Interrupt::listen()?;
    let turns = u64::from(typed.rounds) * contenders.len() as u64;
    let whole = Nanos(
        turn.0
            .saturating_mul(i64::try_from(turns).unwrap_or(i64::MAX)),
    );
    let progress = terminal.progress(Some(whole), String::new(), false);
    let mut first = None;
    let mut done = 0_u64;
    let mut ended_early = None;
    'rounds: for _ in 0..typed.rounds {
        for contender in &mut contenders {
            let begun = Nanos(
                turn.0
                    .saturating_mul(i64::try_from(done).unwrap_or(i64::MAX)),
            );
            progress.tell(format!("{}/{turns} {}", done + 1, contender.name()));
            progress.at(begun);
            let plan = contender.plan.clone();
            let ran = run_loop(plan, &interrupt, &mut None, &mut |_, elapsed| {
                progress.at(begun + elapsed);
            })?;
            ended_early.clone_from(&ran.run.error);
            contender.add(&ran);
            first.get_or_insert((ran.header, ran.run.report));
            if interrupt.signal().is_some() {
                ended_early = Some(format!(
                    "it was interrupted in turn {} of {turns}",
                    done + 1
                ));
            }
            if ended_early.is_some() {
                break 'rounds;
            }
            done += 1;
        }
    }
    progress.done();
    let rows: Vec<PaceVariant> = contenders.into_iter().map(Contender::row).collect();
    let Some((header, report)) = first else {
        return Err(Failure::Arguments("no variant was named".to_owned()));
    };
    Ok(PaceComparison {
        world: header.world,
        limitations: header.coverage.limitations,
        tool_version: header.tool_version,
        machine: header.machine,
        began_unix: header.began_unix,
        cpu: report.cpu,
        policy: Some(report.policy),
        turn,
        rounds: typed.rounds.into(),
        quantile: common_quantile(&rows),
        choices: choices(&rows),
        rows,
        ended_early,
    })
}

/// Every combination of what was named; what was not is as for a single loop.
fn combinations(
    lists: &LoopVariants,
    typed: &PaceArguments,
    turn: Nanos,
) -> Result<Vec<Contender>, Failure> {
    fn or<T: Copy>(list: &[T], otherwise: T) -> Vec<T> {
        if list.is_empty() {
            vec![otherwise]
        } else {
            list.to_vec()
        }
    }
    let mut all = Vec::new();
    for rate in or(&lists.rates, typed.rate) {
        for work in or(&lists.works, typed.work) {
            for sleep in or(&lists.sleeps, typed.sleep) {
                for rule in or(&lists.rules, typed.rule) {
                    let plan = LoopPlan {
                        rate: rate.0,
                        period: rate.period(),
                        work: work.0,
                        sleep,
                        rule,
                        ..own::plan(typed, turn)
                    };
                    plan.check()?;
                    all.push(Contender::new(plan));
                }
            }
        }
    }
    if all.len() > MOST {
        return Err(Failure::Arguments(format!(
            "these are {} variants: name fewer, {MOST} at most",
            all.len()
        )));
    }
    Ok(all)
}

impl Contender {
    fn new(plan: LoopPlan) -> Self {
        Self {
            plan,
            turns: 0,
            accounts: None,
            cpu_time: Nanos::ZERO,
            elapsed: Nanos::ZERO,
            readings: Vec::new(),
            margins: Vec::new(),
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

    fn add(&mut self, ran: &Ran) {
        let run = &ran.run;
        self.turns += 1;
        let thread = run.readings.iter();
        self.cpu_time += thread
            .filter(|reading| reading.clock == CpuClock::Thread)
            .map(|reading| reading.time)
            .sum::<Nanos>();
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
            Some(accounts) => accounts.merge(&ran.accounts),
            None => self.accounts = Some(ran.accounts.clone()),
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
        }
    }
}
