package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/tensor"
)

// ckptCmd is `ringo ckpt`.
type ckptCmd struct {
	Ls      ckptLsCmd      `cmd:"" help:"List the tensors of a checkpoint."`
	Verify  ckptVerifyCmd  `cmd:"" help:"Find out whether a checkpoint is sound."`
	Diff    ckptDiffCmd    `cmd:"" help:"Compare two checkpoints."`
	Convert ckptConvertCmd `cmd:"" help:"Write a checkpoint anew: in other files, in another type."`
	Merge   ckptMergeCmd   `cmd:"" help:"Add adapters of PEFT to the weights of their model."`
}

// Help is the text below the flags of `ringo ckpt -h`.
func (*ckptCmd) Help() string {
	return `A checkpoint is a folder that a training run saved, a folder of Hugging Face's form, or one .safetensors file.`
}

type ckptLsCmd struct {
	Path string `arg:"" help:"The checkpoint."`
	JSON bool   `help:"Print one JSON object."`
}

// Run prints the tensors.
func (c *ckptLsCmd) Run() error {
	c.Path = newest(c.Path)
	step, list, err := inspect.List(c.Path)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(map[string]any{"path": c.Path, "step": step, "tensors": list})
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "tensor\tshape\tdtype\tfile\tbytes\tshards")
	total := int64(0)
	for _, t := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", printable(t.Name, ""), strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ","), t.DType,
			printable(t.File, ""), t.Bytes, t.Shards)
		total += t.Bytes
	}
	fmt.Fprintf(w, "%d tensors\t\t\t\t%d\t\n", len(list), total)
	return w.Flush()
}

// newest returns the newest checkpoint if path is a folder of several, and prints its name. Another path is returned unchanged.
func newest(path string) string {
	steps, err := ckpt.Steps(path)
	if err != nil || len(steps) == 0 { // the reader of the path reports what is wrong with it
		return path
	}
	last := steps[len(steps)-1]
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = filepath.Base(s)
	}
	fmt.Fprintf(os.Stderr, "ringo: %s holds %s: taking the newest\n", path, strings.Join(names, ", "))
	return last
}

