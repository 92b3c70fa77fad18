//! Logs incidents either to the systemd journal, with searchable fields, or to syslog, as lines of
//! text.

use std::path::Path;

use syslog::{Facility, Formatter3164, LoggerBackend};
use systemd_journal_logger::JournalLog;
use ticktax_model::incident::IncidentEntry;
use ticktax_report::incident_line;

use crate::failure::Failure;

/// Program name that appears in each log line.
const NAME: &str = "ticktax";

/// The log that incidents are written to.
pub(crate) enum Journal {
    Systemd,
    Syslog(Syslog),
}

/// Connection to a syslog daemon. It can be renewed, because a restarted daemon listens on a new
/// socket at the same path.
pub(crate) struct Syslog {
    connect: Box<dyn Fn() -> syslog::Result<Logger>>,
    logger: Logger,
}

type Logger = syslog::Logger<LoggerBackend, Formatter3164>;

impl Syslog {
    /// Creates a connection with `connect`, which is kept for reconnecting.
    fn at(
        connect: impl Fn(Formatter3164) -> syslog::Result<Logger> + 'static,
    ) -> syslog::Result<Self> {
        let connect = Box::new(move || {
            connect(Formatter3164 {
                facility: Facility::LOG_DAEMON,
                hostname: None,
                process: NAME.to_owned(),
                pid: std::process::id(),
            })
        });
        let logger = connect()?;
        Ok(Self { connect, logger })
    }

    fn send(&mut self, line: &str) -> syslog::Result<()> {
        if self.logger.warning(line).is_ok() {
            return Ok(());
        }
        self.logger = (self.connect)()?;
        self.logger.warning(line)
    }
}

impl Journal {
    pub(crate) fn find() -> Result<Self, Failure> {
        if JournalLog::empty().is_ok() {
            return Ok(Self::Systemd);
        }
        let found = Syslog::at(syslog::unix);
        found.map(Self::Syslog).map_err(|_| {
            Failure::Incidents(
                "neither the systemd journal nor syslog runs on this machine: omit --log"
                    .to_owned(),
            )
        })
    }

    /// Logs an incident. `path` is the incident's recording, if one was kept. Returns an error
    /// message if the incident could not be logged.
    pub(crate) fn write(&mut self, entry: &IncidentEntry, path: Option<&Path>) -> Option<String> {
        let line = incident_line(&entry.incident);
        let fields = fields(entry, path);
        let sent = match self {
            Self::Systemd => JournalLog::empty()
                .map(|journal| journal.with_extra_fields(fields))
                .and_then(|journal| {
                    let journal = journal.with_syslog_identifier(NAME.to_owned());
                    let text = format_args!("{line}");
                    let record = log::Record::builder()
                        .args(text)
                        .level(log::Level::Warn)
                        .target(NAME)
                        .build();
                    journal.journal_send(&record)
                })
                .map_err(|error| error.kind().to_string()),
            Self::Syslog(syslog) => {
                let fields = fields.iter().filter(|(_, value)| !value.contains(' '));
                let fields: Vec<String> = fields
                    .map(|(name, value)| format!("{}={value}", name.to_lowercase()))
                    .collect();
                let sent = syslog.send(&format!("{line} [{}]", fields.join(" ")));
                sent.map_err(|_| "it has stopped listening".to_owned())
            }
        };
        sent.err()
            .map(|why| format!("cannot write to the log: {why}"))
    }
}

/// Returns the fields by which users can search the journal.
fn fields(entry: &IncidentEntry, path: Option<&Path>) -> Vec<(&'static str, String)> {
    let incident = &entry.incident;
    let mut fields = vec![
        ("TICKTAX_INCIDENT", entry.number.to_string()),
        ("TICKTAX_KIND", incident.kind.name().to_owned()),
        ("TICKTAX_AT_UNIX_MS", incident.at_unix_ms.to_string()),
        ("TICKTAX_LASTED_NS", incident.lasted.0.to_string()),
    ];
    if let Some(thread) = &incident.thread {
        fields.push(("TICKTAX_THREAD", thread.name.clone()));
        fields.push(("TICKTAX_PROGRAM", thread.program.clone()));
        fields.push(("TICKTAX_PID", thread.pid.to_string()));
        fields.push(("TICKTAX_TID", thread.tid.to_string()));
    }
    if let Some(cpu) = incident.cpu {
        fields.push(("TICKTAX_CPU", cpu.to_string()));
    }
    let by = incident.signature().culprit;
    if !by.is_empty() {
        fields.push(("TICKTAX_BY", by));
    }
    if let Some(path) = path {
        fields.push(("TICKTAX_RECORDING", path.display().to_string()));
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;

    use ticktax_model::incident::{Incident, IncidentEntry, TriggerKind};
    use ticktax_model::{Cpu, Nanos};

    use super::{Journal, Syslog, fields};

    fn entry() -> IncidentEntry {
        IncidentEntry {
            number: 7,
            recording: None,
            bytes: 0,
            not_kept: None,
            incident: Incident {
                lasted: Nanos(20),
                text: "two words".to_owned(),
                ..Incident::new(TriggerKind::Mark, 1_000)
            },
        }
    }

    #[test]
    fn unknown_values_have_no_field() {
        let mut entry = entry();
        let joined = |entry: &IncidentEntry, path: Option<&Path>| {
            let fields = fields(entry, path).into_iter();
            let fields = fields.map(|(name, value)| format!("{name}={value}"));
            fields.collect::<Vec<_>>().join(" ")
        };
        let always =
            "TICKTAX_INCIDENT=7 TICKTAX_KIND=mark TICKTAX_AT_UNIX_MS=1000 TICKTAX_LASTED_NS=20";
        assert_eq!(joined(&entry, None), always);
        entry.incident.cpu = Some(Cpu(3));
        assert_eq!(
            joined(&entry, Some(Path::new("/x"))),
            format!("{always} TICKTAX_CPU=3 TICKTAX_RECORDING=/x")
        );
    }

    fn line(daemon: &UnixDatagram) -> String {
        let mut bytes = [0; 1024];
        let length = daemon.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn syslog_gets_a_line_with_fields_also_after_a_restart() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let daemon = UnixDatagram::bind(&path).unwrap();
        let socket = path.clone();
        let syslog = Syslog::at(move |formatter| syslog::unix_custom(formatter, &socket)).unwrap();
        let mut journal = Journal::Syslog(syslog);
        assert_eq!(journal.write(&entry(), Some(Path::new("/x"))), None);
        let first = line(&daemon);
        // 28 stands for the facility "daemon" (3) and the severity "warning" (4): 3 · 8 + 4.
        assert!(first.starts_with("<28>"), "{first}");
        let tail = format!(
            " ticktax[{}]: marked: two words [ticktax_incident=7 ticktax_kind=mark \
             ticktax_at_unix_ms=1000 ticktax_lasted_ns=20 ticktax_recording=/x]",
            std::process::id()
        );
        assert!(first.ends_with(&tail), "{first}");
        drop(daemon);
        let trouble = journal.write(&entry(), None);
        let expected = "cannot write to the log: it has stopped listening";
        assert_eq!(trouble.as_deref(), Some(expected));
        std::fs::remove_file(&path).unwrap();
        let daemon = UnixDatagram::bind(&path).unwrap();
        assert_eq!(journal.write(&entry(), None), None);
        assert!(line(&daemon).contains("marked: two words"));
    }
}
