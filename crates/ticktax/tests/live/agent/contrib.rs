//! Tests the files for other programs (alert rules, a dashboard, a systemd unit) against the
//! agent's metrics.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_model::statement::Class;
use ticktax_observe::RecorderPlan;

use super::running::{AS_NOBODY, Agent, SERVING};
use crate::fixture::check;

fn contrib(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(path)
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn has_prometheus() -> bool {
    exists("prometheus") && exists("promtool")
}

pub(crate) fn has_systemd_analyze() -> bool {
    exists("systemd-analyze")
}

fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    check(output.status.success(), || format!("{command:?}: {text}"))?;
    Ok(text)
}

fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = text.split(|letter| !is_part(letter));
    let named = words.filter(|word| word.starts_with("ticktax_"));
    named.map(str::to_owned).collect()
}

fn queries(dashboard: &serde_json::Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.filter_map(|target| target["expr"].as_str());
    queries.map(str::to_owned).collect()
}

pub(crate) fn the_dashboard_and_the_rules_name_existing_metrics() -> Result<(), Failed> {
    let dashboard = fs::read_to_string(contrib("grafana/ticktax.json"))?;
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard)?;
    let queries = queries(&dashboard);
    check(queries.len() > 10, || format!("{queries:?}"))?;
    for panel in dashboard["panels"].as_array().into_iter().flatten() {
        let place = &panel["gridPos"];
        let is_whole = panel["title"].is_string()
            && panel["type"].is_string()
            && panel["fieldConfig"]["defaults"]["unit"].is_string()
            && ["x", "y", "w", "h"].iter().all(|side| place[side].is_u64());
        check(is_whole, || panel.to_string())?;
    }
    let rules = fs::read_to_string(contrib("prometheus/ticktax.rules.yml"))?;
    // Noise is the time of all kernel work, so it must be the sum of these classes.
    let classes = Class::ALL
        .into_iter()
        .filter(|class| class.is_kernel_work());
    let classes = classes.map(Class::name).collect::<Vec<_>>().join("|");
    let noise = format!("class=~\"{classes}\"");
    check(rules.contains(&noise), || format!("rules without {noise}"))?;
    let named = queries.iter().filter(|query| query.contains(&noise));
    check(named.count() == 2, || {
        format!("panels without {noise}: {queries:?}")
    })?;
    let expressions = rules.lines().filter(|line| !line.contains("record:"));
    let expressions: Vec<&str> = expressions.collect();
    let used: BTreeSet<String> = queries
        .iter()
        .flat_map(|query| metrics_in(query))
        .chain(metrics_in(&expressions.join("\n")))
        .collect();
    check(used.len() > 10, || format!("{used:?}"))?;
    let (place, facts) = super::place_for_nobody()?;
    let folder = facts.display().to_string();
    let incidents = place.path().join("incidents").display().to_string();
    let recording = ["--trigger", "signal", "--incidents", &incidents];
    let mut agent = Agent::start(&[&AS_NOBODY[..], &["--facts", &folder], &recording].concat())?;
    let page = agent.page_when("ticktax_recorded_seconds_total")?;
    let served: BTreeSet<String> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned()))
        .collect();
    // These metrics may be missing: nothing is throttled in this test, some kernels have no
    // pressure counters, and there was no incident.
    let at_times = [
        "ticktax_incidents_total",
        "ticktax_throttled_seconds_total",
        "ticktax_pressure_seconds_total",
    ];
    let missing: Vec<&String> = used
        .iter()
        .filter(|name| !served.contains(*name) && !at_times.contains(&&***name))
        .collect();
    check(missing.is_empty(), || format!("not served: {missing:?}"))?;
    agent.stops_with_balanced_accounts()
}

/// A running Prometheus, which is killed when this is dropped.
pub(super) struct Prometheus {
    child: Child,
    port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Prometheus {
    /// Starts Prometheus with these feature flags. It scrapes `target` and uses the rules that
    /// ticktax ships.
    pub(super) fn start(folder: &Path, target: &str, features: &[&str]) -> Result<Self, Failed> {
        fs::copy(
            contrib("prometheus/ticktax.rules.yml"),
            folder.join("ticktax.rules.yml"),
        )?;
        let shipped = fs::read_to_string(contrib("prometheus/prometheus.yml"))?;
        let own = shipped
            .replace("127.0.0.1:9559", target)
            .replace("15s", "1s");
        check(own.contains(target), || shipped.clone())?;
        let file = folder.join("prometheus.yml");
        fs::write(&file, format!("global:\n  evaluation_interval: 1s\n{own}"))?;
        output(
            Command::new("promtool")
                .args(["check", "config"])
                .arg(&file),
        )?;
        // Choose a port that was free just now.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(features)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, port })
    }

    fn get(&self, path: &str) -> Result<serde_json::Value, Failed> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        // Use HTTP/1.0, so that the server does not send the answer in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").ok_or("no answer")?.1;
        Ok(serde_json::from_str(body)?)
    }

