package training

import (
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
)

// Backward is a backward pass with package ddp: buckets of gradients are all-reduced one after the other, while ranks compute those of
// earlier layers.
type Backward struct {
	Ranks     int
	Gradients []int    // bytes of each, in the order in which they are there
	Compute   sim.Time // of a rank that does nothing else; each gradient takes its part of it, by bytes
	// Bucket is the bytes of the largest. 0 is not that of ddp.Config (25 MiB): as in ddp.Naive, each gradient goes by itself, after the last.
	Bucket int
}

// BucketTime is the all-reduce of a bucket, on the last rank to do it.
type BucketTime struct {
	Bytes             int
	Ready, Start, End sim.Time
}

// Overlap is what a backward pass took.
type Overlap struct {
	Sums   []BucketTime
	Total  sim.Time
	Hidden float64 // part of the time of the all-reduces in which ranks compute
}

// buckets cuts the gradients as package ddp does, into those that are there at the same time. The first one is at most 1 MiB.
func (b *Backward) buckets() (sums []BucketTime) {
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
			sums = append(sums, BucketTime{})
			last++
		}
		done += n
		sums[last].Bytes += n
		sums[last].Ready = sim.Time(math.Round(float64(done) * (float64(b.Compute) / float64(total))))
		if b.Bucket == 0 {
			sums[last].Ready = b.Compute
		}
	}
	return sums
}

// On simulates the backward pass on a network, with the all-reduces that the Tuner chooses.
func (b *Backward) On(t *sim.Topology) (*Overlap, error) {
	if len(b.Gradients) == 0 || slices.Min(b.Gradients) < 1 || b.Compute < 0 || b.Bucket < 0 {
		return nil, fmt.Errorf("sim: backward needs gradients of 1 byte or more, and neither time nor buckets below 0")
	}
	if err := t.Fits(b.Ranks); err != nil {
		return nil, err
	}
	out, p, now := &Overlap{Sums: b.buckets(), Hidden: 1}, sim.Program{Groups: [][]int{make([]int, b.Ranks)}}, sim.Time(0)
	var acts []sim.Act
	for k, s := range out.Sums {
		p.Exchanges = append(p.Exchanges, sim.Exchange{Kind: backend.AllReduce, Seq: 1, Bytes: s.Bytes})
		acts = append(acts, sim.Act{Compute: s.Ready - now, Of: k})
		now = s.Ready
	}
	for i := range b.Ranks {
		p.Groups[0][i], p.Acts = i, append(p.Acts, acts)
	}
	played, err := t.Play(&p)
	if err != nil {
		return nil, err
	}
	end, busy := sim.Time(0), sim.Time(0)
	for k := range out.Sums {
		s := &out.Sums[k]
		for _, spans := range played.Acts {
			s.Ready = max(s.Ready, spans[k].Start) // later, where ranks have waited because too many were in flight
		}
		s.Start, s.End = max(s.Ready, end), played.Exchanges[k].End
		end = s.End
		busy += s.End - s.Start
	}
	if out.Total = played.Time; busy > 0 {
		out.Hidden = 1 - float64(out.Total-b.Compute)/float64(busy)
	}
	return out, nil
}
