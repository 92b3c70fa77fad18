//! Writes the initial inputs for all fuzz targets. `cargo run --example seeds -- DIRECTORY` creates
//! one directory `DIRECTORY/TARGET` per target. The inputs come from the repository's fixtures and
//! from files on this machine.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use ticktax_fixture::{books, process, watched_header, whole};
use ticktax_fuzz::{MACHINE_FILES, SEPARATOR};
use ticktax_model::incident::IndexLine;
use ticktax_model::recording::{Header, RowSink};
use ticktax_store::recording::RecordingWriter;
use ticktax_model::table::{Cell, Column, Values};
use ticktax_store::table::TableWriter;
use ticktax_model::{Owner, SourceTable};

type Outcome = Result<(), Box<dyn Error>>;

/// Command-line arguments. Each one becomes an input.
const ARGUMENTS: &[&str] = &[
    "0-3,8",
    "20s",
    "1h30m",
    "500us",
    "fifo:50",
    "other",
    "wait>5ms",
    "wait:p99.9>2x",
    "gap>1ms",
    "frames:gamesrv>2",
    "hz=100,1000",
    "p99.9",
    "60",
    "29.97",
    "p99>5%",
    "time>2%",
    "policy=fair",
    "2026-11-26T10:00:00Z",
    "cpus=1..4",
    "absolute",
    "sleep",
];

const JOURNAL: &str = r#"{"began":{"boot":"boot","by":"ticktax try (PID 1)","at_unix_ms":1}}
{"intended":{"knob":"vm.swappiness","target":"machine","identity":"","old":"60","new":"10"}}
{"written":{"knob":"vm.swappiness","target":"machine","value":"10"}}
{"intended":{"knob":"cgroup.weight","target":{"cgroup":"/sys/fs/cgroup/a"},"identity":"","old":"1","new":"2"}}
{"making":{"folder":"/sys/fs/cgroup/ticktax-try-1","home":"/sys/fs/cgroup"}}
{"dissolved":{"folder":"/sys/fs/cgroup/ticktax-try-1"}}
{"intended":{"knob":"proc.nice","target":{"task":1},"identity":"1","old":"0","new":"5"}}
"#;

const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: localhost:9113\r\nAccept: \
    application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
    text/plain;q=0.5\r\n\r\n";

const HYPERFINE: &str =
    r#"{"results":[{"command":"make","mean":1.5,"times":[1.4,1.5,1.6,1.5,1.45,1.55]}]}"#;

/// ftrace text. perf.data, trace.dat and Perfetto traces of this machine are good inputs too.
const FTRACE: &str = "cpus=2
 game-10 [000] d..2. 1.000000: sched_waking: comm=work pid=11 prio=120 target_cpu=000
 game-10 [000] 1.000100: sched_switch: game:10 [120] R ==> work:11 [120]
 work-11 [000] 1.000200: irq_handler_entry: irq=9 name=eth0
 work-11 [000] 1.000210: irq_handler_exit: irq=9 ret=handled
CPU:0 [LOST 3 EVENTS]
 work-11 [000] 1.000900: sched_switch: work:11 [120] S ==> swapper/0:0 [120]
";

/// Directory with the inputs for one target.
struct Corpus(PathBuf);

impl Corpus {
    fn new(all: &Path, target: &str) -> Result<Self, Box<dyn Error>> {
        let folder = all.join(target);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    fn add(&self, name: &str, bytes: impl AsRef<[u8]>) -> Outcome {
        Ok(fs::write(self.0.join(name), bytes)?)
    }

    /// Copies all files with the extension `ending` from a directory in the repository.
    fn copy(&self, folder: &str, ending: &str) -> Outcome {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(folder);
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == ending) {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                self.add(&name, fs::read(&path)?)?;
            }
        }
        Ok(())
    }
}

fn main() -> Outcome {
    let folder = std::env::args_os().nth(1).ok_or("name a folder")?;
    let all = Path::new(&folder);
    let arguments = Corpus::new(all, "arguments")?;
    for (number, text) in ARGUMENTS.iter().enumerate() {
        arguments.add(&number.to_string(), text)?;
    }
    Corpus::new(all, "case")?.copy("cases", "toml")?;
    Corpus::new(all, "scenario")?.copy("scenarios", "toml")?;
    Corpus::new(all, "http")?.add("scrape", REQUEST)?;
    Corpus::new(all, "journal")?.add("trial", JOURNAL)?;
    lists(&Corpus::new(all, "lists")?)?;
    Corpus::new(all, "import")?.add("ftrace", FTRACE)?;
    index(&Corpus::new(all, "index")?)?;
    machine(&Corpus::new(all, "proc")?)?;
    table(&Corpus::new(all, "table")?)?;
    elf(&Corpus::new(all, "elf")?)?;
    let header = header();
    Corpus::new(all, "header")?.add("watched", serde_json::to_vec(&header)?)?;
    for target in ["recording", "statement"] {
        let corpus = Corpus::new(all, target)?;
        corpus.copy("crates/store/tests/fixtures/schema2", "parquet")?;
        recording(&corpus, &header)?;
    }
    Ok(())
}

