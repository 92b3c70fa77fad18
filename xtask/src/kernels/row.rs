//! Summarizes the audit of a kernel as a table row.

use std::fmt;

use serde_json::Value;

/// Table heading.
pub(super) const HEAD: &str = "\
| kernel | Linux | tick, Hz | hooks missing | kernel entries | accounts | tick's function | real-time thread: traced, actual | irq_work: traced, counted, sent | empty gaps | outside |
|---|---|---|---|---|---|---|---|---|---|---|
";

/// Tolerance for the thread's CPU time: the audit may differ from the thread itself by at most this
/// fraction. The two observations do not start and end at exactly the same times, and each may
/// start or end in the middle of a period.
const NEAR: f64 = 0.1;
/// Tolerance for the number of interrupts, if the kernel sends none of this kind itself: the audit
/// may differ from the kernel's count by at most this fraction. There are 200 interrupts per audit.
const FEW: f64 = 0.02;
/// At most this share of the CPU time may be outside the kernel or unexplained. Nothing but the
/// test runs in these guests.
const OUTSIDE: f64 = 0.000_05;
/// A test is valid only if the thread uses at least this share of the CPU, and if at least this
/// many interrupts per second are sent. Some are lost if the CPU is idle before the audit.
const MADE: (f64, f64) = (0.04, 80.0);

/// Name of the function that handles the tick, and its name in earlier kernels.
const TICKS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// The injectors' own reports about what they did.
pub(super) struct Truth {
    pub(super) thread: Value,
    pub(super) interrupts: Value,
}

/// The results for one kernel.
pub(super) struct Row {
    kernel: String,
    outcome: Result<AuditResult, String>,
}

/// Interrupts per second that a CPU sent to itself. `seen` is the audit's figure.
struct Interrupts {
    seen: f64,
    /// The kernel's figure, which includes interrupts of this kind that the kernel itself sent.
    counted: f64,
    /// The injector's figure.
    sent: f64,
}

impl Interrupts {
    /// Returns whether the audit saw all interrupts, from both the injector and the kernel.
    fn are_all_seen(&self) -> bool {
        let has_own = self.counted > (1.0 + FEW) * self.sent;
        let off = if has_own { NEAR } else { FEW };
        self.sent >= MADE.1
            && self.seen >= (1.0 - FEW) * self.sent
            && (self.seen - self.counted).abs() <= off * self.counted
    }
}

struct AuditResult {
    release: String,
    hz: String,
    missing: Vec<String>,
    every_entry: bool,
    balances: bool,
    tick: Option<String>,
    /// The share of the CPU that the injected thread used, according to the audit and to the
    /// injector.
    thread: (f64, f64),
    interrupts: Interrupts,
    proof: String,
    /// Share of the CPU that is outside the kernel or unexplained.
    outside: f64,
}

impl Row {
    /// Builds the row from the audit's statement and the injectors' reports.
    pub(super) fn new(kernel: &str, outcome: Result<(Value, Truth), String>) -> Self {
        Self {
            kernel: kernel.to_owned(),
            outcome: outcome
                .and_then(|(statement, truth)| AuditResult::in_statement(&statement, &truth)),
        }
    }

    /// Returns whether all figures are within their tolerances.
    pub(super) fn is_right(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|audit| {
            let near = |(found, made): (f64, f64)| (found - made).abs() <= NEAR * made;
            let right = audit.every_entry
                && audit.balances
                && audit.tick.is_some()
                && audit.outside <= OUTSIDE;
            right
                && near(audit.thread)
                && audit.thread.1 >= MADE.0
                && audit.interrupts.are_all_seen()
        })
    }
}

