package train

import (
	"errors"
	"flag"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/train/internal/checkpoint"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Options are the values of the flags that Flags defines. The zero Options save and write nothing.
type Options struct {
	Threads     int             // computing threads of a rank; 0: cores / ranks
	Device      dist.DeviceFunc // what ranks compute on; nil: RINGO_DEVICE, or the CPU
	Save        string          // directory of checkpoints
	SaveEvery   int             // steps between checkpoints; the last step is saved too. 0: only that
	Keep        int             // newest checkpoints that stay; 0: all
	KeepBest    string          // the checkpoint with the smallest of these values stays, too; the largest, if the name follows "max:"
	Patience    int             // the training ends if so many values of KeepBest in a row are not better than the best; 0: it does not
	Resume      bool            // go on from the newest checkpoint in Save, if there is one
	ResumeStep  int             // go on from the checkpoint of this step, with Resume; those behind it get other names; 0: the newest
	Override    string          // "lr": the learning rate of the program holds after a resume, not that of the checkpoint
	Metrics     string          // file of values by step: .jsonl or .csv
	TensorBoard string          // directory of event files for TensorBoard
	Plot        string          // picture of the values: .svg, .png or .pdf
	Trace       string          // file with a timeline of all ranks for Perfetto; with %r, which stands for the rank, a file for each
	Nonfinite   optim.Nonfinite // steps to skip if the loss or gradients are not finite; 0: the first one ends the training
	flags       *flag.FlagSet   // of Flags, or nil
	Quiet       bool            // no progress, and Logf prints nothing: the script prints a summary in JSON, or a table
}

// Flags defines -threads, -device, -save, -save-every, -keep, -keep-best, -patience, -resume, -override, -skip-nonfinite, -metrics,
// -tensorboard, -plot and -trace. Parsing fs sets the Options that it returns.
// A script whose output is read by programs sets Options.Quiet, by a flag of its own.
func Flags(fs *flag.FlagSet) *Options {
	o := &Options{flags: fs}
	fs.IntVar(&o.Threads, "threads", 0, "computing threads of a rank (0: cores/ranks)")
	fs.Func("device", "`kind` of device that ranks compute on: cpu or cuda (default: RINGO_DEVICE, or cpu)", func(name string) (err error) {
		o.Device, err = dist.Devices(name)
		return err
	})
	fs.StringVar(&o.Save, "save", "", "save checkpoints to this `directory`")
	fs.IntVar(&o.SaveEvery, "save-every", 100, "steps between checkpoints (0: only at the end)")
	fs.IntVar(&o.Keep, "keep", 3, "newest checkpoints that stay (0: all)")
	fs.StringVar(&o.KeepBest, "keep-best", "", "the checkpoint with the smallest `value` of this name stays, too (max:NAME: with the largest)")
	fs.IntVar(&o.Patience, "patience", 0, "end when so many values of -keep-best in a row are not better than the best (0: do not)")
	fs.Var((*resume)(o), "resume", "go on from the newest checkpoint in the directory of -save, if there is one; -resume=step-N: from that")
	fs.StringVar(&o.Override, "override", "", "`lr`: the learning rate of the command line holds after -resume, not that of the checkpoint")
	fs.IntVar((*int)(&o.Nonfinite), "skip-nonfinite", 0,
		"`steps` one after another to skip if loss or gradients are NaN or infinite (0: the first one ends the training)")
	fs.StringVar(&o.Metrics, "metrics", "", "write values by step to this .jsonl or .csv `file`")
	fs.StringVar(&o.TensorBoard, "tensorboard", "", "write values by step for TensorBoard to a new file in this `directory`")
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
	case o.Keep < 0:
		return Usagef("-keep %d: want 1 or more, or 0 for all", o.Keep)
	case o.Patience < 0:
		return Usagef("-patience %d: want 1 or more, or 0", o.Patience)
	case o.Patience > 0 && o.best().Name == "":
		return Usagef("-patience needs -keep-best, the value that must become better")
	case o.Override != "" && o.Override != "lr":
		return Usagef("-override %s: only lr can be", o.Override)
	case o.ResumeStep != 0 && !o.Resume:
		return Usagef("Options.ResumeStep needs Resume")
	case o.Nonfinite < 0:
		return Usagef("-skip-nonfinite %d: want 1 or more, or 0 for the end of the training", o.Nonfinite)
	case o.KeepBest == "max:":
		return Usagef("-keep-best max: names no value: want such as \"max:test accuracy\"")
	case o.Resume && o.flags != nil && strings.HasPrefix(o.flags.Arg(0), "step-"):
		return Usagef("-resume %s: write -resume=%[1]s; no flag behind it was read", o.flags.Arg(0))
	case o.Resume && o.Save == "":
		return Usagef("-resume needs -save, the directory to go on from")
	case o.Metrics != "" && !metrics.Ext(o.Metrics):
		return Usagef("-metrics %s: the name must end in .jsonl or .csv", o.Metrics)
	case o.Plot != "" && plot != ".svg" && plot != ".png" && plot != ".pdf":
		return Usagef("-plot %s: the name must end in .svg, .png or .pdf", o.Plot)
	}
	return nil
}

// best is KeepBest.
func (o *Options) best() checkpoint.Best {
	name, large := strings.CutPrefix(o.KeepBest, "max:")
	return checkpoint.Best{Name: name, Max: large}
}

// anyRun lists flags that do not change what is trained.
var anyRun = []string{"threads", "device", "save", "save-every", "keep", "keep-best", "patience", "resume", "override", "skip-nonfinite",
	"metrics", "tensorboard", "plot", "trace", "json"}

// settings returns the values of the script's flags, for checkpoints.
func (o *Options) settings() (map[string]string, error) {
	all := map[string]string{}
	if o.flags != nil {
		o.flags.VisitAll(func(f *flag.Flag) {
			if !slices.Contains(anyRun, f.Name) {
				all[f.Name] = f.Value.String()
			}
		})
	}
	return all, nil
}

// resume is the flag -resume: a bool, or a step.
type resume Options

// String returns nothing: the default is no resume.
func (*resume) String() string { return "" }

// IsBoolFlag says that the flag may stand alone.
func (*resume) IsBoolFlag() bool { return true }

// Set takes true, false, or step-N.
func (r *resume) Set(text string) (err error) {
	r.ResumeStep = 0
	if number, ok := strings.CutPrefix(text, "step-"); ok {
		r.Resume = true
		if r.ResumeStep, err = strconv.Atoi(number); err != nil || r.ResumeStep <= 0 {
			return errors.New("want step-N, the name of a checkpoint in the directory of -save")
		}
		return nil
	}
	if r.Resume, err = strconv.ParseBool(text); err != nil {
		return errors.New("want nothing, or =step-N, the name of a checkpoint in the directory of -save")
	}
	return nil
}
