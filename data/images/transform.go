package images

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// Transform changes an image. Write your own for what is not here.
type Transform interface {
	// Transform changes the pixels of an image [3, height, width], red, green and blue in [0, 1]. Numbers by chance are those of r: they
	// depend on Config.Seed, the epoch, and the number of the image.
	Transform(pixels []float32, height, width int, r *rand.Rand)
}

// RandomHorizontalFlip mirrors every other image.
type RandomHorizontalFlip struct{}

// Transform mirrors the image, or not.
func (RandomHorizontalFlip) Transform(pixels []float32, _, width int, r *rand.Rand) {
	if r.IntN(2) == 1 {
		for row := range slices.Chunk(pixels, width) {
			slices.Reverse(row)
		}
	}
}

// RandomRotation turns the image around its middle by up to so many degrees in both directions. What comes into view is black. A pixel
// becomes the nearest one, as in torchvision.
type RandomRotation struct{ Degrees float64 }

// Transform turns the image.
func (t RandomRotation) Transform(pixels []float32, height, width int, r *rand.Rand) {
	rotate(pixels, height, width, t.Degrees*between(r))
}

// between returns a number from -1 to 1.
func between(r *rand.Rand) float64 { return 2 * (float64(r.Float64()) - 0.5) }

// rotate turns counterclockwise.
func rotate(pixels []float32, height, width int, degrees float64) {
	before, area := slices.Clone(pixels), height*width
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	midX, midY := float64(float64(width-1)/2), float64(float64(height-1)/2)
	for i := range area {
		x, y := float64(i%width)-midX, float64(i/width)-midY
		fx := math.RoundToEven(float64(cos*x) - float64(sin*y) + midX)
		fy := math.RoundToEven(float64(sin*x) + float64(cos*y) + midY)
		inside := fx >= 0 && fx < float64(width) && fy >= 0 && fy < float64(height)
		for c := range 3 {
			pixels[c*area+i] = 0
			if inside {
				pixels[c*area+i] = before[c*area+int(fy)*width+int(fx)]
			}
		}
	}
}

// ColorJitter changes brightness, contrast and saturation by a factor in [1-v, 1+v] each, in an order by chance, as torchvision's does.
type ColorJitter struct{ Brightness, Contrast, Saturation float64 }

// Transform changes the colors.
func (t ColorJitter) Transform(pixels []float32, _, _ int, r *rand.Rand) {
	factors := [3]float32{}
	for i, v := range []float64{t.Brightness, t.Contrast, t.Saturation} {
		factors[i] = float32(max(0, 1+float64(v*between(r))))
	}
	for _, i := range r.Perm(3) {
		[3]func([]float32, float32){brightness, contrast, saturation}[i](pixels, factors[i])
	}
}

func brightness(pixels []float32, factor float32) {
	for i, v := range pixels {
		pixels[i] = min(1, factor*v)
	}
}

func contrast(pixels []float32, factor float32) {
	sum, n := 0.0, len(pixels)/3
	for i := range n {
		sum += float64(gray(pixels, i))
	}
	mean := float32(sum / float64(n))
	for i, v := range pixels {
		pixels[i] = blend(v, mean, factor)
	}
}

func saturation(pixels []float32, factor float32) {
	n := len(pixels) / 3
	for i := range n {
		g := gray(pixels, i)
		for c := range 3 {
			pixels[c*n+i] = blend(pixels[c*n+i], g, factor)
		}
	}
}

// gray is the brightness of a pixel (ITU-R BT.601).
func gray(pixels []float32, i int) float32 {
	n := len(pixels) / 3
	return float32(0.2989*pixels[i]) + float32(0.587*pixels[n+i]) + float32(0.114*pixels[2*n+i])
}

func blend(a, b, factor float32) float32 {
	return min(1, max(0, float32(factor*a)+float32((1-factor)*b)))
}

// Normalize subtracts a mean from each color and divides by a deviation, such as ImageNet's: {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}.
type Normalize struct{ Mean, Std [3]float32 }

// Transform normalizes the colors.
func (t Normalize) Transform(pixels []float32, _, _ int, _ *rand.Rand) {
	n := len(pixels) / 3
	for c := range 3 {
		plane := pixels[c*n:][:n]
		kernel.Affine(plane, plane, 1/t.Std[c], -t.Mean[c]/t.Std[c])
	}
}

// checkTransforms returns an error about a crop or a transform that cannot be.
func (c *Config) checkTransforms() error {
	if c.Crop != nil {
		if err := c.Crop.check(c.Height, c.Width); err != nil {
			return err
		}
	}
	for _, t := range c.Transforms {
		if n, ok := t.(Normalize); ok && !(min(n.Std[0], n.Std[1], n.Std[2]) > 0) {
			return fmt.Errorf("Normalize.Std is %v: want positive numbers", n.Std)
		}
	}
	return nil
}

// augmentKey makes the keys of random transforms: "augment" in ASCII.
const augmentKey = 0x6175676d656e74

// random returns the numbers for an image in an epoch.
func (c *Config) random(epoch, image int) *rand.Rand {
	key := tensor.RandomKey(c.Seed, augmentKey, uint64(epoch))
	return rand.New(rand.NewPCG(tensor.RandomBits(key, uint64(2*image)), tensor.RandomBits(key, uint64(2*image+1))))
}
