use std::collections::BTreeSet;
use std::fmt::Write;

use ticktax_model::hook::Hook;
use ticktax_model::limitation::{
    FunctionsUnnamed, GroupChangesUnseen, GroupsUnnamed, HookMissing, ImportLimit, Limitation,
    NoGaps, NoLateTimers, Unreadable,
};
use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
use ticktax_model::{Cpu, CpuList, Nanos};

use super::words;

fn cpus(list: &str) -> CpuList {
    list.parse().unwrap()
}

fn unread(reason: Unreadable) -> Limitation {
    Limitation::SettingsUnread {
        paths: vec!["/etc/fstab".to_owned(), "/etc/sysctl.conf".to_owned()],
        paths_left_out: 3,
        reason,
    }
}

fn unnamed(groups: u64, reason: GroupsUnnamed) -> Limitation {
    Limitation::GroupsUnnamed { groups, reason }
}

fn functions(
    samples: u64,
    files: &[&str],
    files_left_out: u64,
    reason: FunctionsUnnamed,
) -> Limitation {
    Limitation::FunctionsUnnamed {
        samples,
        files: files.iter().map(|&file| file.to_owned()).collect(),
        files_left_out,
        reason,
    }
}

/// Returns limitations that come from the machine, the kernel or the caller's rights.
#[expect(clippy::too_many_lines, reason = "a list of all of them")]
fn machine_limitations() -> Vec<Limitation> {
    let message = || "Operation not permitted".to_owned();
    // Only these hooks need a kernel function. The others need tracepoints.
    let by_function = |hook: Hook| match hook {
        Hook::PageFault | Hook::PageFaultUser => {
            Some(HookMissing::NoFunction("handle_mm_fault".to_owned()))
        }
        Hook::FreezeTask => Some(HookMissing::FunctionNotPermitted("freeze_task".to_owned())),
        _ => None,
    };
    let reasons = [
        HookMissing::Excluded,
        HookMissing::NoTracepoint,
        HookMissing::Refused(message()),
    ];
    let hooks = Hook::ALL.iter().zip(reasons.iter().cycle());
    let mut all = vec![Limitation::KernelNotTraced {
        message: message(),
        needs_root: false,
    }];
    all.extend(hooks.map(|(&hook, reason)| Limitation::HookMissing {
        hook,
        reason: by_function(hook).unwrap_or_else(|| reason.clone()),
    }));
    all.extend([
        Limitation::LengthDiffers {
            requested: Nanos::from_millis(10),
            watched: Nanos::from_millis(31),
        },
        Limitation::EndedAtMemoryLimit {
            limit_bytes: 96 << 20,
        },
        Limitation::RingTooShort {
            requested: Nanos::from_secs(2),
            reached: Nanos::from_millis(700),
        },
        Limitation::WindowCutShort {
            requested: Nanos::from_secs(4),
            kept: Nanos::from_millis(3_200),
        },
    ]);
    all.extend(unseen_groups());
    all.extend([
        Limitation::FunctionNamesHidden,
        Limitation::SystemCallsUnwatched {
            calls_per_s: 412_000,
        },
        Limitation::GuestsNotTraced { machines: 2 },
        Limitation::GuestsNeedRights { machines: 2 },
        Limitation::VcpusNotCounted { events: 41_000 },
        Limitation::NotVerified,
    ]);
    all.extend(unread_settings());
    all.extend([
        Limitation::CpusWentOffline { cpus: cpus("2") },
        Limitation::CpusPluggedIn { cpus: cpus("3") },
        Limitation::AccountsBeganLate { cpus: cpus("1-3") },
        Limitation::CpusNotWatched { cpus: cpus("0,2") },
        Limitation::PriorityRefused {
            reason: "Operation not permitted".to_owned(),
        },
        Limitation::CpusNotProbed { cpus: cpus("1") },
        Limitation::ProbePolicyRefused {
            cpu: Cpu(1),
            policy: PolicyGrant {
                requested: SchedulingPolicy::Fifo(50),
                granted: SchedulingPolicy::Other,
                refusal: Some("Operation not permitted".to_owned()),
            },
        },
        Limitation::HypervisorTimeNotSeparated {
            reason: NoGaps::NoProbe,
        },
        Limitation::HypervisorTimeNotSeparated {
            reason: NoGaps::Soaker,
        },
        Limitation::LateTimersNotSeen {
            reason: NoLateTimers::Sums,
        },
        Limitation::LateTimersNotSeen {
            reason: NoLateTimers::NoTick,
        },
        Limitation::ProgramNotFollowed,
        Limitation::CountersUnread { cpus: cpus("0-3") },
        Limitation::PartOfRecording {
            from: Nanos::from_secs(12),
            to: Nanos::from_secs(14),
        },
    ]);
    all
}

