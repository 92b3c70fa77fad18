//! The header of a live recording: what is known besides the rows, and what is not.

use ticktax_host::{Proc, untraced_interrupts};
use ticktax_model::machine::{Counters, Machine};
use ticktax_model::recording::{Books, Coverage, Header, Level, Limitation, Row, ToolCost};
use ticktax_model::{Cpu, CpuList, Nanos, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Closing, TraceError, Tracer};

use crate::plan::{ProbeChoice, Settings};
use crate::probe::ProbeResults;
use crate::victim::Watched;

/// What is at hand when the watching ends.
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
        let buffers = tracer.buffer_bytes();
        let closing = tracer.close(
            &self.present(&still_online),
            now(),
            sources,
            &mut |_, row| rows.push(row.clone()),
        );
        let cost = ToolCost {
            memory_bytes: buffers,
            events: closing.events,
            tracer: closing.in_programs,
            ..cost
        };
        let mut header = self.header(Level::Kernel, coverage, cost, &closing);
        header.books.clone_from(&closing.books);
        header.coverage.lost.extend(closing.lost.iter().copied());
        if header
            .coverage
            .attached
            .iter()
            .any(|hook| hook == "tick_stop")
        {
            header.after.ticks_stopped = closing.ticks_stopped.clone();
        }
        header
            .coverage
            .limitations
            .extend(kernel_limitations(&closing, &header));
        header
    }

    pub(super) fn at_level_proc(self, why: &TraceError, cost: ToolCost) -> Header {
        let limitations = Limitation {
            what: "which interrupt, softirq or thread took the time".to_owned(),
            why: why.to_string(),
        };
        let coverage = Coverage {
            limitations: vec![limitations],
            ..Coverage::default()
        };
        let cpus: Vec<Cpu> = self.settings.online.iter().collect();
        let mut header = self.header(Level::Proc, coverage, cost, &Closing::default());
        let (begin, end) = (header.before.at, header.after.at);
        // Without root the books are those that the kernel keeps itself.
        let counted = |cpu: &Cpu| {
            let counters = [&header.before, &header.after];
            counters
                .iter()
                .all(|counters| counters.cpu_times.contains_key(&cpu.0))
        };
        header.books = cpus
            .into_iter()
            .filter(counted)
            .map(|cpu| Books { cpu, begin, end })
            .collect();
        header
    }

    /// Those of the audited CPUs that are online still.
    fn present(&self, online: &CpuList) -> CpuList {
        self.settings
            .online
            .iter()
            .filter(|&cpu| online.contains(cpu))
            .collect()
    }

    /// The header but for what depends on the level.
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
        let unseen = self.unseen(closing);
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
            victim: self.victim.map(|victim| victim.header(unseen)),
            soakers: self.results.soakers,
            ..Header::new(world, level, env!("CARGO_PKG_VERSION"))
        }
    }

    /// Why a part of a victim's time may not have been seen.
    fn unseen(&self, closing: &Closing) -> Option<String> {
        let unwatched = |cpu: &Cpu| !self.settings.watched.contains(*cpu);
        let online = self.proc.online().unwrap_or_default();
        let unwatched: CpuList = online.iter().filter(unwatched).collect();
        if !unwatched.is_empty() {
            return Some(format!("CPUs {unwatched} were not watched"));
        }
        if !self.late.is_empty() {
            return Some(format!("the books of CPUs {} began late", self.late));
        }
        if closing.unfollowed > 0 {
            let threads = closing.unfollowed;
            return Some(format!("there was no room for {threads} of its threads"));
        }
        (closing.missed > 0).then(|| format!("{} switches were not told", closing.missed))
    }

    /// What a reader should know at any level.
    fn limitations(&self, online: &CpuList) -> Vec<Limitation> {
        let mut limitations = self.machine.configured.unread.clone();
        for cpu in self
            .settings
            .online
            .iter()
            .filter(|&cpu| !online.contains(cpu))
        {
            limitations.push(Limitation {
                what: format!("the end of CPU {cpu}"),
                why: "it was taken offline: its books end with the last event seen on it"
                    .to_owned(),
            });
        }
        for cpu in self.late.iter() {
            limitations.push(Limitation {
                what: format!("the beginning of CPU {cpu}"),
                why: "a thread of high priority held it: its books begin with its first switch"
                    .to_owned(),
            });
        }
        if !self.unprobed.is_empty() {
            limitations.push(Limitation {
                what: format!("gaps on CPU {}", self.unprobed),
                why: "this process may not run there: its cpuset or container does not allow it"
                    .to_owned(),
            });
        }
        for refused in &self.results.refused {
            limitations.push(Limitation {
                what: "the probe as asked for".to_owned(),
                why: refused.clone(),
            });
        }
        let why = match self.settings.plan.probe {
            ProbeChoice::Spin | ProbeChoice::Sleep => None,
            ProbeChoice::None => Some("no probe ran"),
            ProbeChoice::Soak => Some("a soaker reads no clock"),
        };
        if let Some(why) = why {
            limitations.push(Limitation {
                what: "the hypervisor's time, and getting into and out of the kernel".to_owned(),
                why: format!(
                    "{why}, so both are inside the time of whoever had the CPU; --probe spin tells \
                     them apart"
                ),
            });
        }
        if self.settings.unwatched() {
            limitations.push(Limitation {
                what: "what happened to the program".to_owned(),
                why: "that needs every span: leave --keep sums out".to_owned(),
            });
        }
        limitations.extend(clock_limitations(&self.before, &self.after));
        limitations
    }
}

