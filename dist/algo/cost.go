package algo

import (
	"math/bits"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Cost is what an algorithm needs for an operation of S bytes, in the model of Hockney: a message of b bytes takes a latency plus b over
// a bandwidth, and a rank sends one message and receives one at a time (Thakur, Rabenseifner, Gropp 2005). Links between hosts have other
// numbers than links inside a host, and the ranks of a host share its network card, as in the model of NCCL.
type Cost struct {
	Inside   int     // rounds: messages one after the other, inside hosts
	Across   int     // rounds in which a message goes to another host
	Messages int     // that the busiest host sends and receives
	Local    float64 // × S: the bytes that a rank sends or receives inside its host before and after those of Rank
	Rank     float64 // × S: the bytes that the busiest rank sends or receives
	Host     float64 // × S: the bytes that the busiest host sends to other hosts or receives from them, whichever is more
	Network  float64 // × S: the bytes from host to host, divided by the number of hosts
	Leaves   int     // switches that the hosts need
	Fill     float64 // × min(S, 256 KiB): chunks that pass before the last rank gets its first one
	Overlap  bool    // a round waits for one other rank: the network card is busy with other ranks during its latency
	Columns  bool    // the rounds are repeated for every 256 KiB of S
}

// The links of the model. The costs inside a host are measured: docs/BENCHMARKS.md, all-reduce of 2 ranks over TCP with TLS on one host,
// 115 µs for two rounds of 8 bytes and 26 ms for 64 MiB. A message between hosts takes half of 216 µs, the median round trip of TCP
// between hosts of a rack (Guo et al. 2015, "Pingmesh"). The choice matters most on slow networks, so a network card has 10 Gbit/s. A
// switch has 32 hosts, and jobs that fit are taken to be below one. Above it, each host's share of the network is a quarter of its card,
// for an oversubscription of 4:1. A message costs a microsecond of CPU time on either side.
const (
	latencyInside  = 55e3 // ns
	latencyAcross  = 108e3
	latencyMessage = 1e3
	rankByte       = 1 / 2.6 // ns: 2.6 GB/s
	hostByte       = 0.8
	networkByte    = 4 * hostByte
	leafHosts      = 32
)

// Nanoseconds returns the time of an operation of so many bytes in this model. A message goes on all links of its path at the same time,
// so it takes as long as on the slowest. Ranks on machines of different kinds must get the same bits, so conversions stop the compiler from
// fusing products and sums.
func (c *Cost) Nanoseconds(bytes int) float64 {
	size := float64(bytes)
	inside, across := float64(float64(c.Inside)*latencyInside), float64(float64(c.Across)*latencyAcross)
	t := inside + float64(float64(c.Messages)*latencyMessage)
	if c.Columns {
		t, across = float64(t*float64(numChunks(bytes))), float64(across*float64(numChunks(bytes)))
	}
	rank, links := float64(float64(size*c.Rank)*rankByte), float64(float64(size*c.Host)*hostByte)
	if c.Leaves > 1 {
		links = max(links, float64(float64(size*c.Network)*networkByte))
	}
	if c.Overlap {
		t += max(across+rank, links)
	} else {
		t += across + max(rank, links)
	}
	t += float64(float64(size*c.Local) * rankByte)
	return t + float64(float64(float64(min(bytes, chunkBytes))*c.Fill)*rankByte)
}

// lg returns ⌈lg n⌉.
func lg(n int) int { return bits.Len(uint(n - 1)) }

// shape is what the formulas know of a layout. The root is taken to be rank 0, because the choice may depend only on what all ranks know.
type shape struct {
	at    Layout
	n     int
	size  []int // ranks of each host
	g     int   // of the largest host
	out   []float64
	in    []float64
	count []int // messages
}

func newShape(l Layout) *shape {
	s := &shape{at: l, n: len(l), size: make([]int, l.Hosts())}
	for _, h := range l {
		s.size[h]++
	}
	s.g = slices.Max(s.size)
	return s
}

// rounds adds so many rounds to c, of which some go between hosts.
func rounds(c Cost, all, across int) Cost {
	c.Across += across
	c.Inside += all - across
	return c
}

// disseminate adds lg n rounds to c, in which rank r hears from rank r−d for d = 1, 2, 4, … Those that wait longest have heard through the
// most hops between hosts.
func (s *shape) disseminate(c Cost) Cost {
	far, next := make([]int, s.n), make([]int, s.n)
	for d := 1; d < s.n; d *= 2 {
		for r := range s.n {
			from := (r - d + s.n) % s.n
			next[r] = max(far[r], far[from]+s.apart(r, from))
		}
		far, next = next, far
	}
	return rounds(c, lg(s.n), slices.Max(far))
}

// apart is 1 if two ranks are on different hosts, and otherwise 0.
func (s *shape) apart(a, b int) int {
	if s.at[a] != s.at[b] {
		return 1
	}
	return 0
}

// star adds to c, `times` times, the rounds in which rank 0 exchanges messages with all others.
func (s *shape) star(c Cost, times int) Cost {
	c.Inside += times * (s.size[0] - 1)
	c.Across += times * (s.n - s.size[0])
	c.Messages += times * (s.n - 1 + s.size[0] - 1)
	return c
}

// agree adds disseminate to c.
func (s *shape) agree(c Cost) Cost {
	c.Messages += 2 * s.g * lg(s.n)
	return s.disseminate(c)
}

// begin resets the counts of messages.
func (s *shape) begin() {
	s.out, s.in, s.count = make([]float64, len(s.size)), make([]float64, len(s.size)), make([]int, len(s.size))
}

// send counts a message of b × S bytes.
func (s *shape) send(from, to int, b float64) {
	f, t := s.at[from], s.at[to]
	s.count[f]++
	s.count[t]++
	if f != t {
		s.out[f] += b
		s.in[t] += b
	}
}

// busiest adds what was counted to c.
func (s *shape) busiest(c Cost) Cost {
	c.Messages += slices.Max(s.count)
	c.Host = max(slices.Max(s.out), slices.Max(s.in))
	all := 0.0
	for _, b := range s.out {
		all += b
	}
	return s.network(c, all)
}

// network adds to c what goes from host to host, × S.
func (s *shape) network(c Cost, all float64) Cost {
	c.Network, c.Leaves = all/float64(len(s.size)), (len(s.size)+leafHosts-1)/leafHosts
	return c
}

// share is (n−1)/n: the part of S that is not the rank's own.
func (s *shape) share() float64 { return float64(s.n-1) / float64(s.n) }

// formulas are the costs of the algorithms of each kind, by name. A kind that is not here has no choice.
var formulas = [backend.NumKinds]map[string]func(s *shape) Cost{
	backend.Broadcast: {"linear": (*shape).linearRooted, "chain": (*shape).chain, "binomial": (*shape).binomial,
		"hierarchical": (*shape).hostChain},
	backend.Reduce: {"linear": (*shape).linearRooted, "binomial": (*shape).binomial},
	backend.AllReduce: {"linear": (*shape).linearAllReduce, "direct": twice((*shape).pairs), "ring": twice((*shape).ring),
		"halving-doubling": (*shape).halvingDoubling, "double-tree": (*shape).doubleTree, "hierarchical": (*shape).hierarchicalAllReduce},
	backend.AllGather:      partsOf,
	backend.AllGatherV:     partsOf,
	backend.ReduceScatter:  partsOf,
	backend.ReduceScatterV: partsOf,
	backend.AllToAll:       {"linear": (*shape).pairs, "pairwise": (*shape).pairs, "bruck": (*shape).bruck},
	backend.AllToAllV: {"linear": func(s *shape) Cost { return s.star((*shape).pairs(s), 2) },
		"pairwise": func(s *shape) Cost { return s.agree((*shape).pairs(s)) }},
	backend.Barrier: {"linear": func(s *shape) Cost { return s.star(Cost{}, 2) },
		"dissemination": func(s *shape) Cost { return s.agree(Cost{}) }},
}

// partsOf are the formulas of all-gather. Those of reduce-scatter are the same, because it sends the same in the other direction.
var partsOf = map[string]func(s *shape) Cost{"linear": (*shape).pairs, "ring": (*shape).ring, "bruck": (*shape).bruckParts,
	"hierarchical": (*shape).hierarchicalParts}

func twice(f func(s *shape) Cost) func(s *shape) Cost {
	return func(s *shape) Cost {
		c := f(s)
		c.Inside, c.Across, c.Messages = 2*c.Inside, 2*c.Across, 2*c.Messages
		c.Rank, c.Host, c.Network = 2*c.Rank, 2*c.Host, 2*c.Network
		return c
	}
}

// linearRooted: all agree through rank 0, then the root exchanges with all others.
func (s *shape) linearRooted() Cost {
	far := float64(s.n - s.size[0])
	return s.star(s.network(Cost{Rank: float64(s.n - 1), Host: far}, far), 3)
}

func (s *shape) linearAllReduce() Cost {
	far := float64(s.n - s.size[0])
	return s.star(s.network(Cost{Rank: float64(2 * (s.n - 1)), Host: far}, 2*far), 2)
}

// pairs: every rank exchanges a part with every other.
func (s *shape) pairs() Cost {
	c := Cost{Messages: 2 * s.g * (s.n - 1), Rank: s.share(), Overlap: true}
	c, all := rounds(c, s.n-1, min(len(s.size)-1, 1)*(s.n-1)), 0.0
	for _, g := range s.size {
		far := float64(g*(s.n-g)) / float64(s.n)
		c.Host, all = max(c.Host, far), all+far
	}
	return s.network(c, all)
}

// ring: all parts but one go over each link of the ring. A part goes over the links between hosts once.
func (s *shape) ring() Cost {
	s.begin()
	across := 0
	for r := range s.n {
		next := (r + 1) % s.n
		s.send(r, next, s.share())
		across += s.apart(r, next)
	}
	across = min(across, s.n-1)
	c := s.busiest(rounds(Cost{Rank: s.share(), Overlap: true}, s.n-1, across))
	c.Messages = 2 * s.g * (s.n - 1)
	return c
}

// chain: S goes over all links of the ring but one. The formula takes a link inside a host for that one, because the root may be
// anywhere.
func (s *shape) chain() Cost {
	s.begin()
	cross := 0
	for r := range s.n {
		next := (r + 1) % s.n
		s.send(r, next, 1)
		cross += s.apart(r, next)
	}
	cross = min(cross, s.n-1)
	c := Cost{Inside: s.n - 1 - cross, Across: cross, Rank: 1, Fill: float64(s.n - 2)}
	return s.agree(s.busiest(c))
}

// hostChain is a chain that enters every host once.
func (s *shape) hostChain() Cost {
	across := len(s.size) - 1
	c := Cost{Inside: s.n - 1 - across, Across: across, Messages: 2 * s.g, Rank: 1, Fill: float64(s.n - 2)}
	c.Host = float64(min(across, 1))
	return s.agree(s.network(c, float64(across)))
}

// binomial: the root sends S once for each level of the tree over hosts, and for each level of the tree in its host.
func (s *shape) binomial() Cost {
	across, inside := lg(len(s.size)), lg(s.g)
	c := Cost{Inside: inside, Across: across, Messages: 2*(s.g-1) + across + 1, Rank: float64(across + inside), Host: float64(across)}
	return s.agree(s.network(c, float64(len(s.size)-1)))
}

// halvingDoubling: d of p slices to and from a partner at distance d, in two phases. Ranks above a power of two send S and receive S.
func (s *shape) halvingDoubling() Cost {
	p := 1 << (bits.Len(uint(s.n)) - 1)
	folded := 2 * (s.n - p)
	rankOf := func(place int) int {
		if place < folded/2 {
			return 2*place + 1
		}
		return place + folded/2
	}
	s.begin()
	across := 0
	for d := 1; d < p; d *= 2 {
		far := 0
		for place := range p {
			s.send(rankOf(place), rankOf(place^d), 2*float64(d)/float64(p))
			far = max(far, s.apart(rankOf(place), rankOf(place^d)))
		}
		across += 2 * far
	}
	for h := range s.count {
		s.count[h] *= 2
	}
	c, all, far := Cost{Rank: 2 * float64(p-1) / float64(p)}, 2*lg(p), 0
	for r := 0; r < folded; r += 2 {
		s.send(r, r+1, 1)
		s.send(r+1, r, 1)
		far = max(far, s.apart(r, r+1))
	}
	if folded > 0 {
		c.Rank, all, across = c.Rank+2, all+2, across+2*far
	}
	return rounds(s.busiest(c), all, across)
}

// doubleTree: half of S goes up and down each tree, in a pipeline of chunks. On the way to a root some edges are between hosts.
func (s *shape) doubleTree() Cost {
	s.begin()
	across := 0
	for tree := range 2 {
		for rank := range s.n {
			far := 0
			for at := rank; ; {
				up, _ := treeUp(tree, at, s.n)
				if up < 0 {
					break
				}
				if at == rank {
					s.send(rank, up, 0.5)
					s.send(up, rank, 0.5)
				}
				far += s.apart(at, up)
				at = up
			}
			across = max(across, far)
		}
	}
	h := treeHeight(s.n)
	all := 4*h - 2
	return rounds(s.busiest(Cost{Rank: 2, Fill: float64(2 * (h - 1))}), all, (all*across+h-1)/h)
}
