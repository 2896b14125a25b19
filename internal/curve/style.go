package curve

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"codeberg.org/go-fonts/dejavu/dejavusans"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	_ "gonum.org/v1/plot/vg/vgimg" // .png
	_ "gonum.org/v1/plot/vg/vgpdf"
	_ "gonum.org/v1/plot/vg/vgsvg"
)

// The colors of a picture by day.
var (
	ink   = color.RGBA{R: 0x24, G: 0x29, B: 0x2f, A: 0xff}
	Dim   = color.RGBA{R: 0x57, G: 0x60, B: 0x6a, A: 0xff} // of what is said in passing
	axis  = color.RGBA{R: 0x8c, G: 0x95, B: 0x9f, A: 0xff}
	grid  = color.RGBA{R: 0xd0, G: 0xd7, B: 0xde, A: 0xff}
	sheet = color.RGBA{R: 0xff, G: 0xff, B: 0xff, A: 0xff}
)

// Color is that of thing k of n, with the hues of `ringo viz`: strong for what the eye should follow, pale beside it.
func Color(k, n int, pale bool) color.RGBA {
	hue := 210 + 360*float64(k)/float64(max(n, 1))
	if pale {
		return hsl(hue, 0.7, 0.78)
	}
	return Shade(k, n, 0, 1)
}

// Shade is the Color of thing k of n, the darker the larger i of m is.
func Shade(k, n, i, m int) color.RGBA {
	hue, light := 210+360*float64(k)/float64(max(n, 1)), 0.42
	for contrast(hsl(hue, 0.7, light), sheet) < 3.2 { // greens are bright
		light -= 0.02
	}
	return hsl(hue, 0.7, light*(1-0.6*float64(i)/float64(max(m-1, 1))))
}

// contrast is that of WCAG 2.
func contrast(a, b color.RGBA) float64 {
	light := func(c color.RGBA) float64 {
		part := func(x uint8) float64 {
			if s := float64(x) / 255; s > 0.04045 {
				return math.Pow((s+0.055)/1.055, 2.4)
			}
			return float64(x) / 255 / 12.92
		}
		return 0.2126*part(c.R) + 0.7152*part(c.G) + 0.0722*part(c.B)
	}
	x, y := light(a)+0.05, light(b)+0.05
	return max(x, y) / min(x, y)
}

// hsl is a color of CSS: hue in degrees, saturation and lightness from 0 to 1.
func hsl(h, s, l float64) color.RGBA {
	part := func(n float64) uint8 {
		k := math.Mod(n+h/30, 12)
		return uint8(math.Round(255 * (l - s*min(l, 1-l)*max(-1, min(k-3, 9-k, 1)))))
	}
	return color.RGBA{R: part(0), G: part(8), B: part(4), A: 0xff}
}

// atNight is a color in dark mode: as light as it was dark, and of the same hue.
func atNight(c color.RGBA) color.RGBA {
	r, g, b := float64(c.R)/255, float64(c.G)/255, float64(c.B)/255
	most, least := max(r, g, b), min(r, g, b)
	l, d, h, s := (most+least)/2, most-least, 0.0, 0.0
	if d > 0 {
		s = d / (1 - math.Abs(2*l-1))
		switch most {
		case r:
			h = 60 * (g - b) / d
		case g:
			h = 60*(b-r)/d + 120
		default:
			h = 60*(r-g)/d + 240
		}
	}
	return hsl(h+360, s, 1.04-0.97*l) // white becomes nearly black: on black, colors swim
}

// fonts has DejaVu Sans, whose measures Verdana shares.
var fonts = sync.OnceValue(func() text.Handler {
	face, err := opentype.Parse(dejavusans.TTF)
	if err != nil {
		panic(err) // it is part of the program
	}
	return text.Plain{Fonts: font.NewCache(font.Collection{{Font: font.Font{Typeface: "DejaVu Sans"}, Face: face}})}
})

// write sets the font, the size in points and the color of a text.
func write(s *text.Style, size float64, c color.Color) {
	s.Handler, s.Color = fonts(), c
	s.Font = font.From(font.Font{Typeface: "DejaVu Sans"}, vg.Points(size))
}

// NewPlot returns a panel with our font and colors, and a grid.
func NewPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor, p.TextHandler = nil, fonts()
	write(&p.Title.TextStyle, 10, ink)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		write(&a.Label.TextStyle, 9, ink)
		write(&a.Tick.Label, 8, Dim)
		a.LineStyle.Color, a.Tick.LineStyle.Color = axis, axis
		a.Tick.Marker = plot.TickerFunc(ticks)
	}
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = grid, grid
	p.Add(g)
	return p
}

// ticks are round numbers, four to eight of them, with as many digits as it takes to tell them apart.
func ticks(lo, hi float64) (list []plot.Tick) {
	size := math.Pow(10, math.Floor(math.Log10((hi-lo)/4)))
	step := size
	for _, k := range []float64{2, 5} {
		if k*size <= (hi-lo)/4 {
			step = k * size
		}
	}
	digits := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	first := math.Ceil(lo/step - 1e-9)
	for k := range 20 { // far from zero, numbers may have no neighbours so near
		at := (first+float64(k))*step + 0 // no -0
		if !(at <= hi+1e-9*step) {
			break
		}
		list = append(list, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'f', digits, 64)})
	}
	return list
}

// NewLegend returns a legend with our font, from the upper left corner on.
func NewLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left, l.Padding = true, true, vg.Points(2)
	write(&l.TextStyle, 8.5, ink)
	return l
}

// Save writes a picture, of the kind of the file's name: .svg, .png or .pdf. An SVG has other colors in dark mode.
func Save(file string, width, height vg.Length, paint func(c draw.Canvas) error) error {
	canvas, err := draw.NewFormattedCanvas(width, height, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return err
	}
	c := draw.New(canvas)
	c.SetColor(sheet)
	c.Fill(c.Rectangle.Path())
	if err := paint(c); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	data := b.Bytes()
	if filepath.Ext(file) == ".svg" {
		data = withNight(data)
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

var (
	painted = regexp.MustCompile(`(fill|stroke):#([0-9A-F]{6})`)
	opening = regexp.MustCompile(`<svg [^>]*>`)
)

// withNight adds rules for dark mode to an SVG, and fonts for readers that do not have ours.
func withNight(svg []byte) []byte {
	svg = bytes.ReplaceAll(svg, []byte("font-family:DejaVu Sans;"), []byte("font-family:'DejaVu Sans',Verdana,Helvetica,sans-serif;"))
	rules := map[string]bool{}
	for _, m := range painted.FindAllSubmatch(svg, -1) {
		n, _ := strconv.ParseUint(string(m[2]), 16, 32) // six digits
		c := atNight(color.RGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n)})
		rules[fmt.Sprintf(`[style*="%s"]{%s:#%02x%02x%02x!important}`, m[0], m[1], c.R, c.G, c.B)] = true
	}
	sorted := make([]string, 0, len(rules))
	for rule := range rules {
		sorted = append(sorted, rule)
	}
	slices.Sort(sorted)
	style := "\n<style>@media(prefers-color-scheme:dark){" + strings.Join(sorted, "") + "}</style>"
	at := opening.FindIndex(svg)
	return slices.Concat(svg[:at[1]], []byte(style), svg[at[1]:])
}
