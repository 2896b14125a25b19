package sim

import (
	"fmt"
	"slices"
)

// Step is a training step of a transformer, divided as Megatron-LM does it: layers over TP ranks of a host, stages over PP, rows over DP.
type Step struct {
	Layers, Hidden, Seq, Vocab int
	Batch, Micro               int // sequences of the step, and of a microbatch
	TP, PP, DP                 int
	Experts, Top, EP           int     // 0, or experts of a layer in place of its MLP, those of a token, and ranks of DP that share them
	Chunks                     int     // stages of a rank; above 1 the schedule is interleaved
	Value, Sum                 int     // bytes of a parameter or activation that is sent, and of a gradient
	FLOPS                      float64 // of a rank that only computes, per second
	Recompute                  bool    // backward computes forward again
	Again                      bool    // parameters are gathered again for backward (ZeRO 3)
	Overlap                    bool    // gradients and parameters travel while ranks compute, in up to half of that time
}

// StepTime is where the time of a step goes.
type StepTime struct {
	Compute Time // of a rank
	Tensor  Time // all-reduces of tensor parallelism
	Experts Time // all-to-alls, to the experts of tokens and back
	Bubble  Time // waiting in the pipeline
	Stages  Time // messages between stages that nothing hides
	Data    Time // gradients and parameters that nothing hides
}

// Total returns the time of the step.
func (t *StepTime) Total() Time {
	return t.Compute + t.Tensor + t.Experts + t.Bubble + t.Stages + t.Data
}

// Work returns the operations of a step on all ranks: 72·B·s·l·h²·(1 + s/6h + V/12lh), and a third more with recomputation (Narayanan et
// al. 2021). An MLP is two thirds of a layer, and a token has Top of them.
func (s *Step) Work() float64 {
	b, q, l, h, v := float64(s.Batch), float64(s.Seq), float64(s.Layers), float64(s.Hidden), float64(s.Vocab)
	mlps, router := 1., 0.
	if s.Experts > 0 {
		mlps, router = float64(s.Top), 6*b*q*l*h*float64(s.Experts)
	}
	block := 72*b*q*l*h*h*((1+2*mlps)/3+q/(6*h)) + router
	if s.Recompute {
		block *= 4. / 3
	}
	return block + 6*b*q*h*v
}

// Time simulates the collectives of the step on a network, in which every group has links of its own, and adds up what they take. With
// m microbatches and c chunks, ranks wait for (p−1)/c of them. All-reduces are two times an all-gather around the ring: GPUs add
// while they receive.
func (t *Topology) Time(s Step) (*StepTime, error) {
	if min(s.Layers, s.Hidden, s.Seq, s.Batch, s.Micro, s.TP, s.PP, s.DP, s.Chunks, s.Value, s.Sum) < 1 || s.FLOPS <= 0 {
		return nil, fmt.Errorf("sim: a step has at least one of all sizes: %+v", s)
	}
	if s.Batch%(s.DP*s.Micro) != 0 || s.TP > t.Host {
		return nil, fmt.Errorf("sim: %d sequences do not divide over %d ranks in microbatches of %d, or %d ranks are more than a host has",
			s.Batch, s.DP, s.Micro, s.TP)
	}
	s.EP = max(1, s.EP)
	if s.Experts < 0 || s.Experts > 0 && (s.Top < 1 || s.Top > s.Experts) || s.EP > 1 && s.Experts == 0 || s.Experts%s.EP != 0 ||
		s.DP%s.EP != 0 {
		return nil, fmt.Errorf("sim: %d experts, of which a token has %d, do not divide over %d of %d ranks", s.Experts, s.Top, s.EP, s.DP)
	}
	micros := Time(s.Batch / s.DP / s.Micro)
	out := &StepTime{Compute: Time(s.Work() / float64(s.TP*s.PP*s.DP) / s.FLOPS * 1e12)}
	activations := s.Micro * s.Seq * s.Hidden * s.Value
	each, err := t.allReduce(upTo(s.TP), activations)
	if err != nil {
		return nil, err
	}
	times := Time(4)
	if s.Recompute {
		times = 6
	}
	out.Tensor = times * each * Time(s.Layers/s.PP) * micros
	if out.Experts, err = t.swap(every(s.TP, s.EP), activations*s.Top); err != nil {
		return nil, err
	}
	out.Experts *= times * Time(s.Layers/s.PP) * micros
	out.Bubble = (out.Compute + out.Tensor + out.Experts) * Time(s.PP-1) / (micros * Time(s.Chunks))
	if s.PP > 1 { // ranks of a stage send a part each, and the next stage gathers them
		hop, err := t.around([]int{0, s.TP * s.DP}, 2*activations/s.TP, 1)
		if err != nil {
			return nil, err
		}
		out.Stages = 2 * hop * Time(s.PP-1)
	}
	sums, err := t.sums(&s)
	if err != nil {
		return nil, err
	}
	values := sums * Time(s.Value) / Time(s.Sum)
	if out.Data = sums + values; s.Again {
		out.Data += values
	}
	if s.Overlap {
		out.Data = max(out.Data-(out.Compute+out.Tensor)/2, 0)
	}
	return out, nil
}

