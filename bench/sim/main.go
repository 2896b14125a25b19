// Command sim measures collectives of two ranks on this machine, fits what a message takes and a bandwidth of package dist/sim to two
// sizes of the all-reduce, and prints what that predicts for other sizes, and for other operations, beside what was measured:
//
//	go run ./bench/sim
//
// The machine must have nothing else to do. Every time is that of the fastest block of all rounds. How much slower memory is beyond the
// caches, and how long two cores need to meet, is measured without collectives (machine.go).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
)

const kib, mib = 1 << 10, 1 << 20

// series is an engine, and the sizes to which it is fitted. Window says that its ranks share memory.
type series struct {
	backend string
	window  bool
	fitted  [2]int
}

var all = []series{
	{"local", true, [2]int{64, 256 * kib}},
	{"shm", true, [2]int{64, 256 * kib}},
	{"tcp", false, [2]int{kib, mib}},
}

var (
	sizes = []int{8, 64, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, 512 * kib, mib, 4 * mib, 16 * mib, 64 * mib}
	ops   = []backend.Kind{backend.AllReduce, backend.Broadcast, backend.AllGather, backend.ReduceScatter}
)

func main() {
	rounds := flag.Int("rounds", 5, "how often each size is measured")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ringo := filepath.Join(dir, "ringo")
	if out, err := exec.Command("go", "build", "-o", ringo, "github.com/ringo-ml/ringo/cmd/ringo").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	m := measureMachine()
	fmt.Printf("two cores meet in %.0f ns; memory is so many times as fast as at 16 MiB:", m.meetNS)
	for _, c := range m.caches {
		fmt.Printf(" %.0f KiB %.3g", c[0]/kib, c[1])
	}
	fmt.Println()
	good, points := map[backend.Kind]int{}, map[backend.Kind]int{}
	for _, s := range all {
		model := &model{machine: m, series: s}
		for _, op := range ops {
			times, err := measure(ringo, s.backend, op, rounds)
			if err == nil && op == backend.AllReduce {
				err = model.fit(times)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.backend, err)
			}
			fmt.Printf("%s, %v by direct, 2 ranks: %.2f µs and %.3g GB/s are fitted\n", s.backend, op, model.a/1e3, 1/model.b)
			for _, bytes := range sizes {
				if op == backend.AllReduce && (bytes == s.fitted[0] || bytes == s.fitted[1]) {
					fmt.Printf("  %9d  %10.2f µs  fitted\n", bytes, times[bytes])
					continue
				}
				x, err := model.predict(op, model.a, model.b, bytes)
				if err != nil {
					return err
				}
				off := x/times[bytes] - 1
				if points[op]++; math.Abs(off) <= 0.25 {
					good[op]++
				}
				fmt.Printf("  %9d  %10.2f µs  predicted %10.2f  %+6.1f%%\n", bytes, times[bytes], x, 100*off)
			}
		}
	}
	for _, op := range ops {
		fmt.Printf("%v: %d of %d predictions are within 25%%\n", op, good[op], points[op])
	}
	return nil
}

// measure returns the time of the fastest block of calls, in µs, by bytes.
func measure(ringo, engine string, op backend.Kind, rounds int) (map[int]float64, error) {
	text, times := make([]string, len(sizes)), map[int]float64{}
	for i, n := range sizes {
		text[i] = strconv.Itoa(n)
	}
	for range rounds {
		cmd := exec.Command(ringo, "bench", "-ops", op.String(), "-algo", "direct", "-ranks", "2", "-backend", engine, "-sizes",
			strings.Join(text, ","), "-json")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		var rows []struct {
			Bytes int
			US    float64 `json:"min_us"`
		}
		if err := json.Unmarshal(out, &rows); err != nil {
			return nil, err
		}
		for _, r := range rows {
			if old, has := times[r.Bytes]; !has || r.US < old {
				times[r.Bytes] = r.US
			}
		}
	}
	return times, nil
}

// model is two ranks on this machine. Fitted are a, the nanoseconds of a message, and b, those of a byte beyond all caches.
type model struct {
	machine
	series
	a, b float64
}

// predict returns what package sim says, in µs.
func (m *model) predict(op backend.Kind, a, b float64, bytes int) (float64, error) {
	top := sim.Topology{Name: "two", Host: 2, Caches: m.caches, Window: m.window}
	link := sim.Link{Name: "link", From: "rank", To: "switch", Ports: 2, Half: true, GBs: 1 / b, NS: a / 2}
	if m.window {
		link.GBs, link.NS, top.MemoryGBs, top.MessageNS = 1e9, m.meetNS/2, 1/b, a
	}
	top.Links = []sim.Link{link}
	r, err := top.Run(op, "direct", 2, bytes)
	if err != nil {
		return 0, err
	}
	return r.Time.Seconds() * 1e6, nil
}

// fit finds a and b with which both fitted sizes take as long as measured: their times are a constant, and parts that a and b multiply.
func (m *model) fit(times map[int]float64) error {
	var a, b, t [2]float64
	for i, n := range m.fitted {
		base, err := m.predict(backend.AllReduce, 0, 1e-9, n)
		if err != nil {
			return err
		}
		late, _ := m.predict(backend.AllReduce, 1e6, 1e-9, n)
		wide, _ := m.predict(backend.AllReduce, 0, 1, n)
		a[i], b[i], t[i] = (late-base)/1e6, wide-base, times[n]-base
	}
	det := a[0]*b[1] - a[1]*b[0]
	if m.a, m.b = (t[0]*b[1]-t[1]*b[0])/det, (a[0]*t[1]-a[1]*t[0])/det; !(m.a >= 0 && m.b > 0) {
		return fmt.Errorf("nothing takes %.2f µs for %d bytes and %.2f µs for %d", times[m.fitted[0]], m.fitted[0], times[m.fitted[1]], m.fitted[1])
	}
	return nil
}
