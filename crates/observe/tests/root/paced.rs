//! A program that paces its own wake-ups, for tests of the recorder's triggers.

use std::process::{Child, Command};
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::Cpu;

/// A process that wakes up every millisecond on one CPU. It has priority over all normal threads.
pub(crate) struct Paced(Child);

/// The argument that makes this test program act as the paced process.
pub(crate) const PACED: &str = "--as-paced";

impl Paced {
    pub(crate) fn start(cpu: Cpu) -> Result<Self, Failed> {
        let program = std::env::current_exe()?;
        let mut nice = Command::new("nice");
        nice.args(["-n", "-20"]).arg(program).arg(PACED);
        let paced = Self(nice.spawn()?);
        let mut one = CpuSet::new();
        one.set(cpu.index())?;
        sched_setaffinity(Pid::from_raw(paced.pid()), &one)?;
        Ok(paced)
    }

    pub(crate) fn run() {
        // This process must end together with the test, no matter how the test ends.
        let parent = nix::unistd::getppid();
        while nix::unistd::getppid() == parent {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        let _ = self.0.wait();
    }
}
