package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Topology is ranks and switches in a tree, and the links between them. Consecutive ranks are on one host.
type Topology struct {
	Name string `json:"name"`
	// Host is the number of ranks of a host.
	Host int `json:"host"`
	// MemoryGBs is how fast a rank adds bytes to others, or copies them, in 10⁹ bytes of the result per second; 0: it takes no time.
	MemoryGBs float64 `json:"memory_gbs,omitempty"`
	// Caches are pairs of a number of bytes, and how many times as fast memory is while an operation touches so many of a rank: that of
	// MemoryGBs, and that behind links of ranks to switches of one host, which carry bytes from memory to memory: Ports divides Host, without
	// Rails, and no link goes up from there. Between two pairs, the time of a byte is on a line over the logarithm; beyond them it is that
	// of the nearest. Programs touch most.
	Caches [][]float64 `json:"caches,omitempty"`
	// Window says that the ranks of a host read and write each other's memory, as with the engines local and shm. Their collectives are
	// then direct if no other algorithm is named: a rank shows the operation to the others, which takes MessageNS and the latency, moves
	// its share, and says so. Other algorithms, what goes over several hosts, and Send in a Program are messages all the same.
	Window bool `json:"window,omitempty"`
	// MessageNS is what a rank needs to send a message, in nanoseconds, before its first byte is on a link.
	MessageNS float64 `json:"message_ns,omitempty"`
	// Protocols are how a library for GPUs sends around a ring: Library takes the fastest of them. Package algo has one, which needs no more.
	Protocols []Protocol `json:"protocols,omitempty"`
	// Links are the kinds of links. Those of ranks come in the order in which ranks prefer them: the first one with which both can reach
	// each other is used.
	Links []Link `json:"links"`
}

// Link is a kind of link: each rank, or each switch of a kind, has one of it. It carries bytes in both directions at the same time,
// unless Half is set.
type Link struct {
	Name string `json:"name"`
	// From is "rank", or the kind of switch that is below the link. To is the kind of switch above it.
	From string `json:"from"`
	To   string `json:"to"`
	// Ports is how many links one switch above has; those of neighbors go to one switch.
	Ports int `json:"ports"`
	// Rails says that rank i of every host goes to a switch of rail i. Ports are then those of a rail.
	Rails bool `json:"rails,omitempty"`
	// Half says that the directions take turns, as on a loopback, where a core does the work of both: a message waits for one that comes,
	// also for the latency of the links on which that one was before.
	Half bool    `json:"half,omitempty"`
	GBs  float64 `json:"gbs"` // 10⁹ bytes per second in each direction
	NS   float64 `json:"ns"`  // latency in nanoseconds
	// Sums says that switches above add up and copy what ranks send (NVLS), at this part of GBs, and SumsNS what that takes at least. Only
	// Library.AllReduce uses it.
	Sums   float64 `json:"sums,omitempty"`
	SumsNS float64 `json:"sums_ns,omitempty"`
}

// Protocol is a way to send messages.
type Protocol struct {
	Name      string  `json:"name"`
	CallNS    float64 `json:"call_ns"`    // of an operation, before its first message
	MessageNS float64 `json:"message_ns"` // of each message, beside MessageNS of the topology and the latency of links
	Part      float64 `json:"part"`       // of the bandwidth, for payload
}

const (
	maxLinks = 64
	maxRanks = 1 << 20
	maxName  = 64
	slowest  = 1e-3 // GB/s: with less, times would not fit
)

