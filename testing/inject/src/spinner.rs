//! A thread that spins on the disturbed CPU, and records the intervals in which it did not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::unistd::{Pid, gettid};
use ticktax_model::{Cpu, Interval, Nanos};

use crate::clock;
use crate::error::InjectError;
use crate::place;
use crate::sys;
use crate::truth::Event;

/// Name of the spinning thread.
pub(crate) const COMM: &str = "ttx-inj-target";

/// Shortest time between two successive clock readings that counts as a gap.
const SHORTEST: Nanos = Nanos::from_micros(1);

/// An interval in which the spinning thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
}

/// The gaps that a spinning thread recorded, in chronological order.
#[derive(Debug)]
pub(crate) struct Gaps {
    pub(crate) kept: Vec<Gap>,
    /// Whether there were more gaps than the thread had room for.
    pub(crate) overflowed: bool,
}

/// A spinning thread. It stops when this is finished or dropped.
#[derive(Debug)]
pub(crate) struct Spinner {
    tid: Pid,
    quit: Arc<AtomicBool>,
    thread: Option<JoinHandle<Gaps>>,
}

impl Spinner {
    /// Starts a thread that spins on `cpu` and has room for `room` gaps.
    pub(crate) fn start(cpu: Cpu, room: usize) -> Result<Self, InjectError> {
        let quit = Arc::new(AtomicBool::new(false));
        let (tell, placed_thread) = mpsc::channel();
        let its_quit = Arc::clone(&quit);
        let spin = move || {
            let placed = place::pin(place::SELF, cpu);
            // Interrupts that target this thread do not arrive while it waits for the CPU, so raise
            // its priority. If that is not permitted, carry on without it.
            let _ = sys::favour_self();
            // Fill with values other than zero, so that the pages are mapped from the start.
            let mut gaps = vec![
                Gap {
                    start: Nanos(1),
                    end: Nanos(1)
                };
                room
            ];
            let failed = placed.is_err();
            // This cannot fail, because the receiver is waiting for the message.
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
        let tid = placed_thread.recv().unwrap_or(Err(InjectError::Panicked))?;
        Ok(Self {
            tid,
            quit,
            thread: Some(thread),
        })
    }

    pub(crate) fn tid(&self) -> Pid {
        self.tid
    }

    /// Stops the thread and returns its gaps.
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

/// Spins until `quit` is set. Returns the number of gaps that were recorded.
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
            // Recording the gap takes time, which is not itself a gap.
            last = clock::now();
        } else {
            last = time;
        }
    }
    used
}

/// Returns the total time of the gaps within `window`. Only the part inside counts for a gap that
/// crosses the edge of the window.
pub(crate) fn lost_within(gaps: &[Gap], window: Interval) -> Nanos {
    gaps.iter()
        .map(|gap| window.overlap(Interval::new(gap.start, gap.end)))
        .sum()
}

/// Returns the time lost during each call, which is the total of the gaps that started during it.
/// Leaves out calls that lost no time. `calls` and `gaps` must be in chronological order.
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
    use ticktax_model::{Interval, Nanos};

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
    fn gaps_at_the_edges_of_a_window_count_partly() {
        let lost = |start, end| {
            let window = Interval::new(Nanos(start), Nanos(end));
            lost_within(&GAPS[..2], window)
        };
        assert_eq!(lost(0, 1_000), Nanos(35));
        assert_eq!(lost(12, 105), Nanos(8));
        assert_eq!(lost(20, 90), Nanos(0));
    }

    #[test]
    fn a_call_is_charged_with_gaps_that_start_during_it() {
        let call = |start, length| Event {
            start: Nanos(start),
            length: Nanos(length),
            ..Event::default()
        };
        assert_eq!(lost_to_calls(&GAPS, &[call(90, 15)]), [Nanos(30)]);
        let calls = [call(5, 10), call(90, 25)];
        assert_eq!(lost_to_calls(&GAPS, &calls), [Nanos(5), Nanos(32)]);
        assert_eq!(lost_to_calls(&GAPS, &[call(20, 70)]), []);
        assert_eq!(lost_to_calls(&[], &calls), []);
    }
}
