package images

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
)

// torchvision is what version 0.29 makes of the image of TestTorchvision.
var torchvision = map[string][]float32{
	"adjust_brightness(x, 1.3)": {
		0.223437, 0.975, 0.426562, 1, 0.629687, 0.08125, 0.832812, 0.284375,
		1, 0.4875, 1, 0.690625, 0.142187, 0.89375, 0.345312,
		1, 0.548437, 0, 0.751562, 0.203125, 0.954687, 0.40625, 1, 0.609375, 0.0609375, 0.8125, 0.264062, 1, 0.467187, 1,
		0.670312, 0.121875, 0.873437, 0.325, 1, 0.528125, 1, 0.73125,
		0.182812, 0.934375, 0.385937, 1, 0.589062, 0.040625, 0.792187,
	},
	"adjust_contrast(x, 0.6)": {
		0.29897, 0.645845, 0.39272, 0.739595, 0.48647, 0.233345, 0.58022, 0.327095,
		0.67397, 0.420845, 0.76772, 0.514595, 0.26147, 0.608345, 0.35522,
		0.702095, 0.44897, 0.195845, 0.54272, 0.289595, 0.63647, 0.383345, 0.73022,
		0.477095, 0.22397, 0.570845, 0.31772, 0.664595, 0.41147, 0.758345,
		0.50522, 0.252095, 0.59897, 0.345845, 0.69272, 0.439595, 0.78647, 0.533345,
		0.28022, 0.627095, 0.37397, 0.720845, 0.46772, 0.214595, 0.56147,
	},
	"adjust_saturation(x, 1.7)": {
		0, 0.937248, 0.435543, 1, 0.591804, 0, 0.748065, 0, 0.984126, 0.482422, 1, 0.638683, 0, 0.874743, 0,
		1, 0.379435, 0, 0.535696, 0.0339917, 0.901187, 0.190253, 1, 0.426314, 0, 0.582575, 0.08087, 0.948065, 0.316931, 1,
		0.452757, 0, 1, 0, 1, 0.343375, 1, 0.499636, 0, 1, 0.024762, 1, 0.390253, 0, 0.546514,
	},
	"rotate(x, 30)": {
		0, 0.328125, 0.328125, 0.796875, 0.375, 0.171875, 0.75, 0.21875,
		0.6875, 0.265625, 0.0625, 0.640625, 0.109375, 0.109375, 0,
		0, 0, 0, 0.46875, 0.046875, 0.84375, 0.421875, 0.890625, 0.359375, 0.9375, 0.734375, 0.3125, 0.78125, 0.78125, 0,
		0, 0.671875, 0.671875, 0.140625, 0.71875, 0.515625, 0.09375, 0.5625,
		0.03125, 0.609375, 0.40625, 0.984375, 0.453125, 0.453125, 0,
	},
	"normalize(x, [.5, .4, .3], [.2, .3, .4])": {
		-1.64062, 1.25, -0.859375, 2.03125, -0.078125, -2.1875, 0.703125, -1.40625,
		1.48438, -0.625, 2.26562, 0.15625, -1.95312, 0.9375, -1.17188,
		1.47917, 0.0729166, -1.33333, 0.59375, -0.8125, 1.11458, -0.291667, 1.63542,
		0.229167, -1.17708, 0.75, -0.65625, 1.27083, -0.135417, 1.79167,
		0.539062, -0.515625, 0.929687, -0.125, 1.32031, 0.265625, 1.71094, 0.65625,
		-0.398438, 1.04688, -0.00781253, 1.4375, 0.382812, -0.671875, 0.773437,
	},
	"hflip(x)": {
		0.484375, 0.90625, 0.328125, 0.75, 0.171875, 0.375, 0.796875, 0.21875,
		0.640625, 0.0625, 0.265625, 0.6875, 0.109375, 0.53125, 0.953125,
		0.15625, 0.578125, 0, 0.421875, 0.84375, 0.046875, 0.46875, 0.890625,
		0.3125, 0.734375, 0.9375, 0.359375, 0.78125, 0.203125, 0.625,
		0.828125, 0.25, 0.671875, 0.09375, 0.515625, 0.71875, 0.140625, 0.5625,
		0.984375, 0.40625, 0.609375, 0.03125, 0.453125, 0.875, 0.296875,
	},
}

