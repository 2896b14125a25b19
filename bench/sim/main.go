// Command sim measures collectives of two ranks on this machine, fits what a message takes and a bandwidth of package dist/sim to two
// sizes of the all-reduce, and prints what that predicts for other sizes, and for other operations, beside what was measured:
//
//	go run ./bench/sim
//
// The machine must have nothing else to do. Every time is that of the fastest block of all rounds. How much slower memory is where a
// core's own cache ends, and how long a barrier of two cores takes, is measured without collectives (machine.go). Cores are kept awake, on
// Linux. 64 MiB are printed, but not counted: how much of the cache that all cores share is this machine's may change from one minute to
// the next.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
)

const kib, mib = 1 << 10, 1 << 20

// cached is the largest size that counts.
const cached = 16 * mib

var (
	engines = []string{"local", "shm", "tcp"}
	fitted  = [2]int{64, 256 * kib} // for each engine

	sizes = []int{8, 64, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, 512 * kib, mib, 4 * mib, 16 * mib, 64 * mib}
	ops   = []backend.Kind{backend.AllReduce, backend.Broadcast, backend.AllGather} // the first is fitted
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
	if n := min(runtime.GOMAXPROCS(0), runtime.NumCPU()); n < 2 {
		return fmt.Errorf("two cores wait for each other here, and Go has %d: run it where it has two or more", n)
	}
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ringo := filepath.Join(dir, "ringo")
	if out, err := exec.Command("go", "build", "-o", ringo, "github.com/ringo-ml/ringo/cmd/ringo").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	shared, loopback := machine()
	if err := keepAwake(); err != nil {
		return err
	}
	good, points := make([]int, len(ops)), make([]int, len(ops))
	for _, e := range engines {
		m := shared
		if e == "tcp" {
			m = loopback
		}
		for i, op := range ops {
			times, err := measure(ringo, e, op, rounds)
			if err == nil && i == 0 {
				err = m.fit(times)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
			fmt.Printf("%s, %v by direct, 2 ranks: %.2f µs and %.3g GB/s\n", e, op, m.a/1e3, 1/m.b)
			for _, n := range sizes {
				x, err := m.predict(op, m.a, m.b, n)
				if err != nil {
					return err
				}
				off, note := x/times[n]-1, ""
				switch {
				case i == 0 && slices.Contains(fitted[:], n):
					note = "  fitted"
				case n > cached:
					note = "  not counted"
				case math.Abs(off) <= 0.25:
					good[i]++
					fallthrough
				default:
					points[i]++
				}
				fmt.Printf("  %9d  %10.2f µs  predicted %10.2f  %5.2f%s\n", n, times[n], x, x/times[n], note)
			}
		}
	}
	for i, op := range ops {
		fmt.Printf("%v: %d of %d predictions are within 25%%\n", op, good[i], points[i])
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

// model is two ranks. Fitted are a, the nanoseconds of a message, and b, those of a byte where caches are not counted.
type model struct {
	sim.Topology
	a, b float64
}

// predict returns what package sim says with other a and b, in µs.
func (m model) predict(op backend.Kind, a, b float64, bytes int) (float64, error) {
	link := m.Links[0]
	if m.Window {
		m.MessageNS, m.MemoryGBs = a, 1/b
	} else {
		link.NS, link.GBs = a/2, 1/b
	}
	m.Links = []sim.Link{link}
	r, err := m.Run(op, "direct", 2, bytes)
	if err != nil {
		return 0, err
	}
	return r.Time.Seconds() * 1e6, nil
}

// fit finds a and b with which both fitted sizes take as long as measured: most of the smaller one is a, and of the larger one b.
func (m *model) fit(times map[int]float64) error {
	unfit := fmt.Errorf("nothing takes %.2f µs for %d bytes and %.2f µs for %d: let the machine do nothing else", times[fitted[0]], fitted[0],
		times[fitted[1]], fitted[1])
	m.a, m.b = 1e3, 1
	var off [2]float64
	for range 100 {
		for i, n := range fitted {
			us, err := m.predict(ops[0], m.a, m.b, n)
			if err != nil { // a or b is out of all bounds
				return unfit
			}
			off[i] = times[n] / us
		}
		m.a, m.b = m.a*off[0], m.b*off[1]
	}
	if !(math.Abs(off[0]-1)+math.Abs(off[1]-1) < 1e-3) {
		return unfit
	}
	return nil
}
