/* Trains the network of digits.py from C, with the library that graphc compiled:
 *
 *     graphc compile digits.py:step digits.py:predict -o build/libdigits.so
 *     cc -O2 digits.c -I build -L build -ldigits -Wl,-rpath,'$ORIGIN' -o build/digits
 *     gzip -dc digits.csv.gz > build/digits.csv
 *     build/digits build/digits.csv [digits.state]       the second file is for what it learnt
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libdigits.h"

enum { IMAGES = 1797, PIXELS = 64, HELD_OUT = 599, TRAIN = IMAGES - HELD_OUT, BATCH = 32, EPOCHS = 30 };

static float images[IMAGES][PIXELS], batch_x[HELD_OUT][PIXELS];
static int64_t digits[IMAGES], batch_y[HELD_OUT], answers[HELD_OUT];
static int order[IMAGES];
static digits_state state;

static void check(int code)
{
    if (code) {
        fprintf(stderr, "digits: %s\n", digits_strerror(code));
        exit(1);
    }
}

static void read_images(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(1);
    }
    for (int i = 0; i < IMAGES; i++) {
        int pixel, digit, good = 1;
        for (int k = 0; k < PIXELS; k++) {
            good &= fscanf(f, "%d,", &pixel) == 1;
            images[i][k] = (float)pixel;
        }
        good &= fscanf(f, "%d", &digit) == 1;
        digits[i] = digit;
        if (!good) {
            fprintf(stderr, "%s: line %d is not 64 pixels and a digit\n", path, i + 1);
            exit(1);
        }
    }
    fclose(f);
}

/* Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.py. */
static void shuffle(int *a, int n)
{
    static uint64_t s = 1;
    for (int i = n - 1; i > 0; i--) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        int j = (int)((s >> 33) % (uint64_t)(i + 1)), t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
}

/* Rows a[0..n) of the data, side by side. */
static void take(const int *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        memcpy(batch_x[i], images[a[i]], sizeof images[0]);
        batch_y[i] = digits[a[i]];
    }
}

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    read_images(argc > 1 ? argv[1] : "digits.csv");
    for (int i = 0; i < IMAGES; i++)
        order[i] = i;
    shuffle(order, IMAGES);
    int *train = order + HELD_OUT;

    digits_init(&state);
    void *arena = malloc((size_t)digits_step_arena(BATCH)); /* or NULL: each call allocates */
    double start = seconds();
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        double total = 0;
        shuffle(train, TRAIN);
        for (int i = 0; i < TRAIN; i += BATCH) {
            int64_t n = TRAIN - i < BATCH ? TRAIN - i : BATCH; /* the last batch is smaller */
            float loss;
            take(train + i, n);
            check(digits_step(&state, batch_x[0], batch_y, &loss, n, arena));
            total += (double)loss * (double)n;
        }
        if (epoch % 10 == 0)
            printf("epoch %d: loss %.6f\n", epoch, total / TRAIN);
    }
    printf("trained in %.2f s\n", seconds() - start);
    free(arena);

    int right = 0;
    take(order, HELD_OUT);
    check(digits_predict(&state, batch_x[0], answers, HELD_OUT, NULL));
    for (int i = 0; i < HELD_OUT; i++)
        right += answers[i] == batch_y[i];
    printf("test accuracy: %.1f%%\n", 100.0 * right / HELD_OUT);
    if (argc > 2)
        check(digits_save_state(&state, argv[2]));
    return 0;
}