    /// Waits until the API gives an answer that satisfies `is_wanted`. The time limit is long
    /// enough for a busy machine.
    pub(super) fn get_when(
        &self,
        path: &str,
        is_wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<serde_json::Value, Failed> {
        let mut last = serde_json::Value::Null;
        for _ in 0..1_200 {
            // Ignore errors, because Prometheus does not listen right after it starts.
            if let Ok(answer) = self.get(path) {
                if is_wanted(&answer) {
                    return Ok(answer);
                }
                last = answer;
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{path}: {last}").into())
    }
}

pub(crate) fn a_prometheus_scrapes_it_and_evaluates_the_rules() -> Result<(), Failed> {
    let rules = contrib("prometheus/ticktax.rules.test.yml");
    output(Command::new("promtool").args(["test", "rules"]).arg(rules))?;
    let mut agent = Agent::start(&SERVING)?;
    agent.page_when("ticktax_recorded_seconds_total")?;
    let folder = tempfile::tempdir()?;
    let prometheus = Prometheus::start(folder.path(), &agent.address()?, &[])?;
    let has_value = |answer: &serde_json::Value| !answer["data"]["result"][0].is_null();
    let query = |expression: &str| format!("/api/v1/query?query={expression}");
    prometheus.get_when(&query("ticktax_recorded_seconds_total"), has_value)?;
    prometheus.get_when(&query("ticktax_tick_duration_seconds_bucket"), has_value)?;
    let targets = prometheus.get("/api/v1/targets")?;
    let target = &targets["data"]["activeTargets"][0];
    check(target["health"] == "up", || target.to_string())?;
    check(target["lastError"] == "", || target.to_string())?;
    // The rule for the noise ratio needs two scrapes with different values.
    let noise = query("instance:ticktax_noise:ratio_rate5m");
    prometheus.get_when(&noise, has_value)?;
    let all_healthy = |answer: &serde_json::Value| {
        let rules = answer["data"]["groups"][0]["rules"].as_array();
        rules
            .is_some_and(|rules| rules.len() > 5 && rules.iter().all(|rule| rule["health"] == "ok"))
    };
    prometheus.get_when("/api/v1/rules", all_healthy)?;
    drop(prometheus);
    agent.stops_with_balanced_accounts()
}

pub(crate) fn a_prometheus_takes_native_histograms() -> Result<(), Failed> {
    let mut agent = Agent::start(&SERVING)?;
    agent.page_when("ticktax_tick_duration_seconds_count")?;
    let folder = tempfile::tempdir()?;
    let feature = ["--enable-feature=native-histograms"];
    let prometheus = Prometheus::start(folder.path(), &agent.address()?, &feature)?;
    let has_value = |answer: &serde_json::Value| !answer["data"]["result"][0].is_null();
    let query = |expression: &str| format!("/api/v1/query?query={expression}");
    // These functions work only on native histograms, so this checks that Prometheus received
    // native ones.
    let ticks = "ticktax_tick_duration_seconds";
    prometheus.get_when(&query(&format!("histogram_count({ticks})")), has_value)?;
    // The longest tick must take at least as long as the mean tick.
    let longest = format!(
        "histogram_quantile(1,{ticks})%3E%3Dhistogram_sum({ticks})/histogram_count({ticks})"
    );
    prometheus.get_when(&query(&longest), has_value)?;
    let targets = prometheus.get("/api/v1/targets")?;
    let target = &targets["data"]["activeTargets"][0];
    check(target["health"] == "up", || target.to_string())?;
    check(target["lastError"] == "", || target.to_string())?;
    drop(prometheus);
    agent.stops_with_balanced_accounts()
}

pub(crate) fn the_unit_is_sound() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let unit = fs::read_to_string(contrib("systemd/ticktax-agent.service"))?;
    let own = unit.replace("/usr/local/bin/ticktax", env!("CARGO_BIN_EXE_ticktax"));
    check(own != unit, || unit.clone())?;
    let file = folder.path().join("ticktax-agent.service");
    fs::write(&file, own)?;
    output(Command::new("systemd-analyze").arg("verify").arg(&file))?;
    let security = ["security", "--offline=true", "--threshold=30"];
    output(Command::new("systemd-analyze").args(security).arg(&file))?;
    Ok(())
}

pub(crate) fn the_unit_has_room_for_a_recorder() -> Result<(), Failed> {
    let unit = fs::read_to_string(contrib("systemd/ticktax-agent.service"))?;
    let mut lines = unit.lines();
    let limit = lines.find_map(|line| line.strip_prefix("MemoryMax=")?.strip_suffix('M'));
    let limit: u64 = limit.ok_or("no limit in MiB")?.parse()?;
    let page = fs::read_to_string(contrib("../docs/reference/record.md"))?;
    let table = page.split("### Memory of a service").nth(1);
    let table = table.and_then(|rest| rest.split("\n#").next());
    let table = table.ok_or("the documentation does not say")?;
    let rows = table.lines().filter_map(|line| {
        let (what, mib) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((what, mib.strip_suffix(" |")?.parse::<u64>().ok()?))
    });
    let rows: Vec<(&str, u64)> = rows.collect();
    let needed: u64 = rows.iter().map(|row| row.1).sum();
    check(needed <= limit && limit < 2 * needed, || {
        format!("{needed} MiB of {limit}: {rows:?}")
    })?;
    let plan = RecorderPlan::default();
    for (what, bytes) in [
        ("the rings", plan.ring_bytes),
        ("a window's records", plan.window_bytes as u64),
    ] {
        check(rows.contains(&(what, bytes >> 20)), || {
            format!("{what}: {bytes} bytes, {rows:?}")
        })?;
    }
    Ok(())
}
