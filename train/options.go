package train

import (
	"flag"
	"path/filepath"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Options are the values of the flags that Flags defines. The zero Options save and write nothing.
type Options struct {
	Threads   int             // computing threads of a rank; 0: cores / ranks
	Device    dist.DeviceFunc // what ranks compute on; nil: RINGO_DEVICE, or the CPU
	Save      string          // directory of checkpoints
	SaveEvery int             // steps between checkpoints; the last step is saved too. 0: only that
	Resume    bool            // go on from the newest checkpoint in Save, if there is one
	Metrics   string          // file of values by step: .jsonl or .csv
	Plot      string          // picture of the values: .svg, .png or .pdf
	Trace     string          // file with a timeline of all ranks for Perfetto; with %r, which stands for the rank, a file for each
	Nonfinite optim.Nonfinite // steps to skip if the loss or gradients are not finite; 0: the first one ends the training
	Quiet     bool            // no progress, and Logf prints nothing: the script prints a summary in JSON, or a table
}

// Flags defines -threads, -device, -save, -save-every, -resume, -skip-nonfinite, -metrics, -plot and -trace. Parsing fs sets the Options that it returns.
// A script whose output is read by programs sets Options.Quiet, by a flag of its own.
func Flags(fs *flag.FlagSet) *Options {
	o := new(Options)
	fs.IntVar(&o.Threads, "threads", 0, "computing threads of a rank (0: cores/ranks)")
	fs.Func("device", "`kind` of device that ranks compute on: cpu or cuda (default: RINGO_DEVICE, or cpu)", func(name string) (err error) {
		o.Device, err = dist.Devices(name)
		return err
	})
	fs.StringVar(&o.Save, "save", "", "save checkpoints to this `directory`")
	fs.IntVar(&o.SaveEvery, "save-every", 100, "steps between checkpoints (0: only at the end)")
	fs.BoolVar(&o.Resume, "resume", false, "go on from the newest checkpoint in the directory of -save, if there is one")
	fs.IntVar((*int)(&o.Nonfinite), "skip-nonfinite", 0,
		"`steps` one after another to skip if loss or gradients are NaN or infinite (0: the first one ends the training)")
	fs.StringVar(&o.Metrics, "metrics", "", "write values by step to this .jsonl or .csv `file`")
	fs.StringVar(&o.Plot, "plot", "", "draw values by step to this .svg, .png or .pdf `file`")
	fs.StringVar(&o.Trace, "trace", "", "write a timeline for Perfetto to this `file`; with %r in its name one for each rank, for ringo trace")
	return o
}

// Check returns a UsageError if the options contradict each other. Run and Start call it, too; a script may call it earlier.
func (o *Options) Check() error {
	plot := filepath.Ext(o.Plot)
	switch {
	case o.Threads < 0:
		return Usagef("-threads %d: want 1 or more, or 0", o.Threads)
	case o.SaveEvery < 0:
		return Usagef("-save-every %d: want 1 or more, or 0 for only at the end", o.SaveEvery)
	case o.Nonfinite < 0:
		return Usagef("-skip-nonfinite %d: want 1 or more, or 0 for the end of the training", o.Nonfinite)
	case o.Resume && o.Save == "":
		return Usagef("-resume needs -save, the directory to go on from")
	case o.Metrics != "" && !metrics.Ext(o.Metrics):
		return Usagef("-metrics %s: the name must end in .jsonl or .csv", o.Metrics)
	case o.Plot != "" && plot != ".svg" && plot != ".png" && plot != ".pdf":
		return Usagef("-plot %s: the name must end in .svg, .png or .pdf", o.Plot)
	}
	return nil
}
