//! `ticktax storage`: lists the effective settings of file systems, measures fsyncs, and watches
//! throttled writers.

use std::process::ExitCode;

use ticktax_host::Proc;
use ticktax_model::storage::Storage;
use ticktax_storage::{FsyncPlan, study, watch_pressure};

use crate::arguments::{
    FsyncArguments, MountsArguments, PressureArguments, StorageArguments, StorageTask,
};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress::Extent;
use crate::terminal::Terminal;

pub(crate) fn run(typed: &StorageArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match &typed.task {
        None => mounts(&typed.mounts, terminal),
        Some(StorageTask::Mounts(typed)) => mounts(typed, terminal),
        Some(StorageTask::Fsync(typed)) => fsync(typed, terminal),
        Some(StorageTask::Pressure(typed)) => pressure(typed, terminal),
    }
}

fn mounts(typed: &MountsArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let mounts = Proc::default().mounts().ok_or(Failure::Mounts)?;
    let output = Output::to_stdout(typed.format);
    output::put(&Storage { mounts }.into(), html, output, terminal)?;
    Ok(ExitCode::SUCCESS)
}

fn fsync(typed: &FsyncArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let interrupt = Interrupt::listen_until_removed()?;
    let plan = FsyncPlan {
        folder: typed.dir.clone(),
        foreign_bytes: typed.foreign.0,
        foreign: typed.foreign_data.into(),
        write: typed.write(),
        pairs: typed.pairs,
        fsyncs: typed.fsyncs,
    };
    let progress = terminal.progress(Extent::Unknown, "Measuring fsyncs");
    let measured = study(&plan, &|| interrupt.signal().is_some());
    progress.done();
    let output = Output::to_stdout(typed.format);
    output::put(&measured?.into(), html, output, terminal)?;
    Ok(ExitCode::SUCCESS)
}

fn pressure(typed: &PressureArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let html = output::begin_page(typed.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let progress = terminal.progress(Extent::Time(typed.length.0), "Watching writers");
    let found = watch_pressure(typed.length.0, &|| interrupt.signal().is_some());
    progress.done();
    let output = Output::to_stdout(typed.format);
    output::put(&found.into(), html, output, terminal)?;
    Ok(ExitCode::SUCCESS)
}
