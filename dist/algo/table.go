package algo

import (
	"bytes"
	_ "embed" // the committed table
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Table says which algorithm runs an operation, by its kind, its bytes and the number of ranks and hosts, in the areas that were
// measured. It is data that `ringo bench -fit` made, and it is compiled in. At run time nothing is measured, so all ranks and all runs
// choose the same. Inside a measured area, an operation without a rule is linear; outside, the Tuner uses its model.
type Table struct {
	Made     string // when and on what machine
	Measured []Area
	Rules    []Rule // the first rule of a kind that covers the ranks and hosts is used
}

// Area is the range of ranks and hosts for which a Table has measurements.
type Area struct {
	Ranks [2]int `json:"ranks"`
	Hosts [2]int `json:"hosts"`
	// Max is the largest measured size, 0 for no limit. Hosts made of network namespaces have a limit: the network between real machines
	// is slower, and it decides for large buffers.
	Max int `json:"max,omitempty"`
}

// Rule is the choice for one kind of operation.
type Rule struct {
	Op    string `json:"op"`    // in the spelling of RINGO_ALGO
	Ranks [2]int `json:"ranks"` // from, to
	Hosts [2]int `json:"hosts"`
	Use   []Use  `json:"use"` // by size; the last one has no Max
}

// Use is an algorithm for operations of at most Max bytes (see Bytes).
type Use struct {
	Max  int    `json:"max,omitempty"`
	Algo string `json:"algo"`
}

//go:embed tuner.json
var tunerJSON []byte

// committed is the table that a Tuner uses.
var committed = func() *Table {
	t, err := ParseTable(tunerJSON)
	if err != nil {
		panic(err) // a test parses the same table
	}
	return t
}()

// ParseTable reads a table from JSON and checks it: kinds and algorithms exist, sizes increase, and reductions inside one host are in
// rank order, so that goroutines and processes give the same bits.
func ParseTable(b []byte) (*Table, error) {
	t := new(Table)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(t); err != nil {
		return nil, fmt.Errorf("algo: table: %w", err)
	}
	for _, r := range t.Rules {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("algo: table: rule for %s on %v ranks, %v hosts: %w", r.Op, r.Ranks, r.Hosts, err)
		}
	}
	return t, nil
}

func (r *Rule) check() error {
	k, ok := KindOf(r.Op)
	if !ok {
		return fmt.Errorf("no operation is called %q", r.Op)
	}
	if len(r.Use) == 0 || r.Use[len(r.Use)-1].Max != 0 {
		return fmt.Errorf("the last algorithm must have no max")
	}
	last := -1
	for i, u := range r.Use {
		switch {
		case find(k, u.Algo) == nil:
			return fmt.Errorf("no algorithm is called %q; there are %s", u.Algo, strings.Join(Names(k), ", "))
		case i < len(r.Use)-1 && u.Max <= last:
			return fmt.Errorf("max %d after %d", u.Max, last)
		case k.Reduces() && within(r.Hosts, 1) && !InRankOrder(u.Algo):
			return fmt.Errorf("%s does not reduce in rank order", u.Algo)
		}
		last = u.Max
	}
	return nil
}

// Encode returns the table as JSON, one rule on each line.
func (t *Table) Encode() []byte {
	var b bytes.Buffer
	made, _ := json.Marshal(t.Made) // strings and numbers can always be encoded
	measured, _ := json.Marshal(t.Measured)
	fmt.Fprintf(&b, "{\n  \"made\": %s,\n  \"measured\": %s,\n  \"rules\": [", made, measured)
	for i, r := range t.Rules {
		line, _ := json.Marshal(r)
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n    %s", line)
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes()
}

// Choose returns the algorithm for an operation of so many bytes on so many ranks and hosts. It returns false if that was not measured.
func (t *Table) Choose(k backend.Kind, bytes, ranks, hosts int) (string, bool) {
	if !slices.ContainsFunc(t.Measured, func(a Area) bool {
		return within(a.Ranks, ranks) && within(a.Hosts, hosts) && (a.Max == 0 || bytes <= a.Max)
	}) {
		return "", false
	}
	for i := range t.Rules {
		r := &t.Rules[i]
		if r.Op != k.String() || !within(r.Ranks, ranks) || !within(r.Hosts, hosts) {
			continue
		}
		for _, u := range r.Use {
			if u.Max == 0 || bytes <= u.Max {
				return u.Algo, true
			}
		}
	}
	return "linear", true
}

func within(band [2]int, n int) bool { return n >= band[0] && n <= band[1] }

// KindOf returns the kind of operation of that name, and whether there is one.
func KindOf(name string) (backend.Kind, bool) {
	for k := range backend.Kind(backend.NumKinds) {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// InRankOrder reports whether an algorithm combines elements in rank order, so that a reduction has the same bits on
// every engine.
func InRankOrder(name string) bool {
	return slices.Contains([]string{"linear", "direct", OneShot, TwoShot, backend.RankOrder}, name)
}

// Bytes returns the size of op for a Tuner: the full buffer, which is the parts of all ranks together if each has one. It is the same on
// all ranks. AllToAllV has no size, because each rank knows only its own counts.
func Bytes(op *backend.Op, ranks int) int {
	size := op.DType.Size()
	if sizeless(op.Kind) {
		return 0
	}
	switch op.Kind {
	case backend.Gather, backend.AllGather, backend.Scatter, backend.ReduceScatter, backend.AllToAll:
		return op.Count * size * ranks
	case backend.AllGatherV:
		return before(op.DstCounts, len(op.DstCounts)) * size
	case backend.ReduceScatterV:
		return before(op.SrcCounts, len(op.SrcCounts)) * size
	}
	return op.Count * size
}

// sizeless reports whether ranks do not all know the size of operations of a kind.
func sizeless(k backend.Kind) bool {
	return k == backend.AllToAllV || k == backend.Barrier || k == backend.MonitoredBarrier
}