// sums returns the time of a gather of all gradients: those of experts go over the ranks that have the same ones.
func (t *Topology) sums(s *Step) (Time, error) {
	mlps := 8 * s.Hidden * s.Hidden * max(1, s.Experts)
	shared, own := s.Layers*(4*s.Hidden*s.Hidden+mlps)+s.Vocab*s.Hidden, 0
	if s.Experts > 0 {
		own = s.Layers * mlps
		shared += s.Layers*s.Hidden*s.Experts - own
	}
	all, err := t.around(every(s.TP, s.DP), s.Sum*(shared/(s.TP*s.PP)), 1)
	if err != nil || own == 0 {
		return all, err
	}
	of, err := t.around(every(s.TP*s.EP, s.DP/s.EP), s.Sum*(own/(s.TP*s.PP*s.EP)), 1)
	return all + of, err
}

// every returns n ranks, so far from each other.
func every(far, n int) []int {
	ranks := upTo(n)
	for i := range ranks {
		ranks[i] *= far
	}
	return ranks
}

// swap returns the time of an all-to-all: in each step a rank exchanges a part with the next but one, and so on.
func (t *Topology) swap(ranks []int, bytes int) (Time, error) {
	n := len(ranks)
	if n < 2 {
		return 0, nil
	}
	return t.hops(ranks, (bytes+n-1)/n, n-1, 1)
}

// around returns the time of so many all-gathers in one operation, by the fastest protocol.
func (t *Topology) around(ranks []int, bytes, times int) (best Time, err error) {
	protocols := t.Protocols
	if len(protocols) == 0 {
		protocols = []Protocol{{Part: 1}}
	}
	for i, p := range protocols {
		by := *t
		by.MessageNS += p.MessageNS
		by.Links = slices.Clone(t.Links)
		for k := range by.Links {
			by.Links[k].GBs *= p.Part
		}
		once, err := by.gather(ranks, bytes)
		if err != nil {
			return 0, err
		}
		if x := nanoseconds(p.CallNS) + Time(times)*once; len(ranks) > 1 && (i == 0 || x < best) {
			best = x
		}
	}
	return best, nil
}

// allReduce returns the time of an all-reduce: two times around a ring, or by a switch that is above all ranks and adds up.
func (t *Topology) allReduce(ranks []int, bytes int) (Time, error) {
	best, err := t.around(ranks, bytes, 2)
	for _, l := range t.Links {
		if n := len(ranks); n > 1 && l.From == "rank" && !l.Rails && l.Sums > 0 && ranks[0]/l.Ports == ranks[n-1]/l.Ports {
			best = min(best, t.bySwitch(l, n, bytes))
		}
	}
	return best, err
}

