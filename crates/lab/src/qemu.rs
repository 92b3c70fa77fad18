//! Booting a guest, and ending it whatever happens.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use nix::time::{ClockId, clock_gettime};
use ticktax_model::Nanos;
use ticktax_model::kernels::GuestClock;
use ticktax_model::machine::LAB_PARAMETER;
use ticktax_model::recording::RecordingReader;

use crate::error::LabError;
use crate::guest;
use crate::monitor::{self, Monitor};
use crate::sys::end_with_parent;
use crate::wire::{Frame, Reader};

/// The program that makes guests.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The Debian package that it comes in.
const PACKAGE: &str = "qemu-system-x86";
/// How often it is looked after.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a guest's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Each instruction takes 2^shift ns, and nothing else takes any: the same every time.
    Icount {
        /// From 0 to 10.
        shift: u8,
    },
    /// The host's, for a CPU that QEMU translates: slow, and as noisy as the host.
    Tcg,
    /// The host's, on its own CPU.
    Kvm,
}

impl Clock {
    /// As the guest is told, and its readers.
    pub fn word(self) -> String {
        match self {
            Self::Icount { shift } => format!("icount:{shift}"),
            Self::Tcg => "tcg".to_owned(),
            Self::Kvm => "kvm".to_owned(),
        }
    }

    /// What it is made of, for readers of what came of it.
    pub fn facts(self) -> GuestClock {
        match self {
            Self::Icount { shift } => GuestClock::Instructions {
                each: Nanos(1 << shift.min(10)),
            },
            Self::Tcg | Self::Kvm => GuestClock::Host,
        }
    }

    /// QEMU's arguments. A guest under `icount` is the same every time only if nothing in it comes
    /// from outside: no random numbers from the CPU, no time of day.
    fn arguments(self) -> Vec<String> {
        let fixed = |accelerator: &str, cpu: &str| {
            vec![
                "-accel".into(),
                accelerator.into(),
                "-cpu".into(),
                cpu.into(),
            ]
        };
        match self {
            Self::Icount { shift } => {
                let mut all = fixed("tcg,thread=single", "max,-rdrand,-rdseed");
                all.extend(["-icount".into(), format!("shift={shift},sleep=off")]);
                all.extend(["-rtc".into(), "base=2020-01-01,clock=vm".into()]);
                all
            }
            Self::Tcg => fixed("tcg", "max"),
            Self::Kvm => fixed("kvm", "host"),
        }
    }
}

/// A guest to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine<'a> {
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// What it is given.
    pub settings: GuestSettings<'a>,
}

/// What a guest is given, whatever runs in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSettings<'a> {
    /// Parameters for the kernel, beside those that the lab needs.
    pub cmdline: &'a str,
    /// Virtual CPUs, 1 to 64.
    pub cpus: u32,
    /// Memory, in MiB, 64 to 65536.
    pub memory: u32,
    /// What its time is.
    pub clock: Clock,
    /// How long it may take on the host's clock.
    pub limit: Duration,
    /// Whether to count its instructions, for which its time has to be made of them.
    pub count: bool,
}

impl GuestSettings<'_> {
    fn check(&self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Senseless(why.to_owned()));
        if !(1..=64).contains(&self.cpus) {
            return wrong("a guest can have 1 to 64 CPUs");
        }
        if !(64..=65_536).contains(&self.memory) {
            return wrong("a guest can have 64 to 65536 MiB of memory");
        }
        match self.clock {
            Clock::Icount { shift: 11.. } => {
                return wrong("an instruction can take 2^0 to 2^10 ns");
            }
            Clock::Icount { .. } if self.cpus > 1 => {
                return wrong(
                    "a guest under --icount has one CPU: kernels do not get past starting a second \
                     one in such a time; --tcg can have more",
                );
            }
            Clock::Tcg | Clock::Kvm if self.count => {
                return wrong("only the instructions of a guest under --icount can be counted");
            }
            _ => {}
        }
        if self
            .cmdline
            .split_ascii_whitespace()
            .any(|word| word == "--")
        {
            return wrong("`--` cannot be among the kernel's parameters: what follows is init's");
        }
        Ok(())
    }

    /// The kernel's whole command line.
    pub fn whole_cmdline(&self) -> String {
        let ours = "console=ttyS0 quiet panic=-1 nokaslr rdinit=/init";
        let clock = format!("{}={}", LAB_PARAMETER, self.clock.word());
        let theirs = self.cmdline.trim();
        let all = [ours, &clock, theirs, "--", guest::WORD];
        let words: Vec<&str> = all.into_iter().filter(|part| !part.is_empty()).collect();
        words.join(" ")
    }
}

