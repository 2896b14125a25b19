package sim_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/dist/sim/training"
)

// report collects published figures and what is predicted for them.
type report struct {
	strings.Builder
	table, all mean
}

type mean struct {
	sum    float64
	points int
}

func (m *mean) add(off float64) { m.sum, m.points = m.sum+math.Abs(off), m.points+1 }

func (m *mean) String() string {
	return fmt.Sprintf("%d predicted, mean error %.1f%%", m.points, 100*m.sum/float64(m.points))
}

func (r *report) title(text string) {
	r.end()
	fmt.Fprintf(r, "%s\n", text)
}

// end closes a table.
func (r *report) end() {
	if r.table.points > 0 {
		fmt.Fprintf(r, "  %v\n\n", &r.table)
	}
	r.table = mean{}
}

func (r *report) fitted(name string, published float64) {
	fmt.Fprintf(r, "  %-44s %9.1f  fitted\n", name, published)
}

func (r *report) point(name string, published, predicted float64) {
	off := predicted/published - 1
	r.table.add(off)
	r.all.add(off)
	fmt.Fprintf(r, "  %-44s %9.1f  %9.1f  %+5.1f%%\n", name, published, predicted, 100*off)
}

// cluster is hosts of eight GPUs with NVSwitch and a card for each. Large messages get nvlink of its bandwidth, which is fitted, and 47/50
// of the card's, as published for NDR. All other numbers are those of NCCL's own model (src/graph/tuning.cc): what an operation and a
// message take by each protocol, in ns; LL gets ll GB/s at most, LL128 has 120 bytes of payload in 128; sums is the efficiency of NVLS,
// which takes 25 µs at least. A message between hosts takes 2.1 µs more. A copy in memory has 3.03 TB/s.
func cluster(nvlink, card, ll, sums float64) *sim.Library {
	return &sim.Library{Topology: &sim.Topology{Name: "cluster", Host: 8, MemoryGBs: 3030. / 2,
		Protocols: []sim.Protocol{{"LL", 6600, 600, ll / nvlink}, {"LL128", 14000, 1900, 0.92}, {"Simple", 8400, 3400, 1}},
		Links: []sim.Link{{Name: "nvlink", From: "rank", To: "nvswitch", Ports: 8, GBs: nvlink, Sums: sums, SumsNS: 25000},
			{Name: "nic", From: "rank", To: "fabric", Ports: 1 << 20, GBs: card * 47 / 50, NS: 1050}}}}
}

// rate returns the FLOPS with which a step takes so many seconds: the sum of a part that depends on them, and one that does not.
func rate(t *testing.T, top *sim.Library, s training.Step, seconds float64) float64 {
	var at [2]float64
	for i := range at {
		s.FLOPS = float64(1+i) * 1e14
		p, err := s.On(top)
		require.NoError(t, err)
		at[i] = p.Total().Seconds()
	}
	changes := 2 * (at[0] - at[1])
	s.FLOPS = 1e14 * changes / (seconds - at[0] + changes)
	p, err := s.On(top)
	require.NoError(t, err)
	require.InEpsilon(t, seconds, p.Total().Seconds(), 1e-6)
	return s.FLOPS
}

// Five figures are fitted, the others are predicted. Nothing is tuned by point: what misses is in the table.
func TestCalibration(t *testing.T) {
	r := &report{}
	const fit = 367.6 // GB/s
	r.title("8×H200 without NVLS, all-reduce of 16 GiB, bus GB/s (ml-engineering)")
	r.fitted("bandwidth of NVLink", fit)
	a100, h100, b200 := cluster(fit*300/450, 25, 87.7, 0), cluster(fit, 50, 141, 0.85), cluster(2*fit, 50, 2*141, 0.74)
	gatherings(t, r, h100)
	large(t, r, a100, h100, b200)
	collectives := r.all
	megatron(t, r, a100)
	megascale(t, r, a100)
	r.end()
	steps := mean{r.all.sum - collectives.sum, r.all.points - collectives.points}
	fmt.Fprintf(r, "collectives: 1 fitted, %v\ntraining steps: 4 fitted, %v\nall: 5 fitted, %v\n", &collectives, &steps, &r.all)
	require.GreaterOrEqual(t, steps.points, 20)
	require.Less(t, steps.sum/float64(steps.points), 0.08)
	sim.Table(t, "calibration.txt", r.String())
}