func TestTorchvision(t *testing.T) {
	const h, w = 3, 5
	mean, std := [3]float32{.5, .4, .3}, [3]float32{.2, .3, .4}
	flip := func(x []float32) {
		first := x[0]
		for r := rand.New(rand.NewPCG(1, 1)); x[0] == first; {
			RandomHorizontalFlip{}.Transform(x, h, w, r)
		}
	}
	for name, f := range map[string]func(x []float32){
		"adjust_brightness(x, 1.3)":                func(x []float32) { brightness(x, 1.3) },
		"adjust_contrast(x, 0.6)":                  func(x []float32) { contrast(x, 0.6) },
		"adjust_saturation(x, 1.7)":                func(x []float32) { saturation(x, 1.7) },
		"rotate(x, 30)":                            func(x []float32) { rotate(x, h, w, 30) },
		"normalize(x, [.5, .4, .3], [.2, .3, .4])": func(x []float32) { Normalize{mean, std}.Transform(x, h, w, nil) },
		"hflip(x)": flip,
	} {
		x := make([]float32, 3*h*w)
		for i := range x {
			x[i] = float32((i*37+11)%64) / 64
		}
		f(x)
		assert.InDeltaSlice(t, torchvision[name], x, 2e-5, name)
	}
}

// CenterCrop takes the middle of the scaled image.
func TestCenterCrop(t *testing.T) {
	content := encode(t, ".png", picture(9, 7, 3))
	whole, part := make([]float32, 3*5*6), make([]float32, 3*3*2) // 7 x 9 scaled to 5 x 6
	require.NoError(t, decode(content, 5, 6, nil, whole, alone()))
	crop := func(height, width int) (down, right span) { return CenterCrop{5}.spans(height, width, 3, 2, nil) }
	require.NoError(t, decode(content, 3, 2, crop, part, alone()))
	for i := range part {
		c, y, x := i/6, i/2%3, i%2
		assert.Equal(t, whole[c*30+(y+1)*6+x+2], part[i])
	}
}

// The part is chosen in the upright image, however the file is turned.
func TestCropOfTurned(t *testing.T) {
	img := picture(8, 8, 1)
	plain := encode(t, ".png", img)
	box := func(int, int) (down, right span) { return span{1, 4, 4, 0}, span{3, 5, 5, 0} }
	for orientation := uint16(1); orientation <= 8; orientation++ {
		content := append(plain[:33:33], chunk("eXIf", exif(binary.LittleEndian, "II*\x00", orientation))...)
		content = append(content, plain[33:]...)
		whole, part := make([]float32, 3*8*8), make([]float32, 3*4*5)
		require.NoError(t, decode(content, 8, 8, nil, whole, alone()))
		require.NoError(t, decode(content, 4, 5, box, part, alone()))
		for i := range part {
			c, y, x := i/20, i/5%4, i%5
			require.Equal(t, whole[c*64+(y+1)*8+x+3], part[i], "orientation %d", orientation)
		}
	}
}

