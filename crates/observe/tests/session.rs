//! Tests a session on this machine, at the highest capability level available: the order of its
//! events, and how it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

use std::io;
use std::process::{Command, Stdio};

use ticktax_model::recording::{EndedEarly, Header, Level, ProbeKind, Row};
use ticktax_model::{Kind, Nanos, Owner};
use ticktax_observe::{Event, ObserveError, Plan, ProbeChoice, Program, Session};

/// Drives a session to its end.
fn finish(session: &mut Session) -> Header {
    loop {
        if let Event::Ended(header) = session.next_event() {
            return *header;
        }
    }
}

#[test]
fn a_session_starts_emits_rows_and_ends() {
    let mut session = Session::start(Plan {
        length: Some(Nanos::from_millis(200)),
        probe: ProbeChoice::Sleep,
        ..Plan::default()
    })
    .unwrap();
    let level = session.started().level;
    assert!(matches!(session.next_event(), Event::Started(_)));
    let (mut gaps, mut looks) = (0, 0);
    let header = loop {
        match session.next_event() {
            Event::Started(_) => panic!("a session starts once"),
            Event::Rows { sources, rows } => {
                assert!(!rows.is_empty());
                let names = rows.iter().map(|row| &sources.get(row.source()).name);
                gaps += names
                    .filter(|name| &***name == ProbeKind::Sleep.name())
                    .count();
            }
            Event::Progress(progress) => {
                assert!(progress.elapsed > Nanos::ZERO);
                looks += 1;
            }
            Event::Ended(header) => break header,
        }
    };
    assert!(gaps > 0, "a probe that is woken every millisecond has gaps");
    assert!(looks >= 2, "{looks}");
    assert_eq!(header.level, level);
    assert_eq!(header.probes.len(), session.started().cpus.len());
    assert!(header.after.at - header.before.at >= Nanos::from_millis(200));
    assert_eq!(header.ended_early, None);
    assert!(header.cost.cpu > Nanos::ZERO);
    let Event::Ended(again) = session.next_event() else {
        panic!("an ended session must stay ended");
    };
    assert_eq!(again, header);
}

#[test]
fn a_session_lasts_as_long_as_its_command() {
    let argv = ["sh", "-c", "exit 3"].map(Into::into).to_vec();
    let mut session = Session::start(Plan {
        program: Some(Program::Command(argv)),
        ..Plan::default()
    })
    .unwrap();
    assert!(session.started().command && session.started().victim_begin.is_some());
    let header = finish(&mut session);
    let command = header.command.unwrap();
    assert_eq!((command.exit, command.argv[0].as_str()), (Some(3), "sh"));
    let victim = header.victim.unwrap();
    assert_eq!(
        (victim.name.as_str(), victim.pid),
        ("sh", Some(command.pid))
    );
    assert_eq!(
        header.ended_early, None,
        "the session was meant to end with its command"
    );
}

#[test]
fn a_signal_is_forwarded_to_the_command() {
    let argv = ["sleep", "3600"].map(Into::into).to_vec();
    let mut session = Session::start(Plan {
        program: Some(Program::Command(argv)),
        ..Plan::default()
    })
    .unwrap();
    session.stop(Some(15));
    let header = finish(&mut session);
    assert_eq!(header.command.unwrap().exit, Some(128 + 15));
    assert_eq!(header.ended_early, Some(EndedEarly::Interrupted));
}

#[test]
fn a_session_ends_with_the_process_it_follows() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let mut session = Session::start(Plan {
        length: Some(Nanos::from_secs(3600)),
        program: Some(Program::Process(pid)),
        thread_usage: true,
        ..Plan::default()
    })
    .unwrap();
    assert_eq!(session.started().process, Some(pid));
    // Up to here, the program was waiting for input. Closing its input makes it exit.
    drop(child.stdin.take());
    let header = finish(&mut session);
    child.wait().unwrap();
    assert_eq!(header.ended_early, Some(EndedEarly::ProgramExited));
    let usages = header.victim.unwrap().threads.unwrap();
    let tids: Vec<i32> = usages.threads.iter().map(|thread| thread.tid).collect();
    assert_eq!(tids, [pid], "{usages:?}");
}

