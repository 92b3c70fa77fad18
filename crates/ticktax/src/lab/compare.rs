//! `ticktax lab compare`: runs the same loop on several kernels, and compares each run with the
//! model of its kernel.

use std::process::ExitCode;

use ticktax_analysis::RecordingAnalysis;
use ticktax_casebook::matrix;
use ticktax_lab::kernel::{Kernel, Wanted, find_for};
use ticktax_lab::{Arch, LabError, in_turns};
use ticktax_model::comparison::Comparison;

use super::run::Guests;
use super::{cache, cases};
use crate::arguments::{CompareArguments, GuestArm, GuestVerb};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::{Extent, Progress};
use crate::terminal::{Terminal, require_writable};

/// Boots every kernel with every set of boot parameters. The exit code is 1 if a kernel deviates
/// from its model.
pub(super) fn run(typed: &CompareArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    if let Some(file) = &typed.output {
        require_writable(file)?;
    }
    let html = output::begin_page(typed.html.as_deref())?;
    let arms = typed.arms()?;
    let interrupt = Interrupt::listen()?;
    let (document, agrees) = if let Some(case) = &typed.case {
        let statement = cases::run(case, typed, &arms, &interrupt, terminal)?;
        let agrees = statement.agrees();
        (statement.into(), agrees)
    } else {
        let comparison = loops(typed, &arms, &interrupt, terminal)?;
        let agrees = comparison.agrees();
        (comparison.into(), agrees)
    };
    let output = Output::new(typed.format, typed.output.as_deref());
    output::put(&document, html, output, terminal)?;
    Ok(if agrees {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn loops(
    typed: &CompareArguments,
    arms: &[GuestArm],
    interrupt: &Interrupt,
    terminal: &Terminal,
) -> Result<Comparison, Failure> {
    let guests = Guests::new(&typed.guest, &typed.verb, interrupt)?;
    if guests.verb == GuestVerb::Audit {
        let why = "`lab compare` can only run `pace`: put `-- pace` at the end";
        return Err(Failure::Arguments(why.to_owned()));
    }
    let mut wanted: Vec<Wanted> = arms.iter().filter_map(|arm| arm.kernel.clone()).collect();
    wanted.dedup();
    let progress = terminal.progress(Extent::Unknown, "looking for the kernels");
    let kernels = found(&wanted, typed.guest.arch, &progress)?;
    // An arm without boot parameters uses only those built into the kernel.
    let found_arm = |arm: &GuestArm| {
        let place = wanted
            .iter()
            .position(|wanted| Some(wanted) == arm.kernel.as_ref())?;
        Some((kernels.get(place)?, arm.cmdline.clone().unwrap_or_default()))
    };
    let places: Vec<(&Kernel, String)> = arms.iter().filter_map(found_arm).collect();
    let compared = in_turns(&places, jobs(typed), |(kernel, cmdline), is_over| {
        let guest = guests.guest();
        let outcome = guest.boot(kernel, cmdline, None, is_over, &progress)?;
        let document = RecordingAnalysis::document(&mut outcome.recording()?, 1)?;
        let no_loop = || LabError::NoResult("its recording contains no loop".to_owned());
        let compared = matrix::loops_of(&kernel.name, cmdline, document).ok_or_else(no_loop)?;
        Ok::<_, Failure>(compared)
    });
    progress.done();
    let compared = compared?.into_iter().flatten().collect();
    let clock = typed.guest.clock().facts();
    Ok(matrix::comparison(guests.typed_verb(), clock, compared))
}

pub(super) fn jobs(typed: &CompareArguments) -> usize {
    let at_once = typed.guest.clock().guests_at_once(crate::beats::threads());
    typed.jobs.map_or(at_once, usize::from)
}

/// Finds all kernels before the first guest boots, so that a missing kernel does not waste a
/// guest's run.
pub(super) fn found(
    wanted: &[Wanted],
    arch: Option<Arch>,
    progress: &Progress,
) -> Result<Vec<Kernel>, Failure> {
    let cache = cache()?;
    let mut tell = |words: &str| progress.tell(words);
    let found = wanted
        .iter()
        .map(|kernel| find_for(kernel, arch, &cache, &mut tell));
    let found: Result<Vec<Kernel>, LabError> = found.collect();
    Ok(found?)
}
