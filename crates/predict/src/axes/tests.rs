//! Tests that setting a parameter with `--vary` has the same effect as editing the scenario.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_sim::settings::{self, Kind, Section};
use ticktax_sim::{Setup, Step, TaskId, Then, scenario};

use super::{Grid, names, seeds};
use ticktax_experiment::vary::{MOST_ARMS, Vary, VaryError};

const SCENARIO: &str = r#"
length = "1s"
seed = 7
[machine]
cpus = 2
hz = 100
tick_level = 1
drift_ppb = 0
device = "lapic"
lapic = { bus_hz = 90000000, divisor = 16 }
tick = "periodic"
timers = "first-tick"
policy = "eevdf"
slice = "3ms"
hrtick = false
slack = "50us"
phases = []
frequency = 1000
duty = 8
costs = { tick = "2us", timer = "1us", switch = "1us" }
[[task]]
name = "a.b"
count = 1
nice = 0
fifo = 10
cpu = 0
group = 0
start = "0s"
slice = "2ms"
footprint = { refill = "1ms", tau = "1s" }
program = [{ work = "1ms" }, { kernel = "1ms ± 50us" }, { masked = "exp 1ms" }, { sleep = "10ms..20ms" }, { work = "4ms" }, { select = "3ms" }, { poll = "5ms" }, { sleep-rest = { time = "30ms", unit = "1ms" } }, { sleep-until = "8ms" }, { spin-until = "13ms" }, { pace = { period = "17ms", spin = "19ms" } }, { every = { period = "9ms", work = "2ms" } }, { receive = { link = 0, work = "6ms" } }]
[[task]]
name = "rr"
round_robin = 5
program = [{ work = "1ms" }, { signal = "a.b" }]
[[interrupt]]
name = "nic"
cpu = 1
level = 1
start = "0s"
interval = "exp 2ms"
cost = "7us"
softirq = "11us"
[[link]]
ring = 64
protocol = 300
socket = 16
cost = "3us"
[[group]]
quota = "10ms"
period = "100ms"
[[group]]
quota = "20ms"
period = "100ms"
"#;

