//! Tests for advice on cpusets, deadline budgets and memory limits.

use ticktax_model::Nanos;
use ticktax_model::advice::{Advice, NeededBudget};
use ticktax_model::machine::MemoryLimit;
use ticktax_model::victim::{DeadlineBudget, HoldUp};

use super::{advised, flat, flat_in, stalled};

fn confined(file: &str) -> Advice {
    Advice::ConfinedToCpus {
        file: file.to_owned(),
        cpus: "0-1".parse().unwrap(),
        idle_cpus: "2".parse().unwrap(),
        proposed_cpus: "0-2".parse().unwrap(),
        idle_share: 0.97,
        time: Nanos::from_millis(900),
    }
}

#[test]
fn a_cpuset_is_widened_in_both_versions() {
    let group = "Let its cgroup /web use more CPUs (cpuset.cpus): it may only use CPUs 0-1, and \
        waited 900 ms there, while CPU 2 was at least 97.0 % idle.";
    for file in [
        "/sys/fs/cgroup/web/cpuset.cpus",
        "/sys/fs/cgroup/cpuset/web/cpuset.cpus",
    ] {
        let statement = advised(vec![confined(file)]);
        let page = flat(&statement);
        assert!(page.contains(group), "{page}");
        let command = format!("$ echo 0-2 > {file}; ticktax audit --pid 4121");
        assert!(page.contains(&command), "{page}");
        // The file exists only on the recorded machine.
        assert!(!flat_in(&statement, true).contains("echo"), "{page}");
    }
    let odd = flat(&advised(vec![confined("/sys/fs/cgroup/a b/cpuset.cpus")]));
    assert!(
        odd.contains("echo 0-2 > '/sys/fs/cgroup/a b/cpuset.cpus'"),
        "{odd}"
    );
}

#[test]
fn a_deadline_budget_is_proposed_with_its_basis() {
    let Advice::Stalled { stall, .. } = stalled(HoldUp::Deadline) else {
        panic!("no stall");
    };
    let period = Nanos::from_micros(16_667);
    let advice = Advice::Stalled {
        stall,
        share: 0.9,
        freezer: None,
        memory_limit: None,
        budget: Some(NeededBudget {
            budget: DeadlineBudget {
                runtime: Nanos::from_millis(5),
                deadline: period,
                period,
            },
            used: Nanos::from_micros(6_050),
            frames: 600,
            needed: Nanos::from_micros(6_700),
        }),
    };
    let page = flat(&advised(vec![advice]));
    for expected in [
        "Give it a larger SCHED_DEADLINE budget, 6.70 ms of CPU time in each 16.7 ms instead of \
         5.00 ms: the longest of 600 frames needed 6.05 ms, so it used up its budget and then had \
         to pause for 30.0 ms, 5 times.",
        "$ chrt -d -T 6700000 -D 16667000 -P 16667000 -p 0 4121",
    ] {
        assert!(page.contains(expected), "{expected} not in {page}");
    }
}

#[test]
fn stalls_at_a_memory_limit_name_the_limit() {
    let Advice::Stalled { stall, .. } = stalled(HoldUp::MemoryLimit) else {
        panic!("no stall");
    };
    let advice = Advice::Stalled {
        stall,
        share: 0.9,
        freezer: None,
        memory_limit: Some(MemoryLimit {
            cgroup: "/sys/fs/cgroup/log".to_owned(),
            file: "memory.max".to_owned(),
            bytes: 24 << 20,
            hits: 7,
        }),
        budget: None,
    };
    let page = flat(&advised(vec![advice]));
    for expected in [
        "Raise memory.max of its cgroup /log, or write and cache less: the group reached this \
         limit of 24.0 MiB 7 times, and the program waited for 30.0 ms",
        "$ echo 50331648 > /sys/fs/cgroup/log/memory.max",
    ] {
        assert!(page.contains(expected), "{expected} not in {page}");
    }
}
