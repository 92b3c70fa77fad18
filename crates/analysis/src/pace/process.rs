//! The statement about another program's loop, based on a recording that followed its process.

use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::pace::{
    CpuClock, CpuReading, CpuStatement, PaceEnd, PaceStatement, ProcessReport, Subject,
};
use ticktax_model::recording::{EndedEarly, Header};
use ticktax_model::victim::LateFrames;

use super::tick::sampled_at_tick;
use super::watch::{Process, WatchedProcess};

impl Process {
    /// Returns the statement about the process's frames, based on all rows and the header. `late`
    /// lists the late frames and their causes.
    pub(crate) fn statement(&self, header: &Header, late: Option<LateFrames>) -> PaceStatement {
        let pid = self.pid();
        let victim = header.victim.as_ref();
        let begin = header.followed_since().unwrap_or(header.before.at);
        let end = header.end();
        let watched = self.judge(begin, end, header.overshot_threshold);
        let cut_short = watched
            .full_at
            .map(|full_at| Limitation::FollowingCutShort {
                after: full_at - begin,
            });
        PaceStatement {
            world: header.world,
            tool_version: header.tool_version.clone(),
            began_unix: header.began_unix,
            elapsed: end - begin,
            cpu: CpuStatement {
                readings: readings(header, &watched, end - begin),
                cpus: watched.cpus,
                sampled_at_tick: sampled_at_tick(&header.machine),
                // No alias can be determined, because it is not known to the nanosecond when
                // another program's frames are due.
                alias: None,
            },
            figures: watched.figures,
            late,
            wakeups: watched.wakeups,
            limitations: cut_short.into_iter().chain(unseen(header)).collect(),
            ended_early: header.ended_early.map(|why| match why {
                EndedEarly::ProgramExited => PaceEnd::ProcessExited { pid },
                EndedEarly::Interrupted | EndedEarly::MemoryLimit => PaceEnd::Interrupted,
            }),
            machine: header.machine.clone(),
            subject: Subject::Process(ProcessReport {
                pid,
                name: victim.map_or_else(String::new, |victim| victim.name.clone()),
                chosen: watched.chosen,
                threads: watched.threads,
            }),
        }
    }
}

/// Returns the recording's limitations that affect frames.
fn unseen(header: &Header) -> Vec<Limitation> {
    let lost = header.coverage.events_lost();
    let mut unseen = Vec::new();
    if lost > 0 {
        unseen.push(Limitation::FrameEventsLost { events: lost });
    }
    let about_frames = |limitation: &&Limitation| {
        matches!(
            limitation,
            Limitation::ThreadsNotFollowed { .. }
                | Limitation::AccountsBeganLate { .. }
                | Limitation::SwitchesMissed { .. }
                | Limitation::Suspended { .. }
                | Limitation::LengthDiffers { .. }
                | Limitation::PartOfRecording { .. }
                | Limitation::NotVerified
        )
    };
    let victim = header.victim.as_ref();
    let incomplete = victim.and_then(|victim| victim.incomplete.as_ref());
    let all = incomplete.into_iter().chain(&header.coverage.limitations);
    for limitation in all.filter(about_frames) {
        if !unseen.contains(limitation) {
            unseen.push(limitation.clone());
        }
    }
    unseen
}

/// Returns the chosen thread's CPU time as measured by each clock.
fn readings(header: &Header, watched: &WatchedProcess, elapsed: Nanos) -> Vec<CpuReading> {
    let chosen = watched.chosen.and_then(|place| watched.threads.get(place));
    let Some(thread) = chosen else {
        return Vec::new();
    };
    let mut readings = vec![CpuReading {
        clock: CpuClock::Runs,
        time: thread.cpu,
        elapsed,
    }];
    let victim = header.victim.as_ref();
    let usages = victim.and_then(|victim| victim.threads.as_ref());
    let used = usages.and_then(|usages| usages.usage(thread.tid));
    if let Some((used, elapsed)) = used {
        let add = |clock, time| CpuReading {
            clock,
            time,
            elapsed,
        };
        readings.extend(used.on_cpu.map(|time| add(CpuClock::Schedstat, time)));
        readings.push(add(CpuClock::Stat, used.user + used.system));
    }
    let (before, after) = (&header.before, &header.after);
    let cpu_time = |number: u32| {
        let (from, to) = (
            before.cpu_times.get(&number)?,
            after.cpu_times.get(&number)?,
        );
        Some(to.since(from).busy())
    };
    let times: Option<Vec<Nanos>> = watched.cpus.iter().map(|cpu| cpu_time(cpu.0)).collect();
    if let Some(times) = times.filter(|times| !times.is_empty()) {
        let cpus = i64::try_from(times.len()).unwrap_or(1);
        readings.push(CpuReading {
            clock: CpuClock::Machine,
            time: times.iter().sum(),
            elapsed: Nanos((after.at - before.at).0 * cpus),
        });
    }
    readings
}