impl Machine<'_> {
    /// QEMU, not started yet. q35 rather than microvm, whose guests lose the TSC.
    fn command(&self, console: &Path, line: &Path) -> Command {
        let settings = &self.settings;
        let mut command = Command::new(PROGRAM);
        command
            .args([
                "-machine",
                "q35",
                "-nodefaults",
                "-display",
                "none",
                "-no-reboot",
            ])
            // A CPU in each package: the table that kernels without ACPI read knows packages alone.
            .args(["-smp", &format!("{0},sockets={0}", settings.cpus)])
            .args(["-m", &settings.memory.to_string()])
            .args(settings.clock.arguments())
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", &settings.whole_cmdline()]);
        for file in [console, line] {
            let mut serial = std::ffi::OsString::from("file:");
            serial.push(file);
            command.arg("-serial").arg(serial);
        }
        if settings.count {
            command.args(monitor::ARGUMENTS);
        }
        command
    }
}

/// How far a guest has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its kernel starts, and settles.
    Boots,
    /// The verb runs.
    Runs,
    /// Results come in: so many bytes so far.
    Sends(usize),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boots => f.write_str("boots"),
            Self::Runs => f.write_str("runs"),
            Self::Sends(bytes) => write!(f, "{bytes} bytes have come"),
        }
    }
}

impl Stage {
    /// What was going on when it was ended, in words.
    fn words(self) -> String {
        match self {
            Self::Boots => "its kernel was booting".to_owned(),
            Self::Runs => "the verb was running".to_owned(),
            Self::Sends(bytes) => format!("{bytes} bytes of results had come"),
        }
    }
}

/// What a guest handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verb's exit code.
    pub exit: i32,
    /// The files that it wrote, its standard output and standard error among them.
    pub files: Vec<Frame>,
    /// The instructions that it executed from its start to its end, where they were counted.
    pub instructions: Option<u64>,
    /// How long it all took on the host's clock.
    pub took: Duration,
}

impl Outcome {
    /// The contents of a file that the guest wrote.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        let found = self.files.iter().find(|file| file.name == name);
        found.map(|file| &*file.contents)
    }

    /// The recording that the verb left behind as [`guest::RECORDING`].
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn recording(&self) -> Result<RecordingReader, LabError> {
        let name = guest::RECORDING;
        let missing = || LabError::NoResult(format!("it wrote no {name}"));
        let bytes = self.file(name).ok_or_else(missing)?;
        Ok(RecordingReader::from_bytes(
            name,
            Bytes::copy_from_slice(bytes),
        )?)
    }

    /// The same, where it ended with 0 or with one of `accepted`.
    pub(crate) fn require(self, accepted: &[u8]) -> Result<Self, LabError> {
        let with_result = |code| code == 0 || accepted.contains(&code);
        if u8::try_from(self.exit).is_ok_and(with_result) {
            return Ok(self);
        }
        let why = self.complaint();
        Err(LabError::NoResult(
            why.trim_start_matches("ticktax: ").to_owned(),
        ))
    }

    /// What the verb complained about, as a line.
    fn complaint(&self) -> String {
        let bytes = self.file(guest::STANDARD_ERROR).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("it did not say why").to_owned()
    }
}

/// Boots a guest and waits for its end. `folder` is for this run alone, and the console's words stay
/// there as `console`. `stop` is asked whether to give up; `tell` hears how far it is.
pub fn boot(
    machine: &Machine<'_>,
    folder: &Path,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Stage),
) -> Result<Outcome, LabError> {
    let settings = &machine.settings;
    settings.check()?;
    let (console, line) = (folder.join("console"), folder.join("line"));
    for file in [&console, &line] {
        File::create(file).map_err(LabError::file("make", file))?;
    }
    let errors = folder.join("qemu");
    let sink = File::create(&errors).map_err(LabError::file("make", &errors))?;
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
    let child = end_with_parent(&mut command)
        .spawn()
        .map_err(|error| LabError::start(PROGRAM, PACKAGE, &error))?;
    let mut running = Running(child);
    let mut monitor = running.monitor()?;
    let mut results = Results::open(&line)?;
    let mut told = None;
    loop {
        // Whoever is counted waits at its end; others go on for a moment after their last word.
        let halted = monitor.as_mut().is_some_and(Monitor::has_halted);
        let ended = running.has_ended()? || halted;
        results.read()?;
        if results.exit.is_some() && (ended || monitor.is_none()) {
            break;
        }
        if ended {
            return Err(no_result(&console, &errors));
        }
        if stop() {
            return Err(LabError::Interrupted);
        }
        let stage = results.stage();
        if told != Some(stage) {
            tell(stage);
            told = Some(stage);
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
        instructions: instructions.transpose().map_err(monitor_failed)?,
        took: since(began),
    })
}