impl AuditResult {
    fn in_statement(statement: &Value, truth: &Truth) -> Result<Self, String> {
        if statement["level"] != "kernel" {
            let limitations = list(&statement["coverage"]["limitations"]);
            let why = limitations
                .iter()
                .find_map(|limitation| limitation["message"].as_str());
            return Err(why.unwrap_or("the kernel was not traced").to_owned());
        }
        let accounts = list(&statement["accounts"]);
        let limitations = list(&statement["coverage"]["limitations"]);
        let missing = limitations
            .iter()
            .filter(|limitation| limitation["id"] == "hook-missing");
        let balance = &statement["balance"];
        let timers = accounts
            .iter()
            .filter(|account| account["class"] == "irq" && account["name"] == "local_timer");
        let mut functions = timers
            .flat_map(|account| list(&account["parts"]))
            .map(|part| text(&part["name"]));
        let tick = functions.find(|name| TICKS.contains(&name.as_str()));
        let seconds = |value: &Value| value.as_f64().unwrap_or(0.0) / 1e9;
        let watched =
            seconds(&balance["elapsed_ns"]) / list(&statement["cpus"]).len().max(1) as f64;
        let watched_for = |truth: &Value| seconds(&truth["end"]) - seconds(&truth["start"]);
        let (thread, sent) = (&truth.thread, &truth.interrupts);
        let comm = thread["comm"].as_str().unwrap_or_default();
        let mut received = accounts
            .iter()
            .filter(|account| account["class"] == "irq" && account["name"] == sent["account"]);
        let received = received.find_map(|account| account["count"].as_f64());
        let counts = list(&sent["counts"]);
        let counted = counts
            .iter()
            .find(|count| text(&count["name"]).starts_with("/proc/interrupts"));
        let counted = counted.and_then(|count| count["value"].as_f64());
        Ok(Self {
            release: text(&statement["machine"]["kernel"]),
            hz: statement["machine"]["hz_configured"].to_string(),
            missing: missing
                .map(|limitation| text(&limitation["hook"]))
                .collect(),
            every_entry: statement["coverage"]["every_entry_watched"] == true,
            balances: list(&balance["imbalances_ns"]).is_empty()
                && balance["elapsed_ns"] == balance["accounted_ns"],
            tick,
            thread: (
                thread_time(&accounts, comm) / watched,
                seconds(&thread["injected"]["time"]) / watched_for(thread),
            ),
            interrupts: Interrupts {
                seen: received.unwrap_or(0.0) / watched,
                counted: counted.unwrap_or(0.0) / watched_for(sent),
                sent: sent["events"].as_f64().unwrap_or(0.0) / watched_for(sent),
            },
            proof: proof(&statement["gaps"]["proofs"]),
            outside: seconds_outside(&accounts) / watched,
        })
    }
}

/// Returns the time that is outside the kernel or unexplained, in seconds.
fn seconds_outside(accounts: &[Value]) -> f64 {
    let unseen = accounts.iter().filter(|account| {
        account["class"] == "hypervisor_or_firmware" || account["class"] == "unexplained"
    });
    let times = unseen.map(|account| account["time_ns"].as_f64().unwrap_or(0.0));
    // Start from 0: the sum of an empty list is -0.
    times.fold(0.0, |sum, time| sum + time) / 1e9
}

/// Returns the total time of all threads with this name, in seconds.
fn thread_time(accounts: &[Value], comm: &str) -> f64 {
    let time_of = |account: &Value| {
        if account["name"] == comm {
            return account["time_ns"].as_f64().unwrap_or(0.0);
        }
        let parts = list(&account["parts"]);
        let mine = parts.iter().filter(|part| part["name"] == comm);
        mine.filter_map(|part| part["time_ns"].as_f64()).sum()
    };
    accounts.iter().map(time_of).sum::<f64>() / 1e9
}

