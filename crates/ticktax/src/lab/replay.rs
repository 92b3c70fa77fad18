//! A case's programs in a guest: each a thread, for as long as it was told.

use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ticktax_experiment::replay::{Platform, Replay, ReplayedTask, replay};
use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_model::machine::CpuTimes;
use ticktax_model::recording::World;
use ticktax_probes::clock::now;
use ticktax_probes::pace::syscall_driver::SyscallDriver;
use ticktax_sim::{Call, TaskSpec};

use super::run::cannot;
use crate::arguments::ReplayArguments;
use crate::case;
use crate::failure::Failure;

/// The seed that scenarios have without other wishes: the simulator then draws the same.
const SEED: u64 = 1;

/// Performs, and leaves what came of it in a file.
pub(crate) fn run(typed: &ReplayArguments) -> Result<ExitCode, Failure> {
    let proc = Proc::default();
    let machine = proc.machine();
    if ticktax_host::world(&machine).0 != World::Lab {
        let why = "lab-replay is for a lab's guests alone; see `ticktax lab compare --help`";
        return Err(Failure::Arguments(why.to_owned()));
    }
    let case = case::named(&typed.case)?;
    let tasks = if typed.idle {
        Vec::new()
    } else {
        case.programs(&case::read(case)?.values())
    };
    let length = typed.length.0;
    let busy = || busy(&proc);
    let (begin, before) = (now(), busy());
    let tasks = all(&tasks, length)?;
    let left = length - (now() - begin);
    thread::sleep(Duration::from_nanos(left.max(Nanos::ZERO).0.unsigned_abs()));
    let replay = Replay {
        machine,
        elapsed: now() - begin,
        sampled: busy() - before,
        tasks,
    };
    let text = serde_json::to_string(&replay).map_err(|error| {
        Failure::Case(format!("the replay's result cannot be written: {error}"))
    })?;
    fs::write(&typed.output, text).map_err(|error| cannot("write", &typed.output, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a thread perform each task, and waits for all.
fn all(tasks: &[TaskSpec], length: Nanos) -> Result<Vec<ReplayedTask>, Failure> {
    thread::scope(|scope| {
        let threads: Vec<_> = tasks
            .iter()
            .enumerate()
            .map(|(place, task)| scope.spawn(move || one(task, place, length)))
            .collect();
        let ended = threads.into_iter().map(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|_| Err("its thread ended".to_owned()))
        });
        let replayed: Result<Vec<ReplayedTask>, String> = ended.collect();
        replayed.map_err(|why| Failure::Case(format!("a program cannot be performed: {why}")))
    })
}

/// Performs one task on the calling thread.
fn one(task: &TaskSpec, place: usize, length: Nanos) -> Result<ReplayedTask, String> {
    let mut machine = Machine(SyscallDriver::default());
    let begin = machine.0.cpu_time();
    let mut done = replay(task, place, SEED, length, &mut machine)?;
    done.ran = machine.0.cpu_time() - begin;
    Ok(done)
}

/// The machine itself.
struct Machine(SyscallDriver);

impl Platform for Machine {
    fn now(&mut self) -> Nanos {
        now()
    }

    fn sleep(&mut self, call: Call, time: Nanos) -> Result<(), String> {
        let slept = self.0.sleep(call.method(), time);
        slept.map_err(|error| error.to_string())
    }

    fn work(&mut self, time: Nanos) {
        self.0.work(time);
    }
}

/// What the kernel's columns call busy, over all CPUs.
fn busy(proc: &Proc) -> Nanos {
    let times = proc.counters(now()).cpu_times;
    times.values().map(CpuTimes::busy).sum()
}
