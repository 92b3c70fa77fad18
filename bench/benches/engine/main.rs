//! Measures how fast the model runs on one thread: `cargo bench -p ticktax-bench --bench engine`.
//!
//! For most benchmarks, the items in the output are events that were simulated individually; ticks
//! that change nothing are not counted. For `recorded`, the items are the rows that the simulation
//! emitted. `cargo figure engine -- NAME SECONDS` prints the number of items, the trace's hash and
//! the memory used. To count instructions, run that example under callgrind.

mod loads;

use divan::Bencher;
use divan::counter::ItemsCount;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_sim::{record, run};

fn main() {
    divan::main();
}

/// Simulates one hour on 64 CPUs.
#[divan::bench(args = ["hour", "hour-high-resolution"], sample_count = 3, sample_size = 1)]
fn hours(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, name, 3600);
}

/// Simulates 100 s on 64 CPUs that are never idle.
#[divan::bench(args = ["busy-fair", "busy-o1"], sample_count = 9, sample_size = 1)]
fn busy(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, name, 100);
}

/// Simulates 36 s of `hour` and emits every row.
#[divan::bench(sample_count = 9, sample_size = 1)]
fn recorded(bencher: Bencher<'_, '_>) {
    let setup = loads::load("hour", 36).expect("the load is in the list");
    let all = || {
        let mut count = Count(0);
        record(&setup, &mut count).expect("the load's machine makes sense");
        count.0
    };
    bencher.counter(ItemsCount::new(all())).bench_local(all);
}

/// Times the simulation of a load. Simulates it once beforehand to learn the number of events.
fn time(bencher: Bencher<'_, '_>, name: &str, secs: i64) {
    let setup = loads::load(name, secs).expect("the load is in the list");
    let events = || run(&setup).expect("the load's machine makes sense").events;
    bencher
        .counter(ItemsCount::new(events()))
        .bench_local(events);
}

/// A sink that counts rows and discards them.
struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &SourceTable, _: &Row) {
        self.0 += 1;
    }
}
