//! Tests for advice on the CPU weights and memory limits of cgroups.

use ticktax_model::Nanos;
use ticktax_model::advice::{Advice, CompetingProgram, Contender, ContenderKind, GroupContest};
use ticktax_model::group::{Container, Group, GroupKind, Unit};
use ticktax_model::machine::MemoryLimit;

use super::{advised, crowd, flat, kernel_level};

fn cgroup(path: &str, kind: GroupKind, weight: u64, file: &str) -> Contender {
    Contender {
        kind: ContenderKind::Cgroup {
            cgroup: Box::new(Group {
                path: path.to_owned(),
                kind,
                settings: None,
                counters: None,
            }),
            file: Some(file.to_owned()),
            innermost: true,
        },
        weight,
        idle: false,
    }
}

fn session(weight: u64) -> Contender {
    Contender {
        kind: ContenderKind::Autogroup { nice: 0 },
        weight,
        idle: false,
    }
}

fn besteffort() -> Contender {
    let file = "/sys/fs/cgroup/cpu/besteffort/cpu.shares";
    cgroup("/besteffort", GroupKind::Path, 20, file)
}

fn service(name: &str, user: Option<&str>, weight: u64) -> Contender {
    let kind = GroupKind::Service(Unit {
        unit: name.to_owned(),
        user: user.map(str::to_owned),
    });
    let file = format!("/sys/fs/cgroup/{name}/cpu.weight");
    cgroup(&format!("/{name}"), kind, weight, &file)
}

/// Returns the program cc1 as part of this contest.
fn competing(own: Contender, other: Contender) -> CompetingProgram {
    let Advice::CompetingPrograms { mut programs, .. } = crowd() else {
        panic!("no competing programs");
    };
    programs[0].contest = Some(Box::new(GroupContest { own, other }));
    programs.remove(0)
}

/// Renders the advice about cc1 for the program that waited behind it.
fn page(own: Contender, other: Contender) -> String {
    flat(&advised(vec![Advice::CompetingPrograms {
        programs: vec![competing(own, other)],
        time: Nanos::from_millis(760),
        share: 0.696,
    }]))
}

#[test]
fn the_weight_of_a_group_is_raised_instead_of_renicing() {
    let page = page(besteffort(), session(1024));
    for expected in [
        "Raise the CPU weight of /besteffort (cpu.shares) from 20 to 1024: the session of cc1 \
         (20000) has 1024, and cc1 (20000) caused 69.6 % of the waiting. renice would not help, \
         because they are in different groups.",
        "$ ticktax try cgroup.cpu_shares=now,1024 --metric wait --pid 4121 # measure it $ echo \
         1024 > /sys/fs/cgroup/cpu/besteffort/cpu.shares # keep it",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains("$ renice"), "{page}");
}

#[test]
fn the_weight_of_a_unit_is_set_with_systemctl() {
    let other = || service("load.service", None, 100);
    let raised = page(service("game.service", None, 100), other());
    for expected in [
        "Raise the CPU weight of game.service (cpu.weight) from 100 to 1000: load.service has 100",
        "$ systemctl set-property game.service CPUWeight=1000",
    ] {
        assert!(raised.contains(expected), "{expected}: {raised}");
    }
    let of_user = page(service("game.service", Some("alice"), 1), other());
    let command = "$ systemctl --user -M alice@ set-property game.service CPUWeight=100";
    assert!(of_user.contains(command), "{of_user}");
    // systemd uses the unit of cgroup v2 with v1 as well.
    let file = "/sys/fs/cgroup/cpu/a.slice/cpu.shares";
    let kind = GroupKind::Slice(Unit {
        unit: "a.slice".to_owned(),
        user: None,
    });
    let first = page(cgroup("/a.slice", kind, 20, file), session(2048));
    assert!(
        first.contains("set-property a.slice CPUWeight=200"),
        "{first}"
    );
}

