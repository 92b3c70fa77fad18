//! Reads kernel messages about boot parameters and clocks from `/dev/kmsg`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use ticktax_model::configured::KernelLog;
use ticktax_model::limitation::Unreadable;

use super::reading::Reading;

const LOG: &str = "dev/kmsg";

/// Maximum number of bytes to read, several times the size of the largest default buffer.
const MAX: usize = 8 << 20;

const MAX_MESSAGES: usize = 8;

pub(super) fn read(reading: &mut Reading) -> Option<KernelLog> {
    let path = reading.path(LOG);
    // Without `O_NONBLOCK`, a read at the end of the log would wait for the next message.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                reading.missed(LOG, Unreadable::NeedsSyslog);
            }
            return None;
        }
    };
    let mut log = Vec::new();
    // Each read returns a single record of at most 8 KiB.
    let mut record = [0; 8192];
    while log.len() < MAX {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => log.extend_from_slice(&record[..length]),
            // The kernel has overwritten the record, or a signal interrupted the read.
            Err(error)
                if error.kind() == ErrorKind::Interrupted
                    || error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => {
                reading.missed(LOG, Unreadable::NeedsSyslog);
                return None;
            }
        }
    }
    Some(parse(&String::from_utf8_lossy(&log)))
}

fn parse(log: &str) -> KernelLog {
    let mut facts = KernelLog::default();
    for (place, line) in log.lines().enumerate() {
        let Some((head, message)) = line.split_once(';') else {
            continue;
        };
        let mut head = head.split(',');
        let (priority, number) = (head.next(), head.next());
        // Programs can write to the log too. The kernel's own messages have facility 0, and theirs
        // have a different one. The facility is stored above the lowest three bits.
        let by_kernel = priority
            .and_then(|text| text.parse::<u32>().ok())
            .is_some_and(|p| p < 8);
        if !by_kernel {
            continue;
        }
        facts.complete |= place == 0 && number == Some("0");
        if let Some(rest) = message.strip_prefix("Unknown kernel command line parameters \"") {
            let names = rest.split('"').next().unwrap_or_default();
            facts
                .unknown_parameters
                .extend(names.split_ascii_whitespace().map(str::to_owned));
        }
        if is_about_a_clock(message) && facts.clock.len() < MAX_MESSAGES {
            facts.clock.push(message.to_owned());
        }
    }
    facts
}

fn is_about_a_clock(message: &str) -> bool {
    const SIGNS: [&str; 4] = [
        "Marking TSC unstable",
        "TSC found unstable",
        "as unstable because the skew is too large",
        "Override clocksource",
    ];
    SIGNS.iter().any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn messages_from_programs_are_ignored() {
        let log = "5,0,0,-;Linux version 6.1\n\
                   5,1,0,-;Unknown kernel command line parameters \"divider=10 foo\", will be passed to user space.\n \
                   SUBSYSTEM=x\n\
                   12,2,9,-;Unknown kernel command line parameters \"forged\", will be passed to user space.\n\
                   4,3,9,-;tsc: Marking TSC unstable due to clocksource watchdog\n";
        let facts = parse(log);
        assert!(facts.complete);
        assert_eq!(facts.unknown_parameters, ["divider=10", "foo"]);
        assert_eq!(facts.clock.len(), 1);
        assert!(!parse("5,70,0,-;x\n").complete);
        assert_eq!(parse("\u{fffd};;;,,\n;"), super::KernelLog::default());
    }
}