#[cfg(test)]
mod tests {
    use ticktax_model::limitation::Limitation;
    use ticktax_model::machine::{Counters, CpuTimes, Machine};
    use ticktax_model::pace::{CpuClock, PaceEnd, PaceStatement, Subject, late_from};
    use ticktax_model::recording::{EndedEarly, Header, Level, Loss, Row, RowSink, World};
    use ticktax_model::victim::{HoldUp, Target, ThreadUsage, ThreadUsages, Usage, VictimHeader};
    use ticktax_model::{Cpu, Kind, Nanos, Source, SourceTable, Span, Thread};

    use crate::Auditor;

    const PERIOD: Nanos = Nanos::from_millis(10);
    const WORK: Nanos = Nanos::from_millis(2);
    const FRAMES: i64 = 200;
    const BEGIN: Nanos = Nanos::from_secs(1);

    /// Returns a source of thread 8 of process 7.
    fn thread(kind: Kind, detail: &str) -> Source {
        Source {
            thread: Some(Thread {
                pid: 7,
                tid: 8,
                program: "game".into(),
            }),
            ..Source::kernel(kind, "game", detail)
        }
    }

    /// Builds an audit of a process whose only thread works for 2 ms out of every 10 ms, together
    /// with the audit's sources.
    fn watch() -> (Auditor, SourceTable) {
        let mut sources = SourceTable::default();
        let on = sources.intern(thread(Kind::Task, ""));
        let off = sources.intern(thread(Kind::Wait, "sleeping"));
        let mut watch = Auditor::books().following(Nanos::ZERO, Some(7));
        for frame in 0..FRAMES {
            let start = BEGIN + Nanos(PERIOD.0 * frame);
            for (source, start, dur) in [(on, start, WORK), (off, start + WORK, PERIOD - WORK)] {
                let span = Span {
                    cpu: Cpu(1),
                    start,
                    dur,
                    self_time: dur,
                    source,
                };
                watch.row(&sources, &Row::Span(span));
            }
        }
        (watch, sources)
    }

    fn statement(header: &Header) -> PaceStatement {
        let (watch, sources) = watch();
        watch.finish_pace(header, &sources, 1)
    }

    fn header() -> Header {
        let counters = |at, user| Counters {
            at,
            cpu_times: [(
                1,
                CpuTimes {
                    user,
                    ..CpuTimes::default()
                },
            )]
            .into(),
            ..Counters::default()
        };
        let end = BEGIN + Nanos(PERIOD.0 * FRAMES);
        let usage = |user| Usage {
            user,
            ..Usage::default()
        };
        Header {
            machine: Machine {
                hz_configured: Some(250),
                ..Machine::default()
            },
            before: counters(BEGIN - Nanos::from_millis(5), Nanos::ZERO),
            after: counters(end, Nanos::from_millis(390)),
            victim: Some(VictimHeader {
                target: Target::Process,
                name: "game".to_owned(),
                pid: Some(7),
                begin: BEGIN,
                followed: true,
                incomplete: None,
                before: None,
                after: None,
                threads: Some(ThreadUsages {
                    begin: BEGIN,
                    end,
                    threads: vec![ThreadUsage {
                        tid: 8,
                        before: usage(Nanos::from_millis(50)),
                        after: usage(Nanos::from_millis(450)),
                    }],
                }),
                only_thread: None,
                freezer: None,
                frozen_by: None,
                deadline: None,
                short_system_calls: None,
                group_settings: None,
                memory_limit: None,
            }),
            ..Header::new(World::Live, Level::Kernel, "1.2.3")
        }
    }

