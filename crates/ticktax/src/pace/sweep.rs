//! Loops of many settings in turns, so that a machine that slows down slows all of them down.

use ticktax_analysis::pace::{Accounts, choices, common_quantile};
use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_model::pace::{
    CpuReading, PACE_VERSION, PaceRule, SleepMethod, SweepRow, SweepStatement,
};
use ticktax_probes::pace::PaceSettings;

use super::own::{Ran, ring_capacity, run_loop};
use super::{require_possible, tick, unix_time};
use crate::arguments::{PaceArguments, Rate, Sweep};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// One turn of one setting, without other wishes.
const TURN: Nanos = Nanos::from_secs(2);
/// More settings than this nobody reads.
const MOST: usize = 100;

/// One combination, and what its turns brought.
struct Contender {
    rate: f64,
    settings: PaceSettings,
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
    lists: &Sweep,
    typed: &PaceArguments,
    terminal: &Terminal,
) -> Result<SweepStatement, Failure> {
    let turn = typed.length.map_or(TURN, |length| length.0);
    let mut contenders = combinations(lists, typed, turn)?;
    let proc = Proc::default();
    let machine = proc.machine();
    let (tick, _) = tick(&machine);
    let interrupt = Interrupt::listen()?;
    let began_unix = unix_time();
    let turns = u64::from(typed.rounds) * contenders.len() as u64;
    let whole = Nanos(
        turn.0
            .saturating_mul(i64::try_from(turns).unwrap_or(i64::MAX)),
    );
    let progress = terminal.progress(Some(whole), String::new(), false);
    let mut policy = None;
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
            let settings = &contender.settings;
            let ran = run_loop(
                settings,
                turn,
                tick,
                &proc,
                &interrupt,
                &mut |_, elapsed| {
                    progress.at(begun + elapsed);
                },
            )?;
            policy.get_or_insert_with(|| ran.report.policy.clone());
            ended_early = ran.report.error.as_ref().map(ToString::to_string);
            contender.add(ran);
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
    let cpu = contenders.first().map(|contender| contender.settings.cpu);
    let rows: Vec<SweepRow> = contenders.into_iter().map(Contender::row).collect();
    let (world, hidden) = ticktax_host::world(&machine);
    Ok(SweepStatement {
        world,
        limitations: hidden.into_iter().collect(),
        pace_version: PACE_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        began_unix,
        cpu: cpu.unwrap_or(ticktax_model::Cpu(0)),
        policy,
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
    lists: &Sweep,
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
    let cpu = super::cpu(typed)?;
    let mut all = Vec::new();
    for rate in or(&lists.rates, typed.rate) {
        for work in or(&lists.works, typed.work) {
            for sleep in or(&lists.sleeps, typed.sleep) {
                for rule in or(&lists.rules, typed.rule) {
                    let settings = PaceSettings {
                        cpu,
                        policy: typed.policy.0,
                        period: rate.period(),
                        work: work.0,
                        sleep,
                        rule,
                        ring_capacity: ring_capacity(rate.period()),
                    };
                    require_possible(&settings, turn)?;
                    all.push(Contender::new(rate, settings));
                }
            }
        }
    }
    if all.len() > MOST {
        return Err(Failure::Arguments(format!(
            "these are {} settings: name fewer, {MOST} at most",
            all.len()
        )));
    }
    Ok(all)
}

impl Contender {
    fn new(rate: Rate, settings: PaceSettings) -> Self {
        Self {
            rate: rate.0,
            settings,
            turns: 0,
            accounts: None,
            cpu_time: Nanos::ZERO,
            elapsed: Nanos::ZERO,
            readings: Vec::new(),
            margins: Vec::new(),
        }
    }

    fn name(&self) -> String {
        let PaceSettings { sleep, rule, .. } = self.settings;
        let (sleep, rule): (SleepMethod, PaceRule) = (sleep, rule);
        format!("{}/s {} {sleep} {rule}", self.rate, self.settings.work)
    }

    fn add(&mut self, ran: Ran) {
        self.turns += 1;
        self.cpu_time += ran.report.cpu_time;
        self.elapsed += ran.report.elapsed;
        self.margins.extend(ran.report.margin);
        for reading in &ran.readings {
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
            None => self.accounts = Some(ran.accounts),
        }
    }

    fn row(self) -> SweepRow {
        let margins = i64::try_from(self.margins.len()).unwrap_or(i64::MAX);
        let margin: Nanos = self.margins.iter().sum();
        SweepRow {
            margin: (margins > 0).then(|| Nanos(margin.0 / margins.max(1))),
            rate: self.rate,
            work: self.settings.work,
            sleep: self.settings.sleep,
            rule: self.settings.rule,
            turns: self.turns,
            figures: self.accounts.as_ref().and_then(Accounts::figures),
            cpu_time: self.cpu_time,
            elapsed: self.elapsed,
            readings: self.readings,
        }
    }
}
