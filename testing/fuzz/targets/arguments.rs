//! Parses arguments that users type: times, CPU lists, policies, triggers, rates and conditions.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ticktax_experiment::vary::Vary;
use ticktax_model::incident::{Percentile, TriggerSpec};
use ticktax_model::pace::{FrameRate, PaceRule, SleepMethod};
use ticktax_model::policy::{SchedulingPolicy, SpecialPolicy};
use ticktax_model::comparison::FailIf;
use ticktax_model::utc::Utc;
use ticktax_model::{CpuList, Nanos};

fuzz_target!(|text: &str| {
    if let Ok(cpus) = text.parse::<CpuList>() {
        let again = cpus.to_string().parse::<CpuList>();
        assert_eq!(again.as_ref(), Ok(&cpus), "{cpus}");
    }
    if let Ok(time) = text.parse::<Nanos>() {
        std::hint::black_box(time.to_string());
    }
    if let Ok(trigger) = text.parse::<TriggerSpec>() {
        let shown = trigger.to_string();
        assert!(shown.parse::<TriggerSpec>().is_ok(), "{shown}");
    }
    if let Ok(condition) = FailIf::parse(text) {
        std::hint::black_box(condition.to_string());
    }
    let _ = text.parse::<FrameRate>();
    let _ = text.parse::<PaceRule>();
    let _ = text.parse::<Percentile>();
    let _ = text.parse::<SchedulingPolicy>();
    let _ = text.parse::<SleepMethod>();
    let _ = text.parse::<SpecialPolicy>();
    let _ = text.parse::<Utc>();
    let _ = text.parse::<Vary>();
    for setting in ticktax_sim::settings::all() {
        drop(setting.parse(text));
    }
});
