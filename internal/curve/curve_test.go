package curve

import (
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A picture has as many panels as there are names; what is not finite, or missing, is no error.
func TestDraw(t *testing.T) {
	long := Series{Name: "loss"}
	for i := range 200 {
		long.Steps, long.Values = append(long.Steps, i+1), append(long.Values, 1/float64(i+1))
	}
	short := Series{"accuracy", []int{100, 200}, []float64{math.NaN(), 0.9}}
	height := map[int]int{}
	for n, all := range [][]Series{nil, {long}, {long, short}, {long, short, {Name: "x", Steps: []int{1}, Values: []float64{math.Inf(1)}}}} {
		file := filepath.Join(t.TempDir(), "p.png")
		require.NoError(t, Draw(file, Run{Series: all}))
		f, err := os.Open(file)
		require.NoError(t, err)
		img, err := png.Decode(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		height[n] = img.Bounds().Dy()
		colors := map[[3]uint32]bool{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				r, g, b, _ := img.At(x, y).RGBA()
				colors[[3]uint32{r >> 8, g >> 8, b >> 8}] = true
			}
		}
		c := Color(0, 1, false)
		require.Equal(t, n > 0, colors[[3]uint32{uint32(c.R), uint32(c.G), uint32(c.B)}], "the mean is drawn")
	}
	require.InDelta(t, height[2]-height[1], height[3]-height[2], 1)
	require.Greater(t, height[2], height[1]+100)
	size := func(n int) (width, height int) {
		var all []Series
		for i := range n {
			all = append(all, Series{Name: fmt.Sprint("v", i), Steps: long.Steps, Values: long.Values})
		}
		file := filepath.Join(t.TempDir(), "p.png")
		require.NoError(t, Draw(file, Run{Series: all}))
		f, err := os.Open(file)
		require.NoError(t, err)
		c, err := png.DecodeConfig(f)
		require.NoError(t, errors.Join(err, f.Close()))
		return c.Width, c.Height
	}
	w6, h6 := size(6)
	for n, like := range map[int]int{7: 4, 8: 4, 12: 6} { // two columns, as high as the longer one
		w, h := size(n)
		_, want := size(like)
		require.InDelta(t, 2*w6, w, 1, n)
		require.Equal(t, want, h, n)
		require.LessOrEqual(t, h, h6)
	}
	svg := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, Draw(svg, Run{Series: []Series{long}}))
	text, err := os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(text), ">loss<")
	require.Error(t, Draw(filepath.Join(t.TempDir(), "none", "p.svg"), Run{Series: []Series{long}}))
}

// Names with an index share a panel, in which each has a row; a cell is the mean of its steps.
func TestHeatMap(t *testing.T) {
	var all []Series
	for i := range 3 {
		s := Series{Name: fmt.Sprintf("load[%d]", i)}
		for step := range 1000 {
			s.Steps, s.Values = append(s.Steps, step+1), append(s.Values, float64(i))
		}
		all = append(all, s)
	}
	all = append(all, Series{"loss", []int{1}, []float64{1}}, Series{"one[0]", []int{1, 2}, []float64{math.NaN(), 2}})
	groups := group(all)
	require.Len(t, groups, 3)
	require.Len(t, groups[0], 3)
	for _, name := range []string{"load", "load[", "load[x]", "load[-1]", "load]"} {
		_, _, ok := index(name)
		require.False(t, ok, name)
	}
	require.Equal(t, []float64{1.5, 3}, means(Series{"x", []int{1, 2, 3, 4}, []float64{1, 2, math.Inf(1), 3}}, 2, 2))
	svg := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, Draw(svg, Run{Series: all}))
	text, err := os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(text), ">load<")
	for _, k := range []int{0, shades / 2, shades - 1} {
		require.Contains(t, string(text), "fill:"+hex(shadeColor(k)), "a row for each value")
	}
}

func hex(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8)
}

// Trainings share the panels of lines and have heat maps of their own, on one scale.
func TestRuns(t *testing.T) {
	var runs []Run
	for i := range 3 {
		s := Series{Name: "loss"}
		load := []Series{{Name: "load[0]", Steps: []int{1, 2}, Values: []float64{float64(i), 1}},
			{Name: "load[1]", Steps: []int{1}, Values: []float64{float64(10*i + 3)}}}
		for step := range few {
			s.Steps, s.Values = append(s.Steps, step+1), append(s.Values, float64(i+step%2))
		}
		runs = append(runs, Run{fmt.Sprintf("run <%d>", i), append(load, s)})
	}
	panels := arrange(append(runs, Run{"short", []Series{{Name: "only", Steps: []int{3}, Values: []float64{1}}}}))
	var got []string
	for _, p := range panels {
		got = append(got, fmt.Sprint(p.name, p.title, p.runs))
	}
	require.Equal(t, []string{"loadrun <0>[0]", "loadrun <1>[1]", "loadrun <2>[2]", "loss[0 1 2]", "only[3]"}, got)
	file := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, Draw(file, runs...))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for i := range runs {
		require.Equal(t, 2, strings.Count(string(text), fmt.Sprintf(">run &lt;%d&gt;<", i)), "in the legend, and over its heat map")
		require.Contains(t, string(text), "stroke:"+hex(Color(i, 3, false)))
		require.Contains(t, string(text), "stroke:"+hex(Color(i, 3, true)))
	}
	require.Equal(t, 3, strings.Count(string(text), ">23<"), "one scale")
}

