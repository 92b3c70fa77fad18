//! How fast the model is, on one thread: `cargo bench -p ticktax-bench --bench engine`.
//!
//! Items are the events that are simulated one by one; ticks that change nothing are not among
//! them. For `recorded` they are rows. How many there are, the hash, the memory and, under callgrind,
//! the instructions are told by `cargo run --release -p ticktax-bench --example engine -- NAME SECONDS`.

mod loads;

use divan::Bencher;
use divan::counter::ItemsCount;
use ticktax_model::SourceTable;
use ticktax_model::recording::{Row, RowSink};
use ticktax_sim::{record, run};

fn main() {
    divan::main();
}

/// An hour of 64 CPUs.
#[divan::bench(args = ["hour", "hour-high-resolution"], sample_count = 3, sample_size = 1)]
fn hours(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, name, 3600);
}

/// 100 s of 64 CPUs that never idle.
#[divan::bench(args = ["busy-fair", "busy-o1"], sample_count = 9, sample_size = 1)]
fn busy(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, name, 100);
}

/// 36 s of `hour`, every row handed out.
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

/// Times a load. How many events it has is known once it has run.
fn time(bencher: Bencher<'_, '_>, name: &str, secs: i64) {
    let setup = loads::load(name, secs).expect("the load is in the list");
    let events = || run(&setup).expect("the load's machine makes sense").events;
    bencher
        .counter(ItemsCount::new(events()))
        .bench_local(events);
}

/// Takes rows, and only counts them.
struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &SourceTable, _: &Row) {
        self.0 += 1;
    }
}
