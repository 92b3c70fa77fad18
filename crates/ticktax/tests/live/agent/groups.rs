//! Tests that a group with a quota appears in the metrics with its waits.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use libtest_mimic::Failed;
use ticktax_host::Proc;

use super::super::fixture::check;
use super::contrib::Prometheus;
use super::running::{AS_NOBODY, Agent, sum_of};

/// A cgroup with two busy processes that may run for 10 ms of every 100 ms. It is removed when this
/// is dropped.
struct Throttled {
    name: String,
    folder: PathBuf,
    busy: Vec<Child>,
}

impl Throttled {
    fn start() -> Result<Self, Failed> {
        let hierarchy = Proc::default().cpu_hierarchy().ok_or("no cgroups")?;
        let root = hierarchy.folder().ok_or("no mounted cgroups")?;
        let name = format!("ticktax-test-{}.service", std::process::id());
        let folder = root.join(&name);
        fs::create_dir(&folder)?;
        let mut group = Self {
            name,
            folder,
            busy: Vec::new(),
        };
        let quota = group.folder.join("cpu.cfs_quota_us");
        if quota.exists() {
            fs::write(quota, "10000")?;
        } else {
            fs::write(group.folder.join("cpu.max"), "10000 100000")?;
        }
        for _ in 0..2 {
            let script = r#"echo $$ > "$0/cgroup.procs"; while :; do :; done"#;
            let mut busy = Command::new("sh");
            group
                .busy
                .push(busy.args(["-c", script]).arg(&group.folder).spawn()?);
        }
        Ok(group)
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        for busy in &mut self.busy {
            let _ = busy.kill();
            let _ = busy.wait();
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Returns why the test cannot run here, or `None` if it can.
pub(crate) fn no_quotas() -> Option<&'static str> {
    let hierarchy = Proc::default().cpu_hierarchy();
    let folder = hierarchy.as_ref().and_then(|hierarchy| hierarchy.folder());
    let has_quotas = folder.is_some_and(|folder| {
        let control = fs::read_to_string(folder.join("cgroup.subtree_control"));
        let is_enabled = control.is_ok_and(|control| control.split(' ').any(|name| name == "cpu"));
        is_enabled || folder.join("cpu.shares").exists()
    });
    (!has_quotas).then_some("needs cgroups with CPU quotas")
}

pub(crate) fn a_throttled_group_has_waits_and_a_quota() -> Result<(), Failed> {
    let group = Throttled::start()?;
    let mut agent = Agent::start(&AS_NOBODY)?;
    let throttled = format!(
        "ticktax_group_throttled_periods_total{{group=\"{}\"}}",
        group.name
    );
    let page = agent.page_that(|page| sum_of(page, &throttled) > 0.0)?;
    let labels = format!("{{group=\"{0}\",path=\"/{0}\"}}", group.name);
    for (gauge, value) in [("quota", 0.01), ("quota_period", 0.1)] {
        let found = sum_of(&page, &format!("ticktax_group_{gauge}_seconds{labels}"));
        check((found - value).abs() < 1e-9, || {
            format!("{gauge} of {found} s in\n{page}")
        })?;
    }
    let own = format!("{{group=\"{}\"}}", group.name);
    for family in [
        format!("ticktax_group_run_queue_wait_seconds_total{own}"),
        format!("ticktax_group_quota_periods_total{own}"),
        format!("ticktax_group_throttled_seconds_total{own}"),
        "ticktax_run_queue_wait_seconds_total{name=\"sh\"}".to_owned(),
    ] {
        check(sum_of(&page, &family) > 0.0, || {
            format!("no {family} in\n{page}")
        })?;
    }
    agent.stops_with_balanced_accounts()
}

/// Returns the value of a series in an answer from Prometheus. Returns `None` unless there is
/// exactly one.
fn value(answer: &serde_json::Value) -> Option<f64> {
    match answer["data"]["result"].as_array()?.as_slice() {
        [series] => series["value"][1].as_str()?.parse().ok(),
        _ => None,
    }
}

/// Compares a group's series with those that Prometheus stored. A counter rises between two reads,
/// so the value in Prometheus must lie between those on an earlier and a later page.
pub(crate) fn a_prometheus_has_the_values_of_groups() -> Result<(), Failed> {
    let group = Throttled::start()?;
    let mut agent = Agent::start(&AS_NOBODY)?;
    let own = format!("{{group=\"{}\"}}", group.name);
    let counters = [
        format!("ticktax_group_run_queue_wait_seconds_total{own}"),
        format!("ticktax_group_quota_periods_total{own}"),
        format!("ticktax_group_throttled_periods_total{own}"),
        format!("ticktax_group_throttled_seconds_total{own}"),
        "ticktax_run_queue_wait_seconds_total{name=\"sh\"}".to_owned(),
    ];
    let has_all = |page: &str| counters.iter().all(|series| sum_of(page, series) > 0.0);
    let before = agent.page_that(has_all)?;
    let folder = tempfile::tempdir()?;
    let prometheus = Prometheus::start(folder.path(), &agent.address()?, &[])?;
    for series in &counters {
        let query = format!("/api/v1/query?query={}", encoded(series));
        let first = sum_of(&before, series);
        // A scrape can return the same figures as the page that was read before.
        let answer = prometheus.get_when(&query, |answer| value(answer) >= Some(first))?;
        let stored = value(&answer).unwrap_or_default();
        let after = sum_of(&agent.page()?, series);
        check(stored <= after, || {
            format!("{series}: {first}, {stored} in Prometheus, then {after}")
        })?;
    }
    for (gauge, wanted) in [("quota", 0.01), ("quota_period", 0.1)] {
        let series = format!("ticktax_group_{gauge}_seconds{own}");
        let query = format!("/api/v1/query?query={}", encoded(&series));
        let is_right = |answer: &serde_json::Value| {
            value(answer).is_some_and(|value| (value - wanted).abs() < 1e-9)
        };
        prometheus.get_when(&query, is_right)?;
    }
    drop(prometheus);
    agent.stops_with_balanced_accounts()
}

/// Encodes a query for a URL.
fn encoded(query: &str) -> String {
    let letter = |letter: char| match letter {
        '{' => "%7B".to_owned(),
        '}' => "%7D".to_owned(),
        '"' => "%22".to_owned(),
        '=' => "%3D".to_owned(),
        other => other.to_string(),
    };
    query.chars().map(letter).collect()
}
