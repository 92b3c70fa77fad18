//! Programs that the guest starts and stops, and that measure their own stalls.

use std::io::{Read, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::thread;

use libtest_mimic::Failed;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use ticktax_inject::victims::{Memory, PolledRing};
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::super::victims::{MIB, micros, ms, work};
use crate::checks::Grid;

type Outcome = Result<(), Failed>;

/// The delays of a loop, according to itself. A frame's delay is the time from when it should have
/// ended until it ended.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Delays {
    pub(crate) frames: u64,
    pub(crate) total: Nanos,
    pub(crate) max: Nanos,
}

/// A loop with a fixed period and frames of the same length.
struct Loop {
    period: Nanos,
    /// Time from the start of a frame to its end if nothing delays it.
    length: Nanos,
}

/// Runs the victim with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    match arguments {
        ["loop", period, length] => {
            let (period, length) = (ms(period.parse()?), micros(length)?);
            Loop { period, length }.run(|| work(length))
        }
        ["relay", idle] => {
            let ring = PolledRing::new(idle.parse()?)?;
            let length = ms(2);
            let period = ms(20);
            Loop { period, length }.run(|| {
                work(length)?;
                Ok(ring.submit()?)
            })
        }
        ["grows"] => {
            let mut kept = Vec::new();
            let (period, length) = (ms(20), Nanos::ZERO);
            Loop { period, length }.run(|| {
                let mut more = Memory::new(MIB / 2)?;
                more.touch();
                kept.push(more);
                if kept.len() > 64 {
                    kept.clear();
                }
                Ok(())
            })
        }
        _ => Err(format!("no victim {arguments:?}").into()),
    }
}

impl Loop {
    /// Each byte of standard input starts or stops the loop. When it stops, it prints its delays as
    /// a line of JSON.
    fn run(&self, mut frame: impl FnMut() -> Outcome) -> Outcome {
        let mut input = stdin();
        while input.read(&mut [0])? > 0 {
            let mut delays = Delays::default();
            let mut grid = Grid::new(now(), self.period);
            while !is_ready(&input)? {
                thread::sleep(grid.left(now()));
                let began = now();
                frame()?;
                let ended = now();
                let due = grid.frame(began).due + self.length;
                let delay = (ended - due).max(Nanos::ZERO);
                delays.frames += 1;
                delays.total += delay;
                delays.max = delays.max.max(delay);
                grid.end(began, ended);
            }
            input.read_exact(&mut [0])?;
            let mut output = stdout();
            writeln!(output, "{}", serde_json::to_string(&delays)?)?;
            output.flush()?;
        }
        Ok(())
    }
}

/// Returns whether a file has input, or has ended.
fn is_ready(file: impl AsFd) -> Result<bool, Failed> {
    let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut files, PollTimeout::ZERO)? > 0)
}
