//! Creates the header of a live recording: everything except the rows, including limitations.

use ticktax_host::breaks;
use ticktax_host::{Proc, untraced_interrupts};
use ticktax_model::hook::Hook;
use ticktax_model::limitation::{Limitation, NoGaps};
use ticktax_model::machine::{Counters, Machine};
use ticktax_model::recording::{Coverage, CpuInterval, Header, Level, Row, ToolCost};
use ticktax_model::victim::VictimHeader;
use ticktax_model::witness::{CrossChecks, SwitchWitness};
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Closing, TraceError, Tracer};

use crate::plan::{ProbeChoice, Settings};
use crate::probe::ProbeResults;
use crate::victim::Watched;

/// Inputs for the header at the end of a session.
pub(super) struct End<'a> {
    pub(super) proc: &'a Proc,
    pub(super) settings: &'a Settings,
    pub(super) machine: Machine,
    pub(super) before: Counters,
    pub(super) after: Counters,
    pub(super) victim: Option<Watched>,
    pub(super) late: CpuList,
    pub(super) unprobed: CpuList,
    pub(super) results: ProbeResults,
    /// Number of context switches according to the kernel and according to the tracer.
    pub(super) switches: Option<SwitchWitness>,
}

impl End<'_> {
    pub(super) fn at_level_kernel(
        self,
        tracer: Tracer,
        sources: &mut SourceTable,
        rows: &mut Vec<Row>,
        cost: ToolCost,
    ) -> Header {
        let coverage = Coverage {
            attached: tracer.attached().to_vec(),
            limitations: tracer.limitations().to_vec(),
            lost: Vec::new(),
            every_entry_watched: tracer.every_entry_watched(),
        };
        let still_online = self.proc.online().unwrap_or_default();
        let witnesses = CrossChecks {
            switches: self.switches,
            bpf_programs_skipped: tracer.programs_skipped(),
            probes: self.results.witnesses.clone(),
        };
        let profile_hz = self.settings.plan.profile_hz;
        let mut closing = tracer.close(
            &self.present(&still_online),
            now(),
            sources,
            &mut |_, row| rows.push(row.clone()),
        );
        let cost = ToolCost {
            events: closing.events,
            tracer: closing.in_programs,
            ..cost
        };
        let code = std::mem::take(&mut closing.code_files).named(breaks::take_break_if_due);
        let mut header = self.header(Level::Kernel, coverage, cost, &closing);
        header.code_files = code.files;
        header.coverage.limitations.extend(code.limitations);
        header.cross_checks = Some(witnesses);
        if header.coverage.attached.contains(&Hook::ProfileClock) {
            header.profile_hz = profile_hz;
        }
        header.guests = closing.guests.take();
        header.cpus.clone_from(&closing.books);
        header.coverage.lost.extend(closing.lost.iter().copied());
        if header.coverage.attached.contains(&Hook::TickStop) {
            header.after.ticks_stopped = closing.ticks_stopped.clone();
        }
        header
            .coverage
            .limitations
            .extend(kernel_limitations(&closing, &header));
        header
    }

    pub(super) fn at_level_proc(self, why: &TraceError, cost: ToolCost) -> Header {
        let message = why.to_string();
        let coverage = Coverage {
            limitations: vec![Limitation::KernelNotTraced {
                message,
                needs_root: matches!(why, TraceError::NotPermitted),
            }],
            ..Coverage::default()
        };
        let cpus: Vec<Cpu> = self.settings.online.iter().collect();
        let mut header = self.header(Level::Proc, coverage, cost, &Closing::default());
        let (begin, end) = (header.before.at, header.after.at);
        // Without a tracer, the recorded times come from the kernel's own counters.
        let counted = |cpu: &Cpu| {
            let counters = [&header.before, &header.after];
            counters
                .iter()
                .all(|counters| counters.cpu_times.contains_key(&cpu.0))
        };
        header.cpus = cpus
            .into_iter()
            .filter(counted)
            .map(|cpu| CpuInterval { cpu, begin, end })
            .collect();
        header
    }

    /// Returns the audited CPUs that are still online at the end.
    fn present(&self, online: &CpuList) -> CpuList {
        self.settings
            .online
            .iter()
            .filter(|&cpu| online.contains(cpu))
            .collect()
    }

    /// Creates the header, apart from the fields that depend on the capability level.
    fn header(
        self,
        level: Level,
        mut coverage: Coverage,
        cost: ToolCost,
        closing: &Closing,
    ) -> Header {
        let online = self.proc.online().unwrap_or_default();
        coverage.limitations.extend(self.limitations(&online));
        coverage.lost.extend(self.results.lost.iter().copied());
        let threads = self.without_room(closing);
        let unseen = self.unseen(closing);
        let no_room = Limitation::ThreadsNotFollowed { threads };
        if threads > 0 && unseen.as_ref() != Some(&no_room) {
            // The victim's header has room for only one reason, so this one is added to the list of
            // limitations.
            coverage.limitations.push(no_room);
        }
        let (world, hidden) = ticktax_host::world(&self.machine);
        coverage.limitations.extend(hidden);
        Header {
            machine: self.machine,
            coverage,
            clock: self.results.clock,
            probes: self.results.reports,
            before: self.before,
            after: self.after,
            cost,
            victim: self.victim.map(|victim| VictimHeader {
                short_system_calls: closing.short_calls.clone(),
                ..victim.header(unseen)
            }),
            soakers: self.results.soakers,
            ..Header::new(world, level, env!("CARGO_PKG_VERSION"))
        }
    }

    /// Returns how many of the victim's threads did not fit into the map of followed threads.
    fn without_room(&self, closing: &Closing) -> u64 {
        let victim = self.victim.as_ref();
        closing.unfollowed + victim.map_or(0, Watched::without_room)
    }

    /// Returns the reason why part of the victim's time may be missing, or `None` if all of it was
    /// observed.
    fn unseen(&self, closing: &Closing) -> Option<Limitation> {
        let unwatched = |cpu: &Cpu| !self.settings.watched.contains(*cpu);
        let online = self.proc.online().unwrap_or_default();
        let unwatched: CpuList = online.iter().filter(unwatched).collect();
        if !unwatched.is_empty() {
            return Some(Limitation::CpusNotWatched { cpus: unwatched });
        }
        if !self.late.is_empty() {
            let cpus = self.late.clone();
            return Some(Limitation::AccountsBeganLate { cpus });
        }
        let threads = self.without_room(closing);
        if threads > 0 {
            return Some(Limitation::ThreadsNotFollowed { threads });
        }
        let count = closing.missed;
        (count > 0).then_some(Limitation::SwitchesMissed { count })
    }

    /// Returns the limitations that apply at any capability level.
    fn limitations(&self, online: &CpuList) -> Vec<Limitation> {
        let mut limitations = self.machine.configured.unread.clone();
        let went_offline = |cpu: &Cpu| !online.contains(*cpu);
        let cpus: CpuList = self.settings.online.iter().filter(went_offline).collect();
        if !cpus.is_empty() {
            limitations.push(Limitation::CpusWentOffline { cpus });
        }
        if !self.late.is_empty() {
            let cpus = self.late.clone();
            limitations.push(Limitation::AccountsBeganLate { cpus });
        }
        if !self.unprobed.is_empty() {
            let cpus = self.unprobed.clone();
            limitations.push(Limitation::CpusNotProbed { cpus });
        }
        for (cpu, policy) in &self.results.refused {
            limitations.push(Limitation::ProbePolicyRefused {
                cpu: *cpu,
                policy: policy.clone(),
            });
        }
        let reason = match self.settings.plan.probe {
            ProbeChoice::Spin | ProbeChoice::Sleep => None,
            ProbeChoice::None => Some(NoGaps::NoProbe),
            ProbeChoice::Soak => Some(NoGaps::Soaker),
        };
        limitations.extend(reason.map(|reason| Limitation::HypervisorTimeNotSeparated { reason }));
        if self.settings.unwatched() {
            limitations.push(Limitation::ProgramNotFollowed);
        }
        limitations.extend(clock_limitations(&self.before, &self.after));
        limitations
    }
}