/// Returns limitations about control groups.
fn unseen_groups() -> [Limitation; 8] {
    let refused = "Operation not permitted".to_owned();
    [
        unnamed(1, GroupsUnnamed::NoState),
        unnamed(2, GroupsUnnamed::UnknownFormat),
        unnamed(3, GroupsUnnamed::Denied),
        Limitation::GroupChangesUnseen {
            reason: GroupChangesUnseen::Namespace,
        },
        Limitation::GroupChangesUnseen {
            reason: GroupChangesUnseen::Refused { message: refused },
        },
        Limitation::GroupChangesUnseen {
            reason: GroupChangesUnseen::TooMany { changes: 17 },
        },
        Limitation::GroupsChanged {
            processes: 1,
            threads: 0,
        },
        Limitation::GroupsChanged {
            processes: 4,
            threads: 2,
        },
    ]
}

/// Returns limitations for settings that could not be read.
fn unread_settings() -> [Limitation; 7] {
    [
        Unreadable::NeedsRoot,
        Unreadable::NeedsSyslog,
        Unreadable::NotAFile,
        Unreadable::TooLong {
            read_bytes: 1 << 20,
        },
        Unreadable::TooManySettings,
        Unreadable::TooManyOpenFiles,
        Unreadable::Failed("Operation not permitted".to_owned()),
    ]
    .map(unread)
}

/// Returns limitations caused by lost events and by the clock.
fn recording_limitations() -> Vec<Limitation> {
    vec![
        Limitation::ThreadsNotFollowed { threads: 7 },
        Limitation::WaitsDerived { threads: 7 },
        Limitation::InterruptsNotTraced {
            cpu: Cpu(1),
            interrupt: "TLB shootdowns".to_owned(),
            count: 30,
        },
        Limitation::SwitchesMissed { count: 4 },
        Limitation::InterruptsSwitchedOut { count: 3 },
        Limitation::SwitchesUnreported { count: 9 },
        Limitation::ProcessNotTraced {
            name: "quiet".to_owned(),
            pid: 7,
            ran: Nanos::from_millis(34),
        },
        Limitation::ProcessPartlyTraced {
            name: "game".to_owned(),
            pid: 8,
            ran: Nanos::from_millis(900),
            missing: Nanos::from_millis(40),
        },
        Limitation::EntriesMissed { count: 5 },
        Limitation::SourcesMerged { intervals: 60 },
        Limitation::StacksLost { samples: 3 },
        functions(1, &["gamesrv"], 0, FunctionsUnnamed::Stripped),
        functions(9, &["a.so", "b.so"], 3, FunctionsUnnamed::Stripped),
        functions(2, &["libc.so.6"], 0, FunctionsUnnamed::NotInTable),
        functions(7, &["[generated code]"], 0, FunctionsUnnamed::NoPerfMap),
        functions(4, &["gamesrv", "db"], 1, FunctionsUnnamed::Unreadable),
        functions(5, &["gamesrv"], 0, FunctionsUnnamed::TooMany),
        Limitation::FollowingCutShort {
            after: Nanos::from_secs(61),
        },
        Limitation::FrameEventsLost { events: 3 },
        Limitation::GapContentsUnknown { cpus: cpus("0") },
        Limitation::Other {
            topic: "steal time".to_owned(),
            reason: "the hypervisor does not report it".to_owned(),
        },
        Limitation::Suspended {
            time: Nanos::from_secs(2),
        },
        Limitation::ClockSet {
            step: Nanos::from_millis(500),
        },
        Limitation::ClockSet {
            step: Nanos::from_millis(-500),
        },
        Limitation::InstructionTime {
            instruction: Nanos(8),
        },
        Limitation::HostTime,
    ]
}

