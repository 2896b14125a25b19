package images

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/tensor"
)

// Config configures Open.
type Config struct {
	Height, Width int // images of another size are stretched to this one
	// in the order of their numbers, for example Folder.Classes of the training set; nil: the sorted names of the folders
	Classes []string

	Crop       Crop        // the part of an image that becomes Height x Width; nil: all of it
	Transforms []Transform // in this order, as by PyTorch's Compose
	Seed       uint64      // of what Crop and Transforms do by chance, for each epoch and image
}

// Folder is a Dataset of images. x is [3, Height, Width] float32: red, green and blue in [0, 1]. y is the number of the class, int64.
// Several loaders may share it.
type Folder struct {
	Classes []string // the name of each class

	dir    string
	cfg    Config
	files  []file
	memory *semaphore.Weighted // of images that are decoded, beyond what their bytes justify
}

type file struct {
	dir, name string // with slashes, relative to the Folder's
	class     int
}

// extensions are those of the supported formats.
var extensions = []string{".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}

// Open lists the images of a folder that has a folder for each class, which may have subfolders. Samples are sorted by class, folder and
// name, as in PyTorch. Names that begin with a dot are ignored, and those that Windows and macOS make, such as Thumbs.db. So are files
// outside the classes' folders, but an image there is an error. Every other file in a class's folder must have the extension of an image,
// or it is an error. So is a class without images, and classes that are all called train, test, val and so on, unless Config has them.
func Open(dir string, cfg Config) (*Folder, error) {
	if cfg.Height < 1 || cfg.Height > maxSide || cfg.Width < 1 || cfg.Width > maxSide {
		return nil, fmt.Errorf("data/images: Config asks for %d x %d pixels: want 1 to %d", cfg.Height, cfg.Width, maxSide)
	}
	if err := cfg.checkTransforms(); err != nil {
		return nil, fmt.Errorf("data/images: Config: %w", err)
	}
	f := &Folder{Classes: slices.Clone(cfg.Classes), dir: dir, cfg: cfg, memory: semaphore.NewWeighted(bounded.Base)}
	folders, err := f.classes()
	if err != nil {
		return nil, fmt.Errorf("data/images: %w", err)
	}
	if cfg.Classes == nil {
		f.Classes = folders
		if err := f.checkSplits(); err != nil {
			return nil, fmt.Errorf("data/images: %w", err)
		}
	}
	for _, name := range folders {
		class := slices.Index(f.Classes, name)
		if class < 0 {
			return nil, fmt.Errorf("data/images: folder %s is not one of the classes %q", filepath.Join(dir, name), f.Classes)
		}
		before := len(f.files)
		if err := f.add(name, class); err != nil {
			return nil, fmt.Errorf("data/images: %w", err)
		}
		if len(f.files) == before {
			return nil, fmt.Errorf("data/images: folder %s has no images: remove it, or put some there", filepath.Join(dir, name))
		}
	}
	slices.SortFunc(f.files, func(a, b file) int {
		return cmp.Or(a.class-b.class, strings.Compare(a.dir, b.dir), strings.Compare(a.name, b.name))
	})
	return f, nil
}

// classes returns the names of the folders.
func (f *Folder) classes() (folders []string, err error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := f.stat(e.Name())
		switch {
		case bounded.Hidden(e.Name()):
		case err != nil:
			return nil, err
		case info.IsDir():
			folders = append(folders, e.Name())
		case isImage(e.Name()):
			return nil, fmt.Errorf("%s lies in no class's folder: move it to one", filepath.Join(f.dir, e.Name()))
		}
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s has no folders, one for each class", f.dir)
	}
	return folders, nil
}

// checkSplits returns an error if the classes are a training set and others.
func (f *Folder) checkSplits() error {
	for _, name := range f.Classes {
		if !slices.Contains([]string{"train", "training", "val", "valid", "validation", "test", "testing"}, strings.ToLower(name)) {
			return nil
		}
	}
	return fmt.Errorf("%s has sets, not classes: open each of %v, with the Classes of the first; if these are classes, give Config.Classes",
		f.dir, f.Classes)
}

