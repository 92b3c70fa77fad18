//! Sleeps and works in the calling thread, one step at a time. Programs defined elsewhere use it
//! for the sleeps and work that a paced loop does in turn.

use ticktax_model::Nanos;
use ticktax_model::pace::SleepMethod;

use super::sleeper::Sleeper;
use super::work::Work;
use crate::ProbeError;
use crate::clock::{now, thread_cpu_time};

/// State of the calling thread: one sleeper per method used so far.
#[derive(Debug, Default)]
pub struct SyscallDriver {
    sleepers: Vec<(SleepMethod, Sleeper)>,
}

impl SyscallDriver {
    /// Sleeps once, by `method`, for `time`. A signal can end it early. Returns immediately if
    /// `time` is 0 or less.
    ///
    /// # Errors
    /// The kernel refuses this method of sleeping.
    pub fn sleep(&mut self, method: SleepMethod, time: Nanos) -> Result<(), ProbeError> {
        if time <= Nanos::ZERO {
            return Ok(());
        }
        let refused = |errno: nix::errno::Errno| ProbeError::Sleep {
            method,
            why: errno.desc(),
        };
        let known = self.sleepers.iter().position(|(known, _)| *known == method);
        let place = if let Some(place) = known {
            place
        } else {
            let sleeper = Sleeper::new(method).map_err(refused)?;
            self.sleepers.push((method, sleeper));
            self.sleepers.len() - 1
        };
        let begin = now();
        self.sleepers[place]
            .1
            .wait(begin, begin + time)
            .map_err(refused)
    }

    /// Works for `time` of CPU time, and up to one more check of the clock.
    pub fn work(&mut self, time: Nanos) {
        Work::fine(time).burn();
    }

    /// CPU time used by the calling thread so far.
    pub fn cpu_time(&self) -> Nanos {
        thread_cpu_time()
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::SleepMethod;

    use super::SyscallDriver;
    use crate::clock::now;

    #[test]
    fn sleeps_and_work_last_as_long_as_requested() {
        let mut syscall_driver = SyscallDriver::default();
        let time = Nanos::from_millis(2);
        for method in [
            SleepMethod::Nanosleep,
            SleepMethod::Poll,
            SleepMethod::Nanosleep,
        ] {
            let (begin, used) = (now(), syscall_driver.cpu_time());
            syscall_driver.sleep(method, time).unwrap();
            assert!(now() - begin >= time, "{method}");
            assert!(syscall_driver.cpu_time() - used < time, "{method} spins");
        }
        let begin = syscall_driver.cpu_time();
        syscall_driver.work(time);
        assert!(syscall_driver.cpu_time() - begin >= time);
        syscall_driver
            .sleep(SleepMethod::Nanosleep, Nanos(-1))
            .unwrap();
    }
}
