//! Counts the kernel messages that are printed to serial consoles.
//!
//! A message is printed on the CPU that logged it, or on one that happens to hold the consoles.
//! That CPU waits until the line has taken every byte, usually with interrupts disabled. At 9,600
//! bit/s, a message of 80 characters takes 100 ms.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use ticktax_model::machine::{ConsoleOutput, SerialConsole};

use super::Proc;

const LOG: &str = "dev/kmsg";

/// Maximum number of bytes to read, several times the size of the largest default buffer.
const MAX: usize = 8 << 20;

/// Length of the time stamp before each message, plus that of the line ending.
const PER_MESSAGE: usize = "[12345.123456] ".len() + "\r\n".len();

/// Prefixes of the names of serial devices.
const SERIAL: [&str; 6] = ["ttyS", "ttyAMA", "ttyLP", "ttyPS", "ttySC", "ttyUSB"];

/// Counts the messages printed since it was created.
#[derive(Debug)]
pub struct ConsoleWatch {
    /// The kernel's log. The next read returns the first message after the watch was created.
    log: File,
    consoles: Vec<SerialConsole>,
}

impl ConsoleWatch {
    /// Starts counting. Returns `None` if the kernel does not print to a serial line, or if its log
    /// cannot be read.
    pub fn new(proc: &Proc) -> Option<Self> {
        let cmdline = proc.text("proc/cmdline").unwrap_or_default();
        let consoles = consoles(&proc.text("proc/consoles")?, &cmdline);
        if consoles.is_empty() {
            return None;
        }
        // Without `O_NONBLOCK`, a read at the end of the log would wait for the next message.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(proc.root.join(LOG));
        let mut log = opened.ok()?;
        log.seek(SeekFrom::End(0)).ok()?;
        Some(Self { log, consoles })
    }

    /// Returns the messages printed since the watch was created.
    pub fn finish(mut self, proc: &Proc) -> Option<ConsoleOutput> {
        let printk = proc.text("proc/sys/kernel/printk")?;
        let level: u8 = printk.split_ascii_whitespace().next()?.parse().ok()?;
        let (log, is_complete) = self.messages();
        let (messages, bytes) = printed(&String::from_utf8_lossy(&log), level);
        Some(ConsoleOutput {
            consoles: self.consoles,
            level,
            messages,
            bytes,
            is_incomplete: !is_complete,
        })
    }

    /// Reads the log. Also returns whether it still contains all messages.
    fn messages(&mut self) -> (Vec<u8>, bool) {
        let mut log = Vec::new();
        let mut is_complete = true;
        // Each read returns a single record of at most 8 KiB.
        let mut record = [0; 8192];
        while log.len() < MAX {
            match self.log.read(&mut record) {
                Ok(0) => return (log, is_complete),
                Ok(length) => log.extend_from_slice(&record[..length]),
                // The kernel has overwritten the record.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => is_complete = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return (log, is_complete),
                Err(_) => return (log, false),
            }
        }
        (log, false)
    }
}

/// Returns the serial lines in `/proc/consoles` that messages are printed to.
fn consoles(text: &str, cmdline: &str) -> Vec<SerialConsole> {
    let console = |line: &str| {
        let name = line.split_ascii_whitespace().next()?;
        let flags = line.split(['(', ')']).nth(1)?;
        let is_serial = SERIAL.iter().any(|kind| name.starts_with(kind));
        (is_serial && flags.contains('E')).then(|| SerialConsole {
            name: name.to_owned(),
            bits_per_s: speed(cmdline, name),
        })
    };
    text.lines().filter_map(console).collect()
}

/// Returns the speed from a boot parameter such as `console=ttyS0,115200n8`.
fn speed(cmdline: &str, name: &str) -> Option<u32> {
    let mut words = cmdline.split_ascii_whitespace();
    let options = words.find_map(|word| {
        let console = word.strip_prefix("console=")?;
        console.strip_prefix(name)?.strip_prefix(',')
    })?;
    let end = options.find(|c: char| !c.is_ascii_digit());
    options[..end.unwrap_or(options.len())].parse().ok()
}

