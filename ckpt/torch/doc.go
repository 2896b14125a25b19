// Package torch reads PyTorch's checkpoints: files of torch.save (.pt, .pth, .bin) and the folders of
// torch.distributed.checkpoint.
//
//	c, err := torch.Open("model.pt")
//	defer c.Close()
//	parts, err := c.Parts()
//	for _, x := range parts.Model { fmt.Println(x.Name, x.DType, x.Shape) }
//
// Both formats keep a tree of Python objects as a pickle. A pickle is a program for a small machine, and in Python it may call any function.
// The machine of this package calls none. It knows a fixed list of names that tensors need, and makes plain Go values of them. Every other
// name is an error that says it. So a tree has only these values: nil, bool, int64, float64, string, []byte, Tuple, *List, *Dict, *Tensor,
// Name, and *Object for the records of a distributed checkpoint.
//
// A file of torch.save is a zip archive: data.pkl is the pickle, data/0, data/1 and so on are the storages, byteorder says in
// which order bytes lie. All entries are stored without compression. A tensor is a storage, an offset, sizes and strides;
// several may share a storage. The older format of PyTorch before 1.6 is refused.
//
// A folder of torch.distributed.checkpoint has .metadata, a pickle that says of each tensor which chunks it was cut into, and
// where they lie: each is a small archive of torch.save at an offset in a file such as __0_0.distcp.
//
// Files from anybody are safe to read. Sizes, offsets and products are compared with the file before memory is allocated, and no file
// name leads out of the folder, also not through a link. A tensor's bytes are read only when they are asked for. The CRC-32 of an archive's
// entries is not verified, because PyTorch can be told to leave it out.
package torch
