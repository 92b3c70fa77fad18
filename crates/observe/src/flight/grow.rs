//! Replaces rings that are too short with longer ones.
//!
//! A ring that is shared with the kernel cannot be resized, so larger rings need a new tracer. The
//! kernel's verifier is slow, so the new tracer is loaded on a separate thread while the old one
//! keeps running. The new tracer takes over at the end of a window of sums. The contents of the old
//! rings are lost, and a delay in progress at that moment is missed. That is why rings are replaced
//! at most twice, and never while a trigger is being handled.

use std::thread::{self, JoinHandle};

use ticktax_model::recording::{CpuInterval, Loss};
use ticktax_trace::{Counted, Output, TraceError, TraceSettings, Tracer, Triggers};

use super::{Recorder, SumsWindow, sizes};

/// Accounts and counters of the tracers before the current one.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) counted: Counted,
    pub(super) suppressed: u64,
    pub(super) books: Vec<CpuInterval>,
}

impl Past {
    /// Returns the sum of all tracers' counters. `now` contains the current tracer's counters.
    pub(super) fn plus(&self, now: Counted) -> Counted {
        let mut lost = self.counted.lost.clone();
        for loss in now.lost {
            match lost.iter_mut().find(|sum| sum.cpu == loss.cpu) {
                Some(sum) => add(sum, &loss),
                None => lost.push(loss),
            }
        }
        Counted {
            events: self.counted.events + now.events,
            folded: self.counted.folded + now.folded,
            lost,
        }
    }
}

fn add(sum: &mut Loss, loss: &Loss) {
    sum.events += loss.events;
    sum.self_time += loss.self_time;
    sum.gaps += loss.gaps;
}

/// Loads and attaches a tracer whose rings have `per_cpu` records each.
pub(super) fn load(per_cpu: u32, room: usize) -> Result<(Tracer, Triggers), TraceError> {
    let settings = TraceSettings {
        output: Output::Flight {
            per_cpu,
            entries: sizes::SOURCES,
        },
        ..TraceSettings::default()
    };
    let mut tracer = Tracer::load(&settings, room)?;
    let triggers = tracer.triggers()?;
    Ok((tracer, triggers))
}

/// A tracer with larger rings that is still being loaded.
pub(super) type Loading = JoinHandle<Result<(Tracer, Triggers), TraceError>>;

impl Recorder {
    /// Starts to load larger rings if the current ones don't reach back as far as windows require.
    /// Once the larger rings are loaded, switches to them and returns the sums up to that moment.
    /// Does nothing while a window is being kept or a trigger is waiting.
    pub(super) fn grow(&mut self) -> Option<SumsWindow> {
        if self.open.is_some() || !self.waiting.is_empty() {
            return None;
        }
        match self.larger.take() {
            Some(loading) if loading.is_finished() => self.take_over(loading),
            Some(loading) => {
                self.larger = Some(loading);
                None
            }
            None => {
                let (per_cpu, room) = (self.too_short()?, self.room);
                let thread = thread::Builder::new().name("ticktax-load".to_owned());
                let loading = thread.spawn(move || {
                    // Nothing waits for this thread, so it can run at the lowest priority.
                    Tracer::set_own_nice(19);
                    load(per_cpu, room)
                });
                self.larger = loading.ok();
                None
            }
        }
    }

    fn take_over(&mut self, loading: Loading) -> Option<SumsWindow> {
        let loaded = loading.join().ok().and_then(Result::ok);
        let ready = loaded.and_then(|(mut larger, triggers)| {
            self.rules.move_to(&mut larger).ok()?;
            Some((larger, triggers))
        });
        let Some((mut larger, triggers)) = ready else {
            // The process lacks the rights or the memory. The rings stay as they are, and the
            // header reports how far back they reach.
            self.plan.ring_grows = false;
            return None;
        };
        let sums = self.close_tracer()?;
        let tracer = self.tracer.as_ref()?;
        self.past.counted = self.past.plus(tracer.counted());
        self.past.suppressed += tracer.suppressed();
        larger.start_flight(&self.watched, &self.started.cpus);
        // Collect the triggers that the old tracer noticed in its last moments.
        self.take_triggers();
        self.tracer = Some(larger);
        self.triggers = triggers;
        Some(sums)
    }

    /// Returns the number of records that larger rings should have, or `None` if the current rings
    /// are long enough or cannot grow.
    fn too_short(&self) -> Option<u32> {
        let tracer = self.tracer.as_ref().filter(|_| self.plan.ring_grows)?;
        let reach = tracer.ring_reach()?;
        let largest = self.plan.ring_bytes;
        let wanted = || sizes::more(tracer.ring_len(), reach, self.room, largest);
        (reach < self.plan.before).then(wanted).flatten()
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::Loss;
    use ticktax_model::{Cpu, Nanos};
    use ticktax_trace::Counted;

    use super::Past;

    #[test]
    fn losses_of_all_tracers_are_added_up() {
        let counted = |events, cpu| Counted {
            events,
            folded: 1,
            lost: vec![Loss {
                events,
                self_time: Nanos(7),
                ..Loss::none(Cpu(cpu))
            }],
        };
        let past = Past {
            counted: counted(10, 1),
            ..Past::default()
        };
        let all = past.plus(counted(5, 1));
        assert_eq!((all.events, all.folded, all.lost.len()), (15, 2, 1));
        assert_eq!((all.lost[0].events, all.lost[0].self_time), (15, Nanos(14)));
        assert_eq!(past.plus(counted(5, 0)).lost.len(), 2);
    }
}
