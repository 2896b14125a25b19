package images

import (
	"encoding/binary"
	"errors"
	"image"
)

// Tags of TIFF 6.0 (https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf).
const (
	tagBits         = 258
	tagCompression  = 259
	tagPhotometric  = 262
	tagFillOrder    = 266
	tagOrientation  = 274
	tagSamples      = 277
	tagRowsPerStrip = 278
	tagPlanar       = 284
	tagT4Options    = 292
	tagPredictor    = 317
	tagTileWidth    = 322
	tagTileLength   = 323

	fax3, fax4 = 3, 4 // compressions
)

// tiffTags returns the numbers in the first directory of a TIFF, which EXIF is, too; -1 is for what is not one whole number.
func tiffTags(b []byte) map[uint16]int64 {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case len(b) < 8:
		return nil
	case b[0] == 'M':
		order = binary.BigEndian
	}
	at := int64(order.Uint32(b[4:]))
	if at+2 > int64(len(b)) {
		return nil
	}
	tags := map[uint16]int64{}
	n := int64(order.Uint16(b[at:]))
	for at += 2; n > 0 && at+12 <= int64(len(b)); n, at = n-1, at+12 {
		entry, v := b[at:][:12], int64(-1)
		if order.Uint32(entry[4:]) == 1 {
			switch order.Uint16(entry[2:]) {
			case 1:
				v = int64(entry[8])
			case 3:
				v = int64(order.Uint16(entry[8:]))
			case 4:
				v = int64(order.Uint32(entry[8:]))
			}
		}
		tags[order.Uint16(entry)] = v
	}
	return tags
}

// checkTIFF returns an error for what the decoder would read wrongly.
func checkTIFF(tags map[uint16]int64) error {
	fax := tags[tagCompression] == fax3 || tags[tagCompression] == fax4
	switch {
	case tags[tagPlanar] == 2 && tags[tagSamples] != 1:
		return errors.New("it has a plane for each color" + wayOut)
	case tags[tagSamples] > 1 && tags[tagBits] > 0:
		return errors.New("it does not say the bits of each color" + wayOut)
	case tags[tagPredictor] > 2:
		return errors.New("it has a predictor of floats" + wayOut)
	case tags[tagFillOrder] == 2 && !fax:
		return errors.New("its bits are in reverse order" + wayOut)
	case tags[tagCompression] == fax3 && tags[tagT4Options]&1 != 0:
		return errors.New("it is a fax coded in two dimensions" + wayOut)
	}
	return nil
}

// upright undoes a mistake of the decoder: it takes the ink of a fax for black, though the file says that it is white.
func upright(img image.Image, tags map[uint16]int64) {
	if gray, ok := img.(*image.Gray); ok && tags[tagPhotometric] == 1 && (tags[tagCompression] == fax3 || tags[tagCompression] == fax4) {
		for i, v := range gray.Pix {
			gray.Pix[i] = ^v
		}
	}
}

// tiffBlocks returns the memory of the largest block of a TIFF, decompressed: 8 bytes a pixel at most, while the buffer grows.
func tiffBlocks(tags map[uint16]int64, head image.Config) (int64, error) {
	width, height := int64(head.Width), int64(head.Height)
	if rows := tags[tagRowsPerStrip]; rows != 0 {
		height = min(height, rows)
	}
	if tags[tagTileWidth] != 0 {
		width, height = tags[tagTileWidth], tags[tagTileLength]
	}
	switch {
	case width < 1 || height < 1:
		return 0, errors.New("the sizes of its parts are no numbers")
	case width > 1<<20 || height > 1<<20:
		return 0, errors.New("its parts are larger than the image")
	}
	return 24 * width * height, nil
}
