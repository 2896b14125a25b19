// Package pp holds the schedules of pipeline parallelism: ranks have consecutive layers of a model, a stage each or several, and the
// microbatches of a step go through them, forward and backward.
//
// A schedule is a list of actions for each rank, in order: F is the forward pass of a stage and a microbatch, B the backward pass. A
// backward pass can be cut into I, the gradients of activations, for which the stage before waits, and W, those of weights, for which
// nobody does: W fills the time in which a rank would wait. Three ranks and four microbatches, in OneF1B (0F1 is microbatch 1 on stage 0):
//
//	0F0 0F1 0F2             0B0 0F3 0B1     0B2     0B3
//	    1F0 1F1     1B0 1F2 1B1 1F3     1B2     1B3
//	        2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3
//
// Check runs nothing. It tells whether a schedule is complete and cannot hang, how long it takes, and what ranks hold: memory is
// proportional to that.
//
//	s := pp.OneF1B(4, 8) // ranks, microbatches
//	rep, err := s.Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{Live: 4})
//
// "ringo viz schedule" draws one.
package pp
