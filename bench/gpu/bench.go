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

	"github.com/ringo-ml/ringo/tensor"
)

// peer measures the same in another framework.
type peer interface {
	measure(section string) ([]row, error)
	about() string
	close()
}

// chosenSections returns the sections with these names; all if there are no names.
func chosenSections(names []string) ([]section, error) {
	if len(names) == 0 {
		return sections, nil
	}
	var todo []section
	for _, name := range names {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no section %s; `gpu list` names them", name)
		}
		todo = append(todo, sections[i])
	}
	return todo, nil
}

// bench measures sections, all if none is named, each with Ringo and directly after that with PyTorch. The error lists what was not
// measured.
func (o *options) bench(names []string, out io.Writer) ([]row, error) {
	todo, err := chosenSections(names)
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
func (o *options) measure(todo []section, ours func(name string) ([]row, error), other peer, out io.Writer) (rows []row, wrong []string) {
	for i, s := range todo {
		if time.Now().After(o.deadline) {
			for _, left := range todo[i:] {
				wrong = append(wrong, left.name+": no time was left (-limit)")
			}
			return rows, wrong
		}
		found, err := ours(s.name)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s by Ringo: %v", s.name, err))
		}
		if other != nil && !s.alone {
			theirs, err := other.measure(s.name)
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s by PyTorch: %v", s.name, err))
			}
			found = append(found, theirs...)
		}
		if found, err = agreeing(found); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", s.name, err))
		}
		o.log("rows.log", []byte(printRows(out, found)))
		rows = append(rows, found...)
	}
	return rows, wrong
}

// printRows prints rows in the form that parseRow reads, and returns the text.
func printRows(out io.Writer, rows []row) string {
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&text, "%s\t%s\t%s\t%s\t%.4g\t%.4g\t%.4g\n", r.section, r.what, r.variant, r.unit, r.median, r.low, r.high)
	}
	fmt.Fprint(out, text.String())
	return text.String()
}

// measureThere measures a section with Ringo in its own process. When that ends, PyTorch can have the device's memory.
func (o *options) measureThere(name string) (rows []row, err error) {
	ctx, cancel := o.timeout()
	defer cancel()
	cmd, err := o.childCommand(ctx, "measure")
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, name)
	if name == ncclPair {
		cmd.Env = append(os.Environ(), sharedGPU)
	}
	var text, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &errs
	err = explained(ctx, cmd.Run())
	if err != nil {
		o.log("bench.log", fmt.Appendf(nil, "\n##### %s: %v\n%s", name, err, errs.Bytes()))
		err = fmt.Errorf("%w\n%s", err, essence(errs.Bytes()))
	}
	for line := range strings.Lines(text.String()) {
		r, wrong := parseRow(strings.TrimSuffix(line, "\n"))
		if wrong != nil {
			return rows, errors.Join(err, wrong)
		}
		rows = append(rows, r)
	}
	return rows, err
}

// measureHere measures a section with Ringo and prints its rows.
func (o *options) measureHere(names []string, out io.Writer) error {
	todo, err := chosenSections(names)
	if err != nil {
		return err
	}
	dev, closer, err := openDevice(o.device)
	if err != nil {
		return err
	}
	defer closer()
	for _, s := range todo {
		_, failed := o.runSection(dev, s, out)
		err = errors.Join(err, failed)
	}
	return err
}

// runSection measures a section on a device, and prints rows as they come.
func (o *options) runSection(dev tensor.Device, s section, out io.Writer) ([]row, error) {
	m := &meter{dev: dev, device: o.device, section: s.name, small: o.small, exchange: o.exchange, length: o.window.Seconds(),
		block: map[tensor.DType]tensor.Tensor{}, out: out}
	var err error
	if panicked := tensor.Try(func() { err = s.run(m) }); panicked != nil {
		err = panicked
	}
	return m.rows, err
}

// writeTable prints rows side by side. A line for each case has Ringo's median and range, those of the other variants and, for each of
// them, Ringo's median divided by theirs. Figures in GB/s are also given as a part of the bandwidth of a copy. The account has too many
// rows: they were printed before.
func writeTable(out io.Writer, rows []row) {
	fmt.Fprintln(out, "| section | case | unit | Ringo | PyTorch | ratio | of copy |\n|---|---|---|---|---|---|---|")
	copied := 0.0
	for _, r := range rows {
		if r.section == "copy" && r.variant == "ringo" {
			copied = r.median
		}
	}
	done := map[[2]string]bool{}
	for _, r := range rows {
		key := [2]string{r.section, r.what}
		if done[key] || r.section == "account" {
			continue
		}
		done[key] = true
		ours, theirs, ratios, part := "–", []string{}, []string{}, ""
		i := slices.IndexFunc(rows, func(x row) bool { return x.section == r.section && x.what == r.what && x.variant == "ringo" })
		if i >= 0 {
			ours = rows[i].span()
			if r.unit == "GB/s" && copied > 0 {
				part = fmt.Sprintf("%.0f%%", 100*rows[i].median/copied)
			}
		}
		for _, x := range rows {
			if x.section != r.section || x.what != r.what || x.variant == "ringo" {
				continue
			}
			theirs = append(theirs, x.variant+" "+x.span())
			if i >= 0 {
				ratios = append(ratios, fmt.Sprintf("%.2f×", rows[i].median/x.median))
			}
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", r.section, r.what, r.unit, ours,
			strings.Join(theirs, "; "), strings.Join(ratios, "; "), part)
	}
}

// span returns the median with the range of the windows.
func (r row) span() string {
	if r.low == r.high {
		return figure(r.median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(r.median), figure(r.low), figure(r.high))
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
