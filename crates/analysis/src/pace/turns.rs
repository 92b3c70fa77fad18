//! Compares loops that ran alternately, based on their frames and on readings taken while they ran.

use std::collections::BTreeMap;

use ticktax_model::comparison::{Comparison, Experiment, LoopsRecord, tabulate};
use ticktax_model::pace::{
    CpuClock, CpuReading, Figures, LoopRun, LoopSpec, LoopTurns, PaceArm, PaceEnd, PaceTurn,
    turn_of,
};
use ticktax_model::recording::{EndedEarly, Header, Row, RowSink};
use ticktax_model::{Cpu, Nanos, SourceId, SourceTable};

use super::{Accounts, FrameStats, Terms, choices, common_quantile};

/// Collects the frames of loops that run alternately, and compares them.
#[derive(Debug)]
pub struct TurnStats {
    arms: Vec<(LoopSpec, Option<Accounts>)>,
    overshot_from: Option<Nanos>,
    /// Statistics about each completed turn, or `None` for a turn without frames.
    turns: BTreeMap<u64, Option<Figures>>,
    /// The turn in progress: the source of its frames, its number, and its statistics.
    current: Option<(SourceId, u64, FrameStats)>,
}

impl TurnStats {
    /// Collects turns of `arms`, which run in this order in every round. For `overshot_from`, see
    /// [`Terms`].
    pub fn new(arms: &[LoopSpec], overshot_from: Option<Nanos>) -> Self {
        Self {
            arms: arms.iter().map(|spec| (*spec, None)).collect(),
            overshot_from,
            turns: BTreeMap::new(),
            current: None,
        }
    }

    fn arm_of(&self, turn: u64) -> Option<usize> {
        let index = turn.checked_rem(self.arms.len() as u64)?;
        usize::try_from(index).ok()
    }

    fn close_turn(&mut self) {
        let Some((_, turn, stats)) = self.current.take() else {
            return;
        };
        let accounts = stats.close();
        self.turns.insert(turn, accounts.figures());
        let Some(arm) = self.arm_of(turn) else {
            return;
        };
        match &mut self.arms[arm].1 {
            Some(sum) => sum.merge(&accounts),
            none => *none = Some(accounts),
        }
    }

    /// Compares the arms over all turns. `turns` and `header` must come from the same recording.
    pub fn finish(mut self, header: &Header, turns: &LoopTurns) -> Comparison {
        self.close_turn();
        let loops: Vec<PaceArm> = self
            .arms
            .iter()
            .enumerate()
            .map(|(index, (spec, accounts))| {
                let runs = (0..).zip(&turns.runs).skip(index);
                let runs = runs.step_by(self.arms.len());
                let runs = runs.map(|(turn, run)| {
                    let figures = self.turns.get(&turn).and_then(Option::as_ref);
                    (run, figures)
                });
                row(spec, accounts.as_ref(), runs)
            })
            .collect();
        let first = turns.runs.first().map(|run| &run.report);
        let record = LoopsRecord {
            world: header.world,
            limitations: header.coverage.limitations.clone(),
            cpu: first.map_or(Cpu(0), |report| report.cpu),
            policy: first.map(|report| report.policy.clone()),
            turn: turns.turn,
            rounds: turns.rounds,
            quantile: common_quantile(&loops),
            choices: choices(&loops),
            loops,
            ended_early: ended_early(header, turns),
        };
        let quantile = record.quantile;
        let arms = record.loops.iter().map(|row| row.arm(quantile));
        let (metrics, arms) = tabulate(arms.collect());
        Comparison {
            machine: Some(header.machine.clone()),
            began_unix: Some(header.began_unix),
            metrics,
            arms,
            ..Comparison::new(&header.tool_version, Experiment::Loops(Box::new(record)))
        }
    }
}

impl RowSink for TurnStats {
    fn row(&mut self, sources: &SourceTable, row: &Row) {
        let Row::Frame(frame) = row else { return };
        let source = frame.span.source;
        if self
            .current
            .as_ref()
            .is_none_or(|(current, ..)| *current != source)
        {
            self.close_turn();
            let turn = turn_of(sources.get(source));
            let Some((turn, arm)) = turn.and_then(|turn| Some((turn, self.arm_of(turn)?))) else {
                return;
            };
            let stats = FrameStats::new(Terms {
                period: self.arms[arm].0.period,
                overshot_from: self.overshot_from,
                asked_for: true,
            });
            self.current = Some((source, turn, stats));
        }
        if let Some((.., stats)) = &mut self.current {
            stats.frame(frame.frame());
        }
    }
}

/// Returns why there were fewer turns than planned, or `None` if there were not.
fn ended_early(header: &Header, turns: &LoopTurns) -> Option<PaceEnd> {
    let failure = turns.runs.last().and_then(|run| run.error.clone());
    match header.ended_early {
        Some(EndedEarly::Interrupted | EndedEarly::ProgramExited | EndedEarly::MemoryLimit) => {
            Some(PaceEnd::InterruptedInTurn {
                turn: turns.runs.len() as u64,
                turns: turns.planned(),
            })
        }
        None => failure.map(|failure| PaceEnd::Failed { failure }),
    }
}

