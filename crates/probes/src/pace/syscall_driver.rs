//! Sleeps and works once per call, in the calling thread, for programs that define their own loops.

use ticktax_model::Nanos;
use ticktax_model::pace::SleepMethod;

use super::sleeper::Sleeper;
use super::work::Work;
use crate::ProbeError;
use crate::clock::{now, thread_cpu_time};

/// The sleep methods that the calling thread has used so far. They are kept open for the next use.
#[derive(Debug, Default)]
pub struct SyscallDriver {
    sleepers: Vec<(SleepMethod, Sleeper)>,
}

impl SyscallDriver {
    /// Sleeps once for `time` with `method`. A signal can end the sleep early. Returns immediately
    /// if `time` is not positive.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the sleep method.
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

    /// Works until the thread has used `time` of CPU time, or slightly longer, until the clock is
    /// next checked.
    pub fn work(&mut self, time: Nanos) {
        Work::fine(time).burn();
    }

    /// Returns the CPU time that the calling thread has used.
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
