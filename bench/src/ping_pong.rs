//! Two threads on one CPU that wake each other through pipes, and do little besides switching
//! contexts.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use ticktax_host::own_thread_cpu_time;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

use crate::machine::pin;

/// Prefix of the names of both threads.
pub(crate) const NAME: &str = "bench-p";

/// CPU time and context switches that a series of round trips took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// CPU time of both threads, which excludes other programs and the hypervisor.
    pub(crate) cpu_time: Nanos,
    /// Number of times the threads left the CPU.
    pub(crate) switches: u64,
}

impl Taken {
    fn since_start_of_thread() -> io::Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        Ok(Self {
            cpu_time: own_thread_cpu_time(),
            switches: u64::try_from(switches).unwrap_or(0),
        })
    }

    /// Returns the CPU time per context switch, in ns.
    pub(crate) fn per_switch(self) -> f64 {
        self.cpu_time.0 as f64 / self.switches.max(1) as f64
    }
}

/// Makes `trips` round trips on `cpu` as fast as possible.
pub(crate) fn run(cpu: Cpu, trips: u64) -> io::Result<Taken> {
    pair(cpu, move |to, from| {
        for _ in 0..trips {
            trip(to, from)?;
        }
        Ok(())
    })
}

/// Makes a batch of `trips` round trips on `cpu` every `pace`, for `length`.
pub(crate) fn run_paced(cpu: Cpu, trips: u64, pace: Nanos, length: Nanos) -> io::Result<Taken> {
    pair(cpu, move |to, from| {
        let end = now() + length;
        let mut due = now() + pace;
        while due < end {
            let left = u64::try_from((due - now()).0).unwrap_or(0);
            thread::sleep(Duration::from_nanos(left));
            for _ in 0..trips {
                trip(to, from)?;
            }
            // Do not catch up after a late batch. The table shows the actual event rate, which may
            // therefore be lower than requested.
            due = (due + pace).max(now());
        }
        Ok(())
    })
}

fn trip(to: &mut PipeWriter, from: &mut PipeReader) -> io::Result<()> {
    to.write_all(&[1])?;
    from.read_exact(&mut [0])
}

/// Starts both threads, waits for them to finish, and adds up their CPU time and context switches.
/// The second thread answers the first until the first closes its pipe.
fn pair(
    cpu: Cpu,
    first: impl FnOnce(&mut PipeWriter, &mut PipeReader) -> io::Result<()> + Send,
) -> io::Result<Taken> {
    let (mut question, mut asking) = io::pipe()?;
    let (mut answer, mut answering) = io::pipe()?;
    thread::scope(|scope| {
        let start = |name| thread::Builder::new().name(format!("{NAME}{name}"));
        let asker = start("ing").spawn_scoped(scope, move || {
            measured(cpu, || first(&mut asking, &mut answer))
        })?;
        let answerer = start("ong").spawn_scoped(scope, move || {
            measured(cpu, || {
                while question.read(&mut [0])? > 0 {
                    answering.write_all(&[1])?;
                }
                Ok(())
            })
        })?;
        let mut sum = Taken::default();
        for thread in [asker, answerer] {
            let joined: thread::Result<io::Result<Taken>> = thread.join();
            let taken = joined.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
            sum.cpu_time += taken.cpu_time;
            sum.switches += taken.switches;
        }
        Ok(sum)
    })
}

/// Does `work` on `cpu`. Returns how much CPU time and how many context switches it took in the
/// calling thread.
fn measured(cpu: Cpu, work: impl FnOnce() -> io::Result<()>) -> io::Result<Taken> {
    pin(cpu)?;
    let before = Taken::since_start_of_thread()?;
    work()?;
    let after = Taken::since_start_of_thread()?;
    Ok(Taken {
        cpu_time: after.cpu_time - before.cpu_time,
        switches: after.switches - before.switches,
    })
}