/// Each entry consists of an axis with a single value, the scenario text that the axis changes, and
/// the text that replaces it.
const WRITTEN: &[(&str, &str, &str)] = &[
    ("cpus=4", "cpus = 2", "cpus = 4"),
    (
        "policy=goodness",
        "policy = \"eevdf\"\nslice = \"3ms\"\nhrtick = false",
        "policy = \"goodness\"",
    ),
    (
        "policy=goodness-slices",
        "policy = \"eevdf\"\nslice = \"3ms\"\nhrtick = false",
        "policy = \"goodness-slices\"",
    ),
    (
        "policy=goodness-per-cpu",
        "policy = \"eevdf\"\nslice = \"3ms\"\nhrtick = false",
        "policy = \"goodness-per-cpu\"",
    ),
    (
        "policy=o1",
        "policy = \"eevdf\"\nslice = \"3ms\"\nhrtick = false",
        "policy = \"o1\"",
    ),
    (
        "policy=fair",
        "policy = \"eevdf\"\nslice = \"3ms\"\nhrtick = false",
        "policy = \"fair\"",
    ),
    ("policy=eevdf", "hz = 100", "hz = 100"),
    ("slack=1us", "slack = \"50us\"", "slack = \"1us\""),
    ("hz=250", "hz = 100", "hz = 250"),
    (
        "tick=nohz-idle",
        "tick = \"periodic\"",
        "tick = \"nohz-idle\"",
    ),
    (
        "tick=nohz-full",
        "tick = \"periodic\"",
        "tick = \"nohz-full\"",
    ),
    (
        "highres=on",
        "timers = \"first-tick\"",
        "timers = \"high-resolution\"",
    ),
    (
        "highres=off",
        "timers = \"first-tick\"",
        "timers = \"first-tick\"",
    ),
    (
        "timers=jiffies-2.4",
        "timers = \"first-tick\"",
        "timers = \"jiffies-2.4\"",
    ),
    (
        "timers=jiffies-2.6",
        "timers = \"first-tick\"",
        "timers = \"jiffies-2.6\"",
    ),
    ("slice=5ms", "slice = \"3ms\"", "slice = \"5ms\""),
    ("hrtick=on", "hrtick = false", "hrtick = true"),
    (
        "phase=1.5ms",
        "phases = []",
        "phases = [\"1.5ms\", \"1.5ms\"]",
    ),
    ("seed=9", "seed = 7", "seed = 9"),
    ("length=2s", "length = \"1s\"", "length = \"2s\""),
    ("drift_ppb=-300", "drift_ppb = 0", "drift_ppb = -300"),
    ("tick_level=2", "tick_level = 1", "tick_level = 2"),
    ("costs.tick=9us", "tick = \"2us\"", "tick = \"9us\""),
    ("costs.timer=9us", "timer = \"1us\"", "timer = \"9us\""),
    ("costs.switch=9us", "switch = \"1us\"", "switch = \"9us\""),
    ("frequency=500", "frequency = 1000", "frequency = 500"),
    ("duty=3", "duty = 8", "duty = 3"),
    ("device=lapic", "hz = 100", "hz = 100"),
    (
        "device=tsc-deadline",
        "device = \"lapic\"\nlapic = { bus_hz = 90000000, divisor = 16 }",
        "device = \"tsc-deadline\"",
    ),
    (
        "device=pit",
        "device = \"lapic\"\nlapic = { bus_hz = 90000000, divisor = 16 }",
        "device = \"pit\"",
    ),
    (
        "lapic.bus_hz=80000000",
        "bus_hz = 90000000",
        "bus_hz = 80000000",
    ),
    ("lapic.divisor=8", "divisor = 16", "divisor = 8"),
    ("task.a.b.count=3", "count = 1", "count = 3"),
    ("task.a.b.nice=-5", "nice = 0", "nice = -5"),
    ("task.a.b.cpu=1", "cpu = 0", "cpu = 1"),
    ("task.a.b.fifo=20", "fifo = 10", "fifo = 20"),
    ("task.a.b.round_robin=20", "fifo = 10", "round_robin = 20"),
    (
        "task.rr.round_robin=20",
        "round_robin = 5",
        "round_robin = 20",
    ),
    ("task.a.b.slice=9ms", "slice = \"2ms\"", "slice = \"9ms\""),
    (
        "task.a.b.start=9ms",
        "start = \"0s\"\nslice",
        "start = \"9ms\"\nslice",
    ),
    ("task.a.b.group=1", "group = 0", "group = 1"),
    (
        "task.a.b.footprint.refill=9ms",
        "refill = \"1ms\"",
        "refill = \"9ms\"",
    ),
    (
        "task.a.b.footprint.tau=9ms",
        "tau = \"1s\"",
        "tau = \"9ms\"",
    ),
    (
        "task.a.b.work.1=9ms",
        "[{ work = \"1ms\" }, { kernel",
        "[{ work = \"9ms\" }, { kernel",
    ),
    ("task.a.b.work.2=9ms", "work = \"4ms\"", "work = \"9ms\""),
    ("task.a.b.kernel=9ms", "1ms ± 50us", "9ms ± 50us"),
    ("task.a.b.masked=9ms", "exp 1ms", "exp 9ms"),
    ("task.a.b.sleep=9ms", "10ms..20ms", "4ms..14ms"),
    (
        "task.a.b.select=9ms",
        "select = \"3ms\"",
        "select = \"9ms\"",
    ),
    ("task.a.b.poll=9ms", "poll = \"5ms\"", "poll = \"9ms\""),
    (
        "task.a.b.sleep-rest.time=9ms",
        "time = \"30ms\"",
        "time = \"9ms\"",
    ),
    (
        "task.a.b.sleep-rest.unit=9ms",
        "unit = \"1ms\"",
        "unit = \"9ms\"",
    ),
    (
        "task.a.b.sleep-until=9ms",
        "sleep-until = \"8ms\"",
        "sleep-until = \"9ms\"",
    ),
    (
        "task.a.b.spin-until=9ms",
        "spin-until = \"13ms\"",
        "spin-until = \"9ms\"",
    ),
    (
        "task.a.b.pace.period=7ms",
        "period = \"17ms\"",
        "period = \"7ms\"",
    ),
    (
        "task.a.b.pace.spin=9ms",
        "spin = \"19ms\"",
        "spin = \"9ms\"",
    ),
    (
        "task.a.b.every.period=7ms",
        "period = \"9ms\"",
        "period = \"7ms\"",
    ),
    (
        "task.a.b.every.work=9ms",
        "work = \"2ms\"",
        "work = \"9ms\"",
    ),
    (
        "task.a.b.receive.work=9ms",
        "work = \"6ms\"",
        "work = \"9ms\"",
    ),
    ("interrupt.nic.cpu=0", "cpu = 1\nlevel", "cpu = 0\nlevel"),
    (
        "interrupt.nic.level=3",
        "cpu = 1\nlevel = 1",
        "cpu = 1\nlevel = 3",
    ),
    (
        "interrupt.nic.start=9ms",
        "start = \"0s\"\ninterval",
        "start = \"9ms\"\ninterval",
    ),
    ("interrupt.nic.interval=9ms", "exp 2ms", "exp 9ms"),
    ("interrupt.nic.cost=9us", "cost = \"7us\"", "cost = \"9us\""),
    (
        "interrupt.nic.softirq=9us",
        "softirq = \"11us\"",
        "softirq = \"9us\"",
    ),
    ("link.0.ring=9", "ring = 64", "ring = 9"),
    ("link.0.protocol=9", "protocol = 300", "protocol = 9"),
    ("link.0.socket=9", "socket = 16", "socket = 9"),
    ("link.0.cost=9us", "cost = \"3us\"", "cost = \"9us\""),
    ("group.1.quota=9ms", "quota = \"20ms\"", "quota = \"9ms\""),
    (
        "group.0.period=50ms",
        "quota = \"10ms\"\nperiod = \"100ms\"",
        "quota = \"10ms\"\nperiod = \"50ms\"",
    ),
];

