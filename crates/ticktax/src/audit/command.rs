//! The command that is audited.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use ticktax_model::recording::CommandReport;

use crate::failure::Failure;

/// A command that has been started.
#[derive(Debug)]
pub(crate) struct Audited {
    argv: Vec<String>,
    child: Child,
    status: Option<ExitStatus>,
}

impl Audited {
    /// Starts the command; `None` where there is none.
    pub(crate) fn start(argv: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = argv.split_first() else {
            return Ok(None);
        };
        let child = Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|error| Failure::of_command(program.to_string_lossy().into_owned(), &error))?;
        let argv = argv
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        Ok(Some(Self {
            argv,
            child,
            status: None,
        }))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(-1)
    }

    /// The program's name, without its folder.
    pub(crate) fn name(&self) -> String {
        let program = self.argv.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program).to_owned()
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// What became of it.
    pub(crate) fn report(&mut self) -> CommandReport {
        self.ended();
        let code = |status: ExitStatus| {
            status
                .code()
                .or_else(|| status.signal().map(|signal| 128 + signal))
        };
        CommandReport {
            argv: self.argv.clone(),
            pid: self.pid(),
            exit: self.status.and_then(code),
        }
    }
}