/// Adds up all turns of an arm.
fn row<'a>(
    spec: &LoopSpec,
    accounts: Option<&Accounts>,
    runs: impl Iterator<Item = (&'a LoopRun, Option<&'a Figures>)>,
) -> PaceArm {
    let mut row = PaceArm {
        spec: *spec,
        turns: 0,
        figures: accounts.and_then(Accounts::figures),
        cpu_time: Nanos::ZERO,
        elapsed: Nanos::ZERO,
        readings: Vec::new(),
        margin: None,
        by_turn: Vec::new(),
    };
    let mut margins: Vec<Nanos> = Vec::new();
    for (run, figures) in runs {
        let thread = run.readings.iter();
        let thread = thread.filter(|reading| reading.clock == CpuClock::Thread);
        let cpu_time = thread.map(|reading| reading.time).sum();
        row.by_turn
            .push(PaceTurn::new(figures, cpu_time, run.elapsed));
        row.turns += 1;
        row.cpu_time += cpu_time;
        row.elapsed += run.elapsed;
        margins.extend(run.report.margin);
        for reading in &run.readings {
            add(&mut row.readings, reading);
        }
    }
    if let Ok(count @ 1..) = i64::try_from(margins.len()) {
        row.margin = Some(Nanos(margins.iter().sum::<Nanos>().0 / count));
    }
    row
}

fn add(readings: &mut Vec<CpuReading>, reading: &CpuReading) {
    let mut known = readings.iter_mut();
    match known.find(|sum| sum.clock == reading.clock) {
        Some(sum) => {
            sum.time += reading.time;
            sum.elapsed += reading.elapsed;
        }
        None => readings.push(*reading),
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::comparison::Measure;
    use ticktax_model::pace::{
        CpuClock, CpuReading, Frame, LoopReport, LoopRun, LoopSpec, LoopTurns, PaceEnd, PaceRule,
        SleepMethod, frame_source,
    };
    use ticktax_model::policy::PolicyGrant;
    use ticktax_model::recording::{EndedEarly, Header, Level, PacedFrame, Row, RowSink, World};
    use ticktax_model::{Cpu, Nanos, SourceTable};

    use super::{Experiment, TurnStats};

    const PERIOD: Nanos = Nanos::from_millis(5);

    fn spec(sleep: SleepMethod) -> LoopSpec {
        LoopSpec {
            rate: 200.0,
            period: PERIOD,
            work: Nanos::ZERO,
            sleep,
            rule: PaceRule::Deadline,
        }
    }

    fn run(spec: &LoopSpec) -> LoopRun {
        LoopRun {
            report: LoopReport {
                spec: *spec,
                cpu: Cpu(1),
                policy: PolicyGrant::default(),
                timer_slack: None,
                margin: None,
                frames_lost: 0,
            },
            elapsed: Nanos::from_secs(1),
            readings: vec![CpuReading {
                clock: CpuClock::Thread,
                time: Nanos::from_millis(3),
                elapsed: Nanos::from_secs(1),
            }],
            wakeups: None,
            error: None,
        }
    }

    /// The second of two arms is always 1 ms late. Three of four turns ran, and the third had no
    /// frames.
    #[test]
    fn frames_count_for_the_variant_that_ran() {
        let arms = vec![spec(SleepMethod::Nanosleep), spec(SleepMethod::Timerfd)];
        let mut stats = TurnStats::new(&arms, None);
        let mut sources = SourceTable::default();
        for turn in [0, 1] {
            let source = sources.intern(frame_source(Some(turn)));
            for number in 0..10 {
                let due = Nanos::from_secs(10 * i64::try_from(turn).unwrap() + 1)
                    + Nanos(PERIOD.0 * number);
                let began = due + Nanos::from_millis(i64::from(turn == 1));
                let frame = Frame {
                    due,
                    began,
                    ended: began,
                    cpu: Nanos::ZERO,
                };
                let row = Row::Frame(PacedFrame::new(&frame, Cpu(1), source));
                stats.row(&sources, &row);
            }
        }
        let turns = LoopTurns {
            turn: Nanos::from_secs(1),
            rounds: 2,
            runs: vec![run(&arms[0]), run(&arms[1]), run(&arms[0])],
            arms,
        };
        let header = Header {
            ended_early: Some(EndedEarly::Interrupted),
            ..Header::new(World::Live, Level::Proc, "")
        };
        let comparison = stats.finish(&header, &turns);
        assert_eq!(
            comparison.value(&comparison.arms[1], Measure::LateMedian),
            Some(1e6)
        );
        let Experiment::Loops(record) = comparison.experiment else {
            panic!("{comparison:?}");
        };
        let results: Vec<_> = record
            .loops
            .iter()
            .map(|row| {
                let figures = row.figures.as_ref().unwrap();
                let wait = figures.wait.as_ref().unwrap().max;
                (row.turns, figures.frames, wait, row.cpu_time)
            })
            .collect();
        let ms = Nanos::from_millis;
        assert_eq!(results[0], (2, 10, Nanos::ZERO, ms(6)));
        assert_eq!(results[1], (1, 10, ms(1), ms(3)));
        assert_eq!(
            record.ended_early,
            Some(PaceEnd::InterruptedInTurn { turn: 3, turns: 4 })
        );
    }
}
