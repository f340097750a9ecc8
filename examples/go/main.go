// Trains the network of digits.py from Go:
//
//	graphc compile digits.py:step digits.py:predict -o build/libdigits.a
//	gzip -dc digits.csv.gz > build/digits.csv
//	cd go && go run . ../build/digits.csv [STATE]
package main

import (
	"encoding/csv"
	"fmt"
	"log"
	"os"
	"strconv"

	"example.com/digits/digits"
)

const (
	heldOut = 599
	batch   = 32
	epochs  = 30
)

// shuffle is Marsaglia's xorshift64 and Fisher and Yates's shuffle, as in digits.py.
func shuffle(order []int, s *uint64) {
	for i := len(order) - 1; i > 0; i-- {
		*s ^= *s << 13
		*s ^= *s >> 7
		*s ^= *s << 17
		j := (*s >> 33) % uint64(i+1)
		order[i], order[j] = order[j], order[i]
	}
}

type images struct {
	pixels []float32
	labels []int64
}

func read(path string) (all images, err error) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	for _, line := range lines {
		for k, field := range line {
			value, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return all, fmt.Errorf("%s: %w", path, err)
			}
			if k < digits.Pixels {
				all.pixels = append(all.pixels, float32(value))
			} else {
				all.labels = append(all.labels, value)
			}
		}
	}
	return
}

func (all images) take(order []int) (x []float32, y []int64) {
	for _, i := range order {
		x = append(x, all.pixels[i*digits.Pixels:(i+1)*digits.Pixels]...)
		y = append(y, all.labels[i])
	}
	return
}

func train(path, state string) error {
	all, err := read(path)
	if err != nil {
		return err
	}
	if len(all.labels) <= heldOut {
		return fmt.Errorf("%s: more than %d images are needed", path, heldOut)
	}
	order := make([]int, len(all.labels))
	for i := range order {
		order[i] = i
	}
	seed := uint64(1)
	shuffle(order, &seed)
	test, rest := order[:heldOut], order[heldOut:]

	network := digits.New()
	for epoch := 1; epoch <= epochs; epoch++ {
		total := 0.0
		shuffle(rest, &seed)
		for from := 0; from < len(rest); from += batch {
			to := from + batch // the last batch is smaller
			if to > len(rest) {
				to = len(rest)
			}
			x, y := all.take(rest[from:to])
			loss, err := network.Step(x, y)
			if err != nil {
				return err
			}
			total += float64(loss) * float64(len(y))
		}
		if epoch%10 == 0 {
			fmt.Printf("epoch %d: loss %.6f\n", epoch, total/float64(len(rest)))
		}
	}
	x, y := all.take(test)
	shown, err := network.Predict(x)
	if err != nil {
		return err
	}
	right := 0
	for i := range y {
		if shown[i] == y[i] {
			right++
		}
	}
	fmt.Printf("test accuracy: %.1f%%\n", 100*float64(right)/float64(len(y)))
	if state == "" {
		return nil
	}
	return network.Save(state)
}

func main() {
	log.SetFlags(0)
	arguments := append(os.Args[1:], "", "")
	if err := train(arguments[0], arguments[1]); err != nil {
		log.Fatal("digits: ", err)
	}
}
