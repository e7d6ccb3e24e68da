// launch_io.h -- what comes in on standard input and goes out on the original standard output; launch.py is the other end.
//
//     in   header of 16 numbers (8 bytes each): version, grid[3], block[3], shared bytes, statistics?, races?,
//          time limit in ms, arrays, arguments, globals, block whose accesses are recorded (or -1), 0
//          per array:    bytes, item size, alignment, read only?, offset of its first byte modulo 512, name (64 bytes)
//          per argument: array number or -1, offset in bytes, size, then its bytes padded to 8
//          per global:   name (64 bytes), size, bytes padded to 8
//          the arrays' bytes, each padded to 8
//     out  length, the report as JSON, then the bytes of the arrays that are not read only
//
// Arrays are laid out afresh, far apart: in NumPy's memory the element after the last one may well exist, and how well a
// warp's accesses coalesce depends on where an array begins, which is a multiple of 512 on a card. The red zones between
// them are reserved addresses without memory, wider than any 32-bit index of 16-byte elements leads.
#pragma once
#include "pages.h"
#include "shadow.h"
#include <unistd.h>

namespace emu {

// Bytes of addresses between two arrays: the widest for which the system has enough.
constexpr size_t RED_ZONES[] = {64ull << 30, 16ull << 30, 1ull << 30, 256 << 20, 1 << 20};

struct Argument {
    int64_t array, offset, size;
};

static Block the_block;
static bool want_statistics, want_races;
static int64_t time_limit_ms;

// Accesses of one block as they came, for pictures; no more than can be drawn.
struct Recorded {
    uint32_t interval, site;
    int thread, region, size;
    int64_t offset;
    Access access;
};
constexpr size_t MOST_RECORDED = 1 << 15;
static int64_t recorded_block = -1;
static Vec<Recorded> recorded;
static Launch the_launch;
static int64_t n_blocks;
static Vec<void*> argument_pointers;
static size_t first_array;
static int n_arrays;
static FILE* reply;

static void read_exactly(void* p, size_t n) {
    if (n && fread(p, 1, n, stdin) != n) fprintf(stderr, "the launch was cut short\n"), exit(3);
}
static int64_t read_number() {
    int64_t v;
    return read_exactly(&v, sizeof v), v;
}
static void* read_padded(size_t n) {
    void* p = calloc(1, (n + 15) / 8 * 8);
    return read_exactly(p, (n + 7) / 8 * 8), p;
}

static void open_streams() {
    reply = fdopen(dup(1), "wb");
    dup2(2, 1);  // a kernel's printf must not mix with the reply: it goes where errors go, and Python shows it
}

static size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

// Arrays, and after them dynamic shared memory.
static void read_arrays() {
    struct Description { int64_t size, item, align, read_only, phase; char name[64]; };
    Description* d = (Description*)calloc(n_arrays + 1, sizeof *d);
    size_t bytes = 0;
    for (int i = 0; i < n_arrays; i++) {
        read_exactly(&d[i], sizeof *d);
        bytes += whole_pages(d[i].size + d[i].phase);
    }
    d[n_arrays] = {(int64_t)the_launch.shared_bytes, 1, 4, 0, 0, "dynamic shared memory"};
    bytes += whole_pages(the_launch.shared_bytes);
    char* at = nullptr;
    size_t zone = 0;
    for (size_t z : RED_ZONES)
        if (!at) at = reserve_pages(bytes + (n_arrays + 2) * z), zone = z;
    for (int i = 0; i <= n_arrays; i++) {
        size_t taken = whole_pages(d[i].size + d[i].phase);
        at += zone;
        if (!at || (taken && !open_pages(at, taken))) fprintf(stderr, "the emulator ran out of memory\n"), exit(3);
        if (i == n_arrays) the_block.dynamic_shared = at;
        add_region(at + d[i].phase, d[i].size, d[i].item, d[i].align, d[i].name, i < n_arrays ? GLOBAL : SHARED,
                   d[i].read_only, zone / 2);
        at += taken;
    }
    free(d);
}

static int find_named(const char* name) {
    for (size_t i = 0; i < regions.n; i++)
        if (!strcmp(regions[i].name, name)) return (int)i;
    return -1;
}

// `globals` are the regions that static constructors have registered before main; arrays come first in the list.
static void read_launch() {
    int64_t h[16];
    read_exactly(h, sizeof h);
    if (h[0] != 1) fprintf(stderr, "the launch has version %d, this program reads version 1\n", (int)h[0]), exit(3);
    for (int i = 0; i < 3; i++) the_launch.grid[i] = (unsigned)h[1 + i], the_launch.block[i] = (unsigned)h[4 + i];
    the_launch.shared_bytes = (size_t)h[7];
    want_statistics = h[8];
    want_races = h[9];
    time_limit_ms = h[10];
    n_arrays = (int)h[11];
    recorded_block = h[14];
    n_blocks = (int64_t)h[1] * h[2] * h[3];
    first_array = regions.n;
    read_arrays();
    for (int64_t i = 0; i < h[12]; i++) {
        Argument a = {read_number(), read_number(), read_number()};
        char* bytes = (char*)read_padded((size_t)a.size);
        if (a.array >= 0) *(uintptr_t*)bytes = regions[first_array + a.array].begin + a.offset;
        argument_pointers.add() = bytes;
    }
    the_launch.args = argument_pointers.data;
    for (int64_t i = 0; i < h[13]; i++) {
        char name[64];
        read_exactly(name, sizeof name);
        size_t size = (size_t)read_number();
        void* bytes = read_padded(size);
        int r = find_named(name);
        if (r >= 0) memcpy((void*)regions[r].begin, bytes, size);
        free(bytes);
    }
    for (int i = 0; i < n_arrays; i++) {
        Region& r = regions[first_array + i];
        size_t n = r.end - r.begin;
        read_exactly((void*)r.begin, n);
        char padding[8];
        read_exactly(padding, (8 - n % 8) % 8);
    }
}

// Pointers that structs and arrays of the arguments hold: a table behind the kernel's own arguments says which argument's
// value goes to which place (arguments.py).
struct PointerIn {
    int64_t in_memory, argument, place, value;
};
static void put_pointers(void** a, int n) {
    const int64_t* table = (const int64_t*)a[n];
    const PointerIn* each = (const PointerIn*)(table + 1);
    for (int64_t i = 0; i < *table; i++) {
        char* to = each[i].in_memory ? *(char**)a[each[i].argument] : (char*)a[each[i].argument];
        *(void**)(to + each[i].place) = *(void**)a[each[i].value];
    }
}

static Vec<char> json;
__attribute__((format(printf, 1, 2))) static void put(const char* format, ...) {
    char text[1024];
    __builtin_va_list a;
    __builtin_va_start(a, format);
    int n = vsnprintf(text, sizeof text, format, a);
    __builtin_va_end(a);
    if (n > (int)sizeof text - 1) n = sizeof text - 1;
    size_t at = json.n;
    json.resize(at + n);
    memcpy(json.data + at, text, n);
}
static void put_text(const char* s) {
    put("\"");
    for (; *s; s++) (unsigned char)*s < 32 ? put(" ") : *s == '"' || *s == '\\' ? put("\\%c", *s) : put("%c", *s);
    put("\"");
}
static void put3(const char* name, uint3 v) { put(",\"%s\":[%u,%u,%u]", name, v.x, v.y, v.z); }
#define PUT(field) put(",\"" #field "\":%lld", (long long)(x.field))

static void write_report(uint64_t accesses, double seconds) {
    put("{\"accesses\":%llu,\"seconds\":%.6f,\"not_replayed\":%llu,\"regions\":[", (unsigned long long)accesses, seconds,
        (unsigned long long)not_replayed);
    for (size_t i = 0; i < regions.n; i++) {
        Region& x = regions[i];
        put("%s{\"name\":", i ? "," : "");
        put_text(x.name);
        put(",\"bytes\":%llu", (unsigned long long)(x.end - x.begin));
        PUT(space), PUT(item);
        const int* side = x.sides.of;
        put(",\"sides\":[%d,%d,%d,%d]", side[0], side[1], side[2], side[3]);
        put("}");
    }
    put("],\"busiest_warp\":[%llu,%llu],\"traffic\":[", (unsigned long long)busiest_warp[0],
        (unsigned long long)busiest_warp[1]);
    for (size_t i = 0; i < traffic.n; i++) {
        Traffic& x = traffic[i];
        put("%s{\"site\":%u", i ? "," : "", x.site);
        PUT(region), PUT(access), PUT(size), PUT(requests), PUT(lanes), PUT(cost), PUT(ideal), PUT(worst);
        put("}");
    }
    put("],\"blocks\":[");
    bool comma = false;
    for (size_t i = 0; i < blocks_of.n; i++) {
        BasicBlock& x = blocks_of[i];
        if (!x.issued && !x.untraced) continue;
        put("%s[%d,%llu,%llu,%llu]", comma ? "," : "", (int)i, (unsigned long long)x.issued, (unsigned long long)x.active,
            (unsigned long long)x.untraced);
        comma = true;
    }
    put("],\"recorded\":[");
    for (size_t i = 0; i < recorded.n; i++) {
        Recorded& x = recorded[i];
        put("%s[%u,%d,%d,%lld,%d,%d,%u]", i ? "," : "", x.interval, x.thread, x.region, (long long)x.offset, x.size,
            (int)x.access, x.site);
    }
    put("],\"findings\":[");
    for (size_t i = 0; i < findings.n; i++) {
        Finding& x = findings[i];
        put("%s{\"text\":", i ? "," : "");
        put_text(x.text);
        PUT(kind), PUT(site), PUT(other_site), PUT(region), PUT(offset), PUT(extra), PUT(size), PUT(access), PUT(other_access),
            PUT(count);
        put3("thread", x.thread), put3("block", x.block), put3("other_thread", x.other_thread);
        put3("other_block", x.other_block);
        put("}");
    }
    put("]}");
    int64_t n = (int64_t)json.n;
    fflush(stdout);
    fwrite(&n, 8, 1, reply);
    fwrite(json.data, 1, json.n, reply);
    for (int i = 0; i < n_arrays; i++) {
        Region& r = regions[first_array + i];
        if (!r.read_only) fwrite((void*)r.begin, 1, r.end - r.begin, reply);
    }
    fflush(reply);
}

}  // namespace emu
