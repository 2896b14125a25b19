package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/sync/semaphore"

	_ "image/gif" // formats of image.Decode

	_ "golang.org/x/image/webp"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Limits for an image. Its header is checked before memory for its pixels is allocated.
const (
	maxBytes  = 1 << 28 // of a file
	maxPixels = 1 << 26 // more than the largest cameras have
	maxSide   = 1 << 14 // of each side
)

// wayOut ends an error about a file that is right, but not read.
const wayOut = ": convert it to PNG, such as with ImageMagick: magick FILE FILE.png"

// cropFunc returns what of an upright image is taken; nil: all of it.
type cropFunc func(height, width int) (down, right span)

// reading is how images are read: with memory that those which are decoded together share, and all rows, also those that are not taken.
type reading struct {
	shared *semaphore.Weighted
	whole  bool
}

// decode writes what crop takes of an image as [3, h, w], with values in [0, 1]. A panic of a decoder is an error. What the image takes
// beyond the memory that its bytes justify, it takes from r.shared, and waits for others.
func decode(content []byte, h, w int, crop cropFunc, out []float32, r reading) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the decoder panicked: %v", cause)
		}
	}()
	p, err := open(content)
	if err != nil {
		return err
	}
	memory, err := memoryOf(p.frame, p.format, p.head, h, w)
	free := scratch(p.head.Width + max(h, w))
	speed := free + int64(len(content)) // for a copy with another header
	if err == nil && bounded.New(int64(len(content))).Take(memory+speed) != nil {
		r.whole, free, speed = true, 0, 0
		err = bounded.New(int64(len(content))).Take(memory)
	}
	if err != nil {
		return fmt.Errorf("%s of %d x %d pixels: %w; make it smaller", p.format, p.head.Width, p.head.Height, err)
	}
	if beyond := memory + speed - bounded.PerByte*int64(len(content)); beyond > 0 {
		if err := r.shared.Acquire(context.Background(), beyond); err != nil {
			return err
		}
		defer r.shared.Release(beyond)
	}
	taken := turned(orientation(content, p.format), h, w, out).part(p.head.Width, p.head.Height, crop)
	if p.whole = r.whole; p.whole {
		taken.bottom = p.head.Height
	}
	row, err := p.rows(taken.end, taken.bottom)
	if err != nil {
		return fmt.Errorf("%s: %w", p.format, explain(err))
	}
	taken.scale(row, free)
	return nil
}

// source is a file whose header was read.
type source struct {
	format string
	head   image.Config
	frame  []byte      // the first one as a file
	at     image.Point // its place
	tags   map[uint16]int64
	whole  bool // all that it has must be right
}

// open reads the header, and refuses what would take too much memory or would be read wrongly.
func open(content []byte) (*source, error) {
	head, format, err := image.DecodeConfig(bytes.NewReader(content))
	switch {
	case errors.Is(err, image.ErrFormat):
		return nil, unknown(content)
	case err != nil:
		return nil, fmt.Errorf("the header: %w", explain(err))
	case head.Width < 1 || head.Height < 1:
		return nil, fmt.Errorf("%s of %d x %d pixels", format, head.Width, head.Height)
	case head.Width > maxSide || head.Height > maxSide || head.Width*head.Height > maxPixels:
		return nil, fmt.Errorf("%s of %d x %d pixels: want at most %d a side, and %d in all", format, head.Width, head.Height, maxSide, maxPixels)
	}
	p := &source{format: format, head: head, frame: content}
	switch format {
	case "tiff":
		p.tags = tiffTags(content)
		err = checkTIFF(p.tags)
	case "webp":
		p.frame, p.at, err = still(content)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", format, err)
	}
	return p, nil
}

// unknown says what a file is instead of an image that can be read.
func unknown(content []byte) error {
	err := errors.New("neither PNG, JPEG, GIF, BMP, TIFF nor WebP")
	for _, other := range []struct {
		at          int
		begins, has string
	}{
		{4, "ftyp", "HEIC or AVIF"}, {0, "II+\x00", "BigTIFF"}, {0, "MM\x00+", "BigTIFF"}, {4, "jP  ", "JPEG 2000"}, {4, "JXL ", "JPEG XL"},
	} {
		if len(content) > other.at && bytes.HasPrefix(content[other.at:], []byte(other.begins)) {
			return fmt.Errorf("%w, but %s%s", err, other.has, wayOut)
		}
	}
	return bounded.Explain(fmt.Errorf("%w: get it again, or remove it", err), content)
}

// explain adds the way out to an error of a decoder: about what it does not read, or about a damaged file.
func explain(err error) error {
	var (
		ofJPEG jpeg.UnsupportedError
		ofPNG  png.UnsupportedError
		ofTIFF tiff.UnsupportedError
	)
	if errors.As(err, &ofJPEG) || errors.As(err, &ofPNG) || errors.As(err, &ofTIFF) || errors.Is(err, bmp.ErrUnsupported) {
		return fmt.Errorf("%w%s", err, wayOut)
	}
	return fmt.Errorf("%w: get it again, or remove it", err)
}

// rows decodes the first frame, at least what is left of right and above bottom.
func (p *source) rows(right, bottom int) (rowFunc, error) {
	img, err := p.part(right, bottom)
	if err != nil {
		return nil, err
	}
	canvas, frame := image.Rect(0, 0, p.head.Width, p.head.Height), img.Bounds().Add(p.at)
	if !frame.In(canvas) {
		return nil, fmt.Errorf("the header says %v, the image has %v", canvas, frame)
	}
	var around color.NRGBA
	if indexed, ok := img.(*image.Paletted); ok && p.format == "gif" {
		around = gifColors(p.frame, indexed)
	}
	upright(img, p.tags)
	row, err := rowsOf(img, p.format)
	if err != nil || image.Rect(0, 0, canvas.Max.X, bottom).In(frame) {
		return row, err
	}
	return placed(row, frame, around), nil
}
