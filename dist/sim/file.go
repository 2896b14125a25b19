package sim

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

//go:embed topologies/*.json
var committed embed.FS

// Names returns the topologies that come with the package.
func Names() []string {
	files, _ := fs.Glob(committed, "topologies/*.json")
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "topologies/"), ".json")
	}
	return files
}

// Open returns the topology of that name, or that in a file with a name that ends in .json: one as in folder topologies of this package, or
// what `ringo topo -json` printed.
func Open(name string) (*Topology, error) {
	if !strings.HasSuffix(name, ".json") {
		text, err := committed.ReadFile("topologies/" + name + ".json")
		if err != nil {
			return nil, fmt.Errorf("no topology is called %s; there are %s, and files such as x.json", bounded.Quote(name),
				strings.Join(Names(), ", "))
		}
		return Parse(text)
	}
	text, err := bounded.ReadFile(name, 1<<30)
	if err != nil {
		return nil, err
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// Parse reads a topology from JSON and checks it. It takes at most 16 times the memory of the text, and 64 MiB.
func Parse(text []byte) (*Topology, error) {
	if err := bounded.JSON(text, 512); err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("no JSON object: %s", bounded.Plain(err.Error()))
	}
	if _, ok := fields["latency_us"]; ok {
		var m measured
		if err := json.Unmarshal(text, &m); err != nil {
			return nil, fmt.Errorf("not what ringo topo prints: %s", bounded.Plain(err.Error()))
		}
		return m.topology()
	}
	t, d := &Topology{}, json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(t); err != nil {
		return nil, fmt.Errorf("no topology: %s", bounded.Plain(err.Error()))
	}
	return t, t.Check()
}

// measured is what `ringo topo -json` prints, as far as it is used.
type measured struct {
	Hosts []struct {
		Ranks []int `json:"ranks"`
	} `json:"hosts"`
	LatencyUS [][]float64 `json:"latency_us"`
	Bandwidth [][]float64 `json:"bandwidth_gbs"`
}

// topology takes the median of all links inside hosts, and of those between hosts. A path has two links, so a link has half the latency.
func (m *measured) topology() (*Topology, error) {
	n := len(m.LatencyUS)
	whole := func(rows [][]float64) bool {
		return len(rows) == n && !slices.ContainsFunc(rows, func(row []float64) bool { return len(row) != n })
	}
	if n < 2 || len(m.Hosts) == 0 || !whole(m.LatencyUS) || !whole(m.Bandwidth) {
		return nil, fmt.Errorf("latency_us and bandwidth_gbs are not tables of 2 ranks or more, each from each to each")
	}
	t := &Topology{Name: "measured", Host: len(m.Hosts[0].Ranks)}
	for i, h := range m.Hosts {
		for k, r := range h.Ranks {
			if len(h.Ranks) != t.Host || r != i*t.Host+k {
				return nil, fmt.Errorf("host %d does not have ranks %d to %d: all hosts have equally many, in order", i, i*t.Host, (i+1)*t.Host-1)
			}
		}
	}
	if t.Host*len(m.Hosts) != n {
		return nil, fmt.Errorf("%d hosts of %d ranks, and tables of %d", len(m.Hosts), t.Host, n)
	}
	for _, l := range []Link{{Name: "host", Ports: t.Host}, {Name: "network", Ports: maxRanks}} {
		var latency, rate []float64
		for a := range n {
			for b := range n {
				if a != b && (a/t.Host == b/t.Host) == (l.Name == "host") {
					latency, rate = append(latency, m.LatencyUS[a][b]), append(rate, m.Bandwidth[a][b])
				}
			}
		}
		if len(latency) > 0 {
			slices.Sort(latency)
			slices.Sort(rate)
			l.From, l.To, l.NS, l.GBs = "rank", l.Name, latency[len(latency)/2]*500, rate[len(rate)/2]
			t.Links = append(t.Links, l)
		}
	}
	return t, t.Check()
}
