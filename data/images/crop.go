package images

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Crop chooses the part of an image that becomes Height x Width pixels: RandomResizedCrop or CenterCrop.
type Crop interface {
	// spans returns what of an upright image of height x width becomes h x w.
	spans(height, width, h, w int, r *rand.Rand) (down, right span)
	check(h, w int) error
}

// span is a part of an axis: from pixels, from the first one on, are scaled to some; those from `at` on are taken.
type span struct{ first, from, to, at int }

// weights returns those of n pixels.
func (s span) weights(n int) []weights {
	all := bilinear(s.from, s.to, s.at, n)
	for i := range all {
		all[i].first += s.first
	}
	return all
}

// reversed is the same part of an axis of so many pixels, seen from its end, for n pixels.
func (s span) reversed(pixels, n int) span {
	return span{pixels - s.first - s.from, s.from, s.to, s.to - s.at - n}
}

// RandomResizedCrop takes a part of between 0.08 and all of the image's area, of a shape between 3:4 and 4:3, as torchvision's does.
type RandomResizedCrop struct{}

func (RandomResizedCrop) check(_, _ int) error { return nil }

func (RandomResizedCrop) spans(height, width, h, w int, r *rand.Rand) (down, right span) {
	const least, ratio, tries = 0.08, 4.0 / 3, 10
	for range tries {
		area := float64(height*width) * (least + float64((1-least)*r.Float64()))
		aspect := math.Exp(math.Log(ratio) * between(r))
		cw, ch := int(math.Round(math.Sqrt(area*aspect))), int(math.Round(math.Sqrt(area/aspect)))
		if cw > 0 && cw <= width && ch > 0 && ch <= height {
			return span{r.IntN(height - ch + 1), ch, h, 0}, span{r.IntN(width - cw + 1), cw, w, 0}
		}
	}
	ch := max(min(height, int(math.Round(float64(width)*ratio))), 1) // the middle of a narrow image
	cw := max(min(width, int(math.Round(float64(height)*ratio))), 1)
	return span{(height - ch) / 2, ch, h, 0}, span{(width - cw) / 2, cw, w, 0}
}

// CenterCrop scales the shorter side of the image to Resize pixels, and takes the middle, as torchvision's Resize and CenterCrop do.
type CenterCrop struct{ Resize int }

func (c CenterCrop) check(h, w int) error {
	if c.Resize < max(h, w) || c.Resize > maxSide {
		return fmt.Errorf("CenterCrop.Resize is %d: want %d to %d for %d x %d pixels", c.Resize, max(h, w), maxSide, h, w)
	}
	return nil
}

func (c CenterCrop) spans(height, width, h, w int, _ *rand.Rand) (down, right span) {
	axis := func(from, other, n int) span {
		to := max(c.Resize, c.Resize*from/other)
		return span{0, from, to, int(math.RoundToEven(float64(to-n) / 2))}
	}
	return axis(height, min(height, width), h), axis(width, min(height, width), w)
}
