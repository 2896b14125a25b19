package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/tensor"
)

// faultSpec is what happens to the last rank of a job.
type faultSpec struct {
	Kind string // kill, stop, slow
}

const (
	faultTimeout = time.Second // timeout of the operations
	faultBytes   = 64 << 10
	faultAfter   = 20                     // calls before the fault
	slowCalls    = 3                      // calls before which the slow rank pauses
	slowFor      = 300 * time.Millisecond // less than the timeout: no rank may fail
	killBound    = time.Second
	stopBound    = faultTimeout + time.Second
)

// faultEvent is what a rank of such a job prints.
type faultEvent struct {
	Event string // fault, error, done
	Rank  int
	NS    int64 // since 1970
	Text  string
}

// faultResult is a row of the table; -json prints an array of them.
type faultResult struct {
	Op      string  `json:"op"`
	Fault   string  `json:"fault"`
	Backend string  `json:"backend"`
	Ranks   int     `json:"ranks"`
	Seconds float64 `json:"seconds"` // until the last of the others had its error; slow: until all were done
	Bound   float64 `json:"bound_seconds"`
	Pass    bool    `json:"pass"`
	Why     string  `json:"why"` // error text
}

// benchFaults runs a job for each operation and fault.
func benchFaults(ops []string, ranks []int, backends []string, asJSON bool) error {
	results := []faultResult{}
	passed := true
	for _, b := range backends {
		for _, n := range ranks {
			for _, op := range ops {
				for _, kind := range []string{"kill", "stop", "slow"} {
					r, err := runFault(op, kind, b, n)
					if err != nil {
						return err
					}
					results = append(results, r)
					passed = passed && r.Pass
					if !asJSON {
						fmt.Fprintf(os.Stderr, ".")
					}
				}
			}
		}
	}
	if err := writeFaults(results, asJSON); err != nil {
		return err
	}
	if !passed {
		return errors.New("a fault was not found out in time, or without naming the rank")
	}
	return nil
}

func writeFaults(results []faultResult, asJSON bool) error {
	if asJSON {
		return printJSON(results)
	}
	fmt.Fprintln(os.Stderr)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "OP\tFAULT\tBACKEND\tRANKS\tSECONDS\tBOUND\tRESULT")
	for _, r := range results {
		verdict := "pass"
		if !r.Pass {
			verdict = "FAIL: " + r.Why
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.3f\t%.1f\t%s\n", r.Op, r.Fault, r.Backend, r.Ranks, r.Seconds, r.Bound, verdict)
	}
	return t.Flush()
}

// runFault runs one job. An error means that it could not be run.
func runFault(op, kind, backend string, n int) (faultResult, error) {
	if n < 2 {
		return faultResult{}, usage("-faults needs 2 ranks or more")
	}
	if op == "send" {
		n = 2 // both take part
	}
	var events []faultEvent
	var noise strings.Builder // errors of the ranks, which are events, too
	spec := benchSpec{Ops: []string{op}, Backend: backend, Fault: &faultSpec{kind}}
	err := runRanks(spec, n, faultTimeout, &noise, func(_ int, line []byte) bool {
		var e faultEvent
		if json.Unmarshal(line, &e) != nil || e.Event == "" {
			return false
		}
		events = append(events, e)
		return true
	})
	var exit *launch.ExitError
	if err != nil && !errors.As(err, &exit) {
		return faultResult{}, err
	}
	r := judge(kind, n, events)
	r.Op, r.Backend = op, backend
	if !r.Pass && noise.Len() > 0 {
		r.Why += "; " + strings.TrimSpace(noise.String())
	}
	return r, nil
}

// judge returns the result of a job from its events.
func judge(kind string, n int, events []faultEvent) faultResult {
	bound := map[string]time.Duration{"kill": killBound, "stop": stopBound, "slow": slowCalls*slowFor + faultTimeout}[kind]
	r := faultResult{Fault: kind, Ranks: n, Bound: bound.Seconds()}
	var began int64
	for _, e := range events {
		if e.Event == "fault" {
			began = e.NS
		}
	}
	if began == 0 {
		r.Why = "the fault did not happen"
		return r
	}
	want, ranks := "error", n-1
	if kind == "slow" {
		want, ranks = "done", n
	}
	victim := regexp.MustCompile(fmt.Sprintf(`\branks? ([0-9]+(-[0-9]+)?, )*([0-9]+-)?%d\b`, n-1))
	var why []string
	for _, e := range events {
		switch {
		case e.Event == "fault":
			continue
		case e.Event != want:
			why = append(why, fmt.Sprintf("rank %d: %s %s", e.Rank, e.Event, e.Text))
		case want == "error" && !victim.MatchString(e.Text):
			why = append(why, fmt.Sprintf("rank %d does not name rank %d: %s", e.Rank, n-1, e.Text))
		}
		ranks--
		r.Seconds = max(r.Seconds, float64(e.NS-began)/1e9)
	}
	if ranks > 0 {
		why = append(why, viz.Counted(ranks, "rank")+" said nothing")
	}
	if r.Seconds > r.Bound {
		why = append(why, "too late")
	}
	r.Pass, r.Why = len(why) == 0, strings.Join(why, "; ")
	return r
}

// faultRank runs one rank of such a job.
func faultRank(r *dist.Rank, spec *benchSpec, out *json.Encoder) error {
	me, n := r.World.Rank(), r.World.Size()
	tell := func(event, text string) error {
		return out.Encode(faultEvent{event, me, time.Now().UnixNano(), text})
	}
	x, y := tensor.New(r.Device, tensor.Float32, faultBytes/4+n), tensor.New(r.Device, tensor.Float32, faultBytes/4+n)
	c := newCase(findBenchOp(spec.Ops[0]), r.World, faultBytes, x, y)
	for i := 0; ; i++ {
		if me == n-1 && i >= faultAfter {
			if i == faultAfter {
				if err := tell("fault", ""); err != nil {
					return err
				}
			}
			if err := faultSelf(spec.Fault.Kind); err != nil {
				return err
			}
		}
		if err := c.op.call(c).Wait(); err != nil {
			return errors.Join(tell("error", err.Error()), err)
		}
		if spec.Fault.Kind == "slow" && i == faultAfter+slowCalls-1 {
			break
		}
	}
	if right, err := c.verify(); err != nil || !right {
		return errors.Join(tell("wrong", "the result after it is wrong"), err)
	}
	return tell("done", "")
}

// faultSelf makes the fault happen to this process.
func faultSelf(kind string) error {
	if kind == "slow" {
		<-time.After(slowFor)
		return nil
	}
	return signalSelf(kind)
}
