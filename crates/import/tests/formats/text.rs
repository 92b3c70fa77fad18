//! ftrace text.

use std::fmt::Write;

use ticktax_import::ImportError;
use ticktax_model::Nanos;
use ticktax_model::limitation::{ImportLimit, Limitation};

use crate::{EXAMPLE, Example, Kernel, check_example, open_bytes};

/// A notation for events: the kernel's, or that of trace-cmd and perf script.
#[derive(Clone, Copy, Debug)]
enum Notation {
    Kernel,
    TraceCmd,
    PerfScript,
}

fn line(example: &Example, notation: Notation) -> String {
    let Example {
        cpu, at_us, pid, ..
    } = *example;
    let thread = match notation {
        Notation::Kernel => format!("{:>16}-{pid:<7} (-------)", "<...>"),
        Notation::TraceCmd => format!("{:>16}-{pid:<7}", "<...>"),
        Notation::PerfScript => format!("{:>16} {pid:>5}/{pid:<5}", "a name"),
    };
    let flags = match notation {
        Notation::Kernel => "d..2. ",
        _ => "",
    };
    let time = format!("{}.{:06}", at_us / 1_000_000, at_us % 1_000_000);
    let (event, fields) = event(example, notation);
    format!("{thread} [{cpu:03}] {flags}{time}: {event}: {fields}\n")
}

fn event(example: &Example, notation: Notation) -> (String, String) {
    let (name, fields) = match (example.event, notation) {
        (
            Kernel::Switch {
                prev,
                state,
                next,
                next_pid,
            },
            notation,
        ) => {
            let pid = example.pid;
            let state = if state == 0 { "R" } else { "S" };
            let fields = match notation {
                Notation::Kernel => format!(
                    "prev_comm={prev} prev_pid={pid} prev_prio=120 prev_state={state} ==> \
                     next_comm={next} next_pid={next_pid} next_prio=120"
                ),
                _ => format!("{prev}:{pid} [120] {state} ==> {next}:{next_pid} [120]"),
            };
            ("sched:sched_switch", fields)
        }
        (Kernel::Waking { name, pid }, Notation::Kernel) => (
            "sched:sched_waking",
            format!("comm={name} pid={pid} prio=120 target_cpu=000"),
        ),
        (Kernel::Waking { name, pid }, _) => {
            ("sched:sched_waking", format!("{name}:{pid} [120] CPU:000"))
        }
        (Kernel::IrqEntry(name), _) => ("irq:irq_handler_entry", format!("irq=9 name={name}")),
        (Kernel::IrqExit, _) => ("irq:irq_handler_exit", "irq=9 ret=handled".to_owned()),
        (Kernel::SoftirqEntry(vec), _) => {
            ("irq:softirq_entry", format!("vec={vec} [action=NET_RX]"))
        }
        (Kernel::SoftirqExit(vec), _) => ("irq:softirq_exit", format!("vec={vec} [action=NET_RX]")),
    };
    let name = match notation {
        Notation::PerfScript => name,
        _ => name.split_once(':').map_or(name, |(_, name)| name),
    };
    (name.to_owned(), fields)
}

fn text(notation: Notation) -> String {
    EXAMPLE.iter().map(|event| line(event, notation)).collect()
}

#[test]
fn every_notation_gives_the_same_recording() {
    for notation in [Notation::Kernel, Notation::TraceCmd, Notation::PerfScript] {
        let opened = open_bytes(text(notation).as_bytes()).unwrap();
        check_example(&opened);
        let limits = opened.limits();
        let coarse = ImportLimit::CoarseTimes { unit: Nanos(1_000) };
        assert!(limits.contains(&&coarse), "{notation:?}: {limits:?}");
        let unknown = ImportLimit::ProcessesUnknown { threads: 3 };
        let has_processes = matches!(notation, Notation::PerfScript);
        assert_eq!(limits.contains(&&unknown), !has_processes, "{notation:?}");
    }
}

#[test]
fn pages_and_scripts_around_the_events_are_skipped() {
    let events = text(Notation::Kernel);
    let page = format!(
        "<!DOCTYPE html>\n<script>\nfunction f() {{ return a[0]; }}\n</script>\n\
         <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\n{events}\
         </script>\n"
    );
    check_example(&open_bytes(page.as_bytes()).unwrap());
    let script = events.replace('\n', "\\n\\\n");
    check_example(&open_bytes(script.as_bytes()).unwrap());
}

#[test]
fn lost_events_leave_their_time_unexplained() {
    let mut lines: Vec<String> = EXAMPLE
        .iter()
        .map(|event| line(event, Notation::Kernel))
        .collect();
    // The switch from `work` to `game` is lost.
    lines[6] = "CPU:0 [LOST 3 EVENTS]\n".to_owned();
    let opened = open_bytes(lines.concat().as_bytes()).unwrap();
    assert_eq!(opened.times_us["unreported thread"], 1_000);
    assert!(!opened.times_us.contains_key("work"));
    assert_eq!(opened.header.coverage.events_lost(), 3);

    // Without the message, the next event reveals that a switch is missing.
    lines[6].clear();
    let opened = open_bytes(lines.concat().as_bytes()).unwrap();
    assert_eq!(opened.times_us["unreported thread"], 1_000);
    let limitations = &opened.header.coverage.limitations;
    assert!(limitations.contains(&Limitation::SwitchesMissed { count: 1 }));
}

