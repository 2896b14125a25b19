// Package safetensors reads and writes headers of the safetensors format (github.com/huggingface/safetensors): files of
// named tensors that every deep-learning framework reads.
//
// A file is 8 bytes with the length of the header (little endian), the header, which is a JSON object, and the data. The
// header says of each tensor its type, shape and byte range; the ranges cover the data without gaps or overlaps. Elements
// are little endian, in row-major order.
//
//	{"__metadata__":{"format":"pt"},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// The package says where the bytes of a tensor are. The caller reads and writes them, with ReadAt and WriteAt, so that many ranks can do it
// at the same time. What Read accepts can be trusted: it compares each length with the file's size before it allocates memory. Whatever
// the format forbids is an *Error that names file, tensor and reason.
package safetensors