type ckptVerifyCmd struct {
	Path   string `arg:"" help:"The checkpoint."`
	Layout string `placeholder:"MESH" help:"Also load as every rank of a layout would, such as tp=2,fsdp=4."`
	Rules  string `placeholder:"FILE" help:"How tensor parallelism cuts tensors, for checkpoints that do not say."`
	JSON   bool   `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo ckpt verify -h`.
func (*ckptVerifyCmd) Help() string {
	return `Verifies hashes, that every tensor is there and every element once, that none is NaN, and that no other files are. The exit
status is 0 only if the checkpoint is sound, and 3 if it is, but -layout or -rules do not fit it. Infinite elements are counted. A folder without ringo.json has no hashes; what could not be verified is said.

  ringo ckpt verify checkpoints/step-00000100
  ringo ckpt verify -layout tp=2,fsdp=4 -rules rules.json model    # rules.json: {"*.qkv.weight": {"dim": 0, "parts": [64, 16, 16], "unit": 8}}

The axes of -layout are cp, dp, ep, fsdp, pp, ring and tp. Stages of pp have equally many layers, by the numbers in names; the first one has
the tables, too, and the last one the rest. Ranks of ep have other experts, if files have these one by one. Under fsdp a rank loads its share
(those of cp and ring share, too) of each unit, if the checkpoint says what the units are; else of each tensor. Dimensions in -rules are those that the tensors have in the files.`
}

// maxRules is how long a file of -rules may be.
const maxRules = 1 << 20

// Run prints the verdict. It returns an error if the checkpoint is not sound.
func (c *ckptVerifyCmd) Run() error {
	c.Path = newest(c.Path)
	cfg := inspect.VerifyConfig{Layout: c.Layout}
	if c.Rules != "" {
		text, err := bounded.ReadFile(c.Rules, maxRules)
		if err != nil {
			return err
		}
		if cfg.Rules, err = ckpt.ParseRules(text); err != nil {
			return fmt.Errorf("%s: %w", c.Rules, err)
		}
	}
	var v *inspect.Verdict
	err := withProgress("verifying", func(ctx context.Context, progress func(done, total int64)) (err error) {
		cfg.Progress = progress
		v, err = inspect.Verify(ctx, c.Path, cfg)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(v)
	} else {
		c.write(os.Stdout, v)
	}
	switch {
	case err != nil:
	case len(v.Errors) > 0:
		err = fmt.Errorf("%s is not sound: %d errors", c.Path, len(v.Errors))
	case len(v.Misfits) > 0:
		err = &launch.ExitError{Code: 3, Text: fmt.Sprintf("%s is sound, and does not fit -layout %s, or -rules", c.Path, c.Layout)}
	}
	return err
}

func (c *ckptVerifyCmd) write(w io.Writer, v *inspect.Verdict) {
	for _, e := range v.Errors {
		fmt.Fprintf(w, "error: %s\n", printable(e, "\n"))
	}
	for _, s := range v.Misfits {
		fmt.Fprintf(w, "does not fit: %s\n", printable(s, "\n"))
	}
	for _, s := range v.Unchecked {
		fmt.Fprintf(w, "not verified: %s\n", s)
	}
	fmt.Fprintf(w, "%s: step %d, %d tensors in %d shards, %d bytes\n", printable(v.Path, ""), v.Step, v.Tensors, v.Shards, v.Bytes)
	if v.NaN+v.Inf > 0 {
		fmt.Fprintf(w, "%d NaN, %d infinite elements\n", v.NaN, v.Inf)
	}
	for _, r := range v.Ranks {
		fmt.Fprintf(w, "rank %d (%s) loads %d bytes\n", r.Rank, r.Place, r.Bytes)
	}
	if len(v.Errors) == 0 {
		fmt.Fprintln(w, "sound")
	}
}

type ckptDiffCmd struct {
	A    string `arg:"" help:"A checkpoint."`
	B    string `arg:"" help:"Another one."`
	JSON bool   `help:"Print one JSON object."`
}

// Run prints the differences. It returns an error if there are any.
func (c *ckptDiffCmd) Run() error {
	c.A, c.B = newest(c.A), newest(c.B)
	var d *inspect.Difference
	err := withProgress("comparing", func(ctx context.Context, progress func(done, total int64)) (err error) {
		d, err = inspect.Diff(ctx, c.A, c.B, progress)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(d)
	} else {
		fmt.Print(printable(d.String(), "\n"))
	}
	if err == nil && !d.Same {
		err = fmt.Errorf("%s and %s differ", c.A, c.B)
	}
	return err
}

type ckptConvertCmd struct {
	From      string `arg:"" help:"The checkpoint; also a .pt, .pth, .bin or .ckpt file of PyTorch, or a folder of torch.distributed.checkpoint."`
	To        string `arg:"" help:"The folder to make."`
	DType     string `name:"dtype" placeholder:"TYPE" help:"Type of the model's floats, such as bfloat16; as they are if absent."`
	FileBytes string `placeholder:"SIZE" help:"Begin a new file at this size, such as 5G; one file if absent."`
	ModelOnly bool   `help:"Leave the optimizer out."`
	JSON      bool   `help:"Print one JSON object: the verdict on the new checkpoint."`
}

// Help is the text below the flags of `ringo ckpt convert -h`.
func (*ckptConvertCmd) Help() string {
	return `The result is a checkpoint that a run resumes from and Hugging Face's readers load.

  ringo ckpt convert -dtype bfloat16 checkpoints/step-00000100 half
  ringo ckpt convert model.pt model                  # of PyTorch: with the optimizer, if there is one; nothing in it is executed

The model of a .pt file is under the key model, model_state_dict, state_dict or module, or is the whole file; the optimizer under
optimizer, optimizer_state_dict, optim or optim_state_dict.`
}

// Run converts, and verifies the result.
func (c *ckptConvertCmd) Run() error {
	c.From = newest(c.From)
	cfg := inspect.ConvertConfig{ModelOnly: c.ModelOnly, LeftOut: func(what []string) {
		for _, s := range what {
			fmt.Fprintf(os.Stderr, "left out: %s\n", printable(s, ""))
		}
	}}
	if c.DType != "" {
		d, err := tensor.ParseDType(c.DType)
		if err != nil {
			return usageOf("ckpt convert", "-dtype: %v", err)
		}
		cfg.DType = &d
	}
	if c.FileBytes != "" {
		n, ok := parseSize(c.FileBytes)
		if !ok || n <= 0 {
			return usageOf("ckpt convert", "-file-bytes %q is no size", c.FileBytes)
		}
		cfg.FileBytes = int64(n)
	}
	err := withProgress("converting", func(ctx context.Context, progress func(done, total int64)) error {
		cfg.Progress = progress
		return inspect.Convert(ctx, c.From, c.To, cfg)
	})
	if err != nil {
		return err
	}
	return (&ckptVerifyCmd{Path: c.To, JSON: c.JSON}).Run()
}

// withProgress runs work that takes long. An interrupt ends it. On a terminal it shows a progress bar.
func withProgress(what string, fn func(ctx context.Context, progress func(done, total int64)) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return fn(ctx, nil)
	}
	var once sync.Once
	var bar *progressbar.ProgressBar
	err := fn(ctx, func(done, total int64) {
		once.Do(func() {
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowBytes(true),
				progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription(what))
		})
		_ = bar.Set64(done)
	})
	if bar != nil {
		_ = bar.Finish()
	}
	return err
}

// printable returns text that may come from a file for a terminal: characters that could steer it are escaped, except those
// in kept.
func printable(text, kept string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		one := text[:n]
		if invalid := r == utf8.RuneError && n == 1; invalid || !strconv.IsPrint(r) && !strings.Contains(kept, one) {
			one = strconv.Quote(one)
			one = one[1 : len(one)-1]
		}
		out.WriteString(one)
		text = text[n:]
	}
	return out.String()
}

func printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err == nil {
		_, err = fmt.Printf("%s\n", b)
	}
	return err
}