// bySwitch is how NCCL does it: 16 channels of chunks, for each rank one, which are smaller for fewer bytes. Each rank reads the sum of its
// chunk, for which all send, and writes it to all: bytes·(1+1/n) in each direction. Of the first chunks, reads, writes and two copies in
// memory come one after the other.
func (t *Topology) bySwitch(l Link, n, bytes int) Time {
	first := 16 * n * 128 << 10
	for _, few := range []int{64, 8, 2} {
		if bytes < few*first {
			first /= 2
		}
	}
	first = min(first, bytes)
	each := 1e3 / (l.GBs * l.Sums)
	all := nanoseconds(l.SumsNS) + of(bytes, each*float64(n+1)/float64(n)) + of(first, each*float64(n-1)/float64(n))
	if t.MemoryGBs > 0 {
		all += of(2*first, 1e3/t.MemoryGBs)
	}
	return all
}

// gather returns the time of an all-gather around a ring of these ranks. Beyond 1 MiB from each rank it is a straight line.
func (t *Topology) gather(ranks []int, bytes int) (Time, error) {
	n := len(ranks)
	if n == 1 {
		return 0, nil
	}
	few := min(bytes, n<<20)
	long, err := t.ring(ranks, few)
	if err != nil || few == bytes {
		return long, err
	}
	short, err := t.ring(ranks, few/2)
	return long + of(bytes-few, float64(long-short)/float64(few-few/2)), err
}

// ring returns the time of an all-gather around a ring. When a part has been on as many hops as two hosts have, all further ones take the
// same time, so it is enough to simulate as many again.
func (t *Topology) ring(ranks []int, bytes int) (Time, error) {
	n := len(ranks)
	few := min(n-1, 4*t.Host)
	part := (bytes + n - 1) / n
	long, err := t.hops(ranks, part, few, 0)
	if err != nil || few == n-1 {
		return long, err
	}
	short, err := t.hops(ranks, part, few/2, 0)
	return long + of(n-1-few, float64(long-short)/float64(few-few/2)), err
}

// hops simulates so many steps in which each rank sends so many bytes to the next one. With each step they go so many ranks farther: 0 is
// an all-gather around the ring, 1 an all-to-all. If several ranks of each host are among them, there are as many rings, with a part of the
// bytes each, which enter and leave hosts at other ranks: so all cards are in use.
func (t *Topology) hops(ranks []int, part, steps, farther int) (Time, error) {
	n := len(ranks)
	plan, err := t.wire((ranks[n-1] + t.Host) / t.Host * t.Host)
	if err != nil {
		return 0, err
	}
	net, rings := newNetwork(plan), 1
	if farther == 0 {
		rings = t.together(ranks)
	}
	for c := range rings {
		for i, r := range newGroup(net, turned(ranks, rings, c)).ranks {
			net.start(0, func() error {
				b := r.Memory((part + rings - 1) / rings)
				for k := range steps {
					far := 1 + k*farther
					if err := r.SendRecv((i+far)%n, b, (i-far+n)%n, b, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	err = net.run()
	return net.latest(), err
}

// together returns how many of the ranks each host has; 1 if that differs, or if there is one host.
func (t *Topology) together(ranks []int) int {
	n := slices.IndexFunc(ranks, func(r int) bool { return r/t.Host != ranks[0]/t.Host })
	if n < 1 || len(ranks)%n != 0 {
		return 1
	}
	for i, r := range ranks {
		if r/t.Host != ranks[i/n*n]/t.Host {
			return 1
		}
	}
	return n
}

// turned returns the ranks with those of each host, n of them, turned by so many places.
func turned(ranks []int, n, by int) []int {
	out := make([]int, len(ranks))
	for i := range ranks {
		out[i] = ranks[i/n*n+(i+by)%n]
	}
	return out
}
