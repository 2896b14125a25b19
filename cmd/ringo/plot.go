package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/train/metrics"
)

// plotCmd is `ringo plot`.
type plotCmd struct {
	Out   string   `short:"o" required:"" placeholder:"FILE" help:"The picture to write: .svg, .png or .pdf."`
	Names string   `placeholder:"REGEXP" help:"Draw only values whose names fit, such as '^loss|^cv'."`
	Files []string `arg:"" placeholder:"[NAME=]FILE" help:"What trainings wrote with -metrics, each with a name for the picture; by default the file's."`
}

// Help is the text below the flags of `ringo plot -h`.
func (*plotCmd) Help() string {
	return `Draws the values of several trainings together: a panel for each name, with a line for each training, smoothed over what was measured. Names with an
index, such as load[0] and load[1], become heat maps, one for each training, with one scale.

  go run ./examples/moe -aux 0 -metrics none.jsonl
  go run ./examples/moe -aux 0.01 -metrics loss.jsonl
  go run ./examples/moe -aux 0 -bias 0.01 -metrics bias.jsonl
  ringo plot -o balance.svg -names 'of layer 0' none=none.jsonl 'by the loss=loss.jsonl' 'by the bias=bias.jsonl'`
}

// Run draws the picture.
func (c *plotCmd) Run() error {
	if ext := filepath.Ext(c.Out); ext != ".svg" && ext != ".png" && ext != ".pdf" {
		return usageOf("plot", "-o %s: the name must end in .svg, .png or .pdf", c.Out)
	}
	fits, err := regexp.Compile(c.Names)
	if err != nil {
		return usageOf("plot", "-names: %v", err)
	}
	var runs []curve.Run
	drawn := 0
	for _, arg := range c.Files {
		name, file, named := strings.Cut(arg, "=")
		if !named {
			name, file = strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg)), arg
		}
		all, err := metrics.Read(file)
		if err != nil {
			return err
		}
		r := curve.Run{Name: name}
		for _, s := range all {
			if fits.MatchString(s.Name) {
				r.Series = append(r.Series, curve.Series(s))
			}
		}
		drawn += len(r.Series)
		runs = append(runs, r)
	}
	if drawn == 0 {
		return fmt.Errorf("nothing to draw: no value has a name that fits %q", c.Names)
	}
	return curve.Draw(c.Out, runs...)
}
