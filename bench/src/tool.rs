//! Runs the `ticktax` command as users do.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ticktax_model::statement::Statement;

use crate::Bench;
use crate::peer::Running;

/// The `ticktax` executable from the same build as this program.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    path: PathBuf,
}

impl Tool {
    /// Finds the executable next to this program. If cargo started this program, builds the
    /// executable first, so that it is never outdated.
    pub(crate) fn find() -> Result<Self, String> {
        if let Some(cargo) = env::var_os("CARGO") {
            let mut build = Command::new(cargo);
            build.args(["build", "--release", "--quiet", "-p", "ticktax"]);
            if !build.status().is_ok_and(|status| status.success()) {
                return Err("ticktax does not build".to_owned());
            }
        }
        let own = env::current_exe().map_err(|error| error.to_string())?;
        let path = own.with_file_name("ticktax");
        if !path.is_file() {
            return Err(format!(
                "no {}: `cargo build --release -p ticktax` makes it",
                path.display()
            ));
        }
        Ok(Self { path })
    }

    /// Creates a command that runs ticktax with the subcommand `verb`.
    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.arg(verb);
        command
    }

    /// Like [`command`](Self::command), but at a real-time priority (through `chrt` from
    /// util-linux), so that ordinary programs do not preempt ticktax.
    pub(crate) fn real_time(&self, verb: &str) -> Command {
        let mut command = Command::new("chrt");
        command.args(["-f", "20"]).arg(&self.path).arg(verb);
        command
    }

    /// Starts an agent, which runs until it is interrupted.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Result<Running, String> {
        Running::start(Command::new(&self.path).arg("agent").args(arguments))
    }

    /// Starts an audit that lasts for `seconds`.
    pub(crate) fn audit(&self, seconds: u32, arguments: &[&str]) -> Result<Audit, String> {
        let mut command = Command::new(&self.path);
        command.args(["audit", "--format", "json", "--for", &format!("{seconds}s")]);
        Running::start(command.args(arguments)).map(|running| Audit { running, seconds })
    }
}

/// A running audit.
pub(crate) struct Audit {
    running: Running,
    seconds: u32,
}

impl Audit {
    /// Waits until the audit has finished, and parses the statement that it printed.
    pub(crate) fn statement(mut self, bench: &Bench) -> Result<Statement, String> {
        bench
            .pause(Duration::from_secs(self.seconds.into()))
            .map_err(|error| error.to_string())?;
        let said = self.running.finish(Duration::from_mins(1))?;
        // Error messages may follow the statement, or replace it.
        let mut values = serde_json::Deserializer::from_str(&said).into_iter();
        match values.next() {
            Some(Ok(statement)) => Ok(statement),
            _ => Err(format!("ticktax audit says: {said}")),
        }
    }
}
