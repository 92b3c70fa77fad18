//! Starts a recorder for the tests, and a thread that the tests delay.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gettid};
use ticktax_model::Cpu;

pub(super) use crate::checks::incidents::{incidents, triggers_of};
use crate::fixture::{check, ticktax};

/// A real-time thread that needs its CPU every millisecond, and that only the injector can delay.
/// The thread ends when this is dropped.
pub(super) struct Victim {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Victim {
    pub(super) const NAME: &str = "ttx-victim";

    pub(super) fn start(cpu: Cpu) -> Result<Self, Failed> {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(Self::NAME.to_owned());
        let thread = thread.spawn(move || {
            let _ = sender.send(gettid());
            while !until.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        })?;
        let victim = Self {
            ended,
            thread: Some(thread),
        };
        let tid = receiver.recv()?;
        let mut only = CpuSet::new();
        only.set(cpu.index())?;
        sched_setaffinity(tid, &only)?;
        let status = Command::new("chrt")
            .args(["-f", "-p", "10", &tid.to_string()])
            .status()?;
        check(status.success(), || format!("chrt: {status}"))?;
        Ok(victim)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A running recorder, which is killed when this is dropped.
pub(super) struct Recorder {
    pub(super) child: Child,
    folder: PathBuf,
}

impl Recorder {
    /// Starts a recorder, and waits until it records events.
    pub(super) fn start(folder: &Path, trigger: &str) -> Result<Self, Failed> {
        let mut child = ticktax(&["record", "--trigger", trigger, "--dir"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let complaints = child.stderr.take().ok_or("no standard error")?;
        let mut complaints = BufReader::new(complaints);
        let mut line = String::new();
        complaints.read_line(&mut line)?;
        // Keep standard error open, so that the recorder's last messages can be read.
        child.stderr = Some(complaints.into_inner());
        let recorder = Self {
            child,
            folder: folder.to_owned(),
        };
        check(line.starts_with("Recording CPU"), || line.clone())?;
        Ok(recorder)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failed> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(kill(pid, signal)?)
    }

    pub(super) fn mark(&self, words: &str) -> Result<(), Failed> {
        let output = ticktax(&["mark", words, "--dir"])
            .arg(&self.folder)
            .output()?;
        check(output.status.success(), || {
            String::from_utf8_lossy(&output.stderr).into_owned()
        })
    }

    pub(super) fn line(&mut self) -> Result<String, Failed> {
        let out = self.child.stdout.as_mut().ok_or("no standard output")?;
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte)? == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    /// Waits until the recorder prints a message with these words to standard error. Fails if the
    /// recorder prints nothing for a minute.
    pub(super) fn remark(&mut self, words: &str) -> Result<String, Failed> {
        let error = self.child.stderr.as_mut().ok_or("no standard error")?;
        let mut bytes = Vec::new();
        loop {
            let mut waited = [PollFd::new(error.as_fd(), PollFlags::POLLIN)];
            let mut byte = [0];
            if poll(&mut waited, 60_000_u16)? == 0 || error.read(&mut byte)? == 0 {
                let text = String::from_utf8_lossy(&bytes);
                return Err(format!("nothing of `{words}`: {text}").into());
            }
            bytes.push(byte[0]);
            let line = String::from_utf8_lossy(&bytes);
            let line = line.rsplit_terminator('\n').next().unwrap_or_default();
            if byte[0] == b'\n' && line.contains(words) {
                return Ok(line.to_owned());
            }
        }
    }

    /// Stops the recorder in the way that a service manager does. Returns the rest of its output.
    pub(super) fn end(mut self) -> Result<String, Failed> {
        self.signal(Signal::SIGTERM)?;
        let mut output = String::new();
        for stream in [
            self.child
                .stdout
                .take()
                .map(|stream| Box::new(stream) as Box<dyn Read>),
            self.child
                .stderr
                .take()
                .map(|stream| Box::new(stream) as Box<dyn Read>),
        ] {
            stream.ok_or("no stream")?.read_to_string(&mut output)?;
        }
        let status = self.child.wait()?;
        check(status.success(), || format!("{status}: {output}"))?;
        Ok(output)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Ignore errors: the recorder may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
