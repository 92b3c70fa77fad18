//! An agent that runs, and what is asked of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fixture::check;

/// How often something is looked for before it is missing, each time a tenth of a second: no test waits
/// for it where all is well, and a busy machine is given time.
const LOOKS: usize = 6_000;

/// Has an agent serve metrics, on a port that is free.
pub(crate) const SERVING: [&str; 2] = ["--listen", "127.0.0.1:0"];
/// The same, by the user that has nothing.
pub(crate) const AS_NOBODY: [&str; 4] = ["--listen", "127.0.0.1:0", "--user", "nobody"];

/// A running agent. Dropping it ends it.
pub(crate) struct Agent {
    child: Child,
    said: BufReader<ChildStderr>,
    /// What it has said so far.
    lines: String,
}

impl Agent {
    /// Starts the command under test with these arguments, and waits until it watches.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Failed> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax"));
        command.arg("agent");
        Self::run(command, arguments)
    }

    /// The same of an agent that is started in another way. One that serves metrics has said where once
    /// this returns.
    pub(crate) fn run(mut command: Command, arguments: &[&str]) -> Result<Self, Failed> {
        let serves = !arguments.contains(&"none");
        // So that no test waits for ten seconds.
        let command = command.args(["--every", "1s"]).args(arguments);
        let command = command.stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let said = child.stderr.take().map(BufReader::new);
        let mut agent = Self {
            child,
            said: said.ok_or("its errors are not piped")?,
            lines: String::new(),
        };
        while serves && !agent.lines.contains("metrics on ") {
            let read = agent.said.read_line(&mut agent.lines)?;
            check(read > 0, || format!("it ended: {}", agent.lines))?;
        }
        Ok(agent)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its address and port.
    pub(crate) fn address(&self) -> Result<String, Failed> {
        let url = self.lines.split("metrics on http://").nth(1);
        let address = url.and_then(|url| url.split('/').next());
        Ok(address.ok_or_else(|| self.lines.clone())?.to_owned())
    }

    /// The page that a scraper gets.
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

    /// The page once it has such a series.
    pub(crate) fn page_when(&mut self, series: &str) -> Result<String, Failed> {
        self.page_that(|page| page.lines().any(|line| line.starts_with(series)))
    }

    /// The page once it is another one.
    pub(crate) fn page_when_it_changes(&mut self, before: &str) -> Result<String, Failed> {
        self.page_that(|page| page != before)
    }

    /// The page once it is as wanted.
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

    /// Stops it as a service is stopped; how it ended, and everything that it said.
    pub(crate) fn stop(mut self) -> Result<(Option<i32>, String), Failed> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?);
        kill(pid, Signal::SIGTERM)?;
        self.end()
    }

    /// Stops it, which has to go well.
    pub(crate) fn stops_with_balanced_books(self) -> Result<(), Failed> {
        let (code, said) = self.stop()?;
        went_well(code, &said)
    }

    /// Waits for its end, which has to be a good one, and gives what it said.
    pub(crate) fn ends_with_balanced_books(mut self) -> Result<String, Failed> {
        let (code, said) = self.end()?;
        went_well(code, &said)?;
        Ok(said)
    }

    /// Ends it by force.
    pub(crate) fn kill(mut self) -> Result<(), Failed> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn end(&mut self) -> Result<(Option<i32>, String), Failed> {
        self.said.read_to_string(&mut self.lines)?;
        let status = self.child.wait()?;
        Ok((status.code(), std::mem::take(&mut self.lines)))
    }
}

fn went_well(code: Option<i32>, said: &str) -> Result<(), Failed> {
    check(code == Some(0), || format!("{code:?}: {said}"))?;
    check(said.contains("the books balance"), || said.to_owned())
}

impl Drop for Agent {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The seconds that were recorded, which a page's classes must add up to.
pub(crate) fn recorded_in_classes(page: &str) -> Result<f64, Failed> {
    let recorded = sum_of(page, "ticktax_recorded_seconds_total");
    let classes = sum_of(page, "ticktax_cpu_seconds_total");
    check((recorded - classes).abs() < 1e-6, || {
        format!("{classes} s in classes, {recorded} s recorded")
    })?;
    Ok(recorded)
}

/// The sum of a family's values on a page.
pub(crate) fn sum_of(page: &str, family: &str) -> f64 {
    let lines = page.lines().filter_map(|line| line.strip_prefix(family));
    let values = lines.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
