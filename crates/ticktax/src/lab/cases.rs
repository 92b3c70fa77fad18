//! `ticktax lab compare --case`: repeats a published investigation on real kernels.

use ticktax_casebook::kernels::{self, GuestJob, KernelsError, Trial};
use ticktax_lab::guest::{RECORDING, REPLAY};
use ticktax_lab::in_turns;
use ticktax_lab::kernel::{Kernel, Wanted};
use ticktax_lab::qemu::Clock;
use ticktax_model::kernels::KernelsStatement;

use super::compare::{found, jobs};
use super::run::Guest;
use crate::arguments::{CompareArguments, GuestArm};
use crate::case;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::{Extent, Progress};
use crate::terminal::Terminal;

pub(super) fn run(
    name: &str,
    typed: &CompareArguments,
    arms: &[GuestArm],
    interrupt: &Interrupt,
    terminal: &Terminal,
) -> Result<KernelsStatement, Failure> {
    let case = case::named(name)?;
    let file = case::read(case)?;
    let on_kernels = case.kernels().ok_or_else(|| {
        let all = kernels::names().join(" and ");
        Failure::Case(format!(
            "{name} cannot run on current kernels: choose {all}"
        ))
    })?;
    let wanted_jobs = on_kernels.jobs();
    let counts = wanted_jobs.iter().any(|job| job.counted);
    if counts && !matches!(typed.guest.clock(), Clock::Icount { .. }) {
        let why = format!("{name} counts instructions: use --icount");
        return Err(Failure::Arguments(why));
    }
    let varied: Option<Vec<Wanted>> = arms.iter().map(|arm| arm.kernel.clone()).collect();
    let wanted = varied.unwrap_or_else(|| {
        let rates = on_kernels.rates(&file).into_iter();
        rates.map(Wanted::with_rate).collect()
    });
    let progress = terminal.progress(Extent::Unknown, "looking for the kernels");
    let kernels = found(&wanted, typed.guest.arch, &progress)?;
    kernels::require_one_a_rate(kernels.iter().filter_map(Kernel::hz))?;
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
    Ok(on_kernels.statement(&file, typed.guest.clock().facts(), &trials?))
}

/// Settings shared by all guests that run a case.
struct Guests<'a> {
    name: &'a str,
    typed: &'a CompareArguments,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
}

impl Guests<'_> {
    /// Boots one guest and returns what it measured. Stops the guest early once `is_over` returns
    /// true.
    fn trial(
        &self,
        kernel: &Kernel,
        job: GuestJob,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Trial, Failure> {
        let length = format!("{}us", job.length.0 / 1_000);
        let mut arguments = vec![REPLAY, self.name, "--for", &length, "--save", RECORDING];
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
        let recording = outcome.recording()?;
        Trial::new(
            &kernel.name,
            kernel.hz(),
            job,
            recording.header(),
            outcome.instructions,
        )
        .map_err(Failure::from)
    }
}

impl From<KernelsError> for Failure {
    fn from(error: KernelsError) -> Self {
        match error {
            KernelsError::SameRate(_) => Self::Arguments(error.to_string()),
            KernelsError::NoRate(_) | KernelsError::NoReplay => Self::Case(error.to_string()),
        }
    }
}
