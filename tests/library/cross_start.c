/* All that a program needs to call a library without a C library: it reads standard input, writes
   standard output, and runs alone, since threads are missing. Included by generated programs. */
#include <stddef.h>
#include <stdint.h>

#if defined(__aarch64__)
#define NUMBERS 63, 64, 93
__asm__(".globl _start\n_start: mov x0, sp\n bl start\n");
static long call(long n, long a, long b, long c) {
  register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b,
                x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
#elif defined(__riscv)
#define NUMBERS 63, 64, 93
__asm__(".globl _start\n_start:\n.option push\n.option norelax\n la gp, __global_pointer$\n"
        ".option pop\n mv a0, sp\n call start\n");
static long call(long n, long a, long b, long c) {
  register long a7 __asm__("a7") = n, a0 __asm__("a0") = a, a1 __asm__("a1") = b,
                a2 __asm__("a2") = c;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory");
  return a0;
}
#elif defined(__arm__)
#define NUMBERS 3, 4, 1
__asm__(".globl _start\n_start: mov r0, sp\n bl start\n");
static long call(long n, long a, long b, long c) {
  register long r7 __asm__("r7") = n, r0 __asm__("r0") = a, r1 __asm__("r1") = b,
                r2 __asm__("r2") = c;
  __asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
  return r0;
}
#else
#define NUMBERS 0, 1, 60
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call start\n");
static long call(long n, long a, long b, long c) {
  long r;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return r;
}
#endif
static const long numbers[] = {NUMBERS}; /* read, write, exit */

static void leave(int code) { for (;;) call(numbers[2], code, 0, 0); }

static void move(int kind, void *p, size_t n) {
  for (char *at = p; n;) {
    long done = call(numbers[kind], kind, (long)at, (long)n);
    if (done <= 0) leave(9);
    at += done;
    n -= (size_t)done;
  }
}

static char heap[48 << 20];
static size_t used;
static char **environment;
static unsigned long *answers; /* of the kernel: pairs of question and answer */

void *malloc(size_t n) {
  size_t left = sizeof heap - used;
  if (n > left || ((n + 63) & ~(size_t)63) > left) return NULL;
  used += (n + 63) & ~(size_t)63;
  return heap + used - ((n + 63) & ~(size_t)63);
}
void free(void *p) { (void)p; }
void *memcpy(void *to, const void *from, size_t n) {
  for (size_t i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}
void *memmove(void *to, const void *from, size_t n) {
  if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, n);
  while (n--) ((char *)to)[n] = ((const char *)from)[n];
  return to;
}
void *memset(void *to, int value, size_t n) {
  for (size_t i = 0; i < n; i++) ((char *)to)[i] = (char)value;
  return to;
}
int memcmp(const void *a, const void *b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    int d = ((const unsigned char *)a)[i] - ((const unsigned char *)b)[i];
    if (d) return d;
  }
  return 0;
}
size_t strlen(const char *s) {
  size_t n = 0;
  while (s[n]) n++;
  return n;
}
char *getenv(const char *name) {
  size_t n = strlen(name);
  for (char **e = environment; *e; e++)
    if (!memcmp(*e, name, n) && (*e)[n] == '=') return *e + n + 1;
  return NULL;
}
unsigned long getauxval(unsigned long question) {
  for (unsigned long *a = answers; *a; a += 2)
    if (*a == question) return a[1];
  return 0;
}
#define ABSENT(name) long name(void) { return -1; }
ABSENT(fclose) ABSENT(ferror) ABSENT(fflush) ABSENT(fileno) ABSENT(fread) ABSENT(fsync)
ABSENT(fwrite) ABSENT(getpid) ABSENT(madvise) ABSENT(mmap) ABSENT(munmap) ABSENT(remove)
ABSENT(rename) ABSENT(sched_getaffinity) ABSENT(sched_yield) ABSENT(syscall)
void *fopen(void) { return NULL; }

static void *room(size_t n) { return memset(malloc(n + 1), 0, n + 1); }
static void *take(size_t n) {
  void *p = room(n);
  move(0, p, n);
  return p;
}
static void give(const void *p, size_t n) { move(1, (void *)p, n); }
static void program(void);

void start(long *stack) {
  environment = (char **)stack + stack[0] + 2;
  char **end = environment;
  while (*end) end++;
  answers = (unsigned long *)(end + 1);
  program();
  leave(0);
}
