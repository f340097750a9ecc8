/* A loop that must not wait: one image at a time, in memory that is set aside before it starts.
 *
 *     cc -O2 realtime.c build/libreader.a -I build -pthread -Wl,--wrap=malloc -o build/realtime
 *     build/realtime build/digits.csv
 *
 * --wrap is only for the proof: it lets the program count the library's calls of malloc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "libreader.h"

enum { PIXELS = 64, CALLS = 10000 };

static int allocations;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

static char arena[1 << 17]; /* reader_predict_arena(1) tells, and the header has the formula */
static double took[CALLS];

static double microseconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    FILE *f = fopen(argc > 1 ? argv[1] : "digits.csv", "r");
    float image[PIXELS];
    int64_t digit = -1;
    for (int k = 0; k < PIXELS; k++)
        if (!f || fscanf(f, "%f,", &image[k]) != 1)
            return fprintf(stderr, "no image\n"), 1;
    fclose(f);

    /* Before the loop: no threads, the CPU looked at, pages touched. */
    reader_set_threads(1);
    reader_warmup();
    int code = reader_predict_in(image, &digit, 1, arena, sizeof arena);

    allocations = 0;
    for (int i = 0; i < CALLS && !code; i++) {
        double start = microseconds();
        code = reader_predict_in(image, &digit, 1, arena, sizeof arena);
        took[i] = microseconds() - start;
    }
    if (code)
        return fprintf(stderr, "%s\n", reader_strerror(code)), 1;
    printf("%d calls, %d allocations; the image shows %lld\n", CALLS, allocations,
           (long long)digit);
    qsort(took, CALLS, sizeof took[0], ascending);
    fprintf(stderr, "median %.1f us, 99.9%% within %.1f us, longest %.1f us\n", took[CALLS / 2],
            took[CALLS - CALLS / 1000], took[CALLS - 1]);
    return 0;
}
