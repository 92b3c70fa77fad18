//! Two threads on one CPU that wake each other through pipes: context switches, and hardly
//! anything else.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;
use ticktax_trace::proc::own_thread_cpu_time;

use crate::machine::pin;

/// How the names of its threads begin.
pub(crate) const NAME: &str = "bench-p";

/// What some round trips took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// CPU time of both threads: other programs and the hypervisor are not in it.
    pub(crate) cpu_time: Nanos,
    /// How often the two left the CPU.
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

    /// Nanoseconds of CPU time from one switch to the next.
    pub(crate) fn per_switch(self) -> f64 {
        self.cpu_time.0 as f64 / self.switches.max(1) as f64
    }
}

/// Runs `trips` round trips on `cpu`, as fast as they go.
pub(crate) fn run(cpu: Cpu, trips: u64) -> io::Result<Taken> {
    pair(cpu, move |to, from| {
        for _ in 0..trips {
            trip(to, from)?;
        }
        Ok(())
    })
}

/// Runs batches of `trips` round trips on `cpu`, one a millisecond, for a while.
pub(crate) fn run_paced(cpu: Cpu, trips: u64, length: Nanos) -> io::Result<Taken> {
    const PACE: Nanos = Nanos::from_millis(1);
    pair(cpu, move |to, from| {
        let end = now() + length;
        let mut due = now() + PACE;
        while due < end {
            let left = u64::try_from((due - now()).0).unwrap_or(0);
            thread::sleep(Duration::from_nanos(left));
            for _ in 0..trips {
                trip(to, from)?;
            }
            // A batch that took longer than its millisecond is not caught up with: the rate that
            // came about is measured, not assumed.
            due = (due + PACE).max(now());
        }
        Ok(())
    })
}

fn trip(to: &mut PipeWriter, from: &mut PipeReader) -> io::Result<()> {
    to.write_all(&[1])?;
    from.read_exact(&mut [0])
}

/// Starts both threads, waits for their end and adds up what they took.
fn pair(
    cpu: Cpu,
    first: impl FnOnce(&mut PipeWriter, &mut PipeReader) -> io::Result<()> + Send,
) -> io::Result<Taken> {
    let (mut here, mut to_there) = io::pipe()?;
    let (mut there, mut to_here) = io::pipe()?;
    let measured = move |work: &mut dyn FnMut() -> io::Result<()>| {
        pin(cpu)?;
        let before = Taken::since_start_of_thread()?;
        work()?;
        let after = Taken::since_start_of_thread()?;
        Ok(Taken {
            cpu_time: after.cpu_time - before.cpu_time,
            switches: after.switches - before.switches,
        })
    };
    thread::scope(|scope| {
        let mut first = Some(first);
        let ping = thread::Builder::new()
            .name(format!("{NAME}ing"))
            .spawn_scoped(scope, move || {
                measured(&mut || {
                    let work = first.take().map(|first| first(&mut to_there, &mut there));
                    work.unwrap_or(Ok(()))
                })
                // Its end of the pipe is closed here, which ends the other.
            })?;
        let pong = thread::Builder::new()
            .name(format!("{NAME}ong"))
            .spawn_scoped(scope, move || {
                measured(&mut || {
                    while here.read(&mut [0])? > 0 {
                        to_here.write_all(&[1])?;
                    }
                    Ok(())
                })
            })?;
        let died = |_| io::Error::other("a thread of the ping-pong panicked");
        let (ping, pong): (io::Result<Taken>, io::Result<Taken>) =
            (ping.join().map_err(died)?, pong.join().map_err(died)?);
        let (ping, pong) = (ping?, pong?);
        Ok(Taken {
            cpu_time: ping.cpu_time + pong.cpu_time,
            switches: ping.switches + pong.switches,
        })
    })
}
