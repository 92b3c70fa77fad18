//! A thread that spins on the disturbed CPU and notes when it did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::unistd::{Pid, gettid};
use ticktax_model::{Cpu, Nanos};

use crate::clock;
use crate::error::InjectError;
use crate::place;
use crate::sys;
use crate::truth::Event;

/// The name of the spinning thread.
pub(crate) const COMM: &str = "ttx-inj-target";

/// The shortest time between two readings of the clock that counts as lost.
const SHORTEST: Nanos = Nanos::from_micros(1);

/// A time in which the spinning thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

/// All gaps of a spin, in the order of time.
#[derive(Debug)]
pub(crate) struct Gaps {
    pub(crate) kept: Vec<Gap>,
    /// Whether there were more than there was room for.
    pub(crate) overflowed: bool,
}

/// A thread that spins until it is dropped or finished.
#[derive(Debug)]
pub(crate) struct Spinner {
    tid: Pid,
    quit: Arc<AtomicBool>,
    thread: Option<JoinHandle<Gaps>>,
}

impl Spinner {
    /// Begins to spin on `cpu`, with room for `room` gaps.
    pub(crate) fn start(cpu: Cpu, room: usize) -> Result<Self, InjectError> {
        let quit = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let its_quit = Arc::clone(&quit);
        let spin = move || {
            let placed = place::pin(place::SELF, cpu);
            // While it waits for the CPU, nothing that is aimed at it goes there. Without root it
            // does what it can.
            let _ = sys::favour_self();
            // Filled with something other than zeros, so that its pages are there already.
            let mut gaps = vec![
                Gap {
                    start: Nanos(1),
                    end: Nanos(1)
                };
                room
            ];
            let failed = placed.is_err();
            // The one who waits for this cannot have gone: it waits until it gets it.
            let _ = tell.send(placed.map(|()| gettid()));
            let used = if failed {
                0
            } else {
                spin_until(&its_quit, &mut gaps)
            };
            gaps.truncate(used);
            Gaps {
                overflowed: used == room,
                kept: gaps,
            }
        };
        let thread = std::thread::Builder::new()
            .name(COMM.to_owned())
            .spawn(spin)
            .map_err(|e| InjectError::io("start a thread", &e, "raise the limit of threads"))?;
        let tid = told.recv().unwrap_or(Err(InjectError::Panicked))?;
        Ok(Self {
            tid,
            quit,
            thread: Some(thread),
        })
    }

    /// The spinning thread.
    pub(crate) fn tid(&self) -> Pid {
        self.tid
    }

    /// Ends the spin.
    pub(crate) fn finish(mut self) -> Result<Gaps, InjectError> {
        self.end().ok_or(InjectError::Panicked)
    }

    fn end(&mut self) -> Option<Gaps> {
        self.quit.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.end();
    }
}

/// Spins until told to quit; returns how many gaps it noted.
fn spin_until(quit: &AtomicBool, gaps: &mut [Gap]) -> usize {
    let mut used = 0;
    let mut last = clock::now();
    while !quit.load(Ordering::Relaxed) {
        let time = clock::now();
        if time - last >= SHORTEST && used < gaps.len() {
            gaps[used] = Gap {
                start: last,
                end: time,
            };
            used += 1;
            // What noting it cost is not a gap.
            last = clock::now();
        } else {
            last = time;
        }
    }
    used
}

/// The time lost in a window, of the gaps that lie in it wholly or partly.
pub(crate) fn lost_within(gaps: &[Gap], window: (Nanos, Nanos)) -> Nanos {
    gaps.iter()
        .map(|gap| Nanos::overlap((gap.start, gap.end), window))
        .sum()
}

/// The time that each call cost in gaps that began during it, for the calls that cost any; calls
/// and gaps are in the order of time.
pub(crate) fn lost_to_calls(gaps: &[Gap], calls: &[Event]) -> Vec<Nanos> {
    let mut gaps = gaps.iter().peekable();
    let lost_to = |call: &Event| {
        while gaps.next_if(|gap| gap.start < call.start).is_some() {}
        let mut lost = Nanos::ZERO;
        while let Some(gap) = gaps.next_if(|gap| gap.start <= call.start + call.length) {
            lost += gap.end - gap.start;
        }
        (lost > Nanos::ZERO).then_some(lost)
    };
    calls.iter().filter_map(lost_to).collect()
}

#[cfg(test)]
mod tests {
    use super::{Gap, lost_to_calls, lost_within};
    use crate::truth::Event;
    use ticktax_model::Nanos;

    const GAPS: [Gap; 3] = [
        Gap {
            start: Nanos(10),
            end: Nanos(15),
        },
        Gap {
            start: Nanos(100),
            end: Nanos(130),
        },
        Gap {
            start: Nanos(110),
            end: Nanos(112),
        },
    ];

    #[test]
    fn a_window_cuts_the_gaps_at_its_edges() {
        assert_eq!(lost_within(&GAPS[..2], (Nanos(0), Nanos(1000))), Nanos(35));
        assert_eq!(lost_within(&GAPS[..2], (Nanos(12), Nanos(105))), Nanos(8));
        assert_eq!(lost_within(&GAPS[..2], (Nanos(20), Nanos(90))), Nanos(0));
    }

    #[test]
    fn a_call_is_charged_with_what_began_in_it() {
        let call = |start, length| Event {
            start: Nanos(start),
            length: Nanos(length),
            ..Event::default()
        };
        assert_eq!(lost_to_calls(&GAPS, &[call(90, 15)]), [Nanos(30)]);
        let both = [call(5, 10), call(90, 25)];
        assert_eq!(lost_to_calls(&GAPS, &both), [Nanos(5), Nanos(32)]);
        assert_eq!(lost_to_calls(&GAPS, &[call(20, 70)]), []);
        assert_eq!(lost_to_calls(&[], &both), []);
    }
}
