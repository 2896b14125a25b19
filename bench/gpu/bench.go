package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/bench/gpu/measure"
)

// peer measures the same in another framework.
type peer interface {
	measure(section string) ([]measure.Row, error)
	about() string
	close()
}

// bench measures sections, all if none is named, each with Ringo and directly after that with PyTorch. The error lists what was not
// measured.
func (o *options) bench(names []string, out io.Writer) ([]measure.Row, error) {
	todo, err := measure.Named(names)
	if err != nil {
		return nil, err
	}
	if o.exchange == "" {
		if o.exchange, err = os.MkdirTemp("", "ringo-gpu-"); err != nil {
			return nil, err
		}
		defer os.RemoveAll(o.exchange)
	}
	var other peer
	if o.python != "" {
		if other, err = o.startTorch(compiling); err != nil {
			fmt.Fprintf(out, "PyTorch is not measured: %v\n", err)
		} else {
			defer other.close()
		}
	}
	fmt.Fprintf(out, "\n%s, %s", o.device, runtime.Version())
	if other != nil {
		fmt.Fprintf(out, ", %s", other.about())
	}
	fmt.Fprintln(out)
	rows, wrong := o.measure(todo, o.measureThere, other, out)
	fmt.Fprintln(out)
	writeTable(out, rows)
	if len(wrong) > 0 {
		return rows, fmt.Errorf("not measured:\n  %s", strings.Join(wrong, "\n  "))
	}
	return rows, nil
}

// measure runs sections until the deadline, each with ours and then with the other, and prints rows as they come. A failure does not stop
// the sections after it.
func (o *options) measure(todo []measure.Section, ours func(name string) ([]measure.Row, error), other peer, out io.Writer) (
	rows []measure.Row, wrong []string) {
	for i, s := range todo {
		if time.Now().After(o.deadline) {
			for _, left := range todo[i:] {
				wrong = append(wrong, left.Name+": no time was left (-limit)")
			}
			return rows, wrong
		}
		found, err := ours(s.Name)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s by Ringo: %v", s.Name, err))
		}
		if other != nil && !s.Alone {
			theirs, err := other.measure(s.Name)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s by PyTorch: %v", s.Name, err))
			}
			found = append(found, theirs...)
		}
		if found, err = measure.Agreeing(found); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", s.Name, err))
		}
		o.log("rows.log", []byte(measure.Print(out, found)))
		rows = append(rows, found...)
	}
	return rows, wrong
}

// plainly is the variant of the kernels that users get who do not ask for those of compute capability 9.0 alone.
const plainly = "RINGO_HOPPER=0"

// measureThere measures a section with Ringo in its own process; where there are kernels for compute capability 9.0 alone, also without
// them.
func (o *options) measureThere(name string) ([]measure.Row, error) {
	rows, err := o.measureIn(name)
	if (name != "attention" && name != "grouped") || o.device != "cuda" || os.Getenv("RINGO_HOPPER") != "1" {
		return rows, err
	}
	more, wrong := o.measureIn(name, plainly)
	for i := range more {
		more[i].Variant = plainly
	}
	if wrong != nil {
		wrong = fmt.Errorf("with %s: %w", plainly, wrong)
	}
	return append(rows, more...), errors.Join(err, wrong)
}

// measureIn measures a section in a process with more variables. When that ends, PyTorch can have the device's memory.
func (o *options) measureIn(name string, env ...string) (rows []measure.Row, err error) {
	ctx, cancel := o.timeout()
	defer cancel()
	cmd, err := o.childCommand(ctx, "measure")
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, name)
	if name == measure.NCCLPair {
		env = append(env, measure.SharedGPU)
	}
	cmd.Env = append(os.Environ(), env...)
	var text, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &errs
	err = explained(ctx, cmd.Run())
	if err != nil {
		o.log("bench.log", fmt.Appendf(nil, "\n##### %s: %v\n%s", name, err, errs.Bytes()))
		err = fmt.Errorf("%w\n%s", err, essence(errs.Bytes()))
	}
	for line := range strings.Lines(text.String()) {
		r, wrong := measure.ParseRow(strings.TrimSuffix(line, "\n"))
		if wrong != nil {
			return rows, errors.Join(err, wrong)
		}
		rows = append(rows, r)
	}
	return rows, err
}

// measured are the options of measurements.
func (o *options) measured() measure.Options {
	return measure.Options{Device: o.device, Small: o.small, Exchange: o.exchange, Window: o.window}
}

// writeTable prints rows side by side. A line for each case has Ringo's median and range, those of the other variants and, for each of
// them, Ringo's median divided by theirs. Figures in GB/s are also given as a part of the bandwidth of a copy. The account has too many
// rows: they were printed before.
func writeTable(out io.Writer, rows []measure.Row) {
	fmt.Fprintln(out, "| section | case | unit | Ringo | PyTorch | ratio | of copy |\n|---|---|---|---|---|---|---|")
	copied := 0.0
	for _, r := range rows {
		if r.Section == "copy" && r.Variant == "ringo" {
			copied = r.Median
		}
	}
	done := map[[2]string]bool{}
	for _, r := range rows {
		key := [2]string{r.Section, r.What}
		if done[key] || r.Section == "account" {
			continue
		}
		done[key] = true
		ours, theirs, ratios, part := "–", []string{}, []string{}, ""
		i := slices.IndexFunc(rows, func(x measure.Row) bool { return x.Section == r.Section && x.What == r.What && x.Variant == "ringo" })
		if i >= 0 {
			ours = span(rows[i])
			if r.Unit == "GB/s" && copied > 0 {
				part = fmt.Sprintf("%.0f%%", 100*rows[i].Median/copied)
			}
		}
		for _, x := range rows {
			if x.Section != r.Section || x.What != r.What || x.Variant == "ringo" {
				continue
			}
			theirs = append(theirs, x.Variant+" "+span(x))
			if i >= 0 {
				ratios = append(ratios, fmt.Sprintf("%.2f×", rows[i].Median/x.Median))
			}
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", r.Section, r.What, r.Unit, ours,
			strings.Join(theirs, "; "), strings.Join(ratios, "; "), part)
	}
}

// span returns the median with the range of the windows.
func span(r measure.Row) string {
	if r.Low == r.High {
		return figure(r.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(r.Median), figure(r.Low), figure(r.High))
}

// figure formats a number with three digits, without an exponent.
func figure(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
