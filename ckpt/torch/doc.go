// Package torch reads PyTorch's checkpoints: files of torch.save (.pt, .pth, .bin) and the folders of
// torch.distributed.checkpoint.
//
//	c, err := torch.Open("model.pt")
//	defer c.Close()
//	parts, err := c.Parts(false)
//	for _, x := range parts.Model { fmt.Println(x.Name, x.DType, x.Shape) }
//
// Both formats store a tree of Python objects as a pickle. A pickle is a program for a small stack machine; in Python
// it can call any function. The machine of this package calls none. It knows a fixed list of names that tensors need,
// and makes plain Go values of them. Any other name is an error. So a tree has only these values: nil, bool, int64,
// float64, string, []byte, Tuple, *List, *Dict, *Tensor, Name, and *Object for the records of a distributed checkpoint,
// a Namespace and NumPy's values.
//
// A file of torch.save is a zip archive: data.pkl is the pickle, data/0, data/1 and so on are the storages, and
// byteorder is the byte order. The entries are not compressed. A tensor is a storage with an offset, sizes and strides;
// several tensors may share a storage. The older format, from before PyTorch 1.6, is refused.
//
// A folder of torch.distributed.checkpoint has a pickle, .metadata. It lists the chunks of each tensor and where they
// are: each chunk is a small archive of torch.save at an offset in a file such as __0_0.distcp.
//
// It is safe to read files from untrusted sources. Sizes, offsets and products are compared with the file before memory
// is allocated. What is made takes at most 16 times the size of the file in memory, and 64 MiB. No file name leads out of
// the folder, not even through a link. A tensor's bytes are read only when they are asked for. The CRC-32 of an archive's
// entries is not verified, because PyTorch can be told not to write it.
package torch
