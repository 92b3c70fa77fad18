//! Rings that have become too short for this machine give way to larger ones.
//!
//! A ring that is shared with the kernel is allocated whole, so larger ones come with a tracer of their own. It is
//! loaded on a thread of its own while the one before goes on, because the kernel's verifier takes its time, and takes its
//! place where a window of sums ends. What the rings held is gone then, and a delay that was going on is not noticed; so it
//! happens twice at most, and not while something triggered.

use std::thread::{self, JoinHandle};

use ticktax_model::recording::{Books, Loss};
use ticktax_trace::{Counted, Output, TraceError, TraceSettings, Tracer, Triggers};

use super::{Recorder, SumsWindow, sizes};

/// What the tracers before the one at work came to.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) counted: Counted,
    pub(super) suppressed: u64,
    pub(super) books: Vec<Books>,
}

impl Past {
    /// All that was counted, with what the tracer at work has.
    pub(super) fn and(&self, now: Counted) -> Counted {
        let mut lost = self.counted.lost.clone();
        for loss in now.lost {
            match lost.iter_mut().find(|it| it.cpu == loss.cpu) {
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

/// The tracer of these rings, loaded and attached.
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

/// Larger rings while they are loaded.
pub(super) type Loading = JoinHandle<Result<(Tracer, Triggers), TraceError>>;

impl Recorder {
    /// Where the rings reach back for less than a window begins before its trigger, has larger ones loaded; once they are,
    /// they take over, and the sums up to then are returned. Not while something is kept.
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
                    // Nobody waits for it.
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
            self.rules.go_on(&mut larger).ok()?;
            Some((larger, triggers))
        });
        let Some((mut larger, triggers)) = ready else {
            // For want of rights or memory: the rings stay as they are, and how far they reach is told.
            self.plan.ring_grows = false;
            return None;
        };
        let sums = self.close_tracer()?;
        let tracer = self.tracer.as_ref()?;
        self.past.counted = self.past.and(tracer.counted());
        self.past.suppressed += tracer.suppressed();
        larger.start_flight(&self.watched, &self.started.cpus);
        // What the tracer before had noticed at its very end.
        self.take_triggers();
        self.tracer = Some(larger);
        self.triggers = triggers;
        Some(sums)
    }

    /// Records for each ring, where those that there are do not suffice.
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
    fn what_was_lost_is_lost_whichever_tracer_lost_it() {
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
        let all = past.and(counted(5, 1));
        assert_eq!((all.events, all.folded, all.lost.len()), (15, 2, 1));
        assert_eq!((all.lost[0].events, all.lost[0].self_time), (15, Nanos(14)));
        assert_eq!(past.and(counted(5, 0)).lost.len(), 2);
    }
}
