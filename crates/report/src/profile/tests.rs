use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;
use prost::Message;
use ticktax_model::Nanos;
use ticktax_model::profile::{NOT_SAMPLED, Profile, ProfileScope, ProfiledAccount, ProfiledStack};
use ticktax_model::statement::Class;

use super::pprof::PprofProfile;
use super::{folded, functions, pprof};

fn account(
    class: Class,
    name: &str,
    pid: Option<i32>,
    stacks: &[(&str, u64, i64)],
) -> ProfiledAccount {
    let stacks = stacks.iter().map(|&(stack, samples, time)| ProfiledStack {
        stack: stack.to_owned(),
        time: Nanos(time),
        samples,
    });
    let stacks: Vec<ProfiledStack> = stacks.collect();
    ProfiledAccount {
        class,
        name: name.to_owned(),
        pid,
        time: stacks.iter().map(|stack| stack.time).sum(),
        samples: stacks.iter().map(|stack| stack.samples).sum(),
        stacks,
    }
}

/// A small profile with every kind of account.
pub(crate) fn profile() -> Profile {
    let accounts = vec![
        account(Class::Idle, "idle", None, &[("", 0, 5_000)]),
        account(
            Class::Program,
            "sh",
            Some(7),
            &[("sh;sh+0x10", 3, 301), ("read_[k]", 1, 100)],
        ),
        account(Class::Program, "sh", Some(8), &[("sh;sh+0x10", 1, 99)]),
        account(Class::Program, "a;b", Some(9), &[(NOT_SAMPLED, 0, 12)]),
        account(
            Class::Irq,
            "local_timer",
            None,
            &[("tick_[k]", 0, 40), ("", 0, 2)],
        ),
    ];
    Profile {
        scope: ProfileScope::Machine,
        rate_hz: 100,
        samples: accounts.iter().map(|account| account.samples).sum(),
        time: accounts.iter().map(|account| account.time).sum(),
        accounts,
    }
}

#[test]
fn folded_stacks_add_up_to_the_profile() {
    let text = folded(&profile());
    assert_eq!(
        text,
        "idle 5000\n\
         interrupts;local_timer 2\n\
         interrupts;local_timer;tick_[k] 40\n\
         programs;a\u{fffd}b;[not sampled] 12\n\
         programs;sh;read_[k] 100\n\
         programs;sh;sh;sh+0x10 400\n"
    );
}

#[test]
fn functions_have_their_own_time() {
    let functions = functions(&profile());
    let rows: Vec<_> = functions
        .iter()
        .map(|function| {
            let time = function.value.time.0;
            (
                &*function.name,
                &*function.account,
                time,
                function.is_kernel,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("idle", "idle", 5_000, false),
            ("sh", "sh", 400, false),
            ("read", "sh", 100, true),
            ("tick", "local_timer", 40, true),
            (NOT_SAMPLED, "a;b", 12, false),
            ("local_timer", "local_timer", 2, false),
        ]
    );
}

#[test]
fn a_pprof_file_has_the_same_stacks() {
    let file = pprof(&profile(), 1_700_000_000, Nanos(9_000)).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&*file).read_to_end(&mut bytes).unwrap();
    let message = PprofProfile::decode(&*bytes).unwrap();
    let text = |number: i64| &*message.string_table[usize::try_from(number).unwrap()];
    assert_eq!(text(0), "");
    let types = message.sample_type.iter();
    let types: Vec<_> = types.map(|of| (text(of.r#type), text(of.unit))).collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert_eq!(message.period, 10_000_000);
    assert_eq!(message.time_nanos, 1_700_000_000_000_000_000);
    assert_eq!(message.duration_nanos, 9_000);
    let functions: BTreeMap<u64, &str> = message
        .function
        .iter()
        .map(|function| (function.id, text(function.name)))
        .collect();
    let location = |id: &u64| {
        let location = message.location.iter().find(|location| location.id == *id);
        functions[&location.unwrap().line[0].function_id]
    };
    let samples = message.sample.iter().map(|sample| {
        let names: Vec<&str> = sample.location_id.iter().rev().map(location).collect();
        (names.join(";"), sample.value.clone())
    });
    let samples: BTreeMap<String, Vec<i64>> = samples.collect();
    assert_eq!(samples["programs;sh;sh;sh+0x10"], [4, 400]);
    assert_eq!(samples["programs;sh;read"], [1, 100]);
    assert_eq!(samples["idle"], [0, 5_000]);
    assert_eq!(samples.len(), 6);
    let time: i64 = samples.values().map(|value| value[1]).sum();
    assert_eq!(Nanos(time), profile().time);
}