fn setup() -> Setup {
    scenario::parse("scenario.toml", SCENARIO).unwrap()
}

fn read(axes: &[&str], setup: Setup) -> Result<Grid, VaryError> {
    let typed = axes.iter().map(|text| text.parse::<Vary>());
    Grid::new(&typed.collect::<Result<Vec<_>, _>>()?, setup, MOST_ARMS)
}

fn grid(axes: &[&str]) -> Grid {
    read(axes, setup()).unwrap()
}

#[test]
fn an_axis_equals_an_edit_of_the_scenario() {
    for (axis, now, instead) in WRITTEN {
        assert_eq!(SCENARIO.matches(now).count(), 1, "{now} stands for {axis}");
        let written = SCENARIO.replace(now, instead);
        let written = scenario::parse("written.toml", &written).unwrap();
        assert_eq!(grid(&[axis]).arm(0), Ok(written), "{axis}");
    }
}

/// Parses a scenario that contains only the settings in `lines`. Each is a line of TOML.
fn settings_alone(lines: &BTreeMap<&str, String>) -> Setup {
    let section_text = |section| {
        let is_there = move |name: &str| settings::find(name).unwrap().section() == section;
        let lines = lines.iter().filter(move |(name, _)| is_there(name));
        lines
            .map(|(name, value)| format!("{name} = {value}\n"))
            .collect::<Vec<String>>()
            .concat()
    };
    let text = format!(
        "{}[machine]\n{}",
        section_text(Section::Run),
        section_text(Section::Machine)
    );
    scenario::parse("settings.toml", &text).unwrap_or_else(|error| panic!("{text}{error}"))
}

