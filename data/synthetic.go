package data

import (
	"fmt"
	"math"
	"sync"

	"github.com/ringo-ml/ringo/tensor"
)

const (
	synthSide    = 28
	synthClasses = 10
	synthKey     = 0x73796e7468 // "synth"
)

// Synthetic makes n images of MNIST's shape (784 pixels, labels 0 to 9), as float32 or float64. A network can learn them; they are for
// tests and for machines without the real data. Each class is a fixed pattern of three bright spots. An image is the pattern of its class,
// moved by up to two pixels, dimmed and with noise. The patterns do not depend on seed, so sets of different seeds can be training and test
// data of the same problem. Equal arguments give equal images.
func Synthetic(n int, seed uint64, dtype tensor.DType) (*Images, error) {
	if n <= 0 {
		return nil, fmt.Errorf("data: %d synthetic images", n)
	}
	const size = synthSide * synthSide
	pixels, labels := make([]byte, n*size), make([]byte, n)
	var wg sync.WaitGroup
	for class := range synthClasses {
		wg.Go(func() {
			p := pattern{class: class}
			for i := class; i < n; i += synthClasses {
				labels[i] = byte(class)
				p.draw(pixels[i*size:(i+1)*size], &stream{key: tensor.RandomKey(seed, synthKey, uint64(i))})
			}
		})
	}
	wg.Wait()
	return newImages(fmt.Sprintf("Synthetic(seed %d)", seed), dtype, size, pixels, labels)
}

// stream returns the random numbers of one key, one after the other.
type stream struct{ key, n uint64 }

// next returns a number in [0, 1).
func (r *stream) next() float64 {
	r.n++
	return float64(tensor.RandomBits(r.key, r.n)>>11) * 0x1p-53
}

// pattern is the three bright spots of a class. The image for each place that they are moved to is drawn once.
type pattern struct {
	class int
	at    [5][5][]float64
}

// moved returns the pattern moved by dx and dy, -2 to 2.
func (p *pattern) moved(dx, dy float64) []float64 {
	at := &p.at[int(dx)+2][int(dy)+2]
	if *at != nil {
		return *at
	}
	var spots [3][2]float64
	r := stream{key: tensor.RandomKey(uint64(p.class), synthKey)}
	for i := range spots {
		spots[i] = [2]float64{5 + float64(18*r.next()) + dx, 5 + float64(18*r.next()) + dy}
	}
	for y := range synthSide {
		for x := range synthSide {
			v := 0.0
			for _, s := range spots {
				u, w := float64(x)-s[0], float64(y)-s[1]
				v += 1 / (1 + (float64(u*u)+float64(w*w))/6) // not math.Exp, whose last bit differs between processors
			}
			*at = append(*at, v)
		}
	}
	return *at
}

// draw makes an image from random numbers.
func (p *pattern) draw(img []byte, r *stream) {
	// The conversions prevent fused multiply-adds, which round differently.
	dx, dy := math.Floor(5*r.next())-2, math.Floor(5*r.next())-2
	gain := 0.6 + float64(0.4*r.next())
	for i, v := range p.moved(dx, dy) {
		v = float64(gain*v) + float64(0.25*r.next())
		img[i] = byte(min(255*v, 255))
	}
}
