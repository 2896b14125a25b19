// Command moe-routing shows what a mixture of experts does with 16 tokens, on two ranks with two experts each: the experts that the router
// chooses, what the ranks send to each other, and where tokens are before and after. It does by hand, with AllToAllV, what package moe
// does, and compares the two. -o draws the path of each token.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const features, hidden = 4, 8

type options struct {
	ranks, tokens, experts, top int
	seed                        uint64
	picture                     string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("moe-routing: ")
	var o options
	flag.IntVar(&o.ranks, "ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	flag.IntVar(&o.tokens, "tokens", 16, "tokens of all ranks together")
	flag.IntVar(&o.experts, "experts", 4, "experts of all ranks together")
	flag.IntVar(&o.top, "topk", 1, "experts of a token")
	flag.Uint64Var(&o.seed, "seed", 3, "seed of tokens and router")
	flag.StringVar(&o.picture, "o", "", "draw the tokens' ways to this .svg, .png or .pdf `file`")
	device := dist.DeviceFlag()
	flag.Parse()
	if min(o.ranks, o.tokens, o.experts, o.top) < 1 || o.top > o.experts || flag.NArg() > 0 {
		log.Printf("-ranks, -tokens, -experts and -topk must be at least 1, -topk at most -experts, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := o.run(dist.Config{Ranks: o.ranks, Device: *device, Log: os.Stdout}); err != nil {
		log.Fatal(err)
	}
}

func (o *options) run(cfg dist.Config) error {
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		mesh, err := r.World.Mesh(fmt.Sprintf("ep=%d", r.World.Size()))
		if err != nil {
			return err
		}
		l, err := o.layer(mesh)
		if err != nil {
			return err
		}
		x := o.mine(r)
		tape := tensor.NewTape(r.Device, tensor.NoGrad())
		defer tape.Close()
		got := tensor.Floats(l.Forward(tape.Input(x)))
		route := l.Router.Forward(tape.Input(x))
		all, err := dist.AllGatherObject(r.World, chosen(route, o.top))
		if err != nil {
			return err
		}
		o.before(r, all)
		if err := o.exchange(r, all[r.World.Rank()]); err != nil {
			return err
		}
		if err := o.compare(r, x, got); err != nil || r.World.Rank() != 0 || o.picture == "" {
			return err
		}
		return o.draw(all)
	})
}

// layer returns a layer whose experts are divided over the ranks.
func (o *options) layer(mesh *dist.Mesh) (*moe.Layer, error) {
	g := mesh.Group("ep")
	l := o.whole()
	if err := moe.Parallelize(moe.Ranks{Tokens: g, Experts: g}, l); err != nil {
		return nil, err
	}
	_, err := ddp.Attach(g, l, ddp.Config{DType: tensor.Float64, Seed: o.seed, Over: moe.Over(mesh.Group(), l)})
	return l, err
}

func (o *options) whole() *moe.Layer {
	return moe.NewLayer(moe.Config{Features: features, Hidden: hidden, Experts: o.experts, Router: router.Config{Top: o.top}})
}

// mine returns this rank's tokens.
func (o *options) mine(r *dist.Rank) tensor.Tensor {
	first, end := layout.Share(o.tokens, r.World.Rank(), r.World.Size())
	x := tensor.NewParam(tensor.NormalInit(0, 1), o.tokens, features)
	x.Make(r.Device, tensor.Float64, o.seed)
	return x.Value.Range(first*features, end*features).View(end-first, features)
}

// chosen returns the experts of each token.
func chosen(r router.Routing, top int) (list [][]int) {
	for i, e := range tensor.Data[int64](tensor.ToHost(r.Experts)) {
		if i%top == 0 {
			list = append(list, nil)
		}
		list[i/top] = append(list[i/top], int(e))
	}
	return list
}