/// Returns limitations of the search for periodic sources.
fn beat_limitations() -> Vec<Limitation> {
    vec![
        Limitation::BeatTimesSummed { rows: 4_000 },
        Limitation::BeatLongTimesSummed {
            windows: 3,
            sources: 0,
            max_windows: 64,
        },
        Limitation::BeatLongTimesSummed {
            windows: 300,
            sources: 1,
            max_windows: 64,
        },
        Limitation::BeatSourcesUnnamed,
        Limitation::BeatsTooFewEvents { min_events: 5 },
        Limitation::BeatPeriodsTooLong {
            max_period: Nanos::from_secs(900),
        },
        Limitation::BeatSourcesQuiet {
            sources: 12,
            min_events: 5,
        },
        Limitation::BeatSourcesLeftOut {
            sources: 49,
            max: 4_096,
        },
        Limitation::BeatSourcesCutShort { sources: 2 },
        Limitation::BeatEventsLost {
            cpu: Cpu(0),
            events: 12,
        },
        Limitation::RecordingHoles {
            cpu: Cpu(0),
            time: Nanos::from_millis(2_011),
            holes: 1,
        },
        Limitation::BeatEventsUnordered { events: 9 },
    ]
}

/// Returns everything that a trace from another tool can lack.
fn import_limitations() -> Vec<Limitation> {
    let limits = [
        ImportLimit::NoCounters {
            format: "perf.data file".to_owned(),
        },
        ImportLimit::EventsNotRecorded {
            events: vec!["irq_handler_entry".to_owned(), "softirq_entry".to_owned()],
        },
        ImportLimit::WakeupsNotRecorded,
        ImportLimit::WakersUncertain,
        ImportLimit::WakeupsMissed { runs: 3 },
        ImportLimit::SwitchesInferred { switches: 2 },
        ImportLimit::ProcessesUnknown { threads: 24 },
        ImportLimit::ThreadsUnnamed { threads: 1 },
        ImportLimit::SilentCpus { cpus: cpus("2-3") },
        ImportLimit::EventsUnordered {
            events: 5,
            max_step: Nanos::from_micros(2),
        },
        ImportLimit::CoarseTimes {
            unit: Nanos::from_micros(1),
        },
        ImportLimit::LocalClock {
            clock: "local".to_owned(),
        },
        ImportLimit::Truncated { events: 1_000 },
        ImportLimit::EventsUndecoded { events: 1 },
    ];
    let imported = limits.into_iter();
    imported
        .map(|limit| Limitation::Imported { limit })
        .collect()
}

fn all() -> Vec<Limitation> {
    [
        machine_limitations(),
        recording_limitations(),
        beat_limitations(),
        import_limitations(),
    ]
    .concat()
}

fn id(limitation: &Limitation) -> String {
    let json = serde_json::to_value(limitation).unwrap();
    json["id"].as_str().unwrap().to_owned()
}

#[test]
fn every_limitation_has_words() {
    let mut page = String::new();
    for limitation in all() {
        writeln!(
            page,
            "{}\n  {}",
            id(&limitation),
            words(&limitation).text().replace('\u{a0}', " ")
        )
        .unwrap();
    }
    insta::assert_snapshot!(page);
}

#[test]
fn these_tests_cover_every_limitation() {
    let schema = schemars::schema_for!(Limitation).to_value();
    let variants = schema["oneOf"].as_array().unwrap().iter();
    let known: BTreeSet<&str> = variants
        .map(|variant| variant["properties"]["id"]["const"].as_str().unwrap())
        .collect();
    let all = all();
    let listed: Vec<String> = all.iter().map(id).collect();
    assert_eq!(known, listed.iter().map(String::as_str).collect());
    for limitation in &all {
        let words = words(limitation);
        assert_ne!(words.effect, super::UNWORDED, "{limitation:?}");
        assert!(words.problem.ends_with('.'), "{}", words.problem);
        assert!(
            words.effect.is_empty() || words.effect.ends_with('.'),
            "{}",
            words.effect
        );
        let json = serde_json::to_string(limitation).unwrap();
        assert_eq!(
            serde_json::from_str::<Limitation>(&json).unwrap(),
            *limitation
        );
    }
}

#[test]
fn a_count_of_one_has_a_singular_noun() {
    for (limitation, expected) in [
        (
            Limitation::SwitchesMissed { count: 1 },
            "unknown in 1 interval,",
        ),
        (
            Limitation::SwitchesUnreported { count: 1 },
            "at least 1 context switch (",
        ),
        (
            Limitation::FrameEventsLost { events: 1 },
            "1 kernel event was lost",
        ),
        (
            Limitation::BeatSourcesCutShort { sources: 1 },
            "of 1 busy source were",
        ),
        (
            Limitation::RecordingHoles {
                cpu: Cpu(0),
                time: Nanos::from_secs(2),
                holes: 1,
            },
            "in 1 hole (",
        ),
    ] {
        let problem = words(&limitation).problem.replace('\u{a0}', " ");
        assert!(problem.contains(expected), "{problem}");
    }
}
