//! Tests how arms are parsed, and how the objects that they apply to are found. The tests read this
//! machine's settings but don't change them.

use ticktax_knobs::{Consent, System};
use ticktax_model::{Cpu, Nanos};

use super::{Assignment, Named, Row, SettingTargets, Value, label, rows};
use crate::run::{Subject, TryError};

fn command() -> Subject {
    Subject::Commands(vec![vec!["true".into()]])
}

fn parsed(texts: &[&str]) -> Result<Vec<Row>, TryError> {
    resolved(texts, &command(), &Named::default())
}

fn resolved(texts: &[&str], subject: &Subject, named: &Named) -> Result<Vec<Row>, TryError> {
    let assignments: Result<Vec<Assignment>, TryError> =
        texts.iter().map(|text| Assignment::parse(text)).collect();
    let system = System::default();
    let (arms, rows) = rows(&assignments?, subject, named, Consent::Withheld, &system)?;
    assert!(rows.iter().all(|row| row.values.len() == arms));
    Ok(rows)
}

fn values(row: &Row) -> Vec<&str> {
    let word = |value| match value {
        &Value::Now => "now",
        Value::Is(value) => value,
    };
    row.values.iter().map(word).collect()
}

#[test]
fn a_single_value_applies_to_every_arm() {
    let rows = parsed(&["proc.nice=0, 5,10", "proc.timer_slack=1000"]).unwrap();
    assert_eq!(values(&rows[0]), ["0", "5", "10"]);
    assert_eq!(values(&rows[1]), ["1000"; 3]);
    assert!(
        rows.iter()
            .all(|row| row.targets == SettingTargets::Command)
    );
    let rows = parsed(&["proc.policy=other;batch,reset-on-fork"]).unwrap();
    assert_eq!(values(&rows[0]), ["other", "batch,reset-on-fork"]);
    let rows = parsed(&["cgroup.cpu_quota=now,20000"]).unwrap();
    assert_eq!(values(&rows[0]), ["now", "20000/100000"]);
    assert_eq!(rows[0].targets.words(), "the command's cgroup");
    assert_eq!((label(0), label(2)), ("A".to_owned(), "C".to_owned()));
}

#[test]
fn settings_of_a_process_apply_to_all_its_threads() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let each = Nanos::from_secs(1);
    let own = Subject::Process { pid, each };
    let rows = resolved(&["proc.nice=0,5"], &own, &Named::default()).unwrap();
    assert_eq!(rows[0].targets, SettingTargets::Threads(pid));
    let words = rows[0].targets.words();
    assert_eq!(words, format!("all threads of process {pid}"));
}