#[test]
fn a_missing_command_is_an_error() {
    let started = Session::start(Plan {
        program: Some(Program::Command(vec!["no-such-command-at-all".into()])),
        ..Plan::default()
    });
    assert!(matches!(
        started.err(),
        Some(ObserveError::Command {
            kind: io::ErrorKind::NotFound,
            ..
        })
    ));
}

#[test]
fn a_plan_that_needs_the_tracer_does_not_start_without_it() {
    let started = Session::start(Plan {
        length: Some(Nanos::from_millis(10)),
        needs: Level::Kernel,
        ..Plan::default()
    });
    match started {
        Ok(session) => assert_eq!(session.started().level, Level::Kernel),
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.starts_with("cannot watch this machine: "),
                "{message}"
            );
        }
    }
}

/// Times at which a CPU switched away from its probe, according to the rows.
#[derive(Default)]
struct ProbeRows {
    until: Option<Nanos>,
    departures: Vec<Nanos>,
}

#[test]
fn the_tracer_reports_no_more_probe_switches_than_the_kernel_counts() {
    let mut session = Session::start(Plan {
        length: Some(Nanos::from_millis(1_500)),
        probe: ProbeChoice::Spin,
        ..Plan::default()
    })
    .unwrap();
    let mut cpus: std::collections::BTreeMap<u32, ProbeRows> = std::collections::BTreeMap::new();
    let header = loop {
        match session.next_event() {
            Event::Rows { sources, rows } => {
                for row in rows.iter().filter(|row| matches!(row, Row::Span(_))) {
                    let source = sources.get(row.source());
                    let cpu = cpus.entry(row.cpu().0).or_default();
                    match (source.kind, source.owner) {
                        (Kind::Task, Owner::Probe) => cpu.until = Some(row.span().end()),
                        (Kind::Task | Kind::Idle, _) => cpu.departures.extend(cpu.until.take()),
                        _ => {}
                    }
                }
            }
            Event::Ended(header) => break header,
            _ => {}
        }
    };
    if header.level == Level::Proc {
        return;
    }
    let witnesses = header.cross_checks.as_ref().unwrap();
    assert_eq!(witnesses.probes.len(), header.probes.len());
    for probe in &header.probes {
        let counted = witnesses.probes[&probe.cpu.0].switches;
        let within = |at: &&Nanos| (probe.begin..=probe.end).contains(*at);
        let departures = &cpus[&probe.cpu.0].departures;
        let reported = departures.iter().filter(within).count() as u64;
        // A switch can occur between reading the counter and reading the clock.
        assert!(
            reported <= counted + 2,
            "CPU {}: {reported} of {counted}",
            probe.cpu
        );
        // If the tracer reported hardly any switches, the check above would prove nothing.
        assert!(
            2 * reported + 10 >= counted,
            "CPU {}: {reported} of {counted}",
            probe.cpu
        );
    }
    let switches = witnesses.switches.unwrap();
    assert!(
        switches.reported <= switches.counted + switches.margin,
        "{switches:?}"
    );
}

/// Two threads that wake each other until this is dropped.
struct PingPong(Option<std::sync::mpsc::Sender<()>>);

impl PingPong {
    fn start() -> Self {
        let (first, second) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let (stop, stopped) = std::sync::mpsc::channel();
        std::thread::spawn(
            move || {
                while first.1.recv().is_ok() && second.0.send(()).is_ok() {}
            },
        );
        std::thread::spawn(move || {
            let is_over = || stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
            while !is_over() && first.0.send(()).is_ok() && second.1.recv().is_ok() {}
        });
        Self(Some(stop))
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

#[test]
fn a_reader_that_never_catches_up_notices_that_its_command_has_exited() {
    let _events = PingPong::start();
    let argv = ["sleep", "0.1"].map(Into::into).to_vec();
    let mut session = Session::start(Plan {
        program: Some(Program::Command(argv)),
        ..Plan::default()
    })
    .unwrap();
    loop {
        match session.next_event() {
            Event::Rows { rows, .. } => {
                // The threads produce events faster than this.
                let rows = u32::try_from(rows.len()).unwrap();
                std::thread::sleep(std::time::Duration::from_micros(100) * rows);
            }
            Event::Progress(progress) => {
                assert!(progress.elapsed < Nanos::from_secs(60), "it does not end");
            }
            Event::Started(_) => {}
            Event::Ended(_) => break,
        }
    }
}