/// Returns limitations for changes to clocks that affect times and periods.
pub(crate) fn clock_limitations(before: &Counters, after: &Counters) -> Vec<Limitation> {
    let Some(changes) = after.clocks_since(before) else {
        return Vec::new();
    };
    let mut limitations = Vec::new();
    if changes.suspended > Nanos::ZERO {
        let time = changes.suspended;
        limitations.push(Limitation::Suspended { time });
    }
    if changes.stepped != Nanos::ZERO {
        let by = changes.stepped;
        limitations.push(Limitation::ClockSet { step: by });
    }
    limitations
}

/// Returns the limitations that the tracer reports.
fn kernel_limitations(closing: &Closing, header: &Header) -> Vec<Limitation> {
    let mut limitations = Vec::new();
    let mut plugged_in = Vec::new();
    for books in &header.cpus {
        let cpu = books.cpu;
        let untraced = untraced_interrupts(&header.before, &header.after, cpu);
        limitations.extend(untraced.into_iter().map(|(interrupt, count)| {
            Limitation::InterruptsNotTraced {
                cpu,
                interrupt,
                count,
            }
        }));
        if !header.machine.online.is_empty() && !header.machine.online.contains(cpu) {
            plugged_in.push(cpu);
        }
    }
    if !plugged_in.is_empty() {
        let cpus = plugged_in.into_iter().collect();
        limitations.push(Limitation::CpusPluggedIn { cpus });
    }
    let counted = [
        (
            closing.missed,
            Limitation::SwitchesMissed {
                count: closing.missed,
            },
        ),
        (
            closing.cut,
            Limitation::InterruptsSwitchedOut { count: closing.cut },
        ),
        (
            closing.mismatched,
            Limitation::EntriesMissed {
                count: closing.mismatched,
            },
        ),
        (
            closing.stacks_lost,
            Limitation::StacksLost {
                samples: closing.stacks_lost,
            },
        ),
        (
            closing.folded,
            Limitation::SourcesMerged {
                intervals: closing.folded,
            },
        ),
        (
            closing.vcpus_unfit,
            Limitation::VcpusNotCounted {
                events: closing.vcpus_unfit,
            },
        ),
    ];
    let happened = counted.into_iter().filter(|(count, _)| *count > 0);
    limitations.extend(happened.map(|(_, limitation)| limitation));
    limitations
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ticktax_model::machine::ClockOffsets;

    use super::*;
    use crate::plan::Plan;

    fn settings(online: &str) -> Settings {
        let online: CpuList = online.parse().unwrap();
        Settings {
            watched: online.clone(),
            online,
            plan: Plan {
                probe: ProbeChoice::Spin,
                ..Plan::default()
            },
        }
    }

    /// Returns a simulated `/proc` and `/sys` without any files.
    fn empty_proc() -> Proc {
        Proc::at(Path::new("/nonexistent"))
    }

    /// Returns the inputs for the header of a session that recorded nothing.
    fn end<'a>(proc: &'a Proc, settings: &'a Settings) -> End<'a> {
        End {
            proc,
            settings,
            machine: Machine::default(),
            before: Counters::default(),
            after: Counters::default(),
            late: CpuList::default(),
            unprobed: CpuList::default(),
            victim: None,
            results: ProbeResults::default(),
            switches: None,
        }
    }

    #[test]
    fn offline_and_late_cpus_are_reported() {
        let settings = settings("0-2");
        let proc = empty_proc();
        let end = End {
            machine: Machine {
                online: "0".parse().unwrap(),
                ..Machine::default()
            },
            late: "1".parse().unwrap(),
            ..end(&proc, &settings)
        };
        let limitations = end.limitations(&"0-1".parse().unwrap());
        let cpus = |text: &str| text.parse().unwrap();
        let (left, late) = (cpus("2"), cpus("1"));
        assert_eq!(
            limitations,
            [
                Limitation::CpusWentOffline { cpus: left },
                Limitation::AccountsBeganLate { cpus: late },
            ]
        );
    }

    #[test]
    fn without_a_spin_probe_the_missing_gaps_are_reported() {
        let limitations = |probe| {
            let mut settings = settings("0");
            settings.plan.probe = probe;
            end(&empty_proc(), &settings).limitations(&"0".parse().unwrap())
        };
        let missing = |reason| [Limitation::HypervisorTimeNotSeparated { reason }];
        assert_eq!(limitations(ProbeChoice::Spin), []);
        assert_eq!(limitations(ProbeChoice::None), missing(NoGaps::NoProbe));
        assert_eq!(limitations(ProbeChoice::Soak), missing(NoGaps::Soaker));
    }

    #[test]
    fn clock_changes_are_reported() {
        let reading = |wall: i64, boot: i64| Counters {
            clocks: Some(ClockOffsets {
                wall: Nanos::from_millis(wall),
                boot: Nanos::from_millis(boot),
            }),
            ..Counters::default()
        };
        let limitations = |after: Counters| clock_limitations(&reading(1_000_000, 0), &after);
        assert!(limitations(reading(1_000_000, 0)).is_empty());
        assert!(limitations(Counters::default()).is_empty());
        // The machine was suspended for two seconds. The wall clock kept running, as it should.
        let asleep = limitations(reading(1_002_000, 2_000));
        let time = Nanos::from_secs(2);
        assert_eq!(asleep, [Limitation::Suspended { time }]);
        let step = -Nanos::from_millis(500);
        assert_eq!(
            limitations(reading(999_500, 0)),
            [Limitation::ClockSet { step }]
        );
        assert_eq!(limitations(reading(1_000_500, 2_000)).len(), 2);
    }

    #[test]
    fn a_hotplugged_cpu_is_reported() {
        let mut header = End {
            machine: Machine {
                online: "0".parse().unwrap(),
                ..Machine::default()
            },
            ..end(&empty_proc(), &settings("0"))
        }
        .header(
            Level::Kernel,
            Coverage::default(),
            ToolCost::default(),
            &Closing::default(),
        );
        header.cpus = vec![CpuInterval {
            cpu: Cpu(3),
            begin: Nanos(5),
            end: Nanos(9),
        }];
        let limitations = kernel_limitations(&Closing::default(), &header);
        let cpus = "3".parse().unwrap();
        assert_eq!(limitations, [Limitation::CpusPluggedIn { cpus }]);
    }
}
