//! Breaks in long work, so that other threads on the same CPU wait only briefly.
//!
//! The scheduler lets a running thread use up its slice, which is 3 ms by default. A program that
//! is woken on the CPU where ticktax is running may therefore have to wait until ticktax sleeps. To
//! avoid this, a thread that watches programs sleeps for a moment whenever it has used a little CPU
//! time.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ticktax_model::Nanos;

use crate::own_thread_cpu_time;

/// CPU time that a thread uses before it takes a break.
pub const BITE: Nanos = Nanos::from_micros(40);

/// Length of a break. The kernel may extend it by up to 50 µs.
const BREAK: Duration = Duration::from_micros(10);

thread_local! {
    /// CPU time of this thread at its last break.
    static RESTED: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
    /// While this is `true`, this thread takes no breaks.
    static HURRY: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Makes the calling thread sleep for a moment if it has used more than [`BITE`] of CPU time since
/// its last break.
pub fn take_break_if_due() {
    if is_due() {
        take_break();
    }
}

fn is_due() -> bool {
    own_thread_cpu_time() - RESTED.get() > BITE
}

/// Makes the calling thread sleep for a moment, unless breaks are switched off for it.
pub fn take_break() {
    if !is_in_hurry() {
        std::thread::sleep(BREAK);
    }
    rested();
}

fn is_in_hurry() -> bool {
    let is_set = |hurry: &Arc<AtomicBool>| hurry.load(Ordering::Relaxed);
    HURRY.with_borrow(|hurry| hurry.as_ref().is_some_and(is_set))
}

/// Switches off the calling thread's breaks for as long as `hurry` is `true`. `None` switches them
/// back on.
pub fn skip_while(hurry: Option<Arc<AtomicBool>>) {
    HURRY.set(hurry);
}

/// Records that the calling thread has just slept.
pub fn rested() {
    RESTED.set(own_thread_cpu_time());
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::{BITE, is_due, is_in_hurry, rested, skip_while, take_break_if_due};
    use crate::own_thread_cpu_time;

    #[test]
    fn a_thread_in_a_hurry_takes_no_break() {
        let hurry = Arc::new(AtomicBool::new(true));
        skip_while(Some(Arc::clone(&hurry)));
        assert!(is_in_hurry());
        hurry.store(false, Ordering::Relaxed);
        assert!(!is_in_hurry());
        skip_while(None);
        assert!(!is_in_hurry());
    }

    #[test]
    fn a_break_is_due_after_work_and_not_after_a_break() {
        rested();
        let begin = own_thread_cpu_time();
        while own_thread_cpu_time() - begin <= BITE {
            std::hint::spin_loop();
        }
        assert!(is_due());
        let begin = own_thread_cpu_time();
        take_break_if_due();
        // On a slow machine, taking the break and asking again can itself take longer than a bite.
        assert!(!is_due() || own_thread_cpu_time() - begin > BITE);
    }
}
