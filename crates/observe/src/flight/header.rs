//! Converts a window of the ring into a recording.

use std::collections::HashMap;

use ticktax_host::{breaks, clock_offsets, own_thread_cpu_time};
use ticktax_model::incident::{Trigger, TriggerKind};
use ticktax_model::limitation::{Limitation, NoGaps};
use ticktax_model::machine::Counters;
use ticktax_model::recording::{Coverage, Header, Level, ToolCost};
use ticktax_model::victim::{Target, VictimHeader, WaitPlace};
use ticktax_model::{Nanos, SourceTable};
use ticktax_trace::{Capture, Frozen};

use super::window::Window;
use super::{FrozenWindow, Recorder};
use crate::collector::Collector;
use crate::header::clock_limitations;

/// Maximum time to wait for the names of functions while a window may grow. In the meantime, the
/// rings are not read.
const NAMED_WITHIN: Nanos = Nanos::from_millis(300);

/// A shortfall of no more than this from the requested reach is not reported.
const TOLERANCE: Nanos = Nanos::from_millis(100);

impl Recorder {
    /// Returns a window as a recording. If the window is not over yet, the recording ends at
    /// `time`. Returns `None` if the recorder has ended.
    pub(super) fn freeze(
        &mut self,
        mut window: Window,
        capture: Capture,
        time: Nanos,
    ) -> Option<FrozenWindow> {
        let cpu_before = own_thread_cpu_time();
        let tracer = self.tracer.as_mut()?;
        let asked = window.end().min(time);
        let reported = window.report(Nanos::MAX);
        let about = main_trigger(&window.triggers).map(|trigger| trigger.pid);
        let mut sources = SourceTable::default();
        let mut frozen = tracer.freeze(capture, asked, about, &mut sources);
        let header = self.header(&window, &mut frozen, asked, cpu_before)?;
        Some(FrozenWindow {
            header,
            reported,
            over: true,
            sources,
            rows: frozen.rows,
            left_out: window.left_out,
        })
    }

    /// Returns the current state of a window that stays open. The state ends at the time by which
    /// the pending triggers must be reported. It lacks the waits of the program's threads, which
    /// only the complete window contains.
    pub(super) fn look(
        &mut self,
        window: &mut Window,
        capture: &mut Capture,
    ) -> Option<FrozenWindow> {
        let cpu_before = own_thread_cpu_time();
        let tracer = self.tracer.as_mut()?;
        let due = window.due();
        let reported = window.report(due);
        let mut sources = SourceTable::default();
        let mut frozen = tracer.look(capture, due, None, &mut sources);
        let header = self.header(window, &mut frozen, due, cpu_before)?;
        Some(FrozenWindow {
            header,
            reported,
            over: false,
            sources,
            rows: frozen.rows,
            left_out: std::mem::take(&mut window.left_out),
        })
    }

    /// Creates the header of a window that should end at `asked`. If the window hit its memory
    /// limit, it ends earlier.
    fn header(
        &self,
        window: &Window,
        frozen: &mut Frozen,
        asked: Nanos,
        cpu_before: Nanos,
    ) -> Option<Header> {
        let tracer = self.tracer.as_ref()?;
        let begin = window.begin();
        // Events after this time belong to the next window.
        let end = frozen.full.unwrap_or(asked).max(begin);
        let machine = self.started.machine.clone();
        let (world, hidden) = ticktax_host::world(&machine);
        let mut limitations = tracer.limitations().to_vec();
        limitations.extend(hidden);
        limitations.push(Limitation::HypervisorTimeNotSeparated {
            reason: NoGaps::NoProbe,
        });
        let late = frozen.books.iter().map(|books| books.begin).max();
        limitations.extend(late.and_then(|late| too_short(window, late)));
        limitations.extend(frozen.full.map(|_| Limitation::WindowCutShort {
            requested: window.end() - begin,
            kept: end - begin,
        }));
        if frozen.threads_left_out > 0 {
            limitations.push(Limitation::ThreadsNotFollowed {
                threads: frozen.threads_left_out,
            });
        }
        let code = std::mem::take(&mut frozen.code_files);
        let code = code.named_within(NAMED_WITHIN, breaks::take_break_if_due);
        limitations.extend(code.limitations);
        // For the start of the window, use the clock offsets from the moment when it was opened.
        // That way, later changes to the wall clock don't affect the start time.
        let at = |at: Nanos, clocks| Counters {
            at,
            clocks,
            ..Counters::default()
        };
        let (before, after) = (at(begin, window.clocks), at(end, clock_offsets()));
        limitations.extend(clock_limitations(&before, &after));
        let ahead = window.clocks.or(after.clocks).unwrap_or_default().wall;
        Some(Header {
            machine,
            began_unix: (begin + ahead).0 / 1_000_000_000,
            cpus: frozen.books.clone(),
            coverage: Coverage {
                attached: tracer.attached().to_vec(),
                limitations,
                lost: frozen.lost.clone(),
                every_entry_watched: tracer.every_entry_watched(),
            },
            before,
            after,
            cost: ToolCost {
                cpu: own_thread_cpu_time() - cpu_before,
                memory_bytes: ticktax_host::own_peak_memory(),
                events: frozen.hits,
                nice: self.collector.as_ref().map_or(0, Collector::nice),
                avoided_program_cpus: self.collector.as_ref().is_some_and(Collector::is_apart),
                ..ToolCost::default()
            },
            victim: main_trigger(&window.triggers).map(|trigger| victim(trigger, begin)),
            policies: self.proc.special_policies(),
            triggers: with_places(&window.triggers, &frozen.places),
            code_files: code.files,
            ..Header::new(world, Level::Kernel, env!("CARGO_PKG_VERSION"))
        })
    }
}

/// Returns the trigger that decides which process the recording is about: the one with the longest
/// delay among those that concern a program's thread. Returns `None` if no trigger concerns one.
fn main_trigger(triggers: &[Trigger]) -> Option<&Trigger> {
    let program_triggers = triggers
        .iter()
        .filter(|trigger| trigger.kind.is_of_thread() && trigger.pid > 0);
    program_triggers.max_by_key(|trigger| trigger.lasted)
}

/// Returns the triggers, with the places where threads were blocked.
fn with_places(triggers: &[Trigger], places: &HashMap<(i32, Nanos), WaitPlace>) -> Vec<Trigger> {
    let mut triggers = triggers.to_vec();
    for trigger in &mut triggers {
        if trigger.kind == TriggerKind::Blocked {
            trigger.place = places.get(&(trigger.tid, trigger.at)).cloned();
        }
    }
    triggers
}

fn victim(trigger: &Trigger, begin: Nanos) -> VictimHeader {
    VictimHeader {
        pid: Some(trigger.pid),
        ..VictimHeader::new(Target::Process, trigger.comm.clone(), begin)
    }
}

/// Returns a limitation if the ring had already overwritten the window's start by the time it was
/// read.
fn too_short(window: &Window, begin: Nanos) -> Option<Limitation> {
    let trigger = window.triggers.first()?;
    // A ring that has just replaced a shorter one may start after the trigger.
    let reached = (trigger.at - begin).max(Nanos::ZERO);
    let asked = trigger.at - window.begin();
    (asked - reached > TOLERANCE).then_some(Limitation::RingTooShort {
        requested: asked,
        reached,
    })
}
