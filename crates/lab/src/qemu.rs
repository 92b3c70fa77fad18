//! Boots a guest and always terminates it.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::arch::Arch;
use crate::error::LabError;
use crate::guest;
pub use crate::machine::{Clock, Disk, GuestSettings, Machine};
use crate::monitor::{Monitor, MonitorError};
pub use crate::outcome::{Outcome, Stage};
use crate::sys::end_with_parent;
use crate::wire::{Frame, Reader};

/// Interval at which a running guest is polled.
const INTERVAL: Duration = Duration::from_millis(20);

/// Boots a guest and waits until it has sent its results. While it runs, no other guest may use the
/// directory `folder`. The console output stays there, in the file `console`. `stop` returns `true`
/// to cancel the guest, and `tell` receives its progress.
///
/// # Errors
/// Returns an error if the settings are invalid, if QEMU is missing or fails, or if the guest
/// panics, exceeds its time limit or is cancelled.
pub fn boot(
    machine: &Machine<'_>,
    folder: &Path,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Stage),
) -> Result<Outcome, LabError> {
    let settings = &machine.settings;
    settings.check(machine.arch)?;
    let (console, line) = (folder.join("console"), folder.join("line"));
    for file in [&console, &line] {
        File::create(file).map_err(LabError::file("create", file))?;
    }
    let errors = folder.join("qemu");
    let sink = File::create(&errors).map_err(LabError::file("create", &errors))?;
    let began = now();
    let mut command = machine.command(&console, &line);
    let ends = || {
        if settings.count {
            Stdio::piped()
        } else {
            Stdio::null()
        }
    };
    command.stdin(ends()).stdout(ends()).stderr(sink);
    let child = end_with_parent(&mut command).spawn().map_err(|error| {
        LabError::start(machine.arch.qemu(), machine.arch.qemu_package(), &error)
    })?;
    let mut running = Running(child, machine.arch);
    let mut monitor = running.monitor()?;
    let mut results = GuestResults::open(&line)?;
    let mut reported = None;
    loop {
        // If instructions are counted, wait until the guest halts after its last frame. Any other
        // guest can be killed as soon as it has sent that frame.
        let halted = monitor.as_mut().is_some_and(Monitor::has_halted);
        let ended = running.has_ended()? || halted;
        results.read()?;
        if results.exit.is_some() && (ended || monitor.is_none()) {
            break;
        }
        if ended {
            return Err(no_result(machine.arch, &console, &errors));
        }
        if stop() {
            return Err(LabError::Interrupted);
        }
        let stage = results.stage();
        if reported != Some(stage) {
            tell(stage);
            reported = Some(stage);
        }
        if since(began) > settings.limit {
            return Err(LabError::Hang {
                limit: settings.limit,
                doing: stage.words(),
            });
        }
        thread::sleep(INTERVAL);
    }
    let instructions = monitor.map(|mut monitor| monitor.instructions());
    Ok(Outcome {
        exit: results.exit.unwrap_or(-1),
        files: results.files,
        instructions: instructions
            .transpose()
            .map_err(|why| monitor_failed(machine.arch, &why))?,
        took: since(began),
    })
}

/// A QEMU process. Dropping this kills it.
struct Running(Child, Arch);

impl Running {
    fn has_ended(&mut self) -> Result<bool, LabError> {
        let status = self.0.try_wait();
        status
            .map(|status| status.is_some())
            .map_err(|error| LabError::Tool {
                program: self.1.qemu().to_owned(),
                why: error.kind().to_string(),
            })
    }

    /// Connects to the QEMU monitor. Returns `None` if QEMU was started without one.
    fn monitor(&mut self) -> Result<Option<Monitor>, LabError> {
        let ends = self.0.stdin.take().zip(self.0.stdout.take());
        let begun = ends.map(|(commands, output)| Monitor::begin(commands, output));
        let begun = begun.transpose();
        begun.map_err(|why| monitor_failed(self.1, &why))
    }
}

