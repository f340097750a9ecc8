/* Runs calls of a DLL, with nothing but kernel32: windows_calls.exe LIBRARY.dll in the folder of job.bin.
 *
 * job.bin, in int64 and texts padded to 8 bytes: the number of calls, the prefix; per call its
 * function, the bytes of its state (0: none), whether an arena is passed, the numbers of inputs,
 * outputs and dimensions, the bytes of inputs and outputs, the dimensions, the inputs themselves.
 * To output.bin go, per call, its status, whether all was well, outputs and state. All arguments,
 * and the arena of the promised size, stand between bytes that must be left alone. The state goes
 * to the file `state` and back. */
typedef long long i64;
typedef unsigned char u8;
#define API __declspec(dllimport)
API void *LoadLibraryA(const char *);
API void *GetProcAddress(void *, const char *);
API void *CreateFileA(const char *, unsigned, unsigned, void *, unsigned, unsigned, void *);
API int ReadFile(void *, void *, unsigned, unsigned *, void *);
API int WriteFile(void *, const void *, unsigned, unsigned *, void *);
API int CloseHandle(void *);
API void *VirtualAlloc(void *, i64, unsigned, unsigned);
API void ExitProcess(unsigned);

enum { GUARD = 64, MARK = 0xa5, MOST = 200 };
typedef i64 (*Sizes)(i64, i64, i64, i64);
typedef int (*Call)(void *, ...);
static u8 *job, *room;
static void *dll, *out;

static void fail(unsigned code) { ExitProcess(code); }

static i64 number(void) { job += 8; return *(i64 *)(job - 8); }

static char *text(void)
{
    i64 n = number();
    job += n;
    return (char *)(job - n);
}

static void *function(const char *a, const char *b)
{
    char name[300];
    int n = 0;
    for (; *a; a++) name[n++] = *a;
    for (; *b; b++) name[n++] = *b;
    name[n] = 0;
    void *found = GetProcAddress(dll, name);
    if (!found) fail(3);
    return found;
}

/* Memory between guards, at an address that 64 divides and 8 more do not. */
static u8 *guarded(i64 bytes)
{
    u8 *p = room + GUARD + 8;
    for (i64 k = -GUARD; k < bytes + GUARD; k++) p[k] = MARK;
    room += (bytes + 2 * GUARD + 8 + 63) / 64 * 64;
    return p;
}

static i64 whole(const u8 *p, i64 bytes)
{
    for (i64 k = 1; k <= GUARD; k++)
        if (p[-k] != MARK || p[bytes + k - 1] != MARK) return 0;
    return 1;
}

static void put(const void *p, i64 bytes)
{
    unsigned done;
    if (bytes && (!WriteFile(out, p, (unsigned)bytes, &done, 0) || done != bytes)) fail(4);
}

static i64 same_after_a_file(const char *prefix, u8 *state, i64 bytes)
{
    Call save = (Call)function(prefix, "_save_state"), load = (Call)function(prefix, "_load_state");
    u8 *other = guarded(bytes);
    if (load(other, "missing") != 8 || save(state, "no\\folder") != 8) return 0;
    if (save(state, "state") || save(state, "state") || load(other, "state")) return 0;
    for (i64 k = 0; k < bytes; k++)
        if (state[k] != other[k]) return 0;
    return whole(other, bytes);
}

void start(void)
{
    void *f = CreateFileA("job.bin", 0x80000000, 0, 0, 3, 128, 0);
    job = VirtualAlloc(0, 64 << 20, 0x3000, 4);
    room = VirtualAlloc(0, 256 << 20, 0x3000, 4);
    unsigned got;
    if (!job || !room || !ReadFile(f, job, 64 << 20, &got, 0)) fail(1);
    CloseHandle(f);
    dll = LoadLibraryA("library.dll");
    if (!dll) fail(2);
    out = CreateFileA("output.bin", 0x40000000, 0, 0, 2, 128, 0);
    i64 calls = number();
    char *prefix = text();
    while (calls--) {
        static u8 *p[MOST];
        static i64 bytes[MOST], dims[8], a[MOST];
        u8 *first = room;
        i64 n = 0, good = 1;
        char *name = text();
        i64 state = number(), arena = number();
        i64 ins = number(), outs = number(), sizes = number();
        if (1 + ins + outs + sizes > MOST - 2 || sizes > 4) fail(5);
        if (state) {
            bytes[n] = state;
            p[n++] = guarded(state);
            ((Call)function(prefix, "_init"))(p[0]);
        }
        for (i64 k = 0; k < ins + outs; k++) bytes[n + k] = number();
        for (i64 k = 0; k < sizes; k++) dims[k] = number();
        for (i64 k = 0; k < ins + outs; k++, n++) {
            p[n] = guarded(bytes[n]);
            if (k < ins) {
                for (i64 i = 0; i < bytes[n]; i++) p[n][i] = job[i];
                job += (bytes[n] + 7) / 8 * 8;
            }
        }
        for (i64 k = 0; k < n; k++) a[k] = (i64)p[k];
        for (i64 k = 0; k < sizes; k++) a[n + k] = dims[k];
        i64 promised = ((Sizes)function(name, "_arena"))(dims[0], dims[1], dims[2], dims[3]);
        if (promised < 0) promised = 0;
        u8 *work = guarded(promised);
        a[n + sizes] = arena ? (i64)work : 0;
        Call c = (Call)function(name, "");
#define TEN(k) a[k], a[k + 1], a[k + 2], a[k + 3], a[k + 4], a[k + 5], a[k + 6], a[k + 7], a[k + 8], a[k + 9]
        i64 status = c((void *)a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9],
                       TEN(10), TEN(20), TEN(30), TEN(40), TEN(50), TEN(60), TEN(70), TEN(80),
                       TEN(90), TEN(100), TEN(110), TEN(120), TEN(130), TEN(140), TEN(150),
                       TEN(160), TEN(170), TEN(180), TEN(190));
        for (i64 k = 0; k < n; k++) good &= whole(p[k], bytes[k]);
        good &= whole(work, promised);
        if (state) good &= same_after_a_file(prefix, p[0], state);
        put(&status, 8);
        put(&good, 8);
        for (i64 k = n - outs; k < n; k++) put(p[k], bytes[k]);
        if (state) put(p[0], state);
        room = first;
    }
    CloseHandle(out);
    ExitProcess(0);
}