// gatherings are collectives of one host.
func gatherings(t *testing.T, r *report, top *sim.Library) {
	allReduce := func(n, bytes int) float64 {
		x, err := top.AllReduce(1, n, bytes)
		require.NoError(t, err)
		return x.Seconds()
	}
	r.title("8×H200, NCCL 2.30.7, all-reduce, bus GB/s (ml-engineering)")
	for i, want := range []float64{3.15, 74.6, 145, 256, 369, 442, 466, 482} {
		bytes := []int{32 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30, 16 << 30}[i]
		r.point(fmt.Sprintf("%d KiB", bytes>>10), want, 1.75*float64(bytes)/allReduce(8, bytes)/1e9)
	}
	r.title("8 H100, NCCL, all-reduce, µs (vLLM #42324)")
	for i, want := range []float64{24, 50, 121, 561} {
		bytes := []int{512 << 10, 4 << 20, 16 << 20, 128 << 20}[i]
		r.point(fmt.Sprintf("%d KiB", bytes>>10), want, allReduce(8, bytes)*1e6)
	}
	r.title("4 H100, NCCL, all-reduce, µs (vLLM #24532)")
	for i, want := range []float64{21, 23, 28, 39} {
		bytes := 1 << (19 + i)
		r.point(fmt.Sprintf("%d KiB", bytes>>10), want, allReduce(4, bytes)*1e6)
	}
	r.title("4 H100, one-shot all-reduce, µs (vLLM #24532); 512 bytes take 4.8 µs (sglang #2904)")
	for i, want := range []float64{10, 14, 23, 38} {
		bytes := 1 << (19 + i)
		x, err := top.Run(backend.AllGather, "linear", 4, 4*bytes)
		require.NoError(t, err)
		r.point(fmt.Sprintf("%d KiB", bytes>>10), want, 4.8+x.Seconds*1e6)
	}
}

// large are large all-reduces of one or several hosts. The cluster with EFA is apart: nothing in this model takes bandwidth from larger
// clusters, and its figures come without the bytes of a message.
func large(t *testing.T, r *report, a100, h100, b200 *sim.Library) {
	point := func(name string, top *sim.Library, hosts, bytes int, want float64) {
		n := 8 * hosts
		x, err := top.AllReduce(1, n, bytes)
		require.NoError(t, err)
		r.point(name, want, 2*float64(n-1)/float64(n)*float64(bytes)/x.Seconds()/1e9)
	}
	r.title("all-reduce of 16 GiB, bus GB/s (ml-engineering; nccl #812)")
	point("8 B200", b200, 1, 16<<30, 839)
	point("4 hosts of 8 H200", h100, 4, 16<<30, 369)
	point("4 hosts of 8 B200", b200, 4, 16<<30, 376.7)
	point("2 hosts of 8 A100", a100, 2, 16<<30, 192)
	r.end()
	all := r.all
	r.title("hosts of 8 H100 with EFA, all-reduce of unknown size, bus GB/s (Ultra-Scale Playbook), as if of 1 GiB; not in the means below")
	for i, want := range []float64{361.7, 160.1, 99.6, 84.7, 64.9, 32.9} {
		point(fmt.Sprintf("%d hosts", 2<<i), h100, 2<<i, 1<<30, want)
	}
	with := r.all
	r.end()
	r.all = all
	fmt.Fprintf(r, "collectives with these: 1 fitted, %v\n\n", &with)
}

