package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
)

// farOff is the largest factor between a line and the measured times. Between the smallest and the largest size, caches become too small
// and algorithms change, so a line cannot fit well.
const farOff = 4

// fitSeries fits T = latency + bytes/bandwidth to the rows of one operation, by least squares of the relative errors, and fills in the
// results. If the line is too far from the measured times, it fills in nothing.
func fitSeries(rows []benchRow) {
	latency, perByte, ok := fitLine(rows)
	for _, r := range rows {
		line := latency + perByte*float64(r.Bytes)
		ok = ok && (r.US <= 0 || r.US <= farOff*line && line <= farOff*r.US)
	}
	if !ok {
		return
	}
	for i := range rows {
		rows[i].Latency = latency
		rows[i].FitUS = latency + perByte*float64(rows[i].Bytes)
		if perByte > 0 {
			rows[i].Rate = 1 / perByte / 1e3
		}
	}
}

// fitLine returns µs and µs per byte, neither below zero. It needs two sizes.
func fitLine(rows []benchRow) (latency, perByte float64, ok bool) {
	var w, wx, wy, wxx, wxy float64
	sizes := map[int]bool{}
	for _, r := range rows {
		if r.US <= 0 {
			continue
		}
		sizes[r.Bytes] = true
		x, k := float64(r.Bytes), 1/(r.US*r.US)
		w, wx, wy, wxx, wxy = w+k, wx+k*x, wy+k*r.US, wxx+k*x*x, wxy+k*x*r.US
	}
	if len(sizes) < 2 {
		return 0, 0, false
	}
	perByte = (w*wxy - wx*wy) / (w*wxx - wx*wx)
	latency = (wy - perByte*wx) / w
	switch {
	case perByte < 0:
		return wy / w, 0, true
	case latency < 0:
		return 0, wxy / wxx, true
	}
	return latency, perByte, true
}

// writeSeries prints the rows of one operation by one algorithm.
func writeSeries(out io.Writer, rows []benchRow) {
	if len(rows) == 0 {
		return
	}
	r := rows[0]
	fmt.Fprintf(out, "%s, %s, %s", r.Op, viz.Counted(r.Ranks, "rank"), r.Backend)
	if r.Device != "cpu" {
		fmt.Fprintf(out, " on %s", r.Device)
	}
	if r.Compute > 0 {
		fmt.Fprintf(out, ", %g µs of computation between calls", r.Compute)
	}
	switch {
	case r.Rate > 0:
		fmt.Fprintf(out, "; theory T = %.3g µs + bytes / (%.3g GB/s)", r.Latency, r.Rate)
	case r.FitUS > 0:
		fmt.Fprintf(out, "; theory T = %.3g µs: more bytes took no longer", r.Latency)
	case len(rows) > 1 && rows[0].Bytes != rows[1].Bytes:
		fmt.Fprint(out, "; no line fits T")
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "BYTES\tALGORITHM\tµs\tMIN\tMAX\tALGBW\tBUSBW\tREFERENCE\tOF IT\tTHEORY\tT/THEORY\tRIGHT\t")
	for _, r := range rows {
		reference, of := "", ""
		if r.Reference > 0 && r.Bytes > 0 {
			reference, of = gb(r.Reference), fmt.Sprintf("%.0f%%", 100*r.BusBW/r.Reference)
		}
		theory, ratio := "", ""
		if r.FitUS > 0 {
			theory, ratio = us(r.FitUS), fmt.Sprintf("%.2f", r.US/r.FitUS)
		}
		right := "yes"
		if !r.Correct {
			right = "NO"
		}
		fmt.Fprintln(t, strings.Join([]string{fmt.Sprint(r.Bytes), r.Algo, us(r.US), us(r.MinUS), us(r.MaxUS), gb(r.AlgBW), gb(r.BusBW),
			reference, of, theory, ratio, right}, "\t")+"\t")
	}
	_ = t.Flush() // errors are ignored, as with other prints
	fmt.Fprintln(out)
}

// us and gb write numbers with three digits.
func us(x float64) string {
	if x >= 100 || x <= -100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func gb(x float64) string { return fmt.Sprintf("%.2f", x) }
