package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"

	"golang.org/x/image/draw"
	"golang.org/x/sync/semaphore"

	_ "image/gif" // formats of image.Decode
	_ "image/jpeg"
	_ "image/png"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Limits for an image. Its header is checked before memory for its pixels is allocated.
const (
	maxBytes  = 1 << 28 // of a file
	maxPixels = 1 << 26 // more than the largest cameras have
	maxSide   = 1 << 14 // of each side: the scaler allocates a row of the result for each row of the image
)

// decode writes an image as [3, h, w], with values in [0, 1]. A panic of a decoder is an error. What the image takes beyond
// the memory that its bytes justify, it takes from shared, and waits for others.
func decode(content []byte, h, w int, out []float32, shared *semaphore.Weighted) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the decoder panicked: %v", r)
		}
	}()
	head, format, err := image.DecodeConfig(bytes.NewReader(content))
	switch {
	case errors.Is(err, image.ErrFormat):
		return bounded.Explain(errors.New("neither PNG, JPEG, GIF, BMP, TIFF nor WebP"), content)
	case err != nil:
		return fmt.Errorf("the header: %w", err)
	case head.Width < 1 || head.Height < 1:
		return fmt.Errorf("%s of %d x %d pixels", format, head.Width, head.Height)
	case head.Width > maxSide || head.Height > maxSide || head.Width*head.Height > maxPixels:
		return fmt.Errorf("%s of %d x %d pixels: want at most %d a side, and %d in all", format, head.Width, head.Height, maxSide, maxPixels)
	}
	memory, err := memoryOf(content, format, head, h, w)
	if err == nil {
		err = bounded.New(int64(len(content))).Take(memory)
	}
	if err != nil {
		return fmt.Errorf("%s of %d x %d pixels: %w; make it smaller", format, head.Width, head.Height, err)
	}
	if beyond := memory - bounded.PerByte*int64(len(content)); beyond > 0 {
		if err := shared.Acquire(context.Background(), beyond); err != nil {
			return err
		}
		defer shared.Release(beyond)
	}
	img, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", format, err)
	}
	canvas := image.Rect(0, 0, head.Width, head.Height)
	if !img.Bounds().In(canvas) {
		return fmt.Errorf("%s: the header says %v, the image has %v", format, canvas, img.Bounds())
	}
	if img, err = opaque(img); err != nil {
		return fmt.Errorf("%s: %w", format, err)
	}
	if _, slow := img.(*image.Paletted); slow || img.Bounds() != canvas { // to the scaler; or a frame of a GIF
		whole := image.NewRGBA(canvas)
		draw.Draw(whole, img.Bounds(), img, img.Bounds().Min, draw.Src)
		img = whole
	}
	colors := image.NewRGBA(image.Rect(0, 0, w, h))
	if img.Bounds() == colors.Rect {
		draw.Draw(colors, colors.Rect, img, image.Point{}, draw.Src)
	} else {
		draw.BiLinear.Scale(colors, colors.Rect, img, canvas, draw.Src, nil)
	}
	for i := range h * w {
		for c := range 3 {
			out[c*h*w+i] = float32(colors.Pix[4*i+c]) / 255
		}
	}
	return nil
}

// opaque removes an image's transparency, as PyTorch's loader does. It changes the image, because a copy takes as much memory.
func opaque(img image.Image) (image.Image, error) {
	switch p := img.(type) {
	case *image.Gray, *image.Gray16, *image.YCbCr, *image.CMYK:
		return img, nil
	case *image.NYCbCrA:
		return &p.YCbCr, nil
	case *image.NRGBA:
		for i := 3; i < len(p.Pix); i += 4 {
			p.Pix[i] = 255
		}
		return p, nil
	case *image.NRGBA64:
		for i := 6; i < len(p.Pix); i += 8 {
			p.Pix[i], p.Pix[i+1] = 255, 255
		}
		return p, nil
	case *image.Paletted:
		for i, c := range p.Palette {
			p.Palette[i] = withoutAlpha(c)
		}
		return p, nil
	case draw.Image: // *image.RGBA, *image.RGBA64
		if o, ok := img.(interface{ Opaque() bool }); ok && o.Opaque() {
			return p, nil
		}
		for y := p.Bounds().Min.Y; y < p.Bounds().Max.Y; y++ {
			for x := p.Bounds().Min.X; x < p.Bounds().Max.X; x++ {
				p.Set(x, y, withoutAlpha(p.At(x, y)))
			}
		}
		return p, nil
	}
	return nil, fmt.Errorf("%T is no image of a file", img)
}

func withoutAlpha(c color.Color) color.Color {
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	n.A = 255
	return n
}
