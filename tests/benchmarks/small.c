/* Times small functions called from C: graphc's libraries, CasADi's code, numba's pointers.

   Compiled as a shared object that small_c.py calls through ctypes; exact.h and fast.h are the
   headers of graphc's libraries. CasADi's and numba's functions come as pointers, or NULL. */
#define _POSIX_C_SOURCE 200809L
#include <stddef.h>
#include <time.h>
#include "libexact.h"
#include "libfast.h"

typedef int (*casadi_fn)(const double **, double **, long long *, double *, int);
typedef void (*numba_fn)(double *, double *, double *, double *, double *);

typedef struct task {
    double *in[3], *out[2];
    void *arena;
    casadi_fn casadi;
    numba_fn numba;
    const double *arg[16];
    double *res[16], w[4096];
    long long iw[256];
} task;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define RACE(NAME, CALL)                                                                          \
    static double NAME(task *t, long n)                                                           \
    {                                                                                             \
        double begin = now();                                                                     \
        for (long i = 0; i < n; i++)                                                              \
            CALL;                                                                                 \
        return (now() - begin) / (double)n;                                                       \
    }

RACE(add_exact, exact_add(t->in[0], t->in[1], t->out[0], t->arena))
RACE(add_fast, fast_add(t->in[0], t->in[1], t->out[0], t->arena))
RACE(policy_exact, exact_policy(t->in[0], t->out[0], t->arena))
RACE(policy_fast, fast_policy(t->in[0], t->out[0], t->arena))
RACE(kalman_exact, exact_kalman(t->in[0], t->in[1], t->in[2], t->out[0], t->out[1], t->arena))
RACE(kalman_fast, fast_kalman(t->in[0], t->in[1], t->in[2], t->out[0], t->out[1], t->arena))
RACE(arm_exact, exact_arm(t->in[0], t->out[0], t->out[1], t->arena))
RACE(arm_fast, fast_arm(t->in[0], t->out[0], t->out[1], t->arena))
RACE(by_casadi, t->casadi(t->arg, t->res, t->iw, t->w, 0))
RACE(by_numba, t->numba(t->in[0], t->in[1], t->in[2], t->out[0], t->out[1]))

/* Seconds of one call, the mean of n, by 0..3 = add, policy, kalman, arm and
   0..3 = graphc, graphc with fastmath, CasADi, numba. Results are in out. */
double race(int what, int who, long n, double **in, double **out, void *arena, void *code)
{
    static double (*const ours[4][2])(task *, long) = {
        {add_exact, add_fast}, {policy_exact, policy_fast},
        {kalman_exact, kalman_fast}, {arm_exact, arm_fast},
    };
    static task t;
    for (int k = 0; k < 3; k++)
        t.arg[k] = t.in[k] = in[k];
    for (int k = 0; k < 2; k++)
        t.res[k] = t.out[k] = out[k];
    t.arena = arena;
    if (who < 2)
        return ours[what][who](&t, n);
    if (who == 2) {
        t.casadi = (casadi_fn)code;
        return by_casadi(&t, n);
    }
    t.numba = (numba_fn)code;
    return by_numba(&t, n);
}
