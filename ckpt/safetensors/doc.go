// Package safetensors reads and writes headers of the safetensors format (github.com/huggingface/safetensors): files of
// named tensors that many deep-learning frameworks read.
//
// A file has three parts: the length of the header (8 bytes, little endian), the header (a JSON object), and the data.
// The header gives the type, shape and byte range of each tensor. The ranges cover the data without gaps or overlaps.
// Elements are little endian, in row-major order.
//
//	{"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// The package says where the bytes of a tensor are. The caller reads and writes them with ReadAt and WriteAt, so that
// many ranks can do this at the same time. Read validates the header: it compares each length with the file's size
// before it allocates memory. If the format forbids something, the error is an *Error with the file, the tensor and the
// reason.
package safetensors