#[test]
fn a_container_is_updated_with_its_own_tool() {
    let kind = GroupKind::Container(Container {
        id: "0123".to_owned(),
        name: Some("web".to_owned()),
        image: None,
    });
    let file = "/sys/fs/cgroup/cpu/docker/0123/cpu.shares";
    let page = page(cgroup("/docker/0123", kind, 20, file), session(1024));
    assert!(
        page.contains("$ docker update --cpu-shares 1024 web"),
        "{page}"
    );
}

#[test]
fn names_are_quoted_in_commands() {
    let named = |name: &str| {
        let file = format!("/sys/fs/cgroup/cpu/{name}/cpu.shares");
        page(
            cgroup(&format!("/{name}"), GroupKind::Path, 20, &file),
            session(1024),
        )
    };
    let spaced = named("a b; rm $HOME");
    let expected = "$ echo 1024 > '/sys/fs/cgroup/cpu/a b; rm $HOME/cpu.shares'";
    assert!(spaced.contains(expected), "{spaced}");
    let apostrophe = named("it's");
    let expected = "> '/sys/fs/cgroup/cpu/it'\\''s/cpu.shares'";
    assert!(apostrophe.contains(expected), "{apostrophe}");
    let control = named("a\nb");
    assert!(control.contains("Raise the CPU weight of"), "{control}");
    assert!(!control.contains("$ echo"), "{control}");
}

#[test]
fn the_other_group_is_lowered_if_the_program_has_none() {
    let page = page(session(1024), besteffort_at(1024));
    for expected in [
        "Lower the CPU weight of /besteffort (cpu.shares) from 1024 to 102: the session of the \
         waiting program has 1024, and cc1 (20000) caused",
        "$ echo 102 > /sys/fs/cgroup/cpu/besteffort/cpu.shares; ticktax audit --pid 4121",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

fn besteffort_at(weight: u64) -> Contender {
    Contender {
        weight,
        ..besteffort()
    }
}

#[test]
fn idle_scheduling_is_turned_off() {
    let idle = Contender {
        idle: true,
        ..besteffort()
    };
    let page = page(idle, session(1024));
    for expected in [
        "Turn off idle scheduling (cpu.idle) for /besteffort: its threads run only if nothing else \
         wants the CPU",
        "$ echo 0 > /sys/fs/cgroup/cpu/besteffort/cpu.idle",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

#[test]
fn on_a_full_machine_the_weight_of_the_largest_group_is_lowered() {
    let mut statement = kernel_level();
    statement.advice = vec![Advice::CpusSaturated {
        busy_share: 0.99,
        most: competing(
            service("game.service", None, 100),
            service("load.service", None, 100),
        ),
        share: 0.4,
    }];
    let page = flat(&statement);
    for expected in [
        "Run fewer programs at once, or lower the CPU weight of load.service (cpu.weight) from 100 \
         to 10: the CPUs were 99.0 % busy, and cc1 used 40.0 %.",
        "$ systemctl set-property load.service CPUWeight=10; ticktax audit",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
}

#[test]
fn the_own_memory_limit_is_raised() {
    let limit = MemoryLimit {
        cgroup: "/sys/fs/cgroup/memory/log".to_owned(),
        file: "memory.limit_in_bytes".to_owned(),
        bytes: 24 << 20,
        hits: 5_231,
    };
    let page = flat(&advised(vec![Advice::MemoryReclaim {
        time: Nanos::from_millis(20),
        limit: Some(limit),
    }]));
    for expected in [
        "Raise memory.limit_in_bytes of its cgroup /log, or write and cache less: the group \
         reached this limit of 24.0 MiB 5 231 times, and it spent 20.0 ms reclaiming memory.",
        "$ echo 50331648 > /sys/fs/cgroup/memory/log/memory.limit_in_bytes; ticktax audit --pid \
         4121",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains("free -m"), "{page}");
}