// stat follows links. Names are any bytes, as io/fs would not take them.
func (f *Folder) stat(name string) (fs.FileInfo, error) {
	at := filepath.Join(f.dir, filepath.FromSlash(name))
	info, err := os.Stat(at)
	if to, link := os.Readlink(at); err != nil && link == nil {
		err = fmt.Errorf("%s is a link to %s: %w", at, to, err)
	}
	return info, err
}

// add lists the images of a class in a folder and its subfolders.
func (f *Folder) add(dir string, class int) error {
	entries, err := os.ReadDir(filepath.Join(f.dir, filepath.FromSlash(dir)))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if bounded.Hidden(e.Name()) {
			continue
		}
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			if err := f.add(name, class); err != nil {
				return err
			}
			continue
		}
		info, err := f.stat(name)
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file", filepath.Join(f.dir, name)) // following a link to a folder might never end
		case !isImage(name):
			return fmt.Errorf("%s does not have the extension of an image: remove it, or name it with one of %v",
				filepath.Join(f.dir, name), extensions)
		}
		f.files = append(f.files, file{dir, e.Name(), class})
	}
	return nil
}

func isImage(name string) bool {
	return slices.Contains(extensions, strings.ToLower(path.Ext(name)))
}

// Len returns the number of images.
func (f *Folder) Len() int { return len(f.files) }

// Shapes returns the shapes of an image and of its class number.
func (f *Folder) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Float32, Dims: []int{3, f.cfg.Height, f.cfg.Width}}, tensor.Shape{DType: tensor.Int64}
}

// File returns the path of image i.
func (f *Folder) File(i int) string {
	return filepath.Join(f.dir, filepath.FromSlash(f.files[i].dir), f.files[i].name)
}

// Label returns the class of image i, without reading it.
func (f *Folder) Label(i int) int { return f.files[i].class }

// Batch reads images idx, as in epoch 0, and finds damage also in what Crop does not take.
func (f *Folder) Batch(idx []int, x, y tensor.Tensor) error { return f.batch(0, idx, x, y, true) }

// BatchAt reads images idx for an epoch. If several fail, it returns the error of the first one. Of JPEG that is not
// progressive and of lossy WebP, it does not decode the rows below what Crop takes, nor the transparency of lossy WebP.
func (f *Folder) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	return f.batch(epoch, idx, x, y, false)
}

func (f *Folder) batch(epoch int, idx []int, x, y tensor.Tensor, whole bool) error {
	xs, ys, n := tensor.Data[float32](x), tensor.Data[int64](y), 3*f.cfg.Height*f.cfg.Width
	for row, i := range idx {
		if i < 0 || i >= len(f.files) {
			return fmt.Errorf("image %d, of %d", i, len(f.files))
		}
		ys[row] = int64(f.files[i].class)
	}
	errs := make([]error, len(idx))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for row, i := range idx {
		g.Go(func() error {
			errs[row] = f.read(epoch, i, xs[row*n:(row+1)*n], whole)
			return nil
		})
	}
	_ = g.Wait()
	return cmp.Or(errs...)
}

func (f *Folder) read(epoch, i int, out []float32, whole bool) error {
	content, err := bounded.ReadFile(f.File(i), maxBytes)
	if err != nil {
		return err // it names the file
	}
	c, r, crop := &f.cfg, f.cfg.random(epoch, i), cropFunc(nil)
	if c.Crop != nil {
		crop = func(height, width int) (down, right span) { return c.Crop.spans(height, width, c.Height, c.Width, r) }
	}
	if err := decode(content, c.Height, c.Width, crop, out, reading{f.memory, whole}); err != nil {
		return fmt.Errorf("%s: %w", f.File(i), err)
	}
	for _, t := range c.Transforms {
		t.Transform(out, c.Height, c.Width, r)
	}
	return nil
}

// String returns the number of images and where they come from.
func (f *Folder) String() string {
	return fmt.Sprintf("%d images of %d classes from %s", f.Len(), len(f.Classes), f.dir)
}
