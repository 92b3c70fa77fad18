"""Reads a trace by Perfetto's own descriptor, and fails at what its reader would not take.

Needs the Python package `perfetto`. Prints the sum of the slices' own times, by track and name, and
the number of samples, by stack.
"""

import collections
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

data = open(sys.argv[1], "rb").read()
trace = Trace()
trace.ParseFromString(data)
known = Trace()
known.CopyFrom(trace)
known.DiscardUnknownFields()
assert known.SerializeToString() == trace.SerializeToString(), "fields that Perfetto does not know"
assert trace.packet, "no packets"

names, tracks, flows = {}, collections.defaultdict(list), collections.Counter()
functions, frames, stacks, samples = {}, {}, {}, collections.Counter()
for packet in trace.packet:
    assert packet.trusted_packet_sequence_id, "a packet of no sequence"
    kind = packet.WhichOneof("data")
    if kind == "track_descriptor":
        track = packet.track_descriptor
        assert track.uuid not in names, "a track that is declared twice"
        assert not track.parent_uuid or track.parent_uuid in names, "a parent that is not declared"
        names[track.uuid] = track.name or track.thread.thread_name or track.process.process_name
    elif kind == "perf_sample":
        for function in packet.interned_data.function_names:
            functions[function.iid] = function.str.decode()
        for frame in packet.interned_data.frames:
            frames[frame.iid] = functions[frame.function_name_id]
        for stack in packet.interned_data.callstacks:
            stacks[stack.iid] = ";".join(frames[frame] for frame in stack.frame_ids)
        assert packet.sequence_flags & packet.SEQ_NEEDS_INCREMENTAL_STATE, "numbers of no sequence"
        samples[stacks[packet.perf_sample.callstack_iid]] += 1
    elif kind is None:
        timebase = packet.trace_packet_defaults.perf_sample_defaults.timebase
        assert timebase.name == "samples", "a packet without data"
    else:
        assert kind == "track_event", kind
        assert packet.track_event.track_uuid in names, "a track that is not declared"
        tracks[packet.track_event.track_uuid].append((packet.timestamp, packet.track_event))

begun, ended = collections.Counter(), collections.Counter()
sums = collections.Counter()
for track, events in tracks.items():
    events.sort(key=lambda event: event[0])
    stack, last = [], 0
    for at, event in events:
        begun.update(event.flow_ids)
        ended.update(event.terminating_flow_ids)
        if event.type == TrackEvent.TYPE_INSTANT:
            continue
        if stack:
            sums[names[track], stack[-1]] += at - last
        last = at
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(event.name)
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END, event.type
            assert stack, "an end without a begin"
            stack.pop()
    assert not stack, "a begin without an end"
assert begun == ended and all(count == 1 for count in begun.values()), "flows that do not close"
for (track, name), time in sorted(sums.items()):
    print(f"{track}\t{name}\t{time}")
for stack, count in sorted(samples.items()):
    print(f"samples\t{stack}\t{count}")