/// Clocks that did not run on, which times and periods depend on.
fn clock_limitations(before: &Counters, after: &Counters) -> Vec<Limitation> {
    let Some(changes) = after.clocks_since(before) else {
        return Vec::new();
    };
    let mut limitations = Vec::new();
    if changes.suspended > Nanos::ZERO {
        limitations.push(Limitation {
            what: format!("{} in which the machine was suspended", changes.suspended),
            why: "no CPU ran, and the clock of all times here stood still".to_owned(),
        });
    }
    if changes.stepped != Nanos::ZERO {
        let (by, way) = if changes.stepped > Nanos::ZERO {
            (changes.stepped, "forward")
        } else {
            (-changes.stepped, "back")
        };
        limitations.push(Limitation {
            what: format!("what follows the time of day, which was set {by} {way}"),
            why: "times here are on another clock; what starts at times of day changed its phase"
                .to_owned(),
        });
    }
    limitations
}

/// What a reader should know of a run of the tracer.
fn kernel_limitations(closing: &Closing, header: &Header) -> Vec<Limitation> {
    let mut limitations = Vec::new();
    for books in &header.books {
        let untraced = untraced_interrupts(&header.before, &header.after, books.cpu);
        for (interrupt, count) in untraced {
            limitations.push(Limitation {
                what: format!(
                    "{count} of CPU {}'s {}",
                    books.cpu,
                    interrupt.to_lowercase()
                ),
                why:
                    "no tracepoint shows them: their time is with what they interrupted, or outside"
                        .to_owned(),
            });
        }
        if !header.machine.online.is_empty() && !header.machine.online.contains(books.cpu) {
            limitations.push(Limitation {
                what: format!("CPU {} before it was plugged in", books.cpu),
                why: "its books begin with its first switch".to_owned(),
            });
        }
    }
    if closing.missed > 0 {
        limitations.push(Limitation {
            what: format!("{} context switches", closing.missed),
            why: "the kernel told no tracer of them: the thread that left next has the time of \
                  the one before it too"
                .to_owned(),
        });
    }
    if closing.mismatched > 0 {
        limitations.push(Limitation {
            what: format!("{} borders of interrupts or functions", closing.mismatched),
            why: "the kernel left them out: their time is counted with what is around them"
                .to_owned(),
        });
    }
    if closing.folded > 0 {
        limitations.push(Limitation {
            what: format!("the sources of {} intervals", closing.folded),
            why: "there were more than the table of sums holds: they are counted as others"
                .to_owned(),
        });
    }
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

    #[test]
    fn a_cpu_that_leaves_or_cannot_be_made_to_switch_is_named() {
        let settings = settings("0-2");
        let end = End {
            proc: &Proc::at(Path::new("/nonexistent")),
            settings: &settings,
            machine: Machine {
                online: "0".parse().unwrap(),
                ..Machine::default()
            },
            before: Counters::default(),
            after: Counters::default(),
            late: "1".parse().unwrap(),
            unprobed: CpuList::default(),
            victim: None,
            results: ProbeResults::default(),
        };
        let limitations = end.limitations(&"0-1".parse().unwrap());
        let told: Vec<&str> = limitations
            .iter()
            .map(|limitations| &*limitations.what)
            .collect();
        assert_eq!(told, ["the end of CPU 2", "the beginning of CPU 1"]);
        assert!(limitations[0].why.contains("offline"));
    }

    #[test]
    fn what_only_a_spinning_probe_sees_is_named_without_one() {
        let limitations = |probe| {
            let mut settings = settings("0");
            settings.plan.probe = probe;
            let end = End {
                proc: &Proc::at(Path::new("/nonexistent")),
                settings: &settings,
                machine: Machine::default(),
                before: Counters::default(),
                after: Counters::default(),
                late: CpuList::default(),
                unprobed: CpuList::default(),
                victim: None,
                results: ProbeResults::default(),
            };
            let limitations = end.limitations(&"0".parse().unwrap());
            let mut why = limitations.into_iter().map(|limitations| limitations.why);
            why.find(|why| why.contains("--probe spin"))
        };
        assert_eq!(limitations(ProbeChoice::Spin), None);
        assert!(
            limitations(ProbeChoice::None)
                .unwrap()
                .starts_with("no probe ran")
        );
        let soaked = limitations(ProbeChoice::Soak).unwrap();
        assert!(soaked.starts_with("a soaker reads no clock"), "{soaked}");
    }

    #[test]
    fn clocks_that_did_not_run_on_are_told() {
        let reading = |wall: i64, boot: i64| Counters {
            clocks: Some(ClockOffsets {
                wall: Nanos::from_millis(wall),
                boot: Nanos::from_millis(boot),
            }),
            ..Counters::default()
        };
        let told = |after: Counters| -> Vec<String> {
            let limitations = clock_limitations(&reading(1_000_000, 0), &after);
            limitations
                .into_iter()
                .map(|limitations| limitations.what)
                .collect()
        };
        assert!(told(reading(1_000_000, 0)).is_empty());
        assert!(told(Counters::default()).is_empty());
        // Asleep for two seconds: the time of day went on by itself.
        let asleep = told(reading(1_002_000, 2_000));
        assert_eq!(asleep, ["2.00 s in which the machine was suspended"]);
        let stepped = told(reading(999_500, 0));
        assert!(
            stepped.len() == 1 && stepped[0].ends_with("set 500 ms back"),
            "{stepped:?}"
        );
        assert_eq!(told(reading(1_000_500, 2_000)).len(), 2);
    }

    #[test]
    fn a_cpu_that_is_plugged_in_is_named() {
        let mut header = End {
            proc: &Proc::at(Path::new("/nonexistent")),
            settings: &settings("0"),
            machine: Machine {
                online: "0".parse().unwrap(),
                ..Machine::default()
            },
            before: Counters::default(),
            after: Counters::default(),
            late: CpuList::default(),
            unprobed: CpuList::default(),
            victim: None,
            results: ProbeResults::default(),
        }
        .header(
            Level::Kernel,
            Coverage::default(),
            ToolCost::default(),
            &Closing::default(),
        );
        header.books = vec![Books {
            cpu: Cpu(3),
            begin: Nanos(5),
            end: Nanos(9),
        }];
        let limitations = kernel_limitations(&Closing::default(), &header);
        assert_eq!(limitations[0].what, "CPU 3 before it was plugged in");
    }
}
