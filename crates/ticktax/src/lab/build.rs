//! `ticktax lab build`: builds kernels that differ only in their tick rate.

use std::path::Path;
use std::process::ExitCode;

use ticktax_lab::kernel::{Building, build_all};
use ticktax_lab::read_text;
use ticktax_model::kernels::KernelBuild;

use super::cache;
use crate::arguments::BuildArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::Terminal;

pub(super) fn run(typed: &BuildArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let cache = cache()?;
    let interrupt = Interrupt::listen()?;
    let fragment = typed.config.as_deref().map(read_text).transpose()?;
    let name = typed.config.as_deref().and_then(Path::file_stem);
    let name = name.map(|name| name.to_string_lossy().to_lowercase());
    let building = Building {
        arch: typed.arch,
        source: &typed.source,
        fragment: fragment.as_deref().unwrap_or_default(),
        variant: name.as_deref(),
        jobs: typed.jobs.unwrap_or_else(crate::beats::threads),
    };
    let progress = terminal.progress(Extent::Unknown, "looking for the source");
    let kernels = build_all(
        &typed.hz,
        &building,
        &cache,
        &|| interrupt.signal().is_some(),
        &mut |words| progress.tell(words),
    );
    progress.done();
    let build = KernelBuild {
        source: typed.source.to_string(),
        config: typed.config.as_ref().map(|file| file.display().to_string()),
        kernels: kernels?,
    };
    output::put(
        &build.into(),
        html,
        Output::to_stdout(typed.format),
        terminal,
    )?;
    Ok(ExitCode::SUCCESS)
}