// megatron is Table 1 of Narayanan et al. 2021: TFLOP/s of a GPU, by model and layout. The smallest and the largest model are fitted, by a
// rate that depends on the width: R·h/(h+c).
func megatron(t *testing.T, r *report, top *sim.Library) {
	type model struct {
		name                         string
		hidden, layers, tp, pp, n, b int
		want                         float64
	}
	models := []model{{"1.7B", 2304, 24, 1, 1, 32, 512, 137}, {"3.6B", 3072, 30, 2, 1, 64, 512, 138}, {"7.5B", 4096, 36, 4, 1, 128, 512, 142},
		{"18.4B", 6144, 40, 8, 1, 256, 1024, 135}, {"39.1B", 8192, 48, 8, 2, 512, 1536, 138}, {"76.1B", 10240, 60, 8, 4, 1024, 1792, 140},
		{"145.6B", 12288, 80, 8, 8, 1536, 2304, 148}, {"310.1B", 16384, 96, 8, 16, 1920, 2160, 155},
		{"529.6B", 20480, 105, 8, 35, 2520, 2520, 163}, {"1008B", 25600, 128, 8, 64, 3072, 3072, 163}}
	step := func(m model) training.Step {
		return training.Step{Layers: m.layers, Hidden: m.hidden, Seq: 2048, Vocab: 51200, Batch: m.b, Micro: 1, TP: m.tp, PP: m.pp,
			DP: m.n / m.tp / m.pp, Chunks: 1, ParamBytes: 2, GradBytes: 4, Recompute: true}
	}
	needs := func(m model) (width, each float64) {
		s := step(m)
		return float64(m.hidden), 1 / rate(t, top, s, s.Work()/float64(m.n)/(m.want*1e12))
	}
	h1, r1 := needs(models[0])
	h2, r2 := needs(models[len(models)-1])
	slope := (r1 - r2) / (1/h1 - 1/h2) // 1/rate = 1/R + (c/R)/h
	r.title("Megatron-LM on A100, TFLOP/s of a GPU (Narayanan et al. 2021, Table 1)")
	for i, m := range models {
		name := fmt.Sprintf("%s, tp %d, pp %d, %d GPUs", m.name, m.tp, m.pp, m.n)
		if i == 0 || i == len(models)-1 {
			r.fitted(name, m.want)
			continue
		}
		s := step(m)
		s.FLOPS = 1 / (r1 + slope*(1/float64(m.hidden)-1/h1))
		p, err := s.On(top)
		require.NoError(t, err)
		r.point(name, m.want, s.Work()/float64(m.n)/p.Total().Seconds()/1e12)
	}
}

// megascale is Table 2 of Jiang et al. 2024: seconds of a step of 175B parameters, for Megatron-LM and MegaScale. The first row is fitted.
func megascale(t *testing.T, r *report, top *sim.Library) {
	for i, name := range []string{"Megatron-LM", "MegaScale"} {
		r.title(name + " on A100, 175B, tp 8, pp 8, 6 chunks, seconds of a step (Jiang et al. 2024, Table 2)")
		flops := 0.
		for _, row := range [][4]float64{{256, 768, 40.0, 32.0}, {512, 768, 21.2, 16.5}, {768, 768, 15.2, 11.5}, {1024, 768, 11.9, 8.9},
			{3072, 6144, 29.02, 23.66}, {6144, 6144, 14.78, 12.21}, {8192, 6144, 12.24, 9.56}, {12288, 6144, 8.57, 6.34}} {
			n, batch, want := int(row[0]), int(row[1]), row[2+i]
			s := training.Step{Layers: 96, Hidden: 12288, Seq: 2048, Vocab: 51200, Batch: batch, Micro: 1, TP: 8, PP: 8, DP: n / 64, Chunks: 6,
				ParamBytes: 2, GradBytes: 4,
				FLOPS: flops, Overlap: i == 1}
			if flops == 0 {
				flops = rate(t, top, s, want)
				r.fitted(fmt.Sprintf("%d GPUs, batch %d", n, batch), want)
				continue
			}
			p, err := s.On(top)
			require.NoError(t, err)
			r.point(fmt.Sprintf("%d GPUs, batch %d", n, batch), want, p.Total().Seconds())
		}
	}
}