// Check returns an error that says in a sentence what is wrong with the topology.
func (t *Topology) Check() error {
	if t.Host < 1 || t.Host > maxRanks {
		return t.wrong("host is %d: write how many ranks a host has, such as 8", t.Host)
	}
	if bad(t.MemoryGBs) || t.MemoryGBs != 0 && t.MemoryGBs < slowest || bad(t.MessageNS) {
		return t.wrong("memory_gbs and message_ns are numbers from 0 to 1e9, and memory_gbs is 0 or from %v on", slowest)
	}
	slow := 1. // the slowest of the caches
	for i, c := range t.Caches {
		if len(c) != 2 {
			return t.wrong("cache %d has %d numbers: write pairs of bytes and how many times as fast, such as [[32768, 4], [1048576, 2]]", i, len(c))
		}
		if !(c[0] >= 1) || i > 0 && c[0] <= t.Caches[i-1][0] || bad(c[0]) || bad(c[1]) || c[1] < slowest || len(t.Caches) > maxLinks {
			return t.wrong("cache %d is %v: bytes go up from 1 to 1e9, times are from %v to 1e9, and there are %d at most", i, c, slowest, maxLinks)
		}
		slow = min(slow, c[1])
	}
	if t.MemoryGBs != 0 && t.MemoryGBs*slow < slowest {
		return t.wrong("memory_gbs is %v, which is less than %v at the slowest of the caches", t.MemoryGBs, slowest)
	}
	if len(t.Links) == 0 || len(t.Links) > maxLinks {
		return t.wrong("it has %d links: 1 to %d kinds", len(t.Links), maxLinks)
	}
	names := []string{t.Name}
	for _, l := range t.Links {
		names = append(names, l.Name, l.From, l.To)
	}
	for _, p := range t.Protocols {
		names = append(names, p.Name)
	}
	for _, name := range names {
		if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
			return t.wrong("%s is no name: at most %d characters that can be printed", bounded.Quote(name), maxName)
		}
	}
	for i, l := range t.Links {
		switch {
		case l.Name == "" || slices.ContainsFunc(t.Links[:i], func(o Link) bool { return o.Name == l.Name }):
			return t.wrong("link %d is called %s: every kind of link has a name of its own", i, bounded.Quote(l.Name))
		case l.From == "" || l.To == "" || l.To == "rank":
			return t.wrong("link %s goes from %s to %s: it goes from rank, or a kind of switch, to another kind of switch",
				bounded.Quote(l.Name), bounded.Quote(l.From), bounded.Quote(l.To))
		case bad(l.GBs) || l.GBs < slowest:
			return t.wrong("link %s has %v GB/s: a bandwidth is more than 0, from %v to 1e9", bounded.Quote(l.Name), l.GBs, slowest)
		case bad(l.NS):
			return t.wrong("link %s has a latency of %v ns: it is a number from 0 to 1e9", bounded.Quote(l.Name), l.NS)
		case !(l.Sums >= 0 && l.Sums <= 1) || l.Sums*l.GBs < slowest && l.Sums != 0 || bad(l.SumsNS):
			return t.wrong("link %s: sums is a part of its bandwidth, from 0 to 1, and sums_ns a time from 0 to 1e9", bounded.Quote(l.Name))
		case l.Ports < 1 || l.Ports > maxRanks:
			return t.wrong("link %s: %d ports: a switch has 1 to %d", bounded.Quote(l.Name), l.Ports, maxRanks)
		case t.inMemory(&l) && l.GBs*slow < slowest:
			return t.wrong("link %s has %v GB/s, which is less than %v at the slowest of the caches", bounded.Quote(l.Name), l.GBs, slowest)
		case l.Rails && l.From != "rank":
			return t.wrong("link %s has rails, and goes from %s: only links of ranks have rails", bounded.Quote(l.Name), bounded.Quote(l.From))
		case l.From != "rank" && t.up(l.From) < i:
			return t.wrong("%s has two links up, the second is %s: a switch has one", bounded.Quote(l.From), bounded.Quote(l.Name))
		}
	}
	for _, p := range t.Protocols {
		if bad(p.CallNS) || bad(p.MessageNS) || !(p.Part >= slowest && p.Part <= 1) || len(t.Protocols) > maxLinks {
			return t.wrong("protocol %s: its times are from 0 to 1e9, and its part of the bandwidth from %v to 1; %d protocols at most",
				bounded.Quote(p.Name), slowest, maxLinks)
		}
	}
	return t.tree()
}

// inMemory reports whether a link joins the memory of the ranks of one host, and leads to no other.
func (t *Topology) inMemory(l *Link) bool {
	return l.From == "rank" && !l.Rails && t.Host%l.Ports == 0 && t.up(l.To) < 0
}

func bad(x float64) bool { return !(x >= 0 && x <= 1e9) }

func (t *Topology) wrong(format string, a ...any) error {
	return fmt.Errorf("topology %s: "+format, append([]any{bounded.Quote(t.Name)}, a...)...)
}

// up returns the place of the link that goes up from a kind of switch, or -1.
func (t *Topology) up(from string) int {
	return slices.IndexFunc(t.Links, func(l Link) bool { return l.From == from })
}

// tree returns an error if the links have a loop, or one is above no rank.
func (t *Topology) tree() error {
	reached := make([]bool, len(t.Links))
	for i, l := range t.Links {
		if l.From != "rank" {
			continue
		}
		var seen []string
		for ; i >= 0; i = t.up(l.To) {
			if l = t.Links[i]; slices.Contains(seen, l.To) {
				return t.wrong("link %s makes a loop: it leads from %s up to %s, which is below it",
					bounded.Quote(l.Name), bounded.Quote(l.From), bounded.Quote(l.To))
			}
			seen, reached[i] = append(seen, l.To), true
		}
	}
	if i := slices.Index(reached, false); i >= 0 {
		l := t.Links[i]
		return t.wrong("link %s goes up from %s, to which no rank is connected", bounded.Quote(l.Name), bounded.Quote(l.From))
	}
	return nil
}