#[test]
fn senseless_assignments_are_refused() {
    let mut wrong = Vec::new();
    for (texts, why) in [
        (&["vm.swappiness"][..], "use KNOB=A,B"),
        (&["vm.swapiness=1,2"], "did you mean vm.swappiness"),
        (&["vm.swappiness=1,201"], "0 to 200"),
        (&["vm.swappiness=1,"], "a value is empty"),
        (&["vm.swappiness=1"], "a trial compares at least two"),
        (&["vm.swappiness=1,1"], "arms A and B are the same"),
        (
            &["proc.nice=0,1", "proc.timer_slack=1,2,3"],
            "the same number, or one",
        ),
        (&["proc.nice=0,1", "proc.nice=2,3"], "given twice"),
        (&["proc.nice=0,1,2,3,4,5,6,7,8"], "give at most 8"),
        (&["vm.min_free_kbytes=2000,4000"], "--yes"),
        (&["boot.isolcpus=1,2"], "lab run --cmdline"),
        (&["irq.affinity=0;1"], "--irq N"),
        (&["disk.read_ahead=0,1"], "--disk NAME"),
        (&[], "nothing to compare: give a setting"),
    ] {
        match parsed(texts) {
            Err(error) if error.to_string().contains(why) => {}
            other => wrong.push(format!(
                "{texts:?}: {:?}",
                other.map_err(|error| error.to_string())
            )),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_arm_equal_to_the_present_value_is_refused() {
    let now = ticktax_knobs::registry::find("vm.swappiness").unwrap();
    let now = now.read(&System::default(), &ticktax_knobs::Target::Machine);
    let Ok(now) = now else {
        return;
    };
    let same = parsed(&[&format!("vm.swappiness=now,{now}")]).unwrap_err();
    let same = same.to_string();
    assert!(
        same.contains(&format!("both set vm.swappiness to {now}")),
        "{same}"
    );
}

/// Without such policies, a child of the process could keep the nice value after the trial.
#[test]
fn a_negative_nice_value_needs_policies_that_reset_children() {
    let pid = i32::try_from(std::process::id()).unwrap();
    let process = Subject::Process {
        pid,
        each: Nanos::from_secs(1),
    };
    let resolve = |policy: &str, nice: &str| {
        let texts = [
            &*format!("proc.policy={policy}"),
            &*format!("proc.nice={nice}"),
        ];
        resolved(&texts, &process, &Named::default())
    };
    for policy in ["other;batch", "now;batch,reset-on-fork"] {
        let refused = resolve(policy, "0,-5").unwrap_err().to_string();
        assert!(refused.contains("append `,reset-on-fork`"), "{refused}");
    }
    resolve("other,reset-on-fork;batch,reset-on-fork", "0,-5").unwrap();
    resolve("other;batch", "0,5").unwrap();
}

#[test]
fn a_cpu_without_a_per_cpu_setting_is_refused() {
    let named = Named {
        cpus: Some([Cpu(0)].into_iter().collect()),
        ..Named::default()
    };
    let unused = resolved(&["proc.nice=0,1"], &command(), &named).unwrap_err();
    assert!(unused.to_string().contains("--cpu"), "{unused}");
}

fn commands(commands: &[&str]) -> Subject {
    let words = |command: &&str| command.split(' ').map(Into::into).collect();
    Subject::Commands(commands.iter().map(words).collect())
}

/// The commands are a list of values like that of a setting: the lengths must agree, and two arms
/// must differ in at least one of them.
#[test]
fn commands_can_be_the_arms() {
    let named = Named::default();
    let two = commands(&["./old", "./new"]);
    let none = |subject: &Subject| {
        let system = System::default();
        rows(&[], subject, &named, Consent::Withheld, &system)
            .map(|(arms, rows)| (arms, rows.len()))
    };
    assert_eq!(none(&two).unwrap(), (2, 0));
    let three = commands(&["./a", "./b", "./b -x"]);
    assert_eq!(none(&three).unwrap(), (3, 0));
    // Every arm can have the same value, or its own.
    let rows = resolved(&["proc.nice=5", "proc.timer_slack=1000,2000"], &two, &named).unwrap();
    assert_eq!(values(&rows[0]), ["5", "5"]);
    assert_eq!(values(&rows[1]), ["1000", "2000"]);
    // One command is enough if a setting differs.
    let same = commands(&["./a", "./a"]);
    resolved(&["proc.nice=0,5"], &same, &named).unwrap();

    let wrong = |texts: &[&str], subject: &Subject| {
        let error = resolved(texts, subject, &named).unwrap_err();
        error.to_string()
    };
    let expected = "arms A and B are the same: both run `./a`";
    assert_eq!(wrong(&[], &same), expected);
    assert_eq!(
        wrong(&["proc.nice=5"], &same),
        format!("{expected}, set proc.nice to 5")
    );
    assert_eq!(
        wrong(&["proc.nice=0,5"], &three),
        "proc.nice has 2 values, but the list of commands has 3: give the same number, or one \
         value for all arms"
    );
    let many = vec!["./a"; 9];
    assert_eq!(
        wrong(&[], &commands(&many)),
        "too many arms (9): give at most 8"
    );
}
