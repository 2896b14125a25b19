package sim

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Backward is a backward pass with package ddp: buckets of gradients are all-reduced one after the other, while ranks compute those of
// earlier layers.
type Backward struct {
	Ranks     int
	Gradients []int // bytes of each, in the order in which they are there
	Compute   Time  // of a rank that does nothing else; each gradient takes its part of it, by bytes
	Bucket    int   // bytes of the largest, as ddp.Config has it; 0: as ddp.Naive, each gradient by itself, after the last one
}

// Sum is the all-reduce of a bucket, on the last rank to do it.
type Sum struct {
	Bytes             int
	Ready, Start, End Time
}

// Overlap is what a backward pass took.
type Overlap struct {
	Sums   []Sum
	Total  Time
	Hidden float64 // part of the time of the all-reduces in which ranks compute
}

// buckets cuts the gradients as package ddp does, into those that are there at the same time. The first one is at most 1 MiB.
func (b *Backward) buckets() (sums []Sum) {
	total, done, limit := 0, 0, min(1<<20, b.Bucket)
	for _, n := range b.Gradients {
		total += n
	}
	for _, n := range b.Gradients {
		last := len(sums) - 1
		if last > 0 {
			limit = b.Bucket
		}
		if last < 0 || sums[last].Bytes+n > limit {
			sums = append(sums, Sum{})
			last++
		}
		done += n
		sums[last].Bytes += n
		sums[last].Ready = of(done, float64(b.Compute)/float64(total))
		if b.Bucket == 0 {
			sums[last].Ready = b.Compute
		}
	}
	return sums
}

// Backward simulates a backward pass with the all-reduces that the Tuner chooses.
func (t *Topology) Backward(b Backward) (*Overlap, error) {
	if len(b.Gradients) == 0 || slices.Min(b.Gradients) < 1 || b.Compute < 0 || b.Bucket < 0 {
		return nil, fmt.Errorf("sim: backward needs gradients of 1 byte or more, and neither time nor buckets below 0")
	}
	plan, err := t.wire(b.Ranks)
	if err != nil {
		return nil, err
	}
	net, sums := newNetwork(plan), b.buckets()
	net.marks = make([]Time, len(sums))
	for _, r := range newGroup(net, upTo(b.Ranks)).ranks {
		net.start(0, func() error { return r.backward(sums) })
	}
	if err := net.run(); err != nil {
		return nil, err
	}
	out, end, busy := &Overlap{Sums: sums, Total: net.latest(), Hidden: 1}, Time(0), Time(0)
	for k := range sums {
		s := &sums[k]
		s.Start, s.End = max(s.Ready, end), net.marks[k]
		end = s.End
		busy += s.End - s.Start
	}
	if busy > 0 {
		out.Hidden = 1 - float64(out.Total-b.Compute)/float64(busy)
	}
	return out, nil
}

// backward computes, while a second thread all-reduces what is there.
func (r *rank) backward(sums []Sum) error {
	join := r.Fork(func() error {
		for k, s := range sums {
			if !r.Await() {
				return errEnded
			}
			if err := r.do(newCall(backend.AllReduce, "", len(r.ranks), s.Bytes)); err != nil {
				return err
			}
			r.net.record(r, step{n: k, what: mark})
		}
		return nil
	})
	now := Time(0)
	for _, s := range sums {
		r.pause(s.Ready - now)
		r.Post()
		now = s.Ready
	}
	return join()
}
