package sim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// memory is ranks that share memory: a byte takes a nanosecond, an operation 5 and a barrier 2·3; eight ranks are two hosts.
func memory() *Topology {
	return &Topology{Name: "memory", Host: 4, Window: true, MemoryGBs: 1, MessageNS: 5, Links: []Link{
		{Name: "inside", From: "rank", To: "host", Ports: 4, GBs: 1, NS: 3},
		{Name: "nic", From: "rank", To: "net", Ports: 1 << 10, GBs: 1, NS: 100}}}
}

// In shared memory, operations have two barriers, or one if the input is shown along, and the rank with most to read and write decides.
func TestWindow(t *testing.T) {
	const ns, n = Time(1000), 4
	for _, part := range []int{64, 65, 1000, 1 << 20} {
		s := n * part
		for kind, copies := range map[backend.Kind]int{backend.Broadcast: s, backend.Reduce: s * (n + 1) / 2, backend.AllReduce: s,
			backend.Gather: s, backend.AllGather: s, backend.Scatter: part, backend.ReduceScatter: part * (n + 1) / 2, backend.AllToAll: s} {
			input, want := s, 5*ns+2*3*ns+Time(copies)*ns
			if kind == backend.Gather || kind == backend.AllGather {
				input = part
			}
			if input > 256 {
				want += 2 * 3 * ns
			}
			for _, name := range []string{"", "direct"} {
				r, err := memory().Run(kind, name, n, s)
				require.NoError(t, err)
				assert.Equal(t, want, r.Time, "%v of %d bytes", kind, s)
				assert.Equal(t, "direct", r.Algo)
			}
		}
	}
	assert.Equal(t, 11*ns, timeOf(t, memory(), backend.Barrier, "", n, 0))
	messages := memory()
	messages.Window = false
	for _, x := range []struct {
		name  string
		ranks int
	}{{"ring", n}, {"direct", 2 * n}} {
		want := timeOf(t, messages, backend.AllReduce, x.name, x.ranks, 4096)
		assert.Equal(t, want, timeOf(t, memory(), backend.AllReduce, x.name, x.ranks, 4096), "%s of %d ranks has messages", x.name, x.ranks)
	}
}

// Operations in a program share memory, too.
func TestWindowInProgram(t *testing.T) {
	prog := &Program{Groups: [][]int{{0, 1, 2, 3}}, Exchanges: []Exchange{{Kind: backend.AllReduce, Seq: 1, Bytes: 4000}}}
	for range 4 {
		prog.Acts = append(prog.Acts, []Act{{Compute: 1000, Of: 0}, {Of: 0, Await: true}})
	}
	p, err := memory().Play(prog)
	require.NoError(t, err)
	assert.Equal(t, 1000+timeOf(t, memory(), backend.AllReduce, "", 4, 4000), p.Time)
}

// Caches make memory, and links of a host, so many times as fast, and nothing else.
func TestCaches(t *testing.T) {
	const ns = Time(1000)
	top := memory()
	top.Caches = [][2]float64{{100, 4}, {1600, 2}, {6400, 1}}
	for _, x := range []struct {
		bytes int
		each  Time // picoseconds
	}{{60, 250}, {100, 250}, {400, 375}, {1600, 500}, {3200, 750}, {6400, 1000}, {1 << 20, 1000}} {
		want := 5*ns + 2*3*ns + Time(x.bytes)*x.each
		if x.bytes > 256 {
			want += 2 * 3 * ns
		}
		assert.Equal(t, want, timeOf(t, top, backend.AllReduce, "", 2, x.bytes), "%d bytes", x.bytes)
	}
	top.Window, top.MemoryGBs, top.Caches = false, 0, [][2]float64{{4800, 2}, {6400, 1}}
	assert.Equal(t, 2*(5*ns+2*3*ns)+3200*500, timeOf(t, top, backend.AllReduce, "direct", 2, 3200), "touches 4800 bytes")
	top.Host = 1
	top.Links = top.Links[1:]
	assert.Equal(t, 2*(5*ns+2*100*ns)+3200*ns, timeOf(t, top, backend.AllReduce, "direct", 2, 3200), "links between hosts")
}

// Caches in a wrong order, and numbers that are none, are refused.
func TestWrongCaches(t *testing.T) {
	for text, want := range map[string]string{`[0, 1]`: "0 is [0 1]", `[1e10, 1]`: "0 is [1e+10 1]", `[8, 2], [8, 1]`: "1 is [8 1]",
		`[8, 0]`: "0 is [8 0]", `[8]`: "0 is [8 0]", `[8, 1e10]`: "0 is [8 1e+10]"} {
		_, err := Parse([]byte(`{"name": "x", "host": 4, "caches": [` + text + `]}`))
		want = `topology "x": cache ` + want + ": bytes go up from 1 to 1e9, times are from 0.001 to 1e9, and there are 64 at most"
		assert.EqualError(t, err, want)
	}
}

// Directions that take turns: what goes one way takes as long as ever, and an exchange twice as long.
func TestHalf(t *testing.T) {
	const ns = Time(1000)
	for _, half := range []bool{false, true} {
		top := flat(0, 0)
		top.Links[0].Half = half
		exchange, most := 1000*ns, 1000
		if half {
			exchange, most = 2000*ns, 2000
		}
		assert.Equal(t, exchange, timeOf(t, top, backend.AllGather, "direct", 2, 2000))
		assert.Equal(t, 1000*ns, timeOf(t, top, backend.Broadcast, "direct", 2, 1000))
		r, err := top.Run(backend.AllGather, "direct", 2, 2000)
		require.NoError(t, err)
		assert.Equal(t, []Traffic{{"wire", 4000, most}}, r.Links)
	}
}
