//! Headers of recordings of schema 1, as JSON of today.

use serde_json::{Value, json};

use crate::hook::Hook;

/// Turns the JSON of a header of schema 1 into that of today. What is not as expected stays as it
/// is: reading it as a header says what is wrong.
pub(super) fn upgrade(header: &mut Value) {
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
        let policies = reports.into_iter().flatten();
        let policies = policies.filter_map(|report| report.get_mut("policy"));
        policies.for_each(policy);
    }
    if let Some(judged) = header.pointer_mut("/clock/verdict") {
        verdict(judged);
    }
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

/// The verdict on a counter was a sentence.
fn verdict(value: &mut Value) {
    let Some(text) = value.as_str() else { return };
    *value = match text.strip_prefix("not trusted: ") {
        Some(reasons) => json!({ "untrusted": [{ "id": "other", "reasons": reasons }] }),
        None => json!("trusted"),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::upgrade;
    use crate::clock::{CounterVerdict, Distrust};
    use crate::hook::Hook;
    use crate::limitation::Limitation;
    use crate::policy::{PolicyGrant, SchedulingPolicy};
    use crate::recording::{Header, Level, World};

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
        assert_eq!(read.coverage.limitations, [kept.clone()]);
        assert_eq!(read.coverage.attached, [Hook::TickStop]);
        assert_eq!(read.machine.configured.unread, [kept]);
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
