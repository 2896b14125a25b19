package images

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"

	"golang.org/x/image/draw"

	_ "image/gif" // formats of image.Decode
	_ "image/jpeg"
	_ "image/png"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"
)

// Limits for an image. Its header is checked before memory for its pixels is allocated.
const (
	maxBytes  = 1 << 28 // of a file
	maxPixels = 1 << 26 // more than the largest cameras have
	maxSide   = 1 << 14 // of each side: the scaler allocates a row of the result for each row of the image
)

// decode writes an image as [3, h, w], with values in [0, 1]. A panic of a decoder is an error.
func decode(content []byte, h, w int, out []float32) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the decoder panicked: %v", r)
		}
	}()
	head, format, err := image.DecodeConfig(bytes.NewReader(content))
	switch {
	case errors.Is(err, image.ErrFormat):
		return errors.New("neither PNG, JPEG, GIF, BMP, TIFF nor WebP")
	case err != nil:
		return fmt.Errorf("the header: %w", err)
	case head.Width < 1 || head.Height < 1:
		return fmt.Errorf("%s of %d x %d pixels", format, head.Width, head.Height)
	case head.Width > maxSide || head.Height > maxSide || head.Width*head.Height > maxPixels:
		return fmt.Errorf("%s of %d x %d pixels: want at most %d a side, and %d in all", format, head.Width, head.Height, maxSide, maxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", format, err)
	}
	canvas := image.Rect(0, 0, head.Width, head.Height)
	if !img.Bounds().In(canvas) {
		return fmt.Errorf("%s: the header says %v, the image has %v", format, canvas, img.Bounds())
	}
	colors := opaque(img, canvas)
	if head.Height != h || head.Width != w {
		scaled := image.NewRGBA(image.Rect(0, 0, w, h))
		draw.BiLinear.Scale(scaled, scaled.Rect, colors, colors.Rect, draw.Src, nil)
		colors = scaled
	}
	for i := range h * w {
		for c := range 3 {
			out[c*h*w+i] = float32(colors.Pix[4*i+c]) / 255
		}
	}
	return nil
}

// opaque returns the colors of an image without its transparency, as PyTorch's loader does. A frame of a GIF may be smaller than the
// canvas.
func opaque(img image.Image, canvas image.Rectangle) *image.RGBA {
	out := image.NewRGBA(canvas)
	draw.Draw(out, img.Bounds(), img, img.Bounds().Min, draw.Src)
	if o, ok := img.(interface{ Opaque() bool }); ok && o.Opaque() {
		return out
	}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			out.SetRGBA(x, y, color.RGBA{R: c.R, G: c.G, B: c.B, A: 255})
		}
	}
	return out
}
