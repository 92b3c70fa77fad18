//! `ticktax lab compare --case`: a published investigation on real kernels.

use std::collections::BTreeSet;
use std::process::ExitCode;

use ticktax_experiment::kernels::{self, GuestJob, Trial};
use ticktax_experiment::replay::Replay;
use ticktax_lab::guest::REPLAY;
use ticktax_lab::kernel::{Kernel, Wanted};
use ticktax_lab::qemu::Clock;

use super::compare::found;
use super::run::{Guest, STATEMENT, missing, read};
use super::turns::{in_turns, jobs};
use crate::arguments::{CompareArguments, KernelVariants};
use crate::case;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::{Progress, Terminal};

/// Boots every kernel for every order of the case; ends with 1 where one is off what is expected.
pub(super) fn run(
    name: &str,
    typed: &CompareArguments,
    variants: KernelVariants,
    interrupt: &Interrupt,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let case = case::named(name)?;
    let file = case::read(case)?;
    let on_kernels = case.kernels().ok_or_else(|| {
        let all = kernels::names().join(" and ");
        Failure::Case(format!(
            "{name} cannot be put to a kernel of today; {all} can"
        ))
    })?;
    let counts = on_kernels.jobs().iter().any(|job| job.counted);
    if counts && !matches!(typed.guest.clock(), Clock::Icount { .. }) {
        let why = format!("{name} counts instructions, which takes guests under --icount");
        return Err(Failure::Arguments(why));
    }
    let rates = match variants.rates {
        none if none.is_empty() && variants.kernels.is_empty() => on_kernels.rates(&file),
        rates => rates,
    };
    let wanted = rates.into_iter().map(Wanted::Built);
    let wanted: Vec<Wanted> = wanted.chain(variants.kernels).collect();
    let progress = terminal.task("looking for the kernels".to_owned());
    let kernels = found(&wanted, &progress)?;
    require_one_a_rate(&kernels)?;
    let wanted_jobs = on_kernels.jobs();
    let with = |kernel| wanted_jobs.iter().map(move |job| (kernel, *job));
    let all: Vec<(&Kernel, GuestJob)> = kernels.iter().flat_map(with).collect();
    let guests = Guests {
        name,
        typed,
        interrupt,
        progress: &progress,
    };
    let trials = in_turns(&all, jobs(typed), |&(kernel, job), is_over| {
        guests.trial(kernel, job, is_over)
    });
    progress.done();
    let trials = trials?;
    let clock = clock(typed.guest.clock());
    let statement = on_kernels.statement(&file, &clock, &trials);
    let agrees = statement.agrees();
    terminal.put(&statement.into(), typed.format, typed.output.as_deref())?;
    Ok(if agrees {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Refuses two kernels with one tick rate: a case has a row for each rate.
fn require_one_a_rate(kernels: &[Kernel]) -> Result<(), Failure> {
    let mut rates = BTreeSet::new();
    for kernel in kernels {
        if let Some(hz) = kernel.hz()
            && !rates.insert(hz)
        {
            let why =
                format!("two of these kernels tick at {hz} Hz: a case has a row for each rate");
            return Err(Failure::Arguments(why));
        }
    }
    Ok(())
}

/// What the guests of a case have in common.
struct Guests<'a> {
    name: &'a str,
    typed: &'a CompareArguments,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
}

impl Guests<'_> {
    /// Boots one. `is_over` is asked whether to give up.
    fn trial(
        &self,
        kernel: &Kernel,
        job: GuestJob,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Trial, Failure> {
        let length = format!("{}us", job.length.0 / 1_000);
        let mut arguments = vec![REPLAY, self.name, "--for", &length, "--output", STATEMENT];
        if !job.programs {
            arguments.push("--idle");
        }
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let guest = Guest {
            typed: &self.typed.guest,
            arguments: &arguments,
            counted: job.counted,
            accepted: &[],
            interrupt: self.interrupt,
        };
        let outcome = guest.boot(kernel, job.cmdline, None, is_over, self.progress)?;
        let bytes = outcome.file(STATEMENT).ok_or_else(|| missing(STATEMENT))?;
        let replay: Replay = read(bytes)?;
        let hz = replay
            .machine
            .hz_configured
            .or(kernel.hz())
            .ok_or_else(|| {
                let why = format!("{} does not say its tick rate", kernel.name);
                Failure::Case(why)
            })?;
        Ok(Trial {
            hz,
            job,
            replay,
            instructions: outcome.instructions,
        })
    }
}

/// What the guests' time was, for readers.
fn clock(clock: Clock) -> String {
    match clock {
        Clock::Icount { shift } => format!(
            "instructions, {} ns each; caches, pipelines and hypervisors cost nothing",
            1_u32 << shift.min(10)
        ),
        Clock::Tcg | Clock::Kvm => "the host's, with its noise".to_owned(),
    }
}
