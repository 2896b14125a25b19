package main

import (
	"fmt"

	"github.com/ringo-ml/ringo/plan"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// planCmd is `ringo plan`.
type planCmd struct {
	Layers  int     `default:"12" help:"Blocks."`
	Dim     int     `default:"768" help:"Features."`
	Heads   int     `default:"12" help:"Attention heads; they divide the features, and tp divides them."`
	Vocab   int     `default:"50257" help:"Words of the vocabulary; tp divides it."`
	Batch   int     `default:"8" help:"Sequences of the global batch, over all ranks."`
	Seq     int     `default:"1024" help:"Tokens of a sequence."`
	Layout  string  `default:"dp=1" placeholder:"MESH" help:"Ranks along the axes pp, dp, fsdp, ep, ring, cp and tp, such as dp=8,fsdp=8,tp=2."`
	Micro   *int    `placeholder:"N" help:"With pp: microbatches of a step; 8 if absent."`
	Sched   *string `name:"schedule" placeholder:"NAME" help:"With pp: a schedule as in ringo viz schedule; 1f1b if absent."`
	Chunks  *int    `placeholder:"N" help:"With -schedule interleaved: stages of a rank; 2 if absent."`
	SP      bool    `name:"sp" help:"With tp: between the divided layers each rank has a part of the tokens (sequence parallelism)."`
	Experts int     `placeholder:"E" help:"Experts of each block, in place of its MLP and as large as it; ep divides them."`
	TopK    *int    `name:"topk" placeholder:"K" help:"With -experts: experts of a token; 2 if absent."`
	Stage   int     `help:"1, 2 or 3: what fsdp cuts; 3 if absent."`
	Params  string  `default:"float32" placeholder:"TYPE" help:"Type that parameters are used in; beside 16 bits there are masters in float32."`
	Reduce  string  `placeholder:"TYPE" help:"Type that gradients are sent in, and that fsdp holds them in. If absent: float32 with fsdp, else that of parameters."`
	Host    int     `placeholder:"N" help:"With fsdp: ranks of a host, each of which keeps a copy (hpZ of ZeRO++)."`
	Int8    bool    `name:"int8" help:"With fsdp: values are sent in 8 bits (qwZ)."`
	Int4    bool    `name:"int4" help:"With -host: gradients are sent in 4 bits, and added up in each host first (qgZ)."`
	Topo    string  `placeholder:"NAME" help:"Predict the time of a step on this network, as for ringo sim, with a number of hosts: hgx-h100x32."`
	TFLOPS  float64 `name:"tflops" default:"400" help:"With -topo: 10¹² operations of a rank per second while it only computes."`
	JSON    bool    `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo plan -h`.
func (*planCmd) Help() string {
	return `Predicts, for a GPT-2 trained with AdamW, how much memory of each kind the rank with the most of it takes, and how many bytes
all ranks send in a step, each number with its formula. Nothing is started. The defaults are GPT-2 small on one rank.

  ringo plan -layout fsdp=8 -stage 2 -params bfloat16
  ringo plan -layout dp=8,fsdp=8,tp=2 -sp -batch 512 -vocab 50304
  ringo plan -layout fsdp=64 -host 8 -int8 -int4 -batch 512 -params bfloat16
  ringo plan -layout fsdp=4,ep=8 -experts 8 -topk 2 -batch 512
  ringo plan -layout fsdp=4,ring=2,cp=4 -seq 65536
  ringo plan -layout pp=4,dp=2 -batch 64 -micro 16 -schedule zb-h1
  ringo plan -layout dp=32,tp=8 -batch 512 -vocab 50304 -heads 16 -dim 1024 -topo hgx-h100x32

With dp alone, package ddp sums gradients; fsdp cuts the model over ranks, and with dp beside it there are copies (hybrid sharding).
Units are blocks; token table, positions and last norm are one that stays. tp divides layers (package tp), -sp also the tokens between
them. With -host, "over host" is what stays inside a host. -experts makes mixtures of experts of the blocks' MLPs (package moe): ranks
along ep have other rows and share the experts, and what they exchange is planned as if each expert were chosen as often. Ranks along
ring and cp have other positions of each sequence (package cp): keys go around those of ring, and those of cp exchange heads. Ranks of
pp have other layers: the plan has a line for each, and the part of the time in which they wait. Activations are without
checkpointing. Not counted are batches, the workspace of kernels and what the Go runtime takes.`
}

// Run prints the plan.
func (c *planCmd) Run() error {
	p, err := c.plan()
	if err != nil {
		return usageOf("plan", "%v", err)
	}
	out, text := any(p), fmt.Sprintln(p)
	if c.Topo != "" {
		layout, _ := plan.ParseLayout(c.Layout) // plan has parsed it
		t, err := c.times(layout, p)
		if err != nil {
			return usageOf("plan", "%v", err)
		}
		text, out = text+fmt.Sprintf("\n%v", t), struct {
			*plan.Plan
			Time *timing
		}{p, t}
	}
	if c.JSON {
		return printJSON(out)
	}
	_, err = fmt.Print(text)
	return err
}

func (c *planCmd) plan() (*plan.Plan, error) {
	layout, err := plan.ParseLayout(c.Layout)
	if err != nil {
		return nil, err
	}
	cfg := plan.Config{Layout: layout, Stage: c.Stage, Sequence: c.SP, Host: c.Host, Int8: c.Int8, Int4: c.Int4}
	for _, t := range []struct {
		dtype *tensor.DType
		name  string
	}{{&cfg.Params, c.Params}, {&cfg.Reduce, c.Reduce}} {
		if t.name != "" {
			if *t.dtype, err = tensor.ParseDType(t.name); err != nil || !t.dtype.IsFloat() {
				return nil, fmt.Errorf("unknown dtype %q (float32, float64, bfloat16, float16)", t.name)
			}
		}
	}
	size := plan.Transformer{Layers: c.Layers, Dim: c.Dim, Heads: c.Heads, Vocab: c.Vocab, Batch: c.Batch, Seq: c.Seq, Experts: c.Experts}
	switch {
	case c.Experts != 0:
		size.Top = or(c.TopK, 2)
	case c.TopK != nil:
		return nil, fmt.Errorf("-topk needs -experts")
	}
	p, err := c.of(size, cfg)
	if err == nil && c.Reduce != "" && c.Reduce != p.Reduce { // float32, which also means "as the parameters"
		return nil, fmt.Errorf("gradients of %s parameters cannot be reduced in %s without fsdp", c.Params, c.Reduce)
	}
	return p, err
}

// or returns the value of a flag, or absent if it is not given.
func or[T any](flag *T, absent T) T {
	if flag == nil {
		return absent
	}
	return *flag
}

// of returns the plan of a model, with the schedule if it is in a pipeline.
func (c *planCmd) of(size plan.Transformer, cfg plan.Config) (*plan.Plan, error) {
	if cfg.Layout.PP < 2 {
		if c.Micro != nil && c.Topo == "" || c.Sched != nil || c.Chunks != nil { // -topo compares with pipelines
			return nil, fmt.Errorf("-micro, -schedule and -chunks need pp in -layout")
		}
		m, err := size.Model(cfg)
		if err != nil {
			return nil, err
		}
		return plan.New(m, cfg)
	}
	name := or(c.Sched, "1f1b")
	if name == "forward" {
		return nil, fmt.Errorf("-schedule forward trains nothing")
	}
	s, err := pp.ByName(name, cfg.Layout.PP, or(c.Chunks, 2), or(c.Micro, 8))
	if err != nil {
		return nil, err
	}
	rep, err := s.Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{})
	if err != nil {
		return nil, err
	}
	return size.Pipeline(cfg, plan.Pipeline{Micros: s.Micros, Ranks: s.Ranks, Live: rep.Live, PutOff: rep.PutOff, Held: rep.Held,
		Bubble: rep.Bubble})
}
