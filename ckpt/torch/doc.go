// Package torch reads PyTorch's checkpoints: files of torch.save (.pt, .pth, .bin) and the folders of
// torch.distributed.checkpoint.
//
//	c, err := torch.Open("model.pt")
//	defer c.Close()
//	parts, err := c.Parts()
//	for _, x := range parts.Model { fmt.Println(x.Name, x.DType, x.Shape) }
//
// Both keep a tree of Python objects as a pickle, a program for a small machine that may call any function. The machine
// here calls none. It knows the names that tensors need (a fixed list), makes plain Go values of them, and refuses every
// other name by an error that says it. So these values are all that a tree has: nil, bool, int64, float64, string, []byte,
// Tuple, *List, *Dict, *Tensor, Name, and *Object for the records of a distributed checkpoint.
//
// A file of torch.save is a zip archive: data.pkl is the pickle, data/0, data/1 and so on are the storages, byteorder says in
// which order bytes lie. All entries are stored without compression. A tensor is a storage, an offset, sizes and strides;
// several may share a storage. The older format of PyTorch before 1.6 is refused.
//
// A folder of torch.distributed.checkpoint has .metadata, a pickle that says of each tensor which chunks it was cut into, and
// where they lie: each is a small archive of torch.save at an offset in a file such as __0_0.distcp.
//
// Files may come from anybody. Sizes, offsets and products are compared with the file before anything is allocated; names of
// files lead nowhere out of the folder, links included. A tensor's bytes are read when they are asked for. The CRC-32 of
// an archive's entries are not verified: PyTorch itself can be told to leave them out.
package torch