/// Adds small programs of this machine, each with the offsets of some of its code.
fn elf(corpus: &Corpus) -> Outcome {
    for program in ["true", "sync", "mkfifo"] {
        if let Ok(mut file) = fs::read(format!("/bin/{program}")) {
            let offsets = (1..=8_u32).flat_map(|nth| (0x2000 + nth * 0x210).to_le_bytes());
            file.extend(offsets);
            corpus.add(program, file)?;
        }
    }
    corpus.add("map", "2000 210 first\n2210 20 second\n")
}

fn header() -> Header {
    Header {
        books: vec![books(0, 0, 1_000_000)],
        ..watched_header()
    }
}

fn recording(corpus: &Corpus, header: &Header) -> Outcome {
    let mut sources = SourceTable::default();
    let game = sources.intern(process(Owner::Program, "game", 7));
    let mut writer = RecordingWriter::create(corpus.0.join("written.parquet"))?;
    for start in [0, 300_000, 700_000] {
        writer.row(&sources, &whole(0, start, 100_000, game));
    }
    Ok(writer.finish(header)?)
}

fn table(corpus: &Corpus) -> Outcome {
    let column = |name: &str, values| Column {
        name: name.to_owned(),
        values,
    };
    let columns = [
        column("number", Values::Integers),
        column("word", Values::Texts),
    ];
    let place = corpus.0.join("small.parquet");
    let mut writer = TableWriter::create(&place, &columns, &[("about", "seeds".to_owned())])?;
    writer.group(&[vec![Cell::Integer(1), Cell::Text("one".to_owned())]])?;
    Ok(writer.finish()?)
}

fn index(corpus: &Corpus) -> Outcome {
    let lines = [
        IndexLine::Began { at_unix_ms: 1 },
        IndexLine::Recorded {
            recording: "incident-1.parquet".to_owned(),
            bytes: 100,
        },
        IndexLine::Ended { at_unix_ms: 2 },
    ];
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, &line)?;
        text.push(b'\n');
    }
    corpus.add("short", text)
}

fn lists(corpus: &Corpus) -> Outcome {
    let pairs = [
        ("text", 0_u8, "1.5\n1.6 ms\n1.4\n1.55\n", "1.7\n1.8\n1.75\n"),
        (
            "csv",
            1,
            "run,time_ms\n1,5.5\n2,5.6\n",
            "run,time_ms\n1,6.5\n2,6.6\n",
        ),
        (
            "tsv",
            2,
            "run\ttime\n1\t5.5\n2\t5.6\n",
            "run\ttime\n1\t6.5\n",
        ),
        ("hyperfine", 3, HYPERFINE, HYPERFINE),
    ];
    for (name, kind, first, second) in pairs {
        let parts = [&[kind], first.as_bytes(), &[SEPARATOR], second.as_bytes()];
        corpus.add(name, parts.concat())?;
    }
    let tools = "../../crates/trial/tests/distributions";
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(tools))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kind = if name.ends_with(".log") { 4 } else { 0 };
        // A long file would slow the fuzzer down. Both lists are the same.
        let mut contents = fs::read(&path)?;
        contents.truncate(8 << 10);
        corpus.add(&name, [&[kind], &*contents].concat())?;
    }
    Ok(())
}

/// Adds each of this machine's files as an input, plus one input that contains them all.
fn machine(corpus: &Corpus) -> Outcome {
    let mut all = Vec::new();
    for (number, name) in MACHINE_FILES.iter().enumerate() {
        let Ok(mut contents) = fs::read(Path::new("/").join(name)) else {
            continue;
        };
        contents.truncate(4096);
        contents.insert(0, u8::try_from(number)?);
        corpus.add(&number.to_string(), &contents)?;
        all.extend(contents);
        all.push(SEPARATOR);
    }
    corpus.add("all", all)
}
