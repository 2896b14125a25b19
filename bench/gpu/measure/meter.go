package measure

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Row is one measured figure; larger is better: units of work per second, as the median, lowest and highest of some windows.
type Row struct {
	Section, What, Variant, Unit string
	Median, Low, High            float64
}

// ParseRow reads a row in the form of torch_gpu.py: seven fields between tabs.
func ParseRow(line string) (Row, error) {
	f := strings.Split(line, "\t")
	if len(f) != 7 {
		return Row{}, fmt.Errorf("%q has %d fields instead of 7", line, len(f))
	}
	r := Row{Section: f[0], What: f[1], Variant: f[2], Unit: f[3]}
	for i, dst := range []*float64{&r.Median, &r.Low, &r.High} {
		var err error
		if *dst, err = strconv.ParseFloat(f[4+i], 64); err != nil {
			return Row{}, fmt.Errorf("%q: %w", line, err)
		}
	}
	return r, nil
}

// windows is how often a row is measured; with small sizes, whose rates say nothing, less often.
func (m *meter) windows() int { return m.pick(5, 2) }

// meter measures a section on a device.
type meter struct {
	dev      tensor.Device
	device   string // its kind
	section  string
	small    bool    // sizes for the CPU and the emulator
	length   float64 // seconds of a window
	exchange string  // folder in which PyTorch gets the weights; empty: it does not get them
	rows     []Row
	out      io.Writer // gets rows as they come; nil: none
}

// note adds a row of the section, and prints it: so rows of a section that is stopped are not lost.
func (m *meter) note(r Row) {
	r.Section = m.section
	m.rows = append(m.rows, r)
	if m.out != nil {
		Print(m.out, []Row{r})
	}
}

// ours adds Ringo's rates in some windows.
func (m *meter) ours(what, unit string, rates []float64) {
	slices.Sort(rates)
	m.note(Row{What: what, Variant: "ringo", Unit: unit, Median: rates[len(rates)/2], Low: rates[0], High: rates[len(rates)-1]})
}

// add measures work per call of fn, which launches and does not wait. A window ends when the device is done. If check returns an error,
// there is no rate.
func (m *meter) add(what, unit string, work float64, check func() error, fn func()) error {
	return m.measure(what, unit, work, check, func(n int) (seconds float64) {
		start := time.Now()
		for range n {
			fn()
		}
		m.wait()
		return time.Since(start).Seconds() / float64(n)
	})
}

// burst is the number of calls that a driver accepts before the first of them is done.
const burst = 500

// addHost measures the host's time for a call of fn. The device runs at the same time; waiting for it is not counted.
func (m *meter) addHost(what, unit string, check func() error, fn func()) error {
	return m.measure(what, unit, 1, check, func(n int) (seconds float64) {
		for first := 0; first < n; first += burst {
			start := time.Now()
			for range min(burst, n-first) {
				fn()
			}
			seconds += time.Since(start).Seconds()
			m.wait()
		}
		return seconds / float64(n)
	})
}

func (m *meter) wait() { must(m.dev.Queue(0).Sync()) }

// must panics with an error, which Try returns.
func must(err error) {
	if err != nil {
		panic(&tensor.Failure{Op: "bench", Err: err})
	}
}

// measure adds work divided by the seconds for each of n calls of once, in windows of m.length or ten calls. The first window does not
// count, because the device's clock is still speeding up.
func (m *meter) measure(what, unit string, work float64, check func() error, once func(n int) (seconds float64)) error {
	err := tensor.Try(func() {
		must(check())
		once(m.pick(3, 1)) // compiles, chooses algorithms, allocates
		n := min(max(m.pick(10, 1), int(m.length/once(m.pick(3, 1)))), 5000)
		once(n)
		var rates []float64
		for range m.windows() {
			rates = append(rates, work/once(n))
		}
		m.ours(what, unit, rates)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// random makes a tensor of numbers between -1 and 1: measurements on zeros would be too good. Another key gives other numbers: operands
// of a product that are alike would have sums of equal signs.
func (m *meter) random(key uint64, dtype tensor.DType, dims ...int) tensor.Tensor {
	return m.uniform(key, -1, dtype, dims...)
}

// uniform makes a tensor of numbers between lo and 1.
func (m *meter) uniform(key uint64, lo float64, dtype tensor.DType, dims ...int) tensor.Tensor {
	return m.repeated(dtype, dims, func(block tensor.Tensor) { tensor.UniformInit(lo, 1).Fill(block, key, 0) })
}

// whole makes a tensor of integers below n. Another key gives other integers.
func (m *meter) whole(key, n uint64, dims ...int) tensor.Tensor {
	return m.repeated(tensor.Int64, dims, func(block tensor.Tensor) {
		for i := range tensor.Data[int64](block) {
			tensor.Data[int64](block)[i] = int64(tensor.RandomBits(key, uint64(i)) % n)
		}
	})
}

// repeated makes a tensor that repeats what the host writes to a block of at most 2²⁰ elements.
func (m *meter) repeated(dtype tensor.DType, dims []int, write func(block tensor.Tensor)) tensor.Tensor {
	x := tensor.New(m.dev, dtype, dims...)
	block := tensor.NewStaging(memory.Uncounted, m.dev, dtype, min(x.Len(), 1<<20))
	write(block)
	for lo := 0; lo < x.Len(); lo += block.Len() {
		hi := min(lo+block.Len(), x.Len())
		tensor.Copy(x.Range(lo, hi), block.Range(0, hi-lo))
	}
	return x
}