// The smoothed curve is neither late nor early: over a step it is halfway where the step is.
func TestSmooth(t *testing.T) {
	s := Series{}
	for i := range 201 {
		y := 0.0
		if i > 100 {
			y = 1
		} else if i == 100 {
			y = 0.5
		}
		s.Steps, s.Values = append(s.Steps, i), append(s.Values, y)
	}
	raw, smooth := points(s)
	require.Len(t, raw, 201)
	require.InDelta(t, 0.5, smooth[100].Y, 1e-3)
	for i := range 201 {
		require.InDelta(t, 1-smooth[i].Y, smooth[200-i].Y, 1e-9)
	}
	require.Less(t, smooth[96].Y, 0.45)
	require.Greater(t, smooth[96].Y, 0.05)
}

func TestTicks(t *testing.T) {
	for want, r := range map[string][2]float64{
		"0 100 200 300 400": {0, 400}, "1.72 1.74 1.76 1.78 1.80": {1.72, 1.81}, "-2 -1 0 1 2": {-2.5, 2.4}, "0 1 2 3 4": {0, 4},
		"10000 20000 30000 40000": {9000, 49000},
	} {
		var got []string
		for _, x := range ticks(r[0], r[1]) {
			got = append(got, x.Label)
		}
		require.Equal(t, want, strings.Join(got, " "))
	}
	labels := func(n int) (out []string) {
		for _, x := range wholeTicks(-0.5, float64(n)-0.5) {
			out = append(out, x.Label)
		}
		return out
	}
	require.Equal(t, []string{"0", "1", "2"}, labels(3))
	require.Equal(t, []string{"0", "10", "20", "30", "40", "50", "60"}, labels(64))
}

// In dark mode each color is as light as it was dark, and of the same hue.
func TestNight(t *testing.T) {
	require.Equal(t, "#121212", strings.ToLower(hex(atNight(sheet))))
	for _, c := range []color.RGBA{ink, Dim, Color(0, 3, false), Color(1, 3, false), Color(2, 3, false)} {
		by, at := contrast(c, sheet), contrast(atNight(c), atNight(sheet))
		require.Greater(t, min(by, at), 3.0, "%v: %.1f by day, %.1f at night", c, by, at)
	}
	file := filepath.Join(t.TempDir(), "p.svg")
	require.NoError(t, Draw(file, Run{Series: []Series{{"x", []int{1, 2}, []float64{1, 2}}}}))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), `<style>@media(prefers-color-scheme:dark){`)
	require.Contains(t, string(text), `[style*="fill:#FFFFFF"]{fill:#121212!important}`)
	require.Contains(t, string(text), "font-family:'DejaVu Sans',Verdana,")
	require.NotContains(t, string(text), "#000000", "a color of nobody's choice")
	require.NoError(t, xml.Unmarshal(text, new(struct{})))
}

// What nobody could read is an error at once, and odd numbers are none.
func TestReadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.svg")
	var many, rows []Series
	for i := range 20_000 {
		many = append(many, Series{fmt.Sprint("v", i), []int{1}, []float64{1}})
	}
	for i := range 5000 {
		rows = append(rows, Series{fmt.Sprintf("%d[%d]", i%2, i/2), []int{1}, []float64{1}})
	}
	require.ErrorContains(t, readable(arrange([]Run{{Series: many[:201]}})), "201 panels")
	for want, all := range map[string][]Series{
		"p.svg: 20000 panels are too many for a picture, at most 200: draw fewer": many,
		"1[2499] and its like are too many rows":                                  rows,
		"v[9223372036854775807] and its like":                                     {{"v[9223372036854775807]", []int{1}, []float64{1}}},
	} {
		require.ErrorContains(t, Draw(file, Run{Series: all}), want)
		require.NoFileExists(t, file)
	}
	require.NoError(t, readable(arrange([]Run{{Series: many[:200]}})))
	require.NoError(t, readable(arrange([]Run{{Series: rows[:4096]}})))
	odd := []float64{1e18, 1e18 + 128}
	require.NoError(t, Draw(file, Run{Series: []Series{{"far", []int{1, 2}, odd}, {"v[0]", []int{-5, 1 << 62}, odd},
		{"wide", []int{1, 2}, []float64{-math.MaxFloat64, math.MaxFloat64}}, {"tiny", []int{1, 2}, []float64{5e-324, 1e-323}}}}))
	require.LessOrEqual(t, len(ticks(odd[0], odd[1])), 20)
}
