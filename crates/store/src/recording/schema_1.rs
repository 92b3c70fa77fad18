//! Reads recordings of schema 1: headers as JSON of today, and what columns were called.
//!
//! Today's types carry no aliases. A change that renames a field of the [`Header`](ticktax_model::recording::Header),
//! or of anything in it, adds it to [`RENAMED`]; a field that takes another form gets a function in
//! [`upgrade`]. `tests/schema1.rs` fails when a name that the old files have is forgotten.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ticktax_model::CpuList;
use ticktax_model::hook::Hook;
use ticktax_model::recording::SCHEMA_VERSION;

use super::schema;

/// Where the JSON of a header is: keys from the top, `*` for each element of a list and each value
/// of a map whose keys are data, `a|b` for both.
type Path = &'static [&'static str];

/// Fields with another name: in which objects, by today's names, and each with the old name and the
/// name of today.
const RENAMED: &[(Path, &[(&str, &str)])] = &[
    (&[], &[("began_unix", "began_unix_s")]),
    (
        &["books|probes|soakers", "*"],
        &[("begin", "begin_ns"), ("end", "end_ns")],
    ),
    (&["coverage"], &[("blind", "limitations")]),
    (&["coverage", "lost", "*"], &[("self_time", "self_ns")]),
    (
        &["clock"],
        &[("bracket", "bracket_ns"), ("uncertainty", "uncertainty_ns")],
    ),
    (
        &["probes", "*"],
        &[("period", "period_ns"), ("threshold", "threshold_ns")],
    ),
    (
        &["cost"],
        &[
            ("load", "load_time_ns"),
            ("cpu", "cpu_time_ns"),
            ("tracer", "tracer_time_ns"),
        ],
    ),
    (&["before|after"], &[("at", "at_ns")]),
    (
        &["before|after", "cpu_times", "*"],
        &[
            ("user", "user_ns"),
            ("nice", "nice_ns"),
            ("system", "system_ns"),
            ("idle", "idle_ns"),
            ("iowait", "iowait_ns"),
            ("irq", "irq_ns"),
            ("softirq", "softirq_ns"),
            ("steal", "steal_ns"),
        ],
    ),
    (
        &["before|after", "pressure", "*"],
        &[("some", "some_ns"), ("full", "full_ns")],
    ),
    (&["before|after", "throttling"], &[("time", "time_ns")]),
    (&["before|after", "run_queue"], &[("most", "max")]),
    (
        &["before|after", "clocks"],
        &[("wall", "wall_ns"), ("boot", "boot_ns")],
    ),
    (
        &["before|after", "programs", "*"],
        &[("time", "time_ns"), ("children", "children_time_ns")],
    ),
    (&["victim"], &[("begin", "begin_ns")]),
    (
        &["victim", "before|after"],
        &[
            ("user", "user_ns"),
            ("system", "system_ns"),
            ("on_cpu", "on_cpu_ns"),
            ("waited", "waited_ns"),
        ],
    ),
    (
        &["machine", "configured", "frequency", "*"],
        &[
            ("most_khz", "max_khz"),
            ("hardware_most_khz", "hardware_max_khz"),
        ],
    ),
    (
        &["machine", "configured", "wake_latency"],
        &[("micros", "latency_us")],
    ),
];

/// Turns the JSON of a header of schema 1 into that of today. What is not as expected stays as it
/// is: reading it as a header says what is wrong.
pub(super) fn upgrade(header: &mut Value) {
    for (path, names) in RENAMED {
        visit(header, path, &mut |value| rename(value, names));
    }
    if let Some(version) = header.get_mut("schema") {
        *version = SCHEMA_VERSION.into();
    }
    for place in ["/coverage/limitations", "/machine/configured/unread"] {
        let limitations = header.pointer_mut(place).and_then(Value::as_array_mut);
        limitations.into_iter().flatten().for_each(limitation);
    }
    let attached = header.pointer_mut("/coverage/attached");
    if let Some(hooks) = attached.and_then(Value::as_array_mut) {
        // Simulated recordings named the model there.
        hooks.retain(|name| Hook::ALL.iter().any(|hook| *name == hook.name()));
    }
    for list in ["/probes", "/soakers"] {
        let reports = header.pointer_mut(list).and_then(Value::as_array_mut);
        for report in reports.into_iter().flatten() {
            report.get_mut("policy").into_iter().for_each(policy);
            report.get_mut("ended_early").into_iter().for_each(failure);
        }
    }
    if let Some(judged) = header.pointer_mut("/clock/verdict") {
        verdict(judged);
    }
    if let Some(mode) = header.pointer_mut("/machine/tick_mode") {
        tick_mode(mode);
    }
    simulated(header);
    if let Some(incomplete) = header.pointer_mut("/victim/incomplete")
        && let Some(why) = incomplete.as_str()
    {
        let what = "a part of the program's time";
        *incomplete = json!({ "id": "other", "what": what, "why": why });
    }
}

