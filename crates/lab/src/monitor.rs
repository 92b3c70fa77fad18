//! Asks QEMU's monitor (QMP, `docs/interop/qmp-spec.rst`) how many instructions a guest has
//! executed.
//!
//! Under icount, QEMU has to count instructions to compute the guest's time. The count does not
//! include idle time that QEMU skips, because skipping only advances the guest's clock
//! (`icount_get_raw`, `softmmu/icount.c`). `query-replay` reports the count even when no replay is
//! active.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use serde::Deserialize;

/// QEMU's arguments for a guest whose monitor still answers after the guest has shut down.
pub(crate) const ARGUMENTS: [&str; 3] = ["-no-shutdown", "-qmp", "stdio"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    /// A command could not be sent, or the thread that reads the answers could not be started.
    #[error("{}", .0.kind())]
    Io(#[from] io::Error),
    #[error("QEMU ended too early")]
    Ended,
    #[error("QEMU's monitor sent invalid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("QEMU's monitor refused the command: {0}")]
    Refused(String),
    /// QEMU did not answer in time, or its answer contains no instruction count.
    #[error("QEMU did not report the number of executed instructions")]
    NoCount,
}

/// A message from QEMU: the greeting, an event, or the response to a command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    event: Option<String>,
    error: Option<Refusal>,
    #[serde(rename = "return")]
    answer: Option<Answer>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    desc: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    icount: Option<u64>,
}

/// A connection to a QEMU process started with [`ARGUMENTS`].
#[derive(Debug)]
pub(crate) struct Monitor {
    commands: ChildStdin,
    messages: Receiver<String>,
    halted: bool,
}

impl Monitor {
    /// Connects to the monitor through QEMU's standard input (`commands`) and standard output
    /// (`output`).
    pub(crate) fn begin(commands: ChildStdin, output: ChildStdout) -> Result<Self, MonitorError> {
        let (sender, messages) = channel();
        // The thread exits when QEMU closes its standard output.
        thread::Builder::new()
            .name("qemu-monitor".to_owned())
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            })?;
        let mut monitor = Self {
            commands,
            messages,
            halted: false,
        };
        monitor.command("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Returns whether the guest has shut down for any reason, or QEMU has exited.
    pub(crate) fn has_halted(&mut self) -> bool {
        let is_end = |message: &Message| message.event.as_deref() == Some("SHUTDOWN");
        // Treat an error as the end of the guest. Querying the count will then report it.
        self.halted |= !matches!(self.wait(Duration::ZERO, is_end), Ok(None));
        self.halted
    }

    /// Returns how many instructions the guest has executed. Call this only after the guest has
    /// shut down.
    pub(crate) fn instructions(&mut self) -> Result<u64, MonitorError> {
        self.command("query-replay")?;
        let icount = |message: &Message| message.answer.as_ref()?.icount;
        let found = self.wait(Duration::from_secs(10), |message| icount(message).is_some())?;
        let count = found.as_ref().and_then(icount);
        count.ok_or(MonitorError::NoCount)
    }

    fn command(&mut self, name: &str) -> io::Result<()> {
        writeln!(self.commands, "{{\"execute\":\"{name}\"}}")?;
        self.commands.flush()
    }

    /// Returns the next message that `wanted` accepts, or `None` if no such message arrives within
    /// `patience`.
    fn wait(
        &mut self,
        patience: Duration,
        wanted: impl Fn(&Message) -> bool,
    ) -> Result<Option<Message>, MonitorError> {
        loop {
            match self.messages.recv_timeout(patience) {
                Ok(line) => {
                    let message = read(&line)?;
                    if wanted(&message) {
                        return Ok(Some(message));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(MonitorError::Ended),
            }
        }
    }
}

fn read(line: &str) -> Result<Message, MonitorError> {
    let message: Message = serde_json::from_str(line)?;
    match message.error {
        Some(refusal) => Err(MonitorError::Refused(refusal.desc)),
        None => Ok(message),
    }
}

#[cfg(test)]
mod tests {
    use super::{MonitorError, read};

    #[test]
    fn qemus_messages_are_distinguished() {
        let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}}}"#;
        assert!(read(greeting).unwrap().answer.is_none());
        let event =
            r#"{"timestamp": {"seconds": 1}, "event": "SHUTDOWN", "data": {"guest": true}}"#;
        assert_eq!(read(event).unwrap().event.as_deref(), Some("SHUTDOWN"));
        let answer = r#"{"return": {"icount": 165861832, "mode": "none"}}"#;
        let counted = read(answer).unwrap().answer.unwrap();
        assert_eq!(counted.icount, Some(165_861_832));
        let nothing = read(r#"{"return": {}}"#).unwrap().answer.unwrap();
        assert_eq!(nothing.icount, None);
        let refused = r#"{"error": {"class": "CommandNotFound", "desc": "no such command"}}"#;
        assert!(
            matches!(read(refused), Err(MonitorError::Refused(why)) if why == "no such command")
        );
        assert!(matches!(read("qemu: bad"), Err(MonitorError::Json(_))));
    }
}