    #[test]
    fn a_followed_process_is_judged_by_the_recording_alone() {
        let statement = statement(&header());
        assert_eq!(statement.elapsed, Nanos::from_secs(2));
        assert_eq!(statement.tool_version, "1.2.3");
        let figures = statement.figures.unwrap();
        assert!(figures.frames > 190 && figures.dropped == 0, "{figures:?}");
        assert_eq!(figures.overshot_threshold, None);
        assert_eq!(figures.late_threshold, late_from(figures.period));
        let readings: Vec<(CpuClock, Nanos, Nanos)> = statement
            .cpu
            .readings
            .iter()
            .map(|reading| (reading.clock, reading.time, reading.elapsed))
            .collect();
        let (used, two) = (Nanos::from_millis(400), Nanos::from_secs(2));
        assert_eq!(
            readings,
            [
                (CpuClock::Runs, used, two),
                (CpuClock::Stat, used, two),
                (
                    CpuClock::Machine,
                    Nanos::from_millis(390),
                    Nanos::from_millis(2005)
                ),
            ]
        );
        assert_eq!(statement.ended_early, None);
        assert!(statement.limitations.is_empty());
        assert!(matches!(statement.subject, Subject::Process(report) if report.pid == 7));
    }

    /// The timer slack of 7 ms prolongs each sleep of a loop by 7 ms, except for one sleep that
    /// another interrupt ends after 3 ms.
    #[test]
    fn timer_slack_makes_frames_late() {
        let mut sources = SourceTable::default();
        let on = sources.intern(thread(Kind::Task, ""));
        let off = sources.intern(thread(Kind::Wait, "sleeping"));
        let timer = sources.intern(thread(Kind::Wait, "timer"));
        let mut watch = Auditor::books().following(BEGIN, Some(7));
        let mut ended = BEGIN;
        for frame in 1..FRAMES {
            let due = BEGIN + Nanos(PERIOD.0 * frame);
            let slack = Nanos::from_millis(if frame == 120 { 3 } else { 7 });
            let began = due + slack;
            let rows = [
                (timer, due, slack),
                (off, ended, began - ended),
                (on, began, WORK),
            ];
            for (source, start, dur) in rows {
                let span = Span {
                    cpu: Cpu(1),
                    start,
                    dur,
                    self_time: dur,
                    source,
                };
                watch.row(&sources, &Row::Span(span));
            }
            ended = began + WORK;
        }
        let late = watch.finish_pace(&header(), &sources, 1).late.unwrap();
        let causes: Vec<HoldUp> = late.causes.iter().map(|cause| cause.kind).collect();
        assert_eq!(causes, [HoldUp::TimerSlack], "{late:#?}");
        assert!(late.frames > 190 && late.dropped == 0, "{late:#?}");
    }

    #[test]
    fn only_limitations_that_affect_frames_are_reported() {
        let mut header = header();
        header.machine.hz_configured = None;
        header.ended_early = Some(EndedEarly::ProgramExited);
        header.coverage.limitations = vec![
            Limitation::FunctionNamesHidden,
            Limitation::SwitchesMissed { count: 3 },
        ];
        header.coverage.lost = vec![Loss {
            events: 5,
            ..Loss::none(Cpu(0))
        }];
        let victim = header.victim.as_mut().unwrap();
        victim.incomplete = Some(Limitation::SwitchesMissed { count: 3 });
        let statement = statement(&header);
        assert_eq!(
            statement.limitations,
            [
                Limitation::FrameEventsLost { events: 5 },
                Limitation::SwitchesMissed { count: 3 },
            ]
        );
        assert_eq!(
            statement.ended_early,
            Some(PaceEnd::ProcessExited { pid: 7 })
        );
    }

    /// It is unknown how many of the lost events belong to a part, so the whole recording's number
    /// is reported and marked as such.
    #[test]
    fn a_part_reports_the_lost_events_of_the_whole_recording() {
        let mut header = header();
        let part = Limitation::PartOfRecording {
            from: PERIOD,
            to: BEGIN,
        };
        header.coverage.limitations = vec![part.clone()];
        header.coverage.lost = vec![Loss {
            events: 5,
            ..Loss::none(Cpu(0))
        }];
        let lost = Limitation::FrameEventsLost { events: 5 };
        assert_eq!(statement(&header).limitations, [lost, part]);
    }

    #[test]
    fn a_thread_without_counters_has_no_stat_reading() {
        let mut header = header();
        header.victim = None;
        let statement = statement(&header);
        let clocks: Vec<CpuClock> = statement
            .cpu
            .readings
            .iter()
            .map(|reading| reading.clock)
            .collect();
        assert_eq!(clocks, [CpuClock::Runs, CpuClock::Machine]);
    }
}
