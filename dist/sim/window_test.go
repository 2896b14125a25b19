package sim

import (
	"fmt"
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
	top.Caches = [][]float64{{100, 4}, {1600, 2}, {6400, 1}}
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
	messages := *top
	messages.Window = false
	for name, ranks := range map[string]int{"ring": 4, "direct": 8} {
		want := timeOf(t, &messages, backend.AllReduce, name, ranks, 1200) // of which a rank touches half as many again
		assert.Equal(t, want, timeOf(t, top, backend.AllReduce, name, ranks, 1200), "%s of %d ranks has messages", name, ranks)
	}
	top.Window, top.MemoryGBs, top.Caches = false, 0, [][]float64{{4800, 2}, {6400, 1}}
	assert.Equal(t, 2*(5*ns+2*3*ns)+3200*500, timeOf(t, top, backend.AllReduce, "direct", 2, 3200), "touches 4800 bytes")
	top.Host = 1
	top.Links = top.Links[1:]
	assert.Equal(t, 2*(5*ns+2*100*ns)+3200*ns, timeOf(t, top, backend.AllReduce, "direct", 2, 3200), "links between hosts")
}

// Links of ranks that lead to other hosts are no memory, however few ports their switches have; those to a part of a host are.
func TestMemoryLinks(t *testing.T) {
	link := func(from, to string, ports int, rails bool) Link {
		return Link{Name: from + to, From: from, To: to, Ports: ports, GBs: 1, NS: 10, Rails: rails}
	}
	up, all := link("switch", "net", 8, false), link("rank", "all", 8, false)
	for name, links := range map[string][]Link{
		"rails":          {link("rank", "switch", 2, true), all},
		"one port":       {link("rank", "switch", 1, false), up},
		"one switch":     {link("rank", "switch", 4, false), up},
		"of two hosts":   {link("rank", "switch", 3, false), all},
		"of all hosts":   {all},
		"half of a host": {link("rank", "switch", 2, false), all},
	} {
		plain := &Topology{Name: name, Host: 4, Links: links}
		cached := *plain
		cached.Caches = [][]float64{{1 << 20, 8}}
		slow, fast := timeOf(t, plain, backend.AllGather, "bruck", 8, 4096), timeOf(t, &cached, backend.AllGather, "bruck", 8, 4096)
		if name != "half of a host" {
			assert.Equal(t, slow, fast, name)
		}
		n, err := cached.network(8, 0)
		require.NoError(t, err)
		assert.Equal(t, name == "half of a host", n.plan.cables[0].each < 1000, name)
	}
}

// What takes longer than times can say is refused, on every machine and in the same way.
func TestTimesThatDoNotFit(t *testing.T) {
	slow := &Topology{Name: "slow", Host: 2, MemoryGBs: slowest,
		Links: []Link{{Name: "link", From: "rank", To: "host", Ports: 2, GBs: slowest}}}
	run := func(f func(r *rank)) error {
		net, err := slow.network(2, 0)
		require.NoError(t, err)
		for _, r := range net.group(upTo(2)).ranks {
			r.start(func() error {
				f(r)
				return nil
			})
		}
		return net.run()
	}
	sends := func(n, bytes int) func(r *rank) {
		return func(r *rank) {
			for range n {
				_ = r.net.record(step{n: bytes, peer: int32(1 - r.number), what: []action{send, receive}[r.number]})
			}
		}
	}
	assert.NoError(t, run(sends(8, 1<<40)), "102 days")
	assert.NoError(t, run(func(r *rank) { r.Work(1 << 43) }), "102 days")
	for name, f := range map[string]func() error{
		"messages":    func() error { return run(sends(9, 1<<40)) },
		"one message": func() error { return run(sends(1, 1<<44)) },
		"memory":      func() error { return run(func(r *rank) { r.Work(1 << 60) }) },
		"computation": func() error {
			_, err := slow.Play(&Program{Acts: [][]Act{{{Compute: forever - 1, Of: -1}, {Compute: 2, Of: -1}}}})
			return err
		},
		"library": func() error {
			_, err := (&Library{Topology: slow}).AllReduce(1, 2, 1<<46)
			return err
		},
	} {
		assert.ErrorIs(t, f(), errLong, name)
	}
}

// Caches in a wrong order, with which a byte takes longer than allowed, or without pairs, and numbers that are none, are refused.
func TestWrongCaches(t *testing.T) {
	for text, want := range map[string]string{`[0, 1]`: "0 is [0 1]", `[1e10, 1]`: "0 is [1e+10 1]", `[8, 2], [8, 1]`: "1 is [8 1]",
		`[8, 0]`: "0 is [8 0]", `[8, 1e10]`: "0 is [8 1e+10]"} {
		_, err := Parse([]byte(`{"name": "x", "host": 4, "caches": [` + text + `]}`))
		want = `topology "x": cache ` + want + ": bytes go up from 1 to 1e9, times are from 0.001 to 1e9, and there are 64 at most"
		assert.EqualError(t, err, want)
	}
	for text, n := range map[string]int{`[8]`: 1, `[]`: 0, `[32768, 4, 1048576, 2]`: 4} {
		_, err := Parse([]byte(`{"name": "x", "host": 4, "caches": [` + text + `]}`))
		assert.EqualError(t, err, fmt.Sprintf(`topology "x": cache 0 has %d numbers: write pairs of bytes and how many times as fast, such as `+
			`[[32768, 4], [1048576, 2]]`, n))
	}
	top := memory()
	top.MemoryGBs, top.Caches = 0.002, [][]float64{{8, 2}, {16, 0.4}}
	assert.EqualError(t, top.Check(), `topology "memory": memory_gbs is 0.002, which is less than 0.001 at the slowest of the caches`)
	top.MemoryGBs, top.Links[0].GBs = 0, 0.002
	assert.EqualError(t, top.Check(),
		`topology "memory": link "inside" has 0.002 GB/s, which is less than 0.001 at the slowest of the caches`)
	top.Links[0].GBs, top.Links[1].GBs = 1, 0.002
	assert.NoError(t, top.Check(), "caches are none of the card's")
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

		top.Links[0].NS = 3
		net, err := top.network(2, 0)
		require.NoError(t, err)
		first := net.plan.route(nil, 0, 1)
		_, arrived := net.carry(first, 0, 1, 0)
		assert.Equal(t, 6*ns, arrived)
		_, arrived = net.carry(net.plan.route(nil, 1, 0), 1, 0, 0)
		if half {
			assert.Equal(t, 9*ns, arrived, "it waits until the other one is over its first link")
		} else {
			assert.Equal(t, 6*ns, arrived)
		}
	}
}