#[test]
fn a_run_after_a_missing_switch_from_idle_starts_by_its_cpu_time() {
    let trace = "\
        x-10 [000] 1.000000: sched_switch: x:10 [120] S ==> swapper/0:0 [120]\n\
        y-11 [000] 3.000000: sched_stat_runtime: comm=y pid=11 runtime=500000000 [ns]\n\
        y-11 [000] 3.000000: sched_switch: y:11 [120] S ==> swapper/0:0 [120]\n\
        <idle>-0 [000] 4.000000: cpu_idle: state=1 cpu_id=0\n";
    let opened = open_bytes(trace.as_bytes()).unwrap();
    let times = &opened.times_us;
    assert_eq!((times["idle"], times["y"]), (2_500_000, 500_000));
    let limits = opened.limits();
    assert!(limits.contains(&&ImportLimit::SwitchesInferred { switches: 1 }));
    assert!(limits.contains(&&ImportLimit::WakeupsNotRecorded));
}

#[test]
fn a_run_without_its_wake_up_is_counted_and_is_no_wait() {
    let mut trace = text(Notation::Kernel);
    trace += "<...>-0 [000] 0.003500: sched_switch: swapper/0:0 [120] R ==> game:10 [120]\n";
    let opened = open_bytes(trace.as_bytes()).unwrap();
    assert!(
        opened
            .limits()
            .contains(&&ImportLimit::WakeupsMissed { runs: 1 })
    );
    let unknown = (3_500_000, "unreported thread".to_owned(), 10);
    assert!(opened.wakes.contains(&unknown), "{:?}", opened.wakes);
}

/// perf on some machines lacks switches and wake-ups. A thread that slept and then appears without
/// them must not count as waiting since it went to sleep.
#[test]
fn a_run_that_a_missing_switch_started_is_no_wait_either() {
    let trace = "\
        x-10 [000] 1.000000: sched_switch: x:10 [120] S ==> y:11 [120]\n\
        y-11 [000] 1.100000: sched_switch: y:11 [120] R ==> z:12 [120]\n\
        x-10 [000] 1.200000: sched_switch: x:10 [120] S ==> y:11 [120]\n\
        z-12 [000] 1.300000: sched_switch: z:12 [120] R ==> y:11 [120]\n";
    let opened = open_bytes(trace.as_bytes()).unwrap();
    let limits = opened.limits();
    let limitations = &opened.header.coverage.limitations;
    assert!(limitations.contains(&Limitation::SwitchesMissed { count: 2 }));
    let unknown = (1_200_000_000, "unreported thread".to_owned(), 10);
    // `z` was preempted, or so the trace says, and does wait.
    assert_eq!(opened.wakes, [unknown], "{limits:?}");
}

#[test]
fn events_out_of_order_are_counted_and_several_traces_are_refused() {
    let mut trace = text(Notation::Kernel);
    trace += "<...>-0 [000] 0.002300: cpu_idle: state=1 cpu_id=0\n";
    let opened = open_bytes(trace.as_bytes()).unwrap();
    let unordered = ImportLimit::EventsUnordered {
        events: 1,
        max_step: Nanos(100_000),
    };
    assert!(opened.limits().contains(&&unordered));

    trace += "<...>-0 [000] 5.000000: cpu_idle: state=1 cpu_id=0\n";
    trace += "<...>-0 [000] 2.000000: cpu_idle: state=1 cpu_id=0\n";
    let error = open_bytes(trace.as_bytes()).err().unwrap().to_string();
    assert!(error.contains("several traces"), "{error}");
}

#[test]
fn a_truncated_last_line_is_reported() {
    let mut trace = text(Notation::Kernel);
    write!(
        trace,
        "<...>-0 [000] 0.003500: sched_switch: prev_comm=swapper/0 prev_p"
    )
    .unwrap();
    let opened = open_bytes(trace.as_bytes()).unwrap();
    let limits = opened.limits();
    assert!(limits.contains(&&ImportLimit::Truncated { events: 12 }));
    assert!(limits.contains(&&ImportLimit::EventsUndecoded { events: 1 }));
}

#[test]
fn text_without_switches_or_seconds_is_refused() {
    let trace = "x-10 [000] 1.000000: sched_wakeup: y:11 [120] CPU:000\n";
    let error = open_bytes(trace.as_bytes()).err().unwrap();
    assert!(matches!(error, ImportError::NoSwitches { events: 1, .. }));

    let trace = "# tracer: nop\nx-10 [000] 12345: sched_wakeup: y:11 [120] CPU:000\n";
    let error = open_bytes(trace.as_bytes()).err().unwrap().to_string();
    assert!(error.contains("line 2 is not in seconds"), "{error}");

    let error = open_bytes(b"<html>\n</html>\n").err().unwrap().to_string();
    assert!(error.contains("no line with an event"), "{error}");
}