/// A QEMU that ends with its owner.
struct Running(Child);

impl Running {
    fn has_ended(&mut self) -> Result<bool, LabError> {
        let status = self.0.try_wait();
        status
            .map(|status| status.is_some())
            .map_err(|error| LabError::Tool {
                program: PROGRAM.to_owned(),
                why: error.kind().to_string(),
            })
    }

    /// Its monitor, where it was started with one.
    fn monitor(&mut self) -> Result<Option<Monitor>, LabError> {
        let ends = self.0.stdin.take().zip(self.0.stdout.take());
        let begun = ends.map(|(commands, output)| Monitor::begin(commands, output));
        let begun = begun.transpose();
        begun.map_err(|error| monitor_failed(error.kind().to_string()))
    }
}

fn monitor_failed(why: String) -> LabError {
    LabError::Tool {
        program: PROGRAM.to_owned(),
        why,
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either it has ended, or it has nothing left to say.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What has come over the line so far.
struct Results {
    line: File,
    reader: Reader,
    begun: bool,
    files: Vec<Frame>,
    exit: Option<i32>,
}

impl Results {
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
            .map_err(LabError::file("read", Path::new("the guest's line")))?;
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

/// Why QEMU ended without a result: the console knows, or QEMU.
fn no_result(console: &Path, errors: &Path) -> LabError {
    let read = |file: &Path| {
        let bytes = fs::read(file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (console, errors) = (read(console), read(errors));
    if let Some(panic) = panic_of(&console) {
        return LabError::Panic(panic.to_owned());
    }
    let own = console.lines().find(|line| line.contains("ticktax"));
    let last = |text: &str| {
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.map(|line| line.trim().to_owned())
    };
    let why = own
        .map(str::to_owned)
        .or_else(|| last(&errors))
        .or_else(|| last(&console))
        .unwrap_or_else(|| "it said nothing; is the kernel one for x86-64?".to_owned());
    LabError::NoResult(why)
}

/// What a kernel says as it gives up.
fn panic_of(console: &str) -> Option<&str> {
    let (_, rest) = console.split_once("Kernel panic - not syncing: ")?;
    rest.lines().next().map(str::trim)
}

/// The host's clock: for limits, never for measuring a guest.
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
    use crate::error::LabError;

    fn settings(cmdline: &str) -> GuestSettings<'_> {
        GuestSettings {
            cmdline,
            cpus: 1,
            memory: 512,
            clock: Clock::Icount { shift: 2 },
            limit: Duration::from_secs(10),
            count: false,
        }
    }

    #[test]
    fn the_guest_is_told_what_its_time_is() {
        assert_eq!(
            settings(" nohz=off ").whole_cmdline(),
            "console=ttyS0 quiet panic=-1 nokaslr rdinit=/init ticktax.lab=icount:2 nohz=off -- \
             lab-guest"
        );
    }

    #[test]
    fn machines_that_make_no_sense_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |settings: GuestSettings<'_>| {
            let machine = Machine {
                kernel: Path::new("/nonexistent/kernel"),
                initramfs: Path::new("/nonexistent/initramfs"),
                settings,
            };
            let result = boot(&machine, folder.path(), &|| false, &mut |_: Stage| {});
            matches!(result, Err(LabError::Senseless(_)))
        };
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
    fn a_panic_is_found_among_the_consoles_words() {
        let console = "[ 1.0] ok\n[ 2.0] Kernel panic - not syncing: No init found.\r\n[ 2.1] CPU";
        assert_eq!(panic_of(console), Some("No init found."));
        assert_eq!(panic_of("fine"), None);
    }
}
