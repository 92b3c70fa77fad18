//! `ticktax lab list` and `ticktax lab build`.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use ticktax_lab::kernel::{Building, From, Wanted, build, require_rate};

use super::cache;
use super::run::cannot;
use crate::arguments::BuildArguments;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Terminal;

/// Prints the kernels in the cache.
pub(super) fn list(terminal: &Terminal) -> Result<ExitCode, Failure> {
    let all = cache()?.list()?;
    if all.is_empty() {
        terminal.print(
            "There is no kernel in the lab's cache. `ticktax lab build --hz 250` builds one, and \
             `ticktax lab run --kernel linux-image-cloud-amd64 -- pace` fetches Debian's.",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = String::new();
    for kernel in all {
        let hz = kernel
            .hz
            .map_or_else(|| "?".to_owned(), |hz| hz.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "{:<36} {:>4} Hz  {:>5.1} MB  {}",
            kernel.name,
            hz,
            kernel.bytes as f64 / 1e6,
            kernel.origin
        );
    }
    terminal.print(&page)?;
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