// before prints where the tokens are, their chosen experts, and how many tokens each rank sends to each other rank.
func (o *options) before(r *dist.Rank, all [][][]int) {
	n := len(all)
	matrix := make([][]int, n)
	for rank, list := range all {
		first, _ := layout.Share(o.tokens, rank, n)
		matrix[rank] = make([]int, n)
		var words []string
		for i, experts := range list {
			words = append(words, fmt.Sprintf("%d→%s", first+i, strings.Trim(fmt.Sprint(experts), "[]")))
			for _, e := range experts {
				matrix[rank][e*n/o.experts]++
			}
		}
		r.Logf("rank %d has tokens, which chose experts: %s", rank, strings.Join(words, "  "))
	}
	for rank, row := range matrix {
		r.Logf("rank %d sends so many to ranks 0 to %d: %v", rank, n-1, row)
	}
}

// exchange sends the numbers of tokens to their experts and back.
func (o *options) exchange(r *dist.Rank, mine [][]int) error {
	g, n := r.World, r.World.Size()
	first, _ := layout.Share(o.tokens, g.Rank(), n)
	per, even := o.experts/n, slices.Repeat([]int{o.experts / n}, n)
	var out []int64 // ordered by expert
	counts := make([]int64, o.experts)
	for e := range o.experts {
		for i, experts := range mine {
			if slices.Contains(experts, e) {
				out, counts[e] = append(out, int64(first+i)), counts[e]+1
			}
		}
	}
	come, err := swap(g, counts, even, even)
	if err != nil {
		return err
	}
	send, recv := make([]int, n), make([]int, n)
	for i := range come {
		send[i/per] += int(counts[i])
		recv[i/per] += int(come[i])
	}
	in, err := swap(g, out, recv, send)
	if err != nil {
		return err
	}
	back, err := swap(g, in, send, recv)
	if err != nil {
		return err
	}
	if !slices.Equal(back, out) {
		return fmt.Errorf("rank %d sent tokens %v and got %v back", g.Rank(), out, back)
	}
	return o.after(r, in, come)
}

// swap sends send[i] numbers of x to rank i, and returns the received numbers: recv[i] from rank i.
func swap(g *dist.Group, x []int64, recv, send []int) ([]int64, error) {
	total := 0
	for _, k := range recv {
		total += k
	}
	y := tensor.ToDevice(g.Device(), tensor.FromSlice(make([]int64, total), total))
	err := g.AllToAllV(y, tensor.ToDevice(g.Device(), tensor.FromSlice(x, len(x))), recv, send).Wait()
	return tensor.Data[int64](tensor.ToHost(y)), err
}

// after prints what the experts got: the tokens of rank 0 first, then those of the next rank.
func (o *options) after(r *dist.Rank, in, come []int64) error {
	n := r.World.Size()
	per := o.experts / n
	mine := make([][]int64, per)
	for i, k := range come {
		mine[i%per] = append(mine[i%per], in[:k]...)
		in = in[k:]
	}
	all, err := dist.AllGatherObject(r.World, mine)
	for rank, experts := range all {
		for e, tokens := range experts {
			r.Logf("expert %d, on rank %d, gets tokens %v", rank*per+e, rank, tokens)
		}
	}
	return err
}

// compare compares the ranks' results with those of a layer that has all experts.
func (o *options) compare(r *dist.Rank, x tensor.Tensor, got []float64) error {
	l := o.whole()
	nn.Init(l, r.Device, tensor.Float64, o.seed)
	tape := tensor.NewTape(r.Device, tensor.NoGrad())
	defer tape.Close()
	worst := []float64{0}
	for i, v := range tensor.Floats(l.Forward(tape.Input(x))) {
		worst[0] = max(worst[0], math.Abs(v-got[i]))
	}
	all, err := dist.AllGatherObject(r.World, worst[0])
	r.Logf("what the tokens got back differs by %.1g from one rank with all experts", slices.Max(append(all, worst...)))
	return err
}
