// Package parallel divides the models of package bert over ranks, by tensor and data parallelism.
//
//	mesh, err := r.Mesh("dp=2,fsdp=2,tp=2")
//	params, err := parallel.Attach(mesh, m, parallel.Config{FSDP: &fsdp.Config{DType: tensor.Float32}})
//	gather := &autograd.AllGather{Group: mesh.Group("dp", "fsdp")} // the ranks with other texts, for nn.InfoNCE
//
// For models of your own, Attach and Divide are examples to copy.
package parallel
