//! `ticktax lab list` and `ticktax lab build`.

use std::path::Path;
use std::process::ExitCode;

use ticktax_lab::kernel::{Building, From, Wanted, build, require_rate};
use ticktax_model::kernels::{CachedKernel, KernelList};
use ticktax_report::Format;

use super::cache;
use super::run::cannot;
use crate::arguments::BuildArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// Prints the kernels in the cache.
pub(super) fn list(format: Format, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let listed = cache()?.list()?.into_iter();
    let kernels = listed.map(|kernel| CachedKernel {
        name: kernel.name,
        release: kernel.release,
        origin: kernel.origin,
        hz: kernel.hz,
        image_bytes: kernel.bytes,
    });
    let kernels = kernels.collect();
    terminal.put(&KernelList { kernels }.into(), format, None)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds kernels, one after the other.
pub(super) fn run(typed: &BuildArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let cache = cache()?;
    let interrupt = Interrupt::listen()?;
    let fragment = match &typed.config {
        None => String::new(),
        Some(file) => {
            std::fs::read_to_string(file).map_err(|error| cannot("read", file, &error))?
        }
    };
    let name = typed.config.as_deref().and_then(Path::file_stem);
    let name = name.map(|name| name.to_string_lossy().to_lowercase());
    let source = match typed.source.parse() {
        Ok(Wanted::File(path)) => From::Path(path),
        Ok(Wanted::Package(name)) => From::Package(name),
        _ => {
            let why = "--source is a Debian package, or a folder or tarball with a / in it";
            return Err(Failure::Arguments(why.to_owned()));
        }
    };
    for &hz in &typed.hz {
        require_rate(hz)?;
    }
    let building = Building {
        source: &source,
        fragment: &fragment,
        variant: name.as_deref(),
        jobs: typed.jobs.unwrap_or_else(crate::beats::threads),
    };
    for &hz in &typed.hz {
        let progress = terminal.task(format!("hz{hz}"));
        let stop = || interrupt.signal().is_some();
        let tell = &mut |words: &str| progress.tell(words.to_owned());
        let built = build(hz, &building, &cache, &stop, tell);
        progress.done();
        let kernel = built?;
        let (release, _) = kernel.config.unwrap_or_default();
        terminal.print(&format!(
            "{}: Linux {release} at {hz} Hz is ready",
            kernel.name
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
