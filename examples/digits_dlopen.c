/* Takes the library at run time, by the name it is given, and classifies the held-out digits with
 * weights that another program trained and saved:
 *
 *     build/digits build/digits.csv build/digits.state
 *     cc -O2 digits_dlopen.c -I build -ldl -o build/digits_dlopen
 *     build/digits_dlopen build/libdigits.so build/digits.state build/digits.csv
 *
 * The header gives the types, and DIGITS_ABI tells whether a library fits them.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "libdigits.h"

enum { IMAGES = 1797, PIXELS = 64, HELD_OUT = 599 };

static float images[IMAGES][PIXELS], x[HELD_OUT][PIXELS];
static int64_t digits[IMAGES], answers[HELD_OUT];
static int order[IMAGES];
static digits_state state;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail(name, dlerror());
    return found;
}

static void read_images(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail(path, "cannot be read");
    for (int i = 0; i < IMAGES; i++) {
        int digit, good = 1;
        for (int k = 0; k < PIXELS; k++)
            good &= fscanf(f, "%f,", &images[i][k]) == 1;
        if (!good || fscanf(f, "%d", &digit) != 1)
            fail(path, "a line is not 64 pixels and a digit");
        digits[i] = digit;
    }
    fclose(f);
}

/* The order in which digits.py holds images out. */
static void shuffle(int *a, int n)
{
    uint64_t s = 1;
    for (int i = 0; i < n; i++)
        a[i] = i;
    for (int i = n - 1; i > 0; i--) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        int j = (int)((s >> 33) % (uint64_t)(i + 1)), t = a[i];
        a[i] = a[j];
        a[j] = t;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        fail("usage", "digits_dlopen LIBRARY STATE DATA");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail(argv[1], dlerror());
    __typeof__(digits_abi) *abi;
    __typeof__(digits_strerror) *explain;
    __typeof__(digits_load_state) *load_state;
    __typeof__(digits_predict) *predict;
    *(void **)&abi = symbol(library, "digits_abi");
    *(void **)&explain = symbol(library, "digits_strerror");
    *(void **)&load_state = symbol(library, "digits_load_state");
    *(void **)&predict = symbol(library, "digits_predict");
    if (abi() != DIGITS_ABI)
        fail(argv[1], "not the library that this program's header belongs to");

    int code = load_state(&state, argv[2]);
    if (code)
        fail(argv[2], explain(code));
    read_images(argv[3]);
    shuffle(order, IMAGES);
    for (int i = 0; i < HELD_OUT; i++)
        for (int k = 0; k < PIXELS; k++)
            x[i][k] = images[order[i]][k];
    code = predict(&state, x[0], answers, HELD_OUT, NULL);
    if (code)
        fail("predict", explain(code));
    int right = 0;
    for (int i = 0; i < HELD_OUT; i++)
        right += answers[i] == digits[order[i]];
    printf("test accuracy: %.1f%%\n", 100.0 * right / HELD_OUT);
    dlclose(library);
    return 0;
}