/// Returns how many messages in the log have a level below `level`, and their total length.
fn printed(log: &str, level: u8) -> (u64, u64) {
    let length = |line: &str| {
        let (head, message) = line.split_once(';')?;
        let priority: u32 = head.split(',').next()?.parse().ok()?;
        // The facility is stored above the lowest three bits.
        ((priority & 7) < u32::from(level)).then_some(message.len() + PER_MESSAGE)
    };
    // A message's properties follow on lines that start with a space. These are not printed.
    let lines = log.lines().filter(|line| !line.starts_with(' '));
    let lengths = lines.filter_map(length);
    lengths.fold((0, 0), |(count, bytes), length| {
        (count + 1, bytes + length as u64)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::path::Path;

    use super::{ConsoleWatch, PER_MESSAGE};
    use crate::Proc;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns a machine that prints to `/dev/ttyS0` and to a screen.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let consoles = "tty0   -WU (EC  p  )    4:1\nttyS0  -W- (E   p a)    4:64\n";
        write(root.path(), "proc/consoles", consoles);
        write(
            root.path(),
            "proc/cmdline",
            "quiet console=ttyS0,9600n8 console=tty0\n",
        );
        write(root.path(), "proc/sys/kernel/printk", "4\t4\t1\t7\n");
        write(root.path(), "dev/kmsg", "3,0,5,-;before the start\n");
        root
    }

    #[test]
    fn only_new_messages_of_a_printed_level_count() {
        let root = machine();
        let proc = Proc::at(root.path());
        let watch = ConsoleWatch::new(&proc).unwrap();
        let log = root.path().join("dev/kmsg");
        let mut log = OpenOptions::new().append(true).open(log).unwrap();
        // The second message is informational, and the third comes from a program.
        let new =
            "3,1,9,-;disk error\n SUBSYSTEM=block\n6,2,9,-;loaded\n10,3,9,-;hello\nnonsense\n";
        log.write_all(new.as_bytes()).unwrap();
        let output = watch.finish(&proc).unwrap();
        assert_eq!((output.messages, output.level), (2, 4));
        let text = "disk errorhello".len() + 2 * PER_MESSAGE;
        assert_eq!(output.bytes, text as u64);
        assert!(!output.is_incomplete);
        let [line] = &*output.consoles else {
            panic!("{output:?}");
        };
        assert_eq!((&*line.name, line.bits_per_s), ("ttyS0", Some(9_600)));
        let time = output.time().unwrap().as_secs_f64();
        assert!((time - text as f64 * 10.0 / 9_600.0).abs() < 1e-6, "{time}");
    }

    #[test]
    fn a_speed_that_no_parameter_sets_is_unknown() {
        for (cmdline, speed) in [
            ("console=ttyS0", None),
            ("console=ttyS00,9600", None),
            ("console=ttyS0,fast", None),
            ("console=ttyS0,115200", Some(115_200)),
        ] {
            assert_eq!(super::speed(cmdline, "ttyS0"), speed, "{cmdline}");
        }
    }

    #[test]
    fn a_machine_without_a_serial_console_or_log_is_not_watched() {
        let root = machine();
        fs::remove_file(root.path().join("dev/kmsg")).unwrap();
        assert!(ConsoleWatch::new(&Proc::at(root.path())).is_none());
        let root = machine();
        write(root.path(), "proc/consoles", "tty0 -WU (EC  p  ) 4:1\n");
        assert!(ConsoleWatch::new(&Proc::at(root.path())).is_none());
        write(root.path(), "proc/consoles", "ttyS0 -W- (    p a) 4:64\n");
        assert!(ConsoleWatch::new(&Proc::at(root.path())).is_none());
    }
}
