package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
)

// vizCmd is `ringo viz`.
type vizCmd struct {
	Op    string `arg:"" help:"The operation, such as allreduce."`
	Algo  string `required:"" placeholder:"NAME" help:"The algorithm, such as ring."`
	Ranks int    `default:"4" placeholder:"N" help:"Number of ranks, 2 to 16; 4 if absent."`
	Hosts int    `default:"1" placeholder:"H" help:"Number of hosts that they lie on, in order; 1 if absent."`
	Out   string `short:"o" required:"" placeholder:"FILE" help:"The SVG file to write."`
}

// Help is the text below the flags of `ringo viz -h`.
func (*vizCmd) Help() string {
	return `Draws what a collective does, step by step: who sends which part of the buffer to whom, and what every rank holds before and
after. The picture is made from the messages of a real run of the algorithm, among ranks in memory. A message is in the
step after the last message that its sender had received, and two ranks exchange one message a step in each direction.
In the V forms rank r's part is r+1 times as long as rank 0's; send goes from the first rank to the last.

  ringo viz allreduce -algo ring -ranks 4 -o ring.svg
  ringo viz allreduce -algo ring -ranks 8 -hosts 2 -o ring.svg    # says what crosses from host to host`
}

// vizRanks is the largest number of ranks in a picture: more cannot be read.
const vizRanks = 16

// Run writes the picture.
func (v *vizCmd) Run() error {
	kind, err := v.check()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := viz.Record(ctx, kind, v.Algo, evenly(v.Ranks, v.Hosts))
	if err != nil {
		return err
	}
	return os.WriteFile(v.Out, []byte(s.SVG()), 0o666)
}

// check returns the operation to draw.
func (v *vizCmd) check() (backend.Kind, error) {
	var names []string
	for _, k := range viz.Kinds {
		names = append(names, k.String())
	}
	i := slices.Index(names, v.Op)
	if i < 0 {
		return 0, usageOf("viz", "%q cannot be drawn; these can: %s", v.Op, strings.Join(names, ", "))
	}
	kind := viz.Kinds[i]
	has := algo.Names(kind)
	switch {
	case !slices.Contains(has, v.Algo):
		return 0, usageOf("viz", "-algo %q cannot do %v, which has: %s", v.Algo, kind, strings.Join(has, ", "))
	case v.Ranks < 2 || v.Ranks > vizRanks:
		return 0, usageOf("viz", "-ranks %d: a picture has 2 to %d ranks", v.Ranks, vizRanks)
	case v.Hosts < 1 || v.Hosts > v.Ranks:
		return 0, usageOf("viz", "-hosts %d: %d ranks lie on 1 to %d hosts", v.Hosts, v.Ranks, v.Ranks)
	case !strings.HasSuffix(v.Out, ".svg"):
		return 0, usageOf("viz", "-o %s: the name must end in .svg", v.Out)
	}
	return kind, nil
}
