package layouts

import (
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/pp"
)

// layout is how ranks share a program.
type layout struct {
	PP, DP, FSDP, EP, Ring, CP, TP int // ranks of each axis

	Schedule string // of a pipeline
	Virtual  int    // stages of a rank, where that is "interleaved"
	Parts    []int  // layers of each stage

	Stage    int  // of fsdp; 0: ddp
	Sequence bool // tp divides tokens between the layers that it divides, too
	Chunks   int  // of which tokens travel in so many pieces
	Again    bool // blocks are computed again in backward
	Bucket   int  // bytes of ddp's buckets
	Check    int  // ranks compare what they have in every so many steps
	Once     bool // fsdp gathers and reduces once a step
	Offload  bool
	Cuts     uint64 // the seed of which rows ranks have; 0: disttest.Part
}

// randomLayout returns a layout of at most so many ranks. Few of them do not divide the program.
func randomLayout(r *rand.Rand, p program, most int) layout {
	l := layout{PP: 1, DP: 1, FSDP: 1, EP: 1, Ring: 1, CP: 1, TP: 1}
	if p.Pipes {
		l.pipeline(r, p)
	}
	for range 5 {
		next, free := l, r.IntN(20) == 0
		*pick(r, &next.DP, &next.FSDP, &next.EP, &next.EP, &next.Ring, &next.CP, &next.TP, &next.TP) *= pick(r, 2, 2, 3)
		if next.ranks() <= most && (p.Experts.Experts > 0 || next.EP == 1) && (free || next.refused(p) == nil) {
			l = next
		}
	}
	if l.FSDP > 1 || r.IntN(2) == 0 {
		l.Stage = 1 + r.IntN(3)
	}
	if l.TP > 1 && r.IntN(2) == 0 {
		l.Sequence, l.Chunks = true, r.IntN(4)
	}
	l.Again, l.Bucket, l.Check, l.Once, l.Offload = r.IntN(3) == 0, pick(r, 0, 300, 2000), r.IntN(3), r.IntN(3) == 0, r.IntN(5) == 0
	l.Once = l.Once || l.PP > 1 && l.Stage == 3 && r.IntN(9) > 0
	l.Cuts = maybe(r, 2, r.Uint64())
	return l
}

// pipeline chooses a schedule that the program has layers and microbatches for, and gives its stages unequally many layers.
func (l *layout) pipeline(r *rand.Rand, p program) {
	names := slices.DeleteFunc(pp.Names(), func(name string) bool { return name == "forward" })
	for stages := 0; stages == 0 || stages > p.Layers; {
		l.PP, l.Schedule, l.Virtual = pick(r, 2, 2, 3, 4), pick(r, names...), 2+r.IntN(2)
		if s, err := l.schedule(p); err == nil {
			stages = len(s.Ranks)
			l.Parts = slices.Repeat([]int{1}, stages)
		}
	}
	for range p.Layers - len(l.Parts) {
		l.Parts[r.IntN(len(l.Parts))]++
	}
}

func (l layout) schedule(p program) (*pp.Schedule, error) {
	return pp.ByName(l.Schedule, l.PP, l.Virtual, p.Micro)
}

func (l layout) ranks() int { return l.PP * l.DP * l.FSDP * l.EP * l.Ring * l.CP * l.TP }

// heads returns on how many ranks of tp heads of keys and values differ, and how many ranks have the same.
func (l layout) heads(p program) (kv, same int) {
	if l.TP > p.KVHeads && l.TP%p.KVHeads == 0 {
		return p.KVHeads, l.TP / p.KVHeads
	}
	return l.TP, 1
}

func (l layout) mesh(p program) string {
	return parallel.Layout{PP: l.PP, DP: l.DP, FSDP: l.FSDP, EP: l.EP, Ring: l.Ring, CP: l.CP, TP: l.TP}.Mesh(p.KVHeads)
}

// part returns a rank's rows of a microbatch.
func (l layout) part(rows, rank, ranks int) (first, n int) {
	if l.Cuts == 0 {
		return disttest.Part(rows, rank, ranks)
	}
	r, cuts := rand.New(rand.NewPCG(l.Cuts, uint64(rows))), []int{0, rows}
	for range ranks - 1 {
		cuts = append(cuts, r.IntN(rows+1))
	}
	slices.Sort(cuts)
	return cuts[rank], cuts[rank+1] - cuts[rank]
}

// refusals are the layouts that a program cannot have. A rank must say so before a step is trained.
var refusals = []struct {
	says string // a part of the error
	when func(p program, l layout) bool
}{
	{" are fewer than the ", func(p program, l layout) bool { return l.Ring*l.CP > p.Positions }},
	{" do not divide over ", func(p program, l layout) bool { // whole heads, experts, and features of experts
		kv, _ := l.heads(p)
		return p.Heads%l.TP != 0 || p.KVHeads%kv != 0 || p.Heads/l.TP%l.CP != 0 || p.KVHeads/kv%l.CP != 0 ||
			p.Experts.Experts%l.EP != 0 || p.Experts.Hidden%l.TP != 0 || p.Experts.Shared%l.TP != 0
	}},
	{" need Ranks.Positions", func(p program, l layout) bool { // tokens are counted in the order of ranks, in which a ring has one each
		return l.Ring > 1 && l.Ring < p.Positions && p.Experts.Experts > 0 && (p.Experts.Capacity > 0 || p.Experts.Sequence > 0)
	}},
	{"set OncePerStep", func(_ program, l layout) bool { return l.PP > 1 && l.Stage == 3 && !l.Once }},
}

// refused returns what errors may say of a layout; nil: it must train.
func (l layout) refused(p program) (says []string) {
	for _, r := range refusals {
		if r.when(p, l) {
			says = append(says, r.says)
		}
	}
	return says
}