#[test]
fn every_setting_as_an_axis_equals_the_written_setting() {
    let base: BTreeMap<&str, String> = [
        ("cpus", "2"),
        ("hz", "100"),
        ("policy", "\"eevdf\""),
        ("device", "\"lapic\""),
        ("length", "\"1s\""),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .into();
    let setup = settings_alone(&base);
    for setting in settings::all() {
        let values = match setting.kind() {
            Kind::Integer(min, max) => vec![100_003.clamp(min, max).to_string()],
            Kind::Duration => vec!["9us".to_owned()],
            Kind::Word(words) => words.iter().map(|&word| word.to_owned()).collect(),
        };
        for value in values {
            let axis = format!("{}={value}", setting.name());
            let varied = read(&[&axis], setup.clone()).unwrap().arm(0);
            let mut lines = base.clone();
            let is_number = matches!(setting.kind(), Kind::Integer(..));
            let literal = if is_number {
                value
            } else {
                format!("\"{value}\"")
            };
            lines.insert(setting.name(), literal);
            assert_eq!(varied, Ok(settings_alone(&lines)), "{lines:?}");
        }
    }
}

#[test]
fn every_parameter_of_an_object_is_tested() {
    let tried: BTreeSet<String> = WRITTEN
        .iter()
        .map(|(axis, ..)| axis.split('=').next().unwrap())
        .map(|name| {
            name.replace("a.b", "NAME")
                .replace("rr.", "NAME.")
                .replace("interrupt.nic.", "interrupt.NAME.")
        })
        .map(|name| {
            name.trim_end_matches(".1")
                .trim_end_matches(".2")
                .to_owned()
        })
        .map(|name| {
            name.replace("link.0", "link.N")
                .replace("group.0", "group.N")
        })
        .map(|name| name.replace("group.1", "group.N"))
        .collect();
    for settings in names().lines().skip(1) {
        let (prefix, fields) = settings.split_once(": ").unwrap();
        for name in fields.split(", ").map(|field| format!("{prefix}{field}")) {
            assert!(tried.contains(&name), "{name} is not tried");
        }
    }
}

#[test]
fn arms_follow_the_options_and_the_last_one_changes_fastest() {
    let grid = grid(&["hz=100,1000", "task.a.b.work.2=1ms..3ms/1ms", "seed=5,4"]);
    let arms: Vec<String> = (0..grid.len())
        .map(|arm| {
            grid.settings(arm)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        arms[..3],
        [
            "hz=100 task.a.b.work.2=1ms seed=5",
            "hz=100 task.a.b.work.2=1ms seed=4",
            "hz=100 task.a.b.work.2=2ms seed=5"
        ]
    );
    assert_eq!(arms[11], "hz=1000 task.a.b.work.2=3ms seed=4");
    assert_eq!(arms.iter().collect::<BTreeSet<_>>().len(), 12);
}

#[test]
fn the_order_of_the_axes_changes_no_setup() {
    let setup = |axes: &[&str]| grid(axes).arm(0).unwrap();
    // The later settings in `one` depend on the earlier ones: the slice on the policy, and the
    // phases on the number of CPUs.
    let one = ["cpus=8", "policy=eevdf", "slice=1ms", "phase=1ms"];
    let other = ["phase=1ms", "slice=1ms", "policy=eevdf", "cpus=8"];
    assert_eq!(setup(&one), setup(&other));
    assert_eq!(setup(&one).machine.phases.len(), 8);
}

#[test]
fn a_new_policy_gets_its_kernels_default_slice() {
    let fair = SCENARIO.replace(
        "policy = \"eevdf\"\nslice = \"3ms\"\nhrtick = false",
        "policy = \"fair\"",
    );
    let setup = scenario::parse("fair.toml", &fair).unwrap();
    for (cpus, us) in [(2, 1_400), (4, 2_100), (7, 2_100), (8, 2_800), (64, 2_800)] {
        let axes = [&*format!("cpus={cpus}"), "policy=eevdf"];
        let grid = read(&axes, setup.clone()).unwrap();
        let policy = grid.arm(0).unwrap().machine.policy;
        let slice = ticktax_model::Nanos(us * 1_000);
        assert_eq!(
            policy,
            ticktax_sim::Policy::Eevdf {
                slice,
                hrtick: false
            },
            "{cpus} CPUs"
        );
    }
}

#[test]
fn changing_the_number_of_tasks_keeps_signal_targets() {
    let text = "length = \"1s\"\n[machine]\nhz = 100\npolicy = \"fair\"\n[[task]]\nname = \
        \"w\"\ncount = 3\nprogram = [{ work = \"1ms\" }]\n[[task]]\nname = \"x\"\nprogram = \
        [\"wait\", { work = \"1ms\" }]\n[[task]]\nname = \"y\"\nprogram = [{ work = \"1ms\" }, { \
        signal = \"x\" }, { signal = \"w\" }]\n[[interrupt]]\nname = \"i\"\ninterval = \
        \"1ms\"\nsignal = \"x\"\n";
    let setup = scenario::parse("s.toml", text).unwrap();
    for count in [1, 2, 3, 7] {
        let axis = format!("task.w.count={count}");
        let setup = read(&[&axis], setup.clone()).unwrap().arm(0).unwrap();
        let written = text.replace("count = 3", &format!("count = {count}"));
        assert_eq!(
            setup,
            scenario::parse("w.toml", &written).unwrap(),
            "{count}"
        );
        let x = TaskId(count);
        assert_eq!(setup.tasks[x.index()].name, "x");
        assert_eq!(setup.tasks[x.index() + 1].program[1], Step::Signal(x));
        assert_eq!(setup.sources[0].then, Then::Signal(x));
    }
}

#[test]
fn invalid_options_are_reported_by_name() {
    let setup = setup();
    for (axis, why) in [
        (
            "hz",
            "`hz` has no values: use NAME=LIST, for example hz=100,250",
        ),
        (
            "colour=1",
            "colour: unknown setting: choose from cpus, policy",
        ),
        ("hz=", "hz: a value is missing"),
        ("hz=100,", "hz: a value is missing"),
        ("hz=100,100", "hz: duplicate value `100`"),
        ("hz=100..300/100,200", "hz: duplicate value `200`"),
        (
            "hz=300..100/100",
            "hz: the range `300..100/100` ends before it starts",
        ),
        ("cpus=0", "cpus: 0 is out of range: choose 1 to 8192"),
        (
            "policy=cfs",
            "policy: unknown value `cfs`: choose from goodness",
        ),
        (
            "task.c.work=1ms",
            "the scenario has no such task: use task.NAME.FIELD with one of these names: a.b, rr",
        ),
        (
            "task.rr.sleep=1ms",
            "task.rr.sleep: the program of rr has no step `sleep`",
        ),
        (
            "task.rr.colour=1",
            "task.rr.colour: a task has no field `colour`; choose from count, nice",
        ),
        (
            "task.a.b.work=1ms",
            "the program of a.b has 2 steps `work`; choose one of work.1 to work.2",
        ),
        (
            "task.a.b.work.3=1ms",
            "has no step `work` number 3; it has 2",
        ),
        (
            "task.a.b.work.0=1ms",
            "has no step `work` number 0; it has 2",
        ),
        (
            "interrupt.disk.cost=1ms",
            "the scenario has no such interrupt",
        ),
        (
            "interrupt.nic.colour=1",
            "an interrupt has no field `colour`; choose from cpu",
        ),
        ("link.1.ring=1", "the scenario has no such link"),
        ("group.x.quota=1ms", "the scenario has no such group"),
    ] {
        let error = read(&[axis], setup.clone()).unwrap_err().to_string();
        assert!(error.contains(why), "{axis}: {error}");
        assert!(!error.contains('\n'), "{axis}: {error}");
    }
}

#[test]
fn conflicting_options_and_oversized_grids_are_refused() {
    for (axes, why) in [
        (["hz=1", "hz=2"], "hz: it is already varied"),
        (
            ["highres=on", "timers=first-tick"],
            "timers: it is already varied, as highres",
        ),
        (
            ["task.a.b.fifo=1", "task.a.b.round_robin=1"],
            "task.a.b.round_robin: it is already varied, as task.a.b.fifo",
        ),
        (
            ["seed=1..1000000/1", "hz=1..1000/1"],
            "seed × hz: 1000000000 arms are too many (at most 1000000)",
        ),
        (["seed=1..1000000000/1", "hz=1"], "seed: the range"),
    ] {
        let error = read(&axes, setup()).unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}");
    }
}

#[test]
fn an_impossible_arm_names_the_value() {
    for (axes, why) in [
        (
            ["policy=fair", "slice=1ms"],
            "slice=1ms: a slice can only be set",
        ),
        (
            ["cpus=1", "seed=1"],
            "interrupt nic: its CPU does not exist",
        ),
        (
            ["hz=1000", "phase=2ms"],
            "machine: a phase must be between 0 and one tick",
        ),
        (
            ["task.a.b.sleep=1ms", "seed=1"],
            "task.a.b.sleep=1ms: a range of its width",
        ),
    ] {
        let error = grid(&axes).arm(0).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn no_options_make_one_arm_and_seeds_make_repetitions() {
    let base = setup();
    let none = grid(&[]);
    assert!((none.len(), none.arm(0)) == (1, Ok(base.clone())) && none.is_empty());
    let seeds = seeds(3, &base).unwrap().to_string();
    let arms = grid(&[&seeds]).arms().unwrap();
    let seeds: Vec<u64> = arms.iter().map(|arm| arm.seed).collect();
    assert_eq!(seeds, [7, 8, 9]);
}
