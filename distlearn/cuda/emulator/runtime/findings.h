// findings.h -- what went wrong, once for each kind, line and array, with the first thread that did it and a count.
#pragma once
#include "types.h"

namespace emu {
typedef uint64_t Event;  // see trace.h
struct OfThread {        // what the checker keeps of a thread
    char* stack;         // it begins here
    Event* next;         // the place of the next event of its trace
    Event block;         // the basic block it is in
    int depth;           // of calls
};
}  // namespace emu
#include "fibres.h"
#include "sites.h"

namespace emu {

enum Kind {  // the order of KINDS in report.py
    OUT_OF_BOUNDS, READ_ONLY, RACE_SHARED, RACE_GLOBAL, RACE_BLOCKS, UNINITIALISED, DIVERGENT_BARRIER, EXITED_THREADS,
    STUCK, MISSING_LANE, LANE_NOT_IN_MASK, ARRAY_INDEX, DIVISION, ENDLESS, MISALIGNED, STACK_OVERFLOW, ASSERTION, CRASH,
    SAME_VALUE, DIVERGENT_LANES, CONVERSION, SHIFT, UNFINISHED
};
enum Access { READ, WRITE, ATOMIC, VOLATILE_READ };

struct Finding {
    Kind kind;
    uint32_t site, other_site;
    uint3 thread, block, other_thread, other_block;
    int region;
    int64_t offset, extra;
    int size;
    Access access, other_access;
    uint64_t count;
    char text[128];
};

static Vec<Finding> findings;
static bool stop;       // a thread was ended: no further block runs, and what the others miss of it is no finding
static bool timed_out;  // all threads are being ended

// Returns the finding when it is new, so that the caller can add to it.
static Finding* report(Kind kind, uint32_t site, uint32_t other_site, int region, Access access = READ,
                       Access other_access = READ) {
    if (timed_out) return nullptr;
    if (stop && (kind == UNINITIALISED || kind == MISSING_LANE || kind == EXITED_THREADS)) return nullptr;
    for (size_t i = 0; i < findings.n; i++) {
        Finding& f = findings[i];
        if (f.kind == kind && f.site == site && f.other_site == other_site && f.region == region && f.access == access &&
            f.other_access == other_access)
            return f.count++, nullptr;
    }
    if (findings.n >= 200) return nullptr;
    Finding& f = findings.add();
    Block& B = block();
    f.kind = kind;
    f.site = site;
    f.other_site = other_site;
    f.region = region;
    f.access = access;
    f.other_access = other_access;
    f.count = 1;
    if (B.current) f.thread = B.current->index;
    f.block = B.index;
    return &f;
}

}  // namespace emu
