// Package powersgd is a ddp.CommHook that sends gradients as products of two narrow matrices (Vogels et al. 2019, "PowerSGD: Practical
// Low-Rank Gradient Compression for Distributed Optimization"; PyTorch's powerSGD_hook): of an n×m matrix (n+m)·Rank numbers.
//
//	params, err := ddp.Attach(r.World, model, ddp.Config{Hook: powersgd.New(powersgd.Config{Rank: 2})})
//
// Each step does one power iteration, which begins where the last one ended. The product differs from the gradient: each rank adds this
// error to its next gradient (error feedback). Parameters of more than two dimensions are matrices of Dims()[0] rows; those
// of one, and those that would not become smaller by MinRate, are sent whole. Gradients are Float32 or Float64; AllowUnused is refused.
//
// The result depends on the sum of the ranks' gradients alone, as the all-reduce's does, and not on how many ranks there are.
// Each rank computes the product itself, so that all need processors of one kind to get the same bits.
//
// If a gradient of a step is not finite, the hook keeps its state from before this step. So later steps are not harmed. With an
// optim.Scaler, the errors are scaled by its Scale, which may change. Each group decides this by its own gradients: if the optimizer skips
// a step because of a gradient of another group (ddp.Config.Over, tensor parallelism, a pipeline), this one keeps that step's errors.
//
// Memory: one gradient more for each compressed parameter, and the narrow matrices. It is not part of a checkpoint: a run that resumes
// begins with Start whole steps and without errors. A captured step is captured when compression has begun. fsdp has no hooks.
package powersgd
