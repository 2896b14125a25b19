// Command sim measures all-reduces of two ranks on this machine, fits the latency and the bandwidth of a link of package dist/sim to two
// sizes, and prints what that predicts for other sizes beside what was measured:
//
//	go run ./bench/sim
//
// The machine must have nothing else to do. Every time is that of the fastest block of all rounds. Sizes that the caches of a core do not
// hold are printed, too, but not counted: there each byte takes longer, the longer the more there are, and a link has one bandwidth.
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

// series is sizes that one link predicts. It is fitted to two of them.
type series struct {
	backend string
	fitted  [2]int
	sizes   []int
}

// cached is the largest size that counts.
const cached = mib

var all = []series{
	{"local", [2]int{64, 256 * kib}, []int{8, 64, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 16 * mib, 64 * mib}},
	{"shm", [2]int{64, 256 * kib}, []int{8, 64, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 16 * mib, 64 * mib}},
	{"tcp", [2]int{4 * kib, mib}, []int{8, kib, 4 * kib, 16 * kib, 64 * kib, 256 * kib, mib, 4 * mib, 16 * mib}},
}

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
	good, points := 0, 0
	for _, s := range all {
		times, err := measure(ringo, s, rounds)
		if err != nil {
			return err
		}
		link, err := fit(s, times)
		if err != nil {
			return fmt.Errorf("%s: %w", s.backend, err)
		}
		fmt.Printf("%s, all-reduce by direct, 2 ranks: a message takes %.2f µs, and its bytes %.3g GB/s\n", s.backend, 2*link.NS/1e3, link.GBs)
		for _, bytes := range s.sizes {
			x, err := predict(link, bytes)
			if err != nil {
				return err
			}
			if bytes == s.fitted[0] || bytes == s.fitted[1] {
				fmt.Printf("  %9d  %10.2f µs  fitted\n", bytes, times[bytes])
				continue
			}
			off, note := x/times[bytes]-1, ""
			switch {
			case bytes > cached:
				note = "  not counted"
			case math.Abs(off) <= 0.25:
				good++
				fallthrough
			default:
				points++
			}
			fmt.Printf("  %9d  %10.2f µs  predicted %10.2f  %+6.1f%%%s\n", bytes, times[bytes], x, 100*off, note)
		}
	}
	fmt.Printf("%d of %d predictions are within 25%%\n", good, points)
	return nil
}

// measure returns the time of the fastest block of calls, in µs, by bytes.
func measure(ringo string, s series, rounds int) (map[int]float64, error) {
	sizes, times := make([]string, len(s.sizes)), map[int]float64{}
	for i, n := range s.sizes {
		sizes[i] = strconv.Itoa(n)
	}
	for range rounds {
		cmd := exec.Command(ringo, "bench", "-ops", "allreduce", "-algo", "direct", "-ranks", "2", "-backend", s.backend, "-sizes",
			strings.Join(sizes, ","), "-json")
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

// predict returns what package sim says for two ranks with a link, in µs.
func predict(link sim.Link, bytes int) (float64, error) {
	top := sim.Topology{Name: "two", Host: 2, Links: []sim.Link{link}}
	r, err := top.Run(backend.AllReduce, "direct", 2, bytes)
	if err != nil {
		return 0, err
	}
	return r.Time.Seconds() * 1e6, nil
}

// fit returns the link with which both fitted sizes take as long as measured: their times are a·latency + b/bandwidth.
func fit(s series, times map[int]float64) (sim.Link, error) {
	link := sim.Link{Name: "link", From: "rank", To: "switch", Ports: 2}
	var a, b, t [2]float64
	for i, n := range s.fitted {
		link.GBs, link.NS = 1e9, 1e6
		late, err := predict(link, n)
		if err != nil {
			return link, err
		}
		link.GBs, link.NS = 1, 0
		wide, err := predict(link, n)
		if err != nil {
			return link, err
		}
		a[i], b[i], t[i] = late/1e6, wide, times[n]
	}
	det := a[0]*b[1] - a[1]*b[0]
	ns, each := (t[0]*b[1]-t[1]*b[0])/det, (a[0]*t[1]-a[1]*t[0])/det
	if !(ns >= 0 && each > 0) {
		return link, fmt.Errorf("no link takes %.2f µs for %d bytes and %.2f µs for %d", t[0], s.fitted[0], t[1], s.fitted[1])
	}
	link.NS, link.GBs = ns, 1/each
	return link, nil
}
