use super::Place;

/// Stacks recorded on different kernel versions.
const STACKS: &str = include_str!("stacks.txt");

fn place(stack: &str) -> String {
    let functions: Vec<&str> = stack.split_whitespace().collect();
    let place = Place::from_stack(&functions);
    if place.is_frozen {
        return "frozen".to_owned();
    }
    let part = |word: &str, name: &str| match name {
        "" => String::new(),
        name => format!("{word}{name}"),
    };
    let parts = [
        part("in ", &place.call),
        part(" at ", &place.function),
        part("<", &place.caller),
    ];
    parts.concat().trim_start().to_owned()
}

#[test]
fn recorded_stacks_have_their_places() {
    let lines = STACKS.lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let [kernel, expected, stack] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert_eq!(place(stack), expected, "{kernel}: {stack}");
        // The tracer's own programs are above the switch.
        let traced = format!("bpf_prog_0123_sched_out bpf_trace_run4 {stack}");
        assert_eq!(place(&traced), expected, "{kernel}: {stack}");
    }
}

#[test]
fn a_stack_without_names_has_no_place() {
    assert_eq!(Place::from_stack(&[]), Place::default());
    assert_eq!(
        Place::from_stack(&["", "", "do_nanosleep"]),
        Place::default()
    );
    assert_eq!(place("__schedule schedule"), "");
    // Disk and page waits use general functions.
    let page = "__schedule schedule io_schedule folio_wait_bit_common filemap_fault __do_fault \
                handle_mm_fault exc_page_fault asm_exc_page_fault";
    assert_eq!(
        place(page),
        "in page_fault at folio_wait_bit_common<filemap_fault"
    );
    let commit = "__schedule schedule jbd2_log_wait_commit ext4_fsync_journal ext4_sync_file \
                  __x64_sys_fsync do_syscall_64";
    assert_eq!(place(commit), "in fsync at jbd2_log_wait_commit");
    let nfs =
        "__schedule schedule rpc_wait_bit_killable __wait_on_bit nfs_file_fsync __arm64_sys_fsync";
    assert_eq!(place(nfs), "in fsync at rpc_wait_bit_killable");
}
