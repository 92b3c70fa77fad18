//! Starts an agent and reads its metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::check;

/// Number of checks, a tenth of a second apart, before something counts as missing. This is long
/// enough for a busy machine. A test that passes does not wait that long.
const LOOKS: usize = 6_000;

/// Arguments that make the agent serve its metrics on a free port.
pub(crate) const SERVING: [&str; 2] = ["--listen", "127.0.0.1:0"];
/// Like [`SERVING`], but these also make the agent switch to a user without rights.
pub(crate) const AS_NOBODY: [&str; 4] = ["--listen", "127.0.0.1:0", "--user", "nobody"];

/// A running agent, which is killed when this is dropped.
pub(crate) struct Agent {
    child: Child,
    errors: BufReader<ChildStderr>,
    /// All messages printed by the agent so far.
    lines: String,
}

impl Agent {
    /// Starts `ticktax agent` with these arguments, and waits until it traces events.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Failed> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
        command.arg("agent");
        Self::run(command, arguments)
    }

    /// Runs `command`, which must start the agent, and waits until the agent traces events. If the
    /// agent serves metrics, its address is known by the time this returns.
    pub(crate) fn run(mut command: Command, arguments: &[&str]) -> Result<Self, Failed> {
        let serves = !arguments.contains(&"none");
        // Use a short interval, so that no test has to wait for ten seconds.
        let command = command.args(["--every", "1s"]).args(arguments);
        let command = command.stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let errors = child.stderr.take().map(BufReader::new);
        let mut agent = Self {
            child,
            errors: errors.ok_or("its errors are not piped")?,
            lines: String::new(),
        };
        while serves && !agent.lines.contains("metrics on ") {
            let read = agent.errors.read_line(&mut agent.lines)?;
            check(read > 0, || format!("it ended: {}", agent.lines))?;
        }
        Ok(agent)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> Result<String, Failed> {
        let url = self.lines.split("metrics on http://").nth(1);
        let address = url.and_then(|url| url.split('/').next());
        Ok(address.ok_or_else(|| self.lines.clone())?.to_owned())
    }

    pub(crate) fn page(&self) -> Result<String, Failed> {
        let mut stream = TcpStream::connect(self.address()?)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, page) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        check(head.starts_with("HTTP/1.1 200 OK"), || head.to_owned())?;
        check(head.contains("application/openmetrics-text"), || {
            head.to_owned()
        })?;
        Ok(page.to_owned())
    }

    /// Waits until the metrics contain `series`.
    pub(crate) fn page_when(&mut self, series: &str) -> Result<String, Failed> {
        self.page_that(|page| page.lines().any(|line| line.starts_with(series)))
    }

    pub(crate) fn page_when_it_changes(&mut self, before: &str) -> Result<String, Failed> {
        self.page_that(|page| page != before)
    }

    pub(crate) fn page_that(&mut self, is_wanted: impl Fn(&str) -> bool) -> Result<String, Failed> {
        for _ in 0..LOOKS {
            let page = self.page()?;
            if is_wanted(&page) {
                return Ok(page);
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err("it counts nothing".into())
    }

    /// Stops the agent in the way that a service manager does. Returns its exit code and all of its
    /// messages.
    pub(crate) fn stop(mut self) -> Result<(Option<i32>, String), Failed> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        kill(pid, Signal::SIGTERM)?;
        self.end()
    }

    pub(crate) fn stops_with_balanced_accounts(self) -> Result<(), Failed> {
        let (code, messages) = self.stop()?;
        went_well(code, &messages)
    }

    /// Waits until the agent exits, and checks that it reports balanced accounts. Returns its
    /// messages.
    pub(crate) fn ends_with_balanced_accounts(mut self) -> Result<String, Failed> {
        let (code, messages) = self.end()?;
        went_well(code, &messages)?;
        Ok(messages)
    }

    pub(crate) fn kill(mut self) -> Result<(), Failed> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn end(&mut self) -> Result<(Option<i32>, String), Failed> {
        self.errors.read_to_string(&mut self.lines)?;
        let status = self.child.wait()?;
        Ok((status.code(), std::mem::take(&mut self.lines)))
    }
}

fn went_well(code: Option<i32>, messages: &str) -> Result<(), Failed> {
    check(code == Some(0), || format!("{code:?}: {messages}"))?;
    check(messages.contains("the accounts balance"), || {
        messages.to_owned()
    })
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ignore errors: the agent may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the recorded seconds in the metrics. Fails if the classes do not add up to them.
pub(crate) fn recorded_in_classes(page: &str) -> Result<f64, Failed> {
    let recorded = sum_of(page, "ticktax_recorded_seconds_total");
    let classes = sum_of(page, "ticktax_cpu_seconds_total");
    check((recorded - classes).abs() < 1e-6, || {
        format!("{classes} s in classes, {recorded} s recorded")
    })?;
    Ok(recorded)
}

pub(crate) fn sum_of(page: &str, family: &str) -> f64 {
    let lines = page.lines().filter_map(|line| line.strip_prefix(family));
    let values = lines.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