/// Limitations were sentences.
fn limitation(value: &mut Value) {
    if let Some(fields) = value.as_object_mut()
        && !fields.contains_key("id")
    {
        fields.insert("id".to_owned(), json!("other"));
    }
}

/// A policy that was not granted was told behind the one that was:
/// `SCHED_OTHER (SCHED_FIFO:50 was refused: Operation not permitted; it needs ...)`.
fn policy(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    let (granted, rest) = text.split_once(" (").unwrap_or((text, ""));
    let (requested, refusal) = match rest.split_once(" was refused: ") {
        Some((requested, why)) => {
            let why = why.split(';').next().unwrap_or_default();
            (requested, Some(why.trim_end_matches(')')))
        }
        None => (granted, None),
    };
    *value = json!({ "requested": requested, "granted": granted, "refusal": refusal });
}

/// Why a probe ended early was a sentence.
fn failure(value: &mut Value) {
    if let Some(why) = value.as_str() {
        *value = json!({ "id": "other", "why": why });
    }
}

/// Tick modes were `nohz idle` and `nohz full 2-7`, and might add in brackets that `nohz_full=` had
/// no effect.
fn tick_mode(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    if let Some(cpus) = text.strip_prefix("nohz full") {
        *value = json!({ "nohz-full": { "cpus": cpus.trim() } });
    } else if text.starts_with("nohz idle") {
        *value = json!("nohz-idle");
    }
}

/// Simulated recordings had their scheduler and timers in the kernel's name, as in
/// `Eevdf { slice: Nanos(3000000), hrtick: false }, HighResolution timers`.
fn simulated(header: &mut Value) {
    const WORDS: [(&str, &str, &str); 10] = [
        ("policy", "GoodnessSlices", "goodness-slices"),
        ("policy", "GoodnessPerCpu", "goodness-per-cpu"),
        ("policy", "Goodness", "goodness"),
        ("policy", "O1", "o1"),
        ("policy", "Fair", "fair"),
        ("policy", "Eevdf", "eevdf"),
        ("timers", "NominalJiffies", "jiffies-2.4"),
        ("timers", "Jiffies", "jiffies-2.6"),
        ("timers", "FirstTick", "first-tick"),
        ("timers", "HighResolution", "high-resolution"),
    ];
    if header["world"] != "simulated" {
        return;
    }
    let machine = &mut header["machine"];
    let Some((kernel, "")) = machine["kernel"]
        .as_str()
        .and_then(|it| it.rsplit_once(" timers"))
    else {
        return;
    };
    let mut settings = BTreeMap::new();
    for (name, old, new) in WORDS {
        if kernel.split([',', ' ']).any(|word| word == old) {
            settings.insert(name, new.to_owned());
        }
    }
    let within =
        |begin: &str, end: &str| kernel.split_once(begin)?.1.split_once(end).map(|it| it.0);
    settings.extend(within("Nanos(", ")").map(|slice| ("slice", format!("{slice}ns"))));
    if kernel.contains("hrtick: true") {
        settings.insert("hrtick", "on".to_owned());
    }
    let online = machine["online"].as_str().and_then(|it| it.parse().ok());
    settings.extend(online.map(|online: CpuList| ("cpus", online.len().to_string())));
    settings.extend(
        machine["hz_configured"]
            .as_u64()
            .map(|hz| ("hz", hz.to_string())),
    );
    let tick = match &machine["tick_mode"] {
        Value::String(word) => word,
        _ => "nohz-full",
    };
    settings.insert("tick", tick.to_owned());
    machine["settings"] = json!(settings);
}

/// The verdict on a counter was a sentence.
fn verdict(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    *value = match text.strip_prefix("not trusted: ") {
        Some(reasons) => json!({ "untrusted": [{ "id": "other", "reasons": reasons }] }),
        None => json!("trusted"),
    };
}

