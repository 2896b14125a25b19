package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/ringo-ml/ringo/bench/gpu/measure"
)

// target is a goal for all cases of a section that match a pattern: relative to a PyTorch variant, to the bandwidth of a copy, or absolute.
type target struct {
	work    string
	section string
	cases   *regexp.Regexp
	unit    string
	by      string // a variant, byCopy or bySelf
	want    float64
	most    bool // want is an upper limit, not a lower one
}

const byCopy, bySelf = "copy", ""

var targets = []target{
	{"GPT-2 124M, tokens/s by torch.compile's", "gpt2", pattern(`length \d+$`), "tokens/s", "compiled", 1.2, false},
	{"GPT-2 124M captured, tokens/s by torch.compile's", "gpt2", pattern(`, captured$`), "tokens/s", "compiled", 1.2, false},
	{"GPT-2 124M captured and tuned, tokens/s by torch.compile's", "gpt2", pattern(`, captured, tuned$`), "tokens/s", "compiled", 1.2, false},
	{"attention, forward and backward, by cuDNN", "attention", pattern(`, and backward$`), "TFLOP/s", "cuDNN", 1, false},
	{"products of groups, forward, by torch._grouped_mm", "grouped", pattern(`, forward$`), "TFLOP/s", "_grouped_mm", 1, false},
	{"products of groups, and backward, by torch._grouped_mm", "grouped", pattern(`, and backward$`), "TFLOP/s", "_grouped_mm", 1, false},
	{"matrix products from 2048³ on, by torch.matmul", "gemm", pattern(` (2048|4096|8192|32768)[x0-9]+$`), "TFLOP/s", "eager", 0.98, false},
	{"tuned matrix products from 2048³ on, by torch.matmul", "gemm", pattern(` (2048|4096|8192|32768).*, tuned$`), "TFLOP/s",
		"eager", 1, false},
	{"products of 8-bit floats by torch._scaled_mm", "float8", pattern(`^\d`), "TFLOP/s", "_scaled_mm", 0.98, false},
	{"Linear of 8-bit floats, and backward, by torch.compile's", "float8", pattern(`^Linear`), "TFLOP/s", "compiled", 1, false},
	{"convolutions by eager PyTorch's", "conv", pattern(`^float32`), "TFLOP/s", "eager", 1, false},
	{"bfloat16 convolutions by eager PyTorch's", "conv", pattern(`^bfloat16`), "TFLOP/s", "eager", 1, false},
	{"CNN step by eager PyTorch's", "cnn", pattern(`\d$`), "steps/s", "eager", 1, false},
	{"CNN steps a second", "cnn", pattern(`\d$`), "steps/s", bySelf, 3000, false},
	{"MLP step by eager PyTorch's", "mlp", pattern(`\d$`), "steps/s", "eager", 3, false},
	{"captured MLP step by that of PyTorch's CUDA graph", "mlp", pattern(`, captured$`), "steps/s", "CUDA graph", 1, false},
	{"memory-bound kernels by copying", "rows", pattern(`x(4096|11264|50304)$|^bfloat16.*x768$|gradient .*x768$`), "GB/s", byCopy, 0.9, false},
	{"float32 norms of rows of 768 elements by copying", "rows", pattern(`^float32 \w+ \d+x768$`), "GB/s", byCopy, 0.93, false},
	{"all-reduce of two ranks on one GPU by copying", "allreduce", pattern(``), "GB/s", byCopy, 0.85, false},
	{"µs of a small operation on the host without the launch", "host", pattern(`^` + measure.Bare), "µs/op", bySelf, 0.7, true},
}

var pattern = regexp.MustCompile

// figure returns Ringo's result for a case, in the unit of the target.
func (t *target) figure(ours measure.Row, rows []measure.Row) (x float64, ok bool) {
	if t.by == bySelf {
		return ours.Median, true
	}
	for _, r := range rows {
		switch {
		case t.by == byCopy:
			ok = r.Section == "copy" && r.Variant == "ringo"
		default: // PyTorch's result has no captured or tuned variant
			plain := strings.TrimSuffix(strings.TrimSuffix(ours.What, ", tuned"), ", captured")
			ok = r.Section == t.section && r.Variant == t.by && (r.What == ours.What || r.What == plain)
		}
		if ok && r.Median > 0 {
			return ours.Median / r.Median, true
		}
	}
	return 0, false
}

// worst returns the case that is farthest from the target.
func (t *target) worst(rows []measure.Row) (what string, x float64, ok bool) {
	for _, r := range rows {
		if r.Section != t.section || r.Variant != "ringo" || r.Unit != t.unit || !t.cases.MatchString(r.What) {
			continue
		}
		if y, found := t.figure(r, rows); found && (!ok || y > x == t.most) {
			what, x, ok = r.What, y, true
		}
	}
	return what, x, ok
}

// writeTargets prints the targets, and the worst case of each.
func writeTargets(out io.Writer, rows []measure.Row) {
	fmt.Fprintln(out, "\n| target | wanted | measured | worst case |\n|---|---|---|---|")
	for _, t := range targets {
		sign, measured := "≥", "not measured"
		if t.most {
			sign = "≤"
		}
		what, x, ok := t.worst(rows)
		if ok {
			measured = figure(x) + map[bool]string{true: ", met", false: ", missed"}[x == t.want || x < t.want == t.most]
		}
		fmt.Fprintf(out, "| %s | %s %s | %s | %s |\n", t.work, sign, figure(t.want), measured, what)
	}
}