fn monitor_failed(arch: Arch, why: &MonitorError) -> LabError {
    LabError::Tool {
        program: arch.qemu().to_owned(),
        why: why.to_string(),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is always safe to kill QEMU: either it has already exited, or its work is done.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Results received over the serial line so far.
struct GuestResults {
    line: File,
    reader: Reader,
    begun: bool,
    files: Vec<Frame>,
    exit: Option<i32>,
}

impl GuestResults {
    fn open(line: &Path) -> Result<Self, LabError> {
        Ok(Self {
            line: File::open(line).map_err(LabError::file("read", line))?,
            reader: Reader::default(),
            begun: false,
            files: Vec::new(),
            exit: None,
        })
    }

    fn read(&mut self) -> Result<(), LabError> {
        let mut bytes = Vec::new();
        self.line
            .read_to_end(&mut bytes)
            .map_err(LabError::file("read", Path::new("the guest's serial line")))?;
        self.reader.add(&bytes);
        while let Some(frame) = self.reader.next_frame()? {
            match frame.name.as_str() {
                guest::BEGIN => self.begun = true,
                guest::EXIT => {
                    let code = String::from_utf8_lossy(&frame.contents).parse();
                    self.exit = Some(code.unwrap_or(-1));
                }
                _ => self.files.push(frame),
            }
        }
        Ok(())
    }

    fn stage(&self) -> Stage {
        let sent = self.files.iter().map(|file| file.contents.len());
        match sent.sum::<usize>() + self.reader.waiting() {
            0 if self.begun => Stage::Runs,
            0 => Stage::Boots,
            bytes => Stage::Sends(bytes),
        }
    }
}

/// Explains why QEMU exited before the guest sent a result, from the console output and QEMU's own
/// messages.
fn no_result(arch: Arch, console: &Path, errors: &Path) -> LabError {
    let read = |file: &Path| {
        let bytes = fs::read(file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (console, errors) = (read(console), read(errors));
    if let Some(panic) = panic_of(&console) {
        return LabError::Panic(panic.to_owned());
    }
    let from_ticktax = console.lines().find(|line| line.contains("ticktax"));
    let last = |text: &str| {
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.map(|line| line.trim().to_owned())
    };
    let why = from_ticktax
        .map(str::to_owned)
        .or_else(|| last(&errors))
        .or_else(|| last(&console))
        .unwrap_or_else(|| format!("it printed nothing; check that the kernel is for {arch}"));
    LabError::NoResult(why)
}

fn panic_of(console: &str) -> Option<&str> {
    let (_, rest) = console.split_once("Kernel panic - not syncing: ")?;
    rest.lines().next().map(str::trim)
}

/// Returns the host's monotonic time, which serves only to enforce limits and never to measure a
/// guest.
fn now() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(Duration::ZERO, Duration::from)
}

fn since(then: Duration) -> Duration {
    now().saturating_sub(then)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::{Clock, GuestSettings, Machine, Stage, boot, panic_of};
    use crate::arch::Arch;
    use crate::error::LabError;

    fn settings(cmdline: &str) -> GuestSettings<'_> {
        GuestSettings {
            cmdline,
            cpus: 1,
            memory: 512,
            clock: Clock::Icount { shift: 2 },
            limit: Duration::from_secs(10),
            count: false,
            debugger: None,
            disk: None,
        }
    }

    #[test]
    fn the_guests_command_line_contains_its_clock() {
        assert_eq!(
            settings(" nohz=off ").whole_cmdline(Arch::X86),
            "console=ttyS0 quiet panic=-1 nokaslr cryptomgr.notests rdinit=/init \
             ticktax.lab=icount:2 nohz=off -- lab-guest"
        );
        let arm = settings("").whole_cmdline(Arch::Arm);
        assert!(arm.starts_with("console=ttyAMA0 "), "{arm}");
    }

    #[test]
    fn impossible_machines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let on = |arch: Arch, settings: GuestSettings<'_>| {
            let machine = Machine {
                arch,
                kernel: Path::new("/nonexistent/kernel"),
                pages_of_16k: false,
                initramfs: Path::new("/nonexistent/initramfs"),
                settings,
            };
            let result = boot(&machine, folder.path(), &|| false, &mut |_: Stage| {});
            matches!(result, Err(LabError::Senseless(_)))
        };
        let refused = |settings: GuestSettings<'_>| on(Arch::HOST, settings);
        let foreign = Arch::ALL
            .into_iter()
            .find(|&arch| arch != Arch::HOST)
            .unwrap();
        let own_cpu = GuestSettings {
            clock: Clock::Kvm,
            ..settings("")
        };
        assert!(on(foreign, own_cpu));
        assert!(refused(settings("a -- b")));
        assert!(refused(GuestSettings {
            cpus: 0,
            ..settings("")
        }));
        assert!(refused(GuestSettings {
            memory: 1,
            ..settings("")
        }));
        assert!(refused(GuestSettings {
            cpus: 2,
            ..settings("")
        }));
        assert!(refused(GuestSettings {
            clock: Clock::Tcg,
            count: true,
            ..settings("")
        }));
        let slow = Clock::Icount { shift: 11 };
        assert!(refused(GuestSettings {
            clock: slow,
            ..settings("")
        }));
    }

    #[test]
    fn a_panic_is_found_in_the_consoles_output() {
        let console = "[ 1.0] ok\n[ 2.0] Kernel panic - not syncing: No init found.\r\n[ 2.1] CPU";
        assert_eq!(panic_of(console), Some("No init found."));
        assert_eq!(panic_of("fine"), None);
    }
}