/// Gives the fields of an object their names of today.
fn rename(value: &mut Value, names: &[(&str, &str)]) {
    let Value::Object(fields) = value else { return };
    for (old, new) in names {
        if let Some(field) = fields.remove(*old) {
            fields.insert((*new).to_owned(), field);
        }
    }
}

/// The name in a file of schema 1 of a column that today has the name `today`.
pub(super) fn column(today: &'static str) -> &'static str {
    match today {
        schema::START => "start",
        schema::DUR => "dur",
        schema::SELF => "self",
        schema::MAX => "max",
        same => same,
    }
}

/// Gives every value at `path` below `json` to `each`; there may be none.
fn visit(json: &mut Value, path: &[&str], each: &mut dyn FnMut(&mut Value)) {
    let Some((&step, rest)) = path.split_first() else {
        return each(json);
    };
    match (step, json) {
        ("*", Value::Array(values)) => {
            for value in values {
                visit(value, rest, each);
            }
        }
        ("*", Value::Object(values)) => {
            for value in values.values_mut() {
                visit(value, rest, each);
            }
        }
        (_, Value::Object(fields)) => {
            for name in step.split('|') {
                if let Some(value) = fields.get_mut(name) {
                    visit(value, rest, each);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ticktax_model::clock::{CounterVerdict, Distrust};
    use ticktax_model::hook::Hook;
    use ticktax_model::limitation::Limitation;
    use ticktax_model::machine::TickMode;
    use ticktax_model::policy::{PolicyGrant, SchedulingPolicy};
    use ticktax_model::recording::{Header, Level, World};

    use super::upgrade;

    #[test]
    fn sentences_of_schema_1_are_kept_as_they_are() {
        let old = json!({ "what": "gaps on CPU 1", "why": "no probe may run there" });
        let header = Header::new(World::Live, Level::Kernel, "0.1.0");
        let mut value = serde_json::to_value(&header).unwrap();
        value["coverage"]["limitations"] = json!([old]);
        value["coverage"]["attached"] = json!(["the model", "tick_stop"]);
        value["machine"]["configured"]["unread"] = json!([old]);
        upgrade(&mut value);
        let read: Header = serde_json::from_value(value).unwrap();
        let kept = Limitation::Other {
            what: "gaps on CPU 1".to_owned(),
            why: "no probe may run there".to_owned(),
        };
        assert_eq!(read.coverage.limitations, std::slice::from_ref(&kept));
        assert_eq!(read.coverage.attached, [Hook::TickStop]);
        assert_eq!(read.machine.configured.unread, [kept]);
    }

    #[test]
    fn tick_modes_were_words_with_cpus() {
        let read = |text: &str| {
            let mut value = json!(text);
            super::tick_mode(&mut value);
            serde_json::from_value::<TickMode>(value)
                .unwrap()
                .to_string()
        };
        assert_eq!(read("periodic"), "periodic");
        assert_eq!(read("nohz full 2-7"), "nohz-full 2-7");
        let without = "nohz idle (nohz_full= has no effect: not built in)";
        assert_eq!(read(without), "nohz-idle");
    }

    #[test]
    fn policies_and_verdicts_were_words() {
        let refused = "SCHED_OTHER (SCHED_FIFO:50 was refused: Operation not permitted; it needs \
                       CAP_SYS_NICE or a higher RLIMIT_RTPRIO)";
        let read = |text: &str| {
            let mut value = json!(text);
            super::policy(&mut value);
            serde_json::from_value::<PolicyGrant>(value).unwrap()
        };
        assert_eq!(read(refused).to_string(), refused);
        assert_eq!(
            read("SCHED_IDLE"),
            PolicyGrant::full(SchedulingPolicy::Idle)
        );
        let read = |text: &str| {
            let mut value = json!(text);
            super::verdict(&mut value);
            serde_json::from_value::<CounterVerdict>(value).unwrap()
        };
        assert_eq!(read("trusted"), CounterVerdict::Trusted);
        let reasons = "it may stop".to_owned();
        let distrust = Distrust::Other { reasons };
        let untrusted = CounterVerdict::Untrusted(vec![distrust]);
        assert_eq!(read("not trusted: it may stop"), untrusted);
    }

    #[test]
    fn what_is_no_header_stays_as_it_is() {
        for value in [
            json!(null),
            json!([1]),
            json!({ "coverage": { "limitations": 3 } }),
        ] {
            let mut upgraded = value.clone();
            upgrade(&mut upgraded);
            assert_eq!(upgraded, value);
        }
    }
}
