// Package images is a Dataset of image files with a folder for each class, as for PyTorch's ImageFolder.
//
//	photos
//	├── cat
//	│   ├── 1.jpg
//	│   └── 2.png
//	└── dog
//	    └── 1.webp
//
//	train, err := images.Open("photos", images.Config{Height: 64, Width: 64})
//	batches := data.NewLoader(train, data.Config{Batch: 32, Shuffle: true, Sharder: r.World})
//
// A Config may have a Crop, RandomResizedCrop or CenterCrop, and Transforms: flips, rotation, colors, normalization, or your own. They are
// those of torchvision. What they do by chance depends on the seed, the epoch and the number of the image: it is the same on any number of
// ranks, and after a resume.
//
// It reads PNG, JPEG, GIF, BMP, TIFF and WebP, of an animation the first frame, with the colors that Pillow reads. A transparent pixel
// keeps its color, and 16-bit values their upper half. Images are turned as their EXIF says (the tag Orientation, or that of XMP): a photo
// that a phone took upright is upright, as with Pillow's ImageOps.exif_transpose; PyTorch's ImageFolder leaves it lying. What the decoders
// cannot read, such as TIFF with CMYK or JPEG inside, HEIC and AVIF, is an error that says how to convert it.
//
// Files are read and decoded when a batch needs them, by as many goroutines as there are processors. A broken file, or one larger than the
// package's limits, stops the training with an error that names it; data.Readable leaves out such files before. Of JPEG that is not
// progressive and of lossy WebP, a Loader does not decode the rows below those that Crop takes: damage there does not stop it. An image
// may take 16 times its file in memory, and 64 MiB that all images share; those that are decoded together wait for each other.
package images