/// Formats the proofs that gaps without a span are outside the kernel, combined over all CPUs.
fn proof(proofs: &Value) -> String {
    let mut words: Vec<String> = list(proofs)
        .iter()
        .map(|gap| match &gap["proof"] {
            Value::String(word) => word.clone(),
            bounded => format!("all but {} proven", bounded["bounded"]),
        })
        .collect();
    words.dedup();
    words.join(", ")
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = &self.kernel;
        let audit = match &self.outcome {
            Ok(audit) => audit,
            Err(why) => return write!(f, "| {kernel} | {why} | | | | | | | | | |"),
        };
        let or_none = |words: &[String]| {
            if words.is_empty() {
                "none".to_owned()
            } else {
                words.join(", ")
            }
        };
        let (found, made) = audit.thread;
        let Interrupts {
            seen: received,
            counted,
            sent,
        } = audit.interrupts;
        write!(
            f,
            "| {kernel} | {} | {} | {} | {} | {} | {} | {:.2} %, {:.2} % | {received:.1}, {counted:.1}, {sent:.1} | {} | {:.4} % |",
            audit.release,
            audit.hz,
            or_none(&audit.missing),
            if audit.every_entry {
                "watched"
            } else {
                "**not watched**"
            },
            if audit.balances {
                "balance"
            } else {
                "**do not balance**"
            },
            audit.tick.as_deref().unwrap_or("**none**"),
            100.0 * found,
            100.0 * made,
            audit.proof,
            100.0 * audit.outside,
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Interrupts, Row, Truth};

    fn statement() -> Value {
        json!({
            "level": "kernel",
            "machine": { "kernel": "6.1.0-50-cloud-arm64", "hz_configured": 250 },
            "coverage": { "limitations": [{ "id": "hook-missing", "hook": "csd_function" }],
                "every_entry_watched": true },
            "cpus": [{}, {}],
            "balance": {
                "elapsed_ns": 8_000_000_000_u64,
                "accounted_ns": 8_000_000_000_u64,
                "imbalances_ns": [],
            },
            "accounts": [
                { "class": "irq", "name": "local_timer", "count": 9, "parts": [{ "name": "tick_sched_timer" }] },
                { "class": "irq", "name": "irq_work", "count": 401 },
                { "class": "task", "name": "ticktax-inject", "parts": [{ "name": "fifo", "time_ns": 200_000_000 }] },
                {
                    "class": "hypervisor_or_firmware",
                    "name": "hypervisor or firmware",
                    "time_ns": 12_000,
                },
                { "class": "unexplained", "name": "unexplained", "time_ns": 4_000 },
            ],
            "gaps": { "proofs": [{ "proof": "proven" }, { "proof": "proven" }] },
        })
    }

    fn truth() -> Truth {
        let (start, end) = (0, 8_000_000_000_u64);
        Truth {
            thread: json!({ "comm": "fifo", "start": start, "end": end,
                "injected": { "time": 400_000_000 } }),
            interrupts: json!({ "account": "irq_work", "start": start, "end": end, "events": 800,
                "counts": [{ "name": "/proc/interrupts IRQ work interrupts", "value": 808 }] }),
        }
    }

    fn row(statement: Value, truth: Truth) -> Row {
        Row::new("bookworm:linux-image-cloud-arm64", Ok((statement, truth)))
    }

    #[test]
    fn a_row_shows_the_figures_of_the_statement() {
        let right = row(statement(), truth());
        assert!(right.is_right());
        assert_eq!(
            right.to_string(),
            "| bookworm:linux-image-cloud-arm64 | 6.1.0-50-cloud-arm64 | 250 | csd_function | watched | \
             balance | tick_sched_timer | 5.00 %, 5.00 % | 100.2, 101.0, 100.0 | proven | 0.0004 % |"
        );
    }

    #[test]
    fn wrong_figures_are_not_right() {
        let with = |path: &str, value: Value| {
            let mut changed = statement();
            *changed.pointer_mut(path).unwrap() = value;
            row(changed, truth())
        };
        for (path, value) in [
            ("/balance/accounted_ns", json!(7)),
            ("/coverage/every_entry_watched", json!(false)),
            ("/accounts/0/parts/0/name", json!("hrtimer_wakeup")),
            ("/accounts/1/count", json!(340)),
            ("/accounts/2/parts/0/time_ns", json!(150_000_000)),
            ("/accounts/3/time_ns", json!(400_000)),
            ("/accounts/4/time_ns", json!(400_000)),
            ("/level", json!("proc")),
        ] {
            assert!(!with(path, value).is_right(), "{path}");
        }
        assert!(!Row::new("x", Err("no kernel".to_owned())).is_right());
    }

    #[test]
    fn a_row_without_a_disturbance_is_not_right() {
        let mut idle = truth();
        idle.thread["injected"]["time"] = json!(0);
        let mut changed = statement();
        changed["accounts"][2]["parts"][0]["time_ns"] = json!(0);
        assert!(!row(changed, idle).is_right());
        assert!(!interrupts(0.0, 0.0, 0.0));
        assert!(!interrupts(25.0, 25.0, 0.0));
    }

    fn interrupts(seen: f64, counted: f64, sent: f64) -> bool {
        let all = Interrupts {
            seen,
            counted,
            sent,
        };
        all.are_all_seen()
    }

    #[test]
    fn sent_and_own_interrupts_must_be_seen() {
        assert!(interrupts(100.0, 100.5, 100.0));
        assert!(!interrupts(97.0, 97.5, 100.0));
        assert!(!interrupts(98.5, 101.9, 100.0));
        assert!(interrupts(133.0, 127.5, 100.0));
        assert!(!interrupts(100.0, 127.5, 100.0));
    }
}