// Parts have at least the area and the shapes of torchvision's defaults, differ, and lie inside.
func TestRandomResizedCrop(t *testing.T) {
	r, seen := rand.New(rand.NewPCG(1, 2)), map[[2]span]bool{}
	for range 500 {
		d, a := RandomResizedCrop{}.spans(90, 120, 5, 6, r)
		area, shape := float64(d.from*a.from)/(90*120), float64(a.from)/float64(d.from)
		assert.True(t, area > 0.07 && area <= 1 && shape > 0.7 && shape < 1.4, "%v %v", d, a)
		assert.True(t, d.first >= 0 && d.first+d.from <= 90 && a.first >= 0 && a.first+a.from <= 120)
		assert.Equal(t, [4]int{5, 6, 0, 0}, [4]int{d.to, a.to, d.at, a.at})
		seen[[2]span{d, a}] = true
	}
	assert.Greater(t, len(seen), 450)
	d, a := RandomResizedCrop{}.spans(1, 1000, 5, 6, r) // no part fits
	assert.Equal(t, [2]span{{0, 1, 5, 0}, {499, 1, 6, 0}}, [2]span{d, a})
}

func augmented(t *testing.T, seed uint64) *Folder {
	t.Helper()
	files := map[string][]byte{}
	for i, name := range []string{"a/1.png", "a/2.png", "a/3.png", "b/1.png", "b/2.png"} {
		files[name] = encode(t, ".png", picture(20, 16, i))
	}
	f, err := Open(write(t, files), Config{Height: 7, Width: 6, Seed: seed, Crop: RandomResizedCrop{}, Transforms: []Transform{
		RandomHorizontalFlip{}, RandomRotation{20}, ColorJitter{0.4, 0.4, 0.4}, Normalize{[3]float32{.5, .5, .5}, [3]float32{.5, .5, .5}}}})
	require.NoError(t, err)
	return f
}

// Images are the same on any number of ranks, in any order, and other ones in each epoch and with another seed.
func TestAugmentedOnRanks(t *testing.T) {
	f := augmented(t, 1)
	read := func(f *Folder, ranks, epoch int, shuffle bool) map[int][]float64 {
		images := map[int][]float64{}
		for n := range ranks {
			l := data.NewLoader(f, data.Config{Batch: 3, Shuffle: shuffle, Sharder: rank{n, ranks}})
			for _, b := range l.Epoch(t.Context(), epoch) {
				x := tensor.Floats(b.X)
				for row, i := range b.Samples[b.First : b.First+b.Rows] {
					images[i] = x[row*126 : (row+1)*126]
				}
			}
			require.NoError(t, l.Err())
		}
		return images
	}
	want := read(f, 1, 1, false)
	require.Len(t, want, 5)
	for _, ranks := range []int{1, 2, 3} {
		assert.Equal(t, want, read(f, ranks, 1, true))
	}
	for i := range 5 {
		assert.NotEqual(t, want[i], read(f, 1, 2, false)[i])
		assert.NotEqual(t, want[i], read(augmented(t, 2), 1, 1, false)[i])
	}
	labels, err := data.Labels(f)
	require.NoError(t, err)
	assert.Equal(t, []int{0, 0, 0, 1, 1}, labels)
}

func TestBadTransforms(t *testing.T) {
	dir := write(t, map[string][]byte{"a/1.png": encode(t, ".png", picture(2, 2, 1))})
	zero := []Transform{Normalize{Std: [3]float32{1, 0, 1}}}
	for want, c := range map[string]Config{
		"data/images: Config: CenterCrop.Resize is 0: want 5 to 16384 for 4 x 5 pixels": {Crop: CenterCrop{}},
		"data/images: Config: CenterCrop.Resize is 4: want 5 to 16384 for 4 x 5 pixels": {Crop: CenterCrop{4}},
		"data/images: Config: Normalize.Std is [1 0 1]: want positive numbers":          {Transforms: zero},
	} {
		c.Height, c.Width = 4, 5
		_, err := Open(dir, c)
		assert.EqualError(t, err, want)
	}
}

// A damaged image is left out, and counted.
func TestReadable(t *testing.T) {
	f := augmented(t, 1)
	require.NoError(t, os.WriteFile(f.File(3), []byte("damaged"), 0o666))
	set, skipped, err := data.Readable(f)
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2, 4}, set.Indices)
	assert.Equal(t, 1, skipped.Count)
	assert.ErrorContains(t, skipped.First, f.File(3))
}
