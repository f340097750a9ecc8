// Package digits is libdigits.h in Go: a type that owns the state and the arena.
//
// It links ../build/libdigits.a; CGO_CFLAGS=-I.. and CGO_LDFLAGS=-L.. name other folders, which
// are searched first.
package digits

// #cgo CFLAGS: -I${SRCDIR}/../../build
// #cgo LDFLAGS: -L${SRCDIR}/../../build -l:libdigits.a
// #include <stdlib.h>
// #include "libdigits.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Pixels is the length of a row.
const Pixels = 64

// Digits holds the weights and what Adam remembers, and the arena in which steps work. Plain data,
// without pointers, so that C may have its address while a call lasts.
type Digits struct {
	state C.digits_state
	arena []byte
}

// New returns the network as it was at export.
func New() *Digits {
	d := new(Digits)
	C.digits_init(&d.state)
	return d
}

// Step trains on rows of pixels and their labels, and returns the loss before it.
func (d *Digits) Step(x []float32, y []int64) (float32, error) {
	if err := rows(x, len(y)); err != nil {
		return 0, err
	}
	batch := C.int64_t(len(y))
	if need := int(C.digits_step_arena(batch)); len(d.arena) < need {
		d.arena = make([]byte, need)
	}
	var loss C.float
	err := check(C.digits_step(&d.state, (*C.float)(first(x)), (*C.int64_t)(first(y)), &loss,
		batch, first(d.arena)))
	return float32(loss), err
}

// Predict returns the digits that rows of pixels show. Goroutines may call it at the same time.
func (d *Digits) Predict(x []float32) ([]int64, error) {
	digits := make([]int64, len(x)/Pixels)
	if err := rows(x, len(digits)); err != nil {
		return nil, err
	}
	// Without an arena the call allocates, and frees.
	return digits, check(C.digits_predict(&d.state, (*C.float)(first(x)),
		(*C.int64_t)(first(digits)), C.int64_t(len(digits)), nil))
}

// Save writes the state to a file, which replaces what was there as a whole.
func (d *Digits) Save(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return check(C.digits_save_state(&d.state, name))
}

// Load reads what Save has written; after an error the state is as it was.
func (d *Digits) Load(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	return check(C.digits_load_state(&d.state, name))
}

// first is the address of the first element, and null where there is none.
func first[T any](x []T) unsafe.Pointer {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Pointer(&x[0])
}

func rows(x []float32, count int) error {
	if len(x) != count*Pixels {
		return fmt.Errorf("digits: %d pixels for %d rows of %d", len(x), count, Pixels)
	}
	return nil
}

func check(code C.int) error {
	if code == 0 {
		return nil
	}
	return errors.New(C.GoString(C.digits_strerror(code)))
}
